"""Renders the tables of docs/text-pairs.md from the lines of text_pairs.py.

    python benchmarks/text_pairs_table.py

They take the place of what is between the two marks in that page. No number enters them by hand.
"""

from pathlib import Path

from text_pairs import OPTIONS, choose, key

from nobackfill.report.seeds import over_seeds
from nobackfill_bench.markdown import table
from nobackfill_bench.results_log import read_lines

HERE = Path(__file__).parent
PAGE = HERE.parent / "docs" / "text-pairs.md"
BEGIN, END = "<!-- begin of text_pairs_table.py -->", "<!-- end of text_pairs_table.py -->"
TITLES = {"debian": "Debian's package descriptions", "flickr8k_captions": "Flickr8k's captions"}
NAMES = {
    "plain": "plain fine-tuning",
    "frozen_documents": "`frozen_documents`",
    "distillation": "plain + `distillation`",
    "adapter": "linear adapter on old queries",
    "contrast": "plain + `contrast` (default)",
    "lora": "plain + `contrast`, LoRA",
    "ndpp": "plain + `ndpp`",
    "odpp": "plain + `odpp`",
}
METRICS = {"mAP": "map", "nDCG@10": "ndcg_at_10", "Recall@1": "recall_at_1"}


def main():
    lines = read_lines(HERE / "text_pairs.jsonl", key=key)
    PAGE.write_text(between(PAGE.read_text(encoding="utf-8"), render(lines)), encoding="utf-8")


def between(page, tables):
    """The page with other tables between its marks."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n\n{tables}\n{END}{after}"


def render(lines):
    """A section for each collection that has a line."""
    parts = []
    for name, title in TITLES.items():
        tests = [line for line in lines if (line["stage"], line["collection"]) == ("test", name)]
        if tests:
            parts += section(name, title, tests, lines)
    return "\n".join(parts) if parts else "Nothing was measured yet.\n"


def section(name, title, tests, lines):
    """The old model alone, then a row for each method, as measured with its chosen option."""
    rows = [
        [f"old/old: {' / '.join(f'{100 * v:.1f}' for v in old_values(tests))}"] + [""] * 5
    ] if old_values(tests) else []  # fmt: skip
    for method, label in NAMES.items():
        usual = OPTIONS[method][1][0]
        trials = [
            line
            for line in lines
            if (line["stage"], line["collection"], line["method"]) == ("trial", name, method)
        ]
        is_chosen = len(trials) == len(OPTIONS[method][1])
        option = choose(lines, name, method) if is_chosen else usual
        runs = [line for line in tests if (line["method"], line["option"]) == (method, option)]
        if runs:
            setting = f"{OPTIONS[method][0]} {option:g}{'' if is_chosen else ' (usual)'}"
            rows.append(row(f"{label}, {setting}", runs))
    head = ["mAP / nDCG@10 / Recall@1", "seeds", "new/old", "lost, gained", "new/new", "both ask"]
    return [f"### {title}", "", *table(head, rows), ""]


def old_values(tests):
    old = [line["results"]["old/old"] for line in tests if line["method"] == "old"]
    return [old[0][key] for key in METRICS.values()] if old else []


def row(label, runs):
    """Means over seeds."""
    flips = [mean_of(runs, "new/old", f"{kind}_flips") for kind in ("negative", "positive")]
    return [
        label,
        str(len(runs)),
        values(runs, "new/old"),
        ", ".join(f"{100 * flip.mean:.1f}" for flip in flips),
        values(runs, "new/new"),
        values(runs, "both/old"),
    ]


def values(runs, pair):
    """The three metrics of one pair of models, with half the 95 % interval of mAP."""
    if not all(pair in run["results"] for run in runs):
        return "–"
    first, *others = (mean_of(runs, pair, metric) for metric in METRICS.values())
    return " / ".join([first.text(), *(f"{100 * other.mean:.1f}" for other in others)])


def mean_of(runs, pair, metric):
    """The mean of one number over seeds."""
    return over_seeds([run["results"][pair][metric] for run in runs])


if __name__ == "__main__":
    main()
