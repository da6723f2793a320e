"""Collections of texts: `nobackfill datasets check NAME` and `nobackfill datasets pairs NAME`."""

import json
from pathlib import Path

import typer

from nobackfill.cli.datasets import counts_table
from nobackfill.cli.exit_codes import NO
from nobackfill.cli.output import print_object, print_page
from nobackfill.cli.outputs import claim
from nobackfill.core.page import Page, Section
from nobackfill.errors import ConfigError


def check_texts(name: str, path: Path | None, *, as_json: bool) -> None:
    """Prints the counts of a copy next to the official ones; exits with 1 if they differ."""
    from nobackfill.data.text_collections import TEXT_DATASETS, read_texts

    texts = read_texts(name, path)
    counts, official = texts.counts(), TEXT_DATASETS[name].counts
    differences = {
        key: counts[key] - count for key, count in official.items() if counts[key] != count
    }
    verdict = "All files exist; there are no official counts to compare with."
    if official:
        verdict = f"{'Differs from' if differences else 'Matches'} the official release."
    table = counts_table(name, counts, official)
    page = Page(name, summary=[verdict], sections=[Section(name, "", [table])], notes=texts.notes)
    facts = {
        "name": name,
        "counts": counts,
        "official": dict(official),
        "differences": differences,
        "notes": list(texts.notes),
        "passed": not differences,
    }
    print_page(page, facts, as_json=as_json)
    if differences:
        raise typer.Exit(NO)


def write_pairs(
    name: str | None, path: Path | None, output: Path | None, *, split: str, as_json: bool
) -> None:
    """Writes the pairs of one split of a collection of texts as JSON lines."""
    from nobackfill.core.atomic_files import write_text
    from nobackfill.core.suggest import suggest
    from nobackfill.data.text_collections import TEXT_DATASETS, read_texts

    if name not in TEXT_DATASETS:
        raise ConfigError(
            f"There is no collection of texts {name!r}. {suggest(name or '', TEXT_DATASETS)}"
        )
    if output is None:
        raise ConfigError("-o is missing: pass the file of pairs to write, such as pairs.jsonl.")
    claim(output, inputs=[path])
    texts = read_texts(name, path)
    pairs = texts.pairs(split)
    if not pairs:
        splits = sorted(set(texts.columns["split"].tolist()))
        raise ConfigError(f"There are no pairs in the split `{split}`. {suggest(split, splits)}")
    lines = [
        json.dumps(
            {key: value for key, value in pair._asdict().items() if value}, ensure_ascii=False
        )
        for pair in pairs
    ]
    write_text(output, "\n".join(lines) + "\n")
    facts = {"output": str(output), "pairs": len(pairs), "split": split}
    text = f"{len(pairs):,} pairs of {name} ({split}) are in {output}."
    print_object(facts, as_json=as_json, text=text)
