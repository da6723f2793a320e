"""Renders RESULTS.md from the stored results."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import fmean

from nobackfill.core.atomic_files import write_text
from nobackfill_bench.markdown import name_of, number, table, with_interval
from nobackfill_bench.quality.claims import Verdict, first_paragraph, judge
from nobackfill_bench.quality.figures import plane
from nobackfill_bench.quality.option_choice import OptionChoice
from nobackfill_bench.quality.paired import (
    BASELINE,
    EARLIER,
    OURS,
    Compared,
    gain,
    seconds_per_epoch,
    value,
)
from nobackfill_bench.quality.runner import lines_path
from nobackfill_bench.quality.sequences import SequenceSuite
from nobackfill_bench.quality.studies import STUDIES, render_studies
from nobackfill_bench.quality.suites import SUITES
from nobackfill_bench.results_log import Line, read_lines

LINES = "quality"  # folder of the results, next to the page
HOW_TO_READ = """\
mAP in percent: means over seeds ± half the width of a 95 % interval (Student's t over the seeds;
for differences, over pairs with the same seed). Every seed has its own split of the classes and its
own old model, which starts from other weights than the new ones; in `cub-finetune` and
`landmarks-roxford`, run earlier, one seed initialised both. In `cub-vectors`,
`landmarks-vectors` and `captions` only the seed of the head changes, so ± does not cover other
data. *P* scores divide by the gain of the independent model: if that gain is small or absent,
they mean nothing. *Gain* is new/old − old/old. *Recovered* is the gain as a share of the gain of a
full backfill with the independent model. *Lost* is the percentage of queries whose first result was
right with the old model and is wrong now. *Compatible* counts the seeds on which the bootstrap
interval of the gain, over queries or classes, is above 0; runs since 19 November 2026 (glyphs, Han
characters, heads of `auto` and of both models) also require that Recall@1 and nDCG@10 do not fall.
*s/epoch* was measured on machines that
trained several models at once and shows only orders of magnitude.

`cores` has an old model of its own kind, `bt2` has 32 more dimensions, and `mimic` and `sspl` use
no labels. *Maps queries* marks methods whose queries to the old gallery are not the stored vectors:
`rm`, `janus`, `member_contrast` and their controls `prototype_alignment_mapped`, `ndpp_mapped` and
`odpp_mapped`, which have the same linear map. In suites of fitted heads every method maps. The
methods are described in [docs/methods](../docs/methods/README.md)."""
CHOSEN_TOO = (
    "Names alone have the published options (methods of this project: the defaults). Rows with "
    "options have those that one rule chose for every method on classes that this table does not "
    "search: see *Options chosen by one rule* below. Methods without such a row keep the published "
    "options."
)


def render_page(folder: Path) -> Path:
    """Writes RESULTS.md and its figures from the stored results; returns its path."""
    lines = {name: read_lines(lines_path(folder / LINES, name)) for name in SUITES}
    path = folder / "RESULTS.md"
    write_text(path, render(lines, folder / "figures"))
    return path


def render(results: Mapping[str, Sequence[Line]], figures: Path) -> str:
    """Returns the text of the page.

    Args:
        results: Result lines of each suite.
        figures: Folder for the figures.
    """
    main = {name: main_runs(name, lines) for name, lines in results.items()}
    verdicts = {
        name: verdict
        for name, compared in main.items()
        if compared.runs and not isinstance(SUITES[name], SequenceSuite)
        and (verdict := judge_suite(name, compared)) is not None
    }  # fmt: skip
    parts = ["# Results", ""]
    earlier = [
        name
        for name, compared in main.items()
        if EARLIER in compared.runs and SUITES[name].default not in compared.runs
    ]
    parts += [first_paragraph(verdicts, earlier=earlier), ""] if verdicts or earlier else []
    parts += [
        "Rendered by `nobackfill bench quality --render` from the JSON lines in "
        "[quality](quality).",
        HOW_TO_READ,
        "",
        *chosen_on(),
    ]
    for name, compared in main.items():
        if compared.runs:
            parts += one_suite(name, compared, figures)
    parts += render_studies(results, figures)
    return "\n".join(parts).rstrip() + "\n"


def judge_suite(name: str, compared: Compared) -> Verdict | None:
    """Returns the verdict on our default in one suite; see `judge`."""
    suite = SUITES[name]
    return judge(name, compared, default=suite.default, ours_too=suite.ours_too)


def main_runs(name: str, lines: Sequence[Line]) -> Compared:
    """Returns the runs of a suite's table: default and chosen options, not those of studies."""
    suite = SUITES[name]
    if not suite.has_section:
        return Compared({})
    chosen = set(chosen_ways(name, lines))
    own = {line["seed"] for line in lines if not line["changes"] and ":" not in line["way"]}
    return Compared.of(
        line
        for line in lines
        if not line["changes"]
        and line["seed"] in own
        and (":" not in line["way"] or line["way"] in chosen)
    )


