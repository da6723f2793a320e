"""Output of the commands: one JSON object with `--json`, text otherwise."""

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from rich.console import Console
from rich.table import Table

from nobackfill.cli.exit_codes import COULD_NOT_RUN

if TYPE_CHECKING:
    from nobackfill.evaluation.evaluate import Evaluation
    from nobackfill.training.demo import Demo
    from nobackfill.vectors.space import CompatibleWith

console = Console(highlight=False)


def emit(value: dict[str, Any]) -> None:
    """Prints one JSON object; a broken pipe exits with 2."""
    try:
        print(json.dumps(value), flush=True)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(COULD_NOT_RUN) from None


def print_object(value: dict[str, Any], *, as_json: bool, text: str) -> None:
    """Prints `value` as JSON, or `text`."""
    if as_json:
        emit(value)
    else:
        console.print(text, markup=False, soft_wrap=True)


def print_page(path: Path | None, *, as_json: bool) -> None:
    """Prints the path of a written report; nothing with `--json`."""
    if path is not None and not as_json:
        console.print(f"Report: {path}", markup=False, soft_wrap=True)


def print_evaluation(
    evaluation: "Evaluation", *, as_json: bool, more: dict[str, Any] | None = None
) -> None:
    """Prints the metrics of an evaluation and its verdict.

    Args:
        evaluation: Evaluation to print.
        as_json: Whether to print JSON.
        more: Additional keys of the JSON object.
    """
    from nobackfill.evaluation.verdict import from_to, verdict_sentence, what_falls

    if as_json:
        emit({**evaluation.summary(), **(more or {})})
        return
    summary = evaluation.summary()
    table = Table(box=None, padding=(0, 2), header_style="dim")
    table.add_column("query/gallery")
    for head in ("mAP", "Recall@1", "@5", "@10", "nDCG@10"):
        table.add_column(head, justify="right")
    for name, metrics in summary["metrics"].items():
        label = "independent" if name == "independent" else name.replace("_", "/")
        keys = ("map", "recall_at_1", "recall_at_5", "recall_at_10", "ndcg_at_10")
        table.add_row(label, *(f"{100 * metrics[key]:.2f}" for key in keys))
    console.print(table)
    for name, difference in summary["differences"].items():
        console.print(f"{name.replace('_', '/')}: {_interval(difference)} mAP", style="dim")
    if summary["p_1"] is not None:
        scores = {"P_up": "p_up", "P_comp": "p_comp", "P_1": "p_1"}
        inputs = summary["p_scores_of"]
        console.print(
            "   ".join(f"{head} {summary[key]:.2f}" for head, key in scores.items())
            + f"   (M(o,o): old/old {100 * inputs['old_old']:.2f}; M*: independent "
            f"{100 * inputs['independent']:.2f})",
            soft_wrap=True,
        )
    if summary["gain_recovered"] is not None:
        share = 100 * summary["gain_recovered"]
        console.print(f"This recovers {share:.0f} % of the gain of embedding everything again.")
    first = summary["flips"][0]
    console.print(
        f"{100 * first['negative']:.1f} % of the queries lose their first hit, "
        f"{100 * first['positive']:.1f} % gain one."
    )
    for note in evaluation.notes:
        console.print(f"Note: {note}.", style="yellow", markup=False, soft_wrap=True)
    change = summary["differences"]["new_old - old_old"]
    verdict, where = evaluation.verdict, ""
    if evaluation.modalities:
        where = f"{from_to('_to_'.join(evaluation.modalities))}, the only direction that was asked"
    color = {"compatible": "green", "not compatible": "red", "undecided": "yellow"}[verdict]
    unchanged = change["low"] == change["high"] == 0
    sentence = verdict_sentence(verdict, _interval(change), where=where, unchanged=unchanged)
    sentence = f"[{color}]{verdict.capitalize()}:[/] {sentence}"
    queries = f"{summary['num_queries']:,}"
    if summary["num_queries"] != summary["num_asked"]:
        queries += f" of {summary['num_asked']:,}"
    searched = f"({queries} queries, {summary['num_gallery']:,} gallery items)"
    told = (sentence, what_falls(summary), searched)
    console.print(" ".join(filter(None, told)), soft_wrap=True)


def print_declared(
    model: Path, evaluation: "Evaluation", measured: "CompatibleWith | None", *, as_json: bool
) -> None:
    """Prints the verdict written into a model's record, or on stderr why none was written."""
    from nobackfill.evaluation.declare import why_not
    from nobackfill.vectors.records import record_of

    if measured is None:
        print(f"nobackfill: {why_not(evaluation, written=True)}", file=sys.stderr)
    elif not as_json:
        console.print(
            f"Declared in {record_of(model)}: may search the space {measured.fingerprint}, "
            f"{measured.metric} {measured.value:.4f}.",
            markup=False,
            soft_wrap=True,
        )