def chosen_ways(suite: str, lines: Sequence[Line]) -> tuple[str, ...]:
    """Returns the variants with options that a study chose for a suite."""
    return tuple(
        way
        for study in STUDIES.values()
        if isinstance(study, OptionChoice) and study.suite == suite
        for way in study.chosen_variants(lines)
    )


def chosen_on() -> list[str]:
    """Returns paragraphs about the classes and suites on which the defaults were chosen."""
    seen = ", ".join(f"`{name}`" for name, suite in SUITES.items() if suite.was_seen)
    return [
        f"`{OURS}` was chosen on classes that no table searches: 40 held-out training classes of "
        f"`glyphs` (seeds 100 to 105), 200 of Omniglot (a small network, seed 100), and the "
        f"validation characters of `han-4k` (seed 100). It was frozen in commit 96a5278, before "
        f"any of its rows was run. The numbers of other methods were known.",
        "",
        f"`{EARLIER}`, the earlier default, was chosen when the numbers of {seen} were known, on "
        f"`glyphs` with other seeds than shown here; the other suites were run after that choice "
        f"was frozen (commit 25bc7bc).",
        "",
    ]


def one_suite(name: str, compared: Compared, figures: Path) -> list[str]:
    """Returns the section of one suite."""
    suite = SUITES[name]
    parts = [f"## {suite.title} (`{name}`)", ""]
    for paragraph in suite.text:
        parts += [paragraph, ""]
    parts += [f"    nobackfill bench quality --suite {name}", ""]
    if any(":" in way for way in compared.runs):
        parts += [CHOSEN_TOO, ""]
    if isinstance(suite, SequenceSuite):
        return [*parts, *sequence_table(compared), ""]
    write_text(figures / f"{name}.svg", plane(compared))
    parts += [
        references(compared),
        "",
        *values_table(compared),
        "",
        *differences_table(compared),
        "",
        f"![new/new against new/old](figures/{name}.svg)",
        "",
    ]
    tests = next(iter(next(iter(compared.runs.values())).values())).get("tests") or {}
    for test in tests:
        if test.endswith("_medium"):
            continue  # the default level, shown under the name of the test
        other = compared.on_test(test)
        parts += [f"### {heading(test)}", "", references(other), "", *values_table(other), ""]
    return [*parts, *recalls(compared, tests)] if any("_to_" in test for test in tests) else parts


def heading(test: str) -> str:
    """Returns the heading of an additional test.

    Example:
        >>> heading("roxford"), heading("roxford_hard"), heading("image_to_text")
        ('Searched in roxford, medium', 'Searched in roxford, hard', 'From image to text')
    """
    if "_to_" in test:
        return f"From {test.replace('_', ' ')}"
    return f"Searched in {test.replace('_', ', ')}{'' if '_' in test else ', medium'}"


def recalls(compared: Compared, tests: Iterable[str]) -> list[str]:
    """Returns the mean recall at 1, 5 and 10 of every method in every direction of search."""
    pairs = ("old_old", "new_old", "new_new")
    head = ["from … to", "way", *(f"{pair.replace('_', '/')} R@1, R@5, R@10" for pair in pairs)]
    rows = []
    for test in ("", *tests):
        results = compared.on_test(test) if test else compared
        for way in compared.ways:
            cells = []
            for pair in pairs:
                each = [
                    [run.get(f"recall_at_{k}", {}).get(pair) for run in results.runs[way].values()]
                    for k in (1, 5, 10)
                ]
                known = all(value is not None for values in each for value in values)
                cells.append(", ".join(f"{100 * fmean(v):.1f}" for v in each) if known else "–")
            rows.append([(test or "text_to_image").replace("_", " "), name_of(way), *cells])
    return ["### Recall", "", *table(head, rows), ""]


def references(compared: Compared) -> str:
    """Returns a sentence with the reference values, as means over the seeds."""
    lines = [line for seeds in compared.runs.values() for line in seeds.values()]
    parts = [f"Old/old {100 * fmean(compared.old_old.values()):.2f}"] if compared.old_old else []
    for words, key in (
        ("raw old/old", "raw_old"),
        ("raw new/new", "raw_new"),
    ):
        by_seed = {line["seed"]: line[key] for line in lines if line.get(key) is not None}
        if by_seed:
            parts.append(f"{words} {100 * fmean(by_seed.values()):.2f}")
    if compared.ceilings:
        parts.append(f"independent new/new {100 * fmean(compared.ceilings.values()):.2f}")
    devices = ", ".join(sorted({line["device"] for line in lines}))
    return f"{', '.join(parts)}. Run on {devices}."


def values_table(compared: Compared) -> list[str]:
    """Returns the table of all methods, the best P_1 first."""
    head = ["way", "seeds", "new/old", "gain", "recovered", "new/new", "P_up", "P_comp", "P_1",
            "lost", "compatible", "s/epoch"]  # fmt: skip
    rows = []
    for way in compared.ways:
        runs = list(compared.runs[way].values())
        rows.append(
            [
                name_of(way),
                str(len(runs)),
                with_interval(compared.mean(way, value("new_old"))),
                with_interval(compared.mean(way, gain), sign=True),
                number(compared.mean(way, compared.gain_recovered).value, digits=0, unit=" %"),
                with_interval(compared.mean(way, value("new_new"))),
                number(compared.mean(way, compared.p_up).value),
                number(compared.mean(way, compared.p_comp).value),
                with_interval(compared.mean(way, compared.p_1)),
                number(compared.mean(way, value("lost")).value),
                compatible(runs),
                number(compared.mean(way, seconds_per_epoch).value),
            ]
        )
    return table(head, rows)


def compatible(runs: Sequence[Line]) -> str:
    """Returns the number of seeds with the verdict "compatible", of those with a verdict."""
    verdicts = [run["verdict"] for run in runs if run.get("verdict") is not None]
    return f"{verdicts.count('compatible')}/{len(verdicts)}" if verdicts else "–"


def differences_table(compared: Compared) -> list[str]:
    """Returns the paired differences of every method from the Baseline and the best other one."""
    head = ["way", "Δ new/old to Baseline", "Δ new/new", "Δ P_1", "best other", "Δ new/old to it",
            "Δ new/new", "Δ P_1"]  # fmt: skip
    rows = []
    measures = (value("new_old"), value("new_new"), compared.p_1)
    for way in compared.ways:
        other = compared.best_other(way)
        cells = [name_of(way)]
        cells += [
            "–"
            if way == BASELINE
            else with_interval(compared.difference(way, BASELINE, measure), sign=True)
            for measure in measures
        ]
        cells += ["–" if other is None else f"`{other}`"]
        cells += [
            "–"
            if other is None
            else with_interval(compared.difference(way, other, measure), sign=True)
            for measure in measures
        ]
        rows.append(cells)
    return table(head, rows)


def sequence_table(compared: Compared) -> list[str]:
    """Returns the mean compatibility matrix, AC and AM of each method."""
    by_way = {way: list(seeds.values()) for way, seeds in compared.runs.items()}
    size = len(next(iter(by_way.values()))[0]["matrix"])
    places = [(i, j) for i in range(size) for j in range(i + 1)]
    rows = []
    for way in sorted(by_way, key=lambda way: -fmean(run["am"] for run in by_way[way])):
        runs = by_way[way]
        entries = [f"{100 * fmean(run['matrix'][i][j] for run in runs):.1f}" for i, j in places]
        scores = [
            f"{fmean(run['ac'] for run in runs):.2f}",
            f"{fmean(run['am'] for run in runs):.3f}",
        ]
        rows.append([name_of(way), str(len(runs)), *entries, *scores])
    heads = [f"{i + 1}/{j + 1}" for i, j in places]
    return table(["way", "seeds", *heads, "AC", "AM"], rows)