def _interval(difference: dict[str, Any]) -> str:
    """A difference in percent, with its interval and the confidence level."""
    text = interval_text(difference)
    level = 100 * difference["confidence"]
    return text if difference["low"] is None else f"{text[:-1]}, {level:.0f} %)"


def interval_text(difference: dict[str, Any], *, digits: int = 2) -> str:
    """A difference in percent, with its interval if there is one."""
    from nobackfill.evaluation.bootstrap import in_points

    return in_points(difference, digits=digits)


def print_run(folder: Path, *, as_json: bool) -> None:
    """Prints the result of a training run."""
    from nobackfill.evaluation.verdict import over_directions, run_sentence

    path = folder / "evaluation.json"
    result = over_directions(json.loads(path.read_text())) if path.exists() else None
    value = {"run": str(folder), "evaluation": result}
    text = f"The model is in {folder}."
    if result:
        text += f" {run_sentence(result)}"
    print_object(value, as_json=as_json, text=text)


def print_demo(demo: "Demo", *, as_json: bool) -> None:
    """Prints the results of the demo and the conclusions."""
    if as_json:
        emit(demo.summary())
        return
    from nobackfill.report.pages.demo import results_table
    from nobackfill.training.demo import conclude

    results = results_table(demo.evaluations)
    table = Table(box=None, padding=(0, 1), header_style="dim")
    for column in results.columns:
        justify: Literal["right", "left"] = "right" if column in results.numbers else "left"
        table.add_column(column, justify=justify, no_wrap=True)
    for index, row in enumerate(results.rows):
        colored = [{"yes": "[green]yes", "no": "[red]no"}.get(str(cell), str(cell)) for cell in row]
        table.add_row(*colored, style="bold" if index == results.strong else "")
    console.print(table)
    console.print()
    for sentence in conclude(demo.evaluations):
        console.print(sentence, markup=False)
    console.print(f"\nReport: {demo.report}", markup=False, soft_wrap=True)


def print_methods(given: list[str] | None, *, as_json: bool) -> None:
    """Prints the methods that work with the given parts of the old model."""
    from nobackfill.core.config import suggest
    from nobackfill.errors import ConfigError
    from nobackfill.methods import METHODS
    from nobackfill.methods.old_space import MEANING

    for part in given or []:
        if part not in MEANING:
            raise ConfigError(f"unknown part `{part}` of an old model. {suggest(part, MEANING)}")

    def by_name(text: str) -> str:
        for name, method in METHODS.items():
            text = text.replace(f"`{method.__name__}`", name)
        return text

    rows: list[dict[str, Any]] = [
        {
            "name": name,
            "paper": method.paper,
            "year": method.year,
            "needs": sorted(method.needs),
            "at_inference": method.at_inference,
            "supervised": method.supervised,
            "says": by_name((method.__doc__ or "").strip().splitlines()[0]),
            "usable": given is None or method.needs <= set(given),
        }
        for name, method in METHODS.items()
    ]
    if as_json:
        emit({"methods": rows})
        return
    _print_method_tables([row for row in rows if row["usable"]])
    rest = [f"{row['name']} ({', '.join(row['needs'])})" for row in rows if not row["usable"]]
    if rest:
        console.print(f"\nThese methods need more: {'; '.join(rest)}.", markup=False, style="dim")
    if "embeddings" in (given or []) and "prototypes" not in (given or []):
        hint = "\nOld vectors of labelled items give prototypes too: add --given prototypes."
        console.print(hint, style="dim")
    if console.width < 120:
        console.print(
            "\nA description of each method: --json, or a terminal of 120 columns.", style="dim"
        )


def _print_method_tables(rows: list[dict[str, Any]]) -> None:
    """Prints a table of the methods; from 120 columns on, also a description of each.

    Below 80 columns the papers are left out. Method names are never wrapped.
    """
    wide, narrow = console.width >= 120, console.width < 80
    facts = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    facts.add_column("method", no_wrap=True)
    if not narrow:
        facts.add_column("paper", max_width=20)
    facts.add_column("year", no_wrap=True)
    facts.add_column("needs", max_width=34 if wide else 12)  # 12: one need to a line
    facts.add_column("cost at inference", max_width=23 if wide else 13)
    sentences = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    sentences.add_column("method", no_wrap=True)
    sentences.add_column("what it does")
    for row in rows:
        paper = [] if narrow else [row["paper"]]
        needs = ", ".join(row["needs"]) or "[dim]nothing"
        cost = row["at_inference"].replace("nothing", "[dim]nothing")
        facts.add_row(row["name"], *paper, str(row["year"] or ""), needs, cost)
        sentences.add_row(row["name"], row["says"])
    console.print(facts)
    if wide:
        console.print()
        console.print(sentences)
