"""The paper's studies on our suites: one table each, of runs with other options or other data."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from nobackfill.core.atomic_files import write_text
from nobackfill_bench.markdown import name_of, number, table, with_interval
from nobackfill_bench.quality.figures import curves
from nobackfill_bench.quality.greedy_search import Search, Step, walk
from nobackfill_bench.quality.paired import BASELINE, Compared, Measure, value
from nobackfill_bench.results_log import Line

HEAD = [
    "way", "seeds", "old/old", "new/old", "new/new", "P_1", "Δ new/old to Baseline", "Δ new/new",
    "Δ P_1", "spread",
]  # fmt: skip
VARIANTS = (BASELINE, "ndpp_old", "ndpp", "odpp_old", "odpp")


@dataclass(frozen=True)
class Study:
    """Some ways, maybe with other options, under some settings of one suite.

    Attributes:
        suite: A name of `SUITES`.
        title: A line of words.
        says: What it asks.
        ways: What is compared.
        settings: Changes to the recipes, by what a reader calls them.
        seeds: How many.
        search: Options that are decided one after the other, beside these ways.
    """

    suite: str
    title: str
    says: str
    ways: tuple[str, ...]
    settings: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: {"": ()})
    seeds: int = 3
    search: Search | None = None

    def compared(self, lines: Sequence[Line], changes: tuple[str, ...] = ()) -> Compared:
        """Its runs under one of its settings."""
        return Compared.of(
            line
            for line in lines
            if tuple(line["changes"]) == changes and line["seed"] < self.seeds
        )

    def steps(self, lines: Sequence[Line]) -> list[Step]:
        """Those of its search that the lines allow; see `walk`."""
        if self.search is None:
            return []
        return walk(self.search, self.compared(lines), seeds=self.seeds)

    def ways_after(self, lines: Sequence[Line]) -> tuple[str, ...]:
        """What there is to run after these lines: a search finds its ways as it goes."""
        found = [way for step in self.steps(lines) for way in step.ways.values()]
        return tuple(dict.fromkeys((*self.ways, *found)))


def grid(method: str, option: str, values: Sequence[float | int]) -> tuple[str, ...]:
    """One method with several values of an option.

    Example:
        >>> grid("ndpp", "neighbors", [1, 10])
        ('ndpp:neighbors=1', 'ndpp:neighbors=10')
    """
    return tuple(f"{method}:{option}={one:g}" for one in values)


STUDIES: dict[str, Study] = {
    "variants": Study(
        "glyphs",
        "The paper's five variants",
        "Does it help to move prototypes, by old neighbours alone or by new ones too?",
        VARIANTS,
        seeds=5,
    ),
    "readings": Study(
        "glyphs",
        "What the paper leaves open",
        "NDPP by Algorithm 1 (accumulates; our default) or by Eq. 8 (begins anew each epoch), and "
        "with the strength that code by the same authors has; ODPP by Adam (default) or SGD, with "
        "all pairs (default) or sampled ones, with inner products (default) or cosines.",
        (
            BASELINE,
            "ndpp",
            "ndpp:accumulate=false",
            "ndpp:old_strength=0.4",
            "odpp",
            "odpp:optimizer=sgd",
            "odpp:pairs=sampled,pairs_per_epoch=3200",
            "odpp:hinge=cosine",
        ),
        seeds=5,
    ),
    "ndpp-search": Study(
        "glyphs",
        "NDPP: strengths and neighbours",
        "As the paper does it: the best old strength, with it the best new one, with both the best "
        "number of neighbours. Best is the highest mean P_1 on the very classes that are searched, "
        "so what is found here flatters.",
        ("independent", BASELINE),
        search=Search(
            "ndpp",
            {
                "old_strength": (0, 0.001, 0.1, 0.4, 1),
                "new_strength": (0, 0.001, 0.1, 0.4),
                "neighbors": (1, 5, 20),
            },
        ),
    ),
    "odpp-search": Study(
        "glyphs",
        "ODPP: thresholds and weight",
        "Likewise: the old threshold, the new one, the weight of the new.",
        ("independent", BASELINE),
        search=Search(
            "odpp",
            {
                "old_threshold": (0, 0.2, 0.4, 0.8),
                "new_threshold": (0, 0.2, 0.4, 0.8),
                "new_weight": (0, 0.1, 10),
            },
        ),
    ),
    "classes": Study(
        "glyphs",
        "As classes grow",
        "Glyphs of 50 to 1,500 training classes, the old model knowing 15 % of them: does "
        "perturbation begin to pay?",
        ("independent", BASELINE, "ndpp", "odpp", "janus"),
        {f"{one:,} classes": (f"data.train_classes={one}",) for one in (50, 100, 400, 800, 1500)},
    ),
    "omniglot-classes": Study(
        "omniglot",
        "As classes grow, Omniglot",
        "The new model is trained on a part of the 964 characters, the old one on a tenth of that.",
        ("independent", BASELINE, "ndpp", "odpp", "janus"),
        {
            f"{int(964 * share)} classes": (f"data.shares=[{share / 10:g},{share:g}]",)
            for share in (0.1, 0.3)
        },
    ),
    "crowding": Study(
        "glyphs",
        "As the old space gets crowded",
        "Glyphs of families whose members look ever more alike (0.5 in the suite): does "
        "perturbation begin to pay?",
        ("independent", BASELINE, "ndpp", "odpp", "janus"),
        {f"crowding {one:g}": (f"data.crowding={one:g}",) for one in (0.0, 0.25, 0.75, 1.0)},
    ),
    "janus-parts": Study(
        "glyphs",
        "Every part of `janus`",
        "How much of the ranking the model learns (`share`, 0.5 by default; 0 leaves the model "
        "independent, as that of `rm`), how many partners (1), and the weight (2). `rbcl` is what "
        "is left without map and partners, at a weight of 1.",
        (
            "independent",
            "rm",
            "rbcl",
            "janus",
            *grid("janus", "share", (0, 0.25, 1)),
            *grid("janus", "partners", (0, 3)),
            *grid("janus", "weight", (0.5, 8)),
        ),
        seeds=5,
    ),
    "scratch": Study(
        "cub-finetune",
        "From random weights",
        "The five variants without ImageNet weights.",
        ("independent", *VARIANTS, "janus"),
        {"random weights": ("model.weights=",)},
    ),
}


def render_studies(found: Mapping[str, Sequence[Line]], figures: Path) -> list[str]:
    """A section for each study that has lines.

    Args:
        found: Of each suite its lines.
        figures: The folder of the figures, which are drawn anew.
    """
    parts: list[str] = []
    for name, study in STUDIES.items():
        parts += one_study(name, study, found.get(study.suite, ()), figures)
    return ["# Studies", "", *parts] if parts else []


def one_study(name: str, study: Study, lines: Sequence[Line], figures: Path) -> list[str]:
    """The section of one study; nothing where it was not run."""
    if study.search is not None:
        return one_search(name, study, lines, figures)
    rows = []
    for words, changes in study.settings.items():
        compared = study.compared(lines, changes)
        rows += [
            [words] * (len(study.settings) > 1) + one_row(compared, way)
            for way in study.ways
            if way in compared.runs
        ]
    if not rows or len(rows) < len(study.ways):
        return []
    head = ["setting"] * (len(study.settings) > 1) + HEAD
    return [*opening(name, study), *table(head, rows), ""]


def one_search(name: str, study: Study, lines: Sequence[Line], figures: Path) -> list[str]:
    """The section of a search: each step with its values, and what it has found in the end."""
    steps, compared = study.steps(lines), study.compared(lines)
    found = [(step, step.best) for step in steps if step.best is not None]
    if len(found) < len(steps) or not set(study.ways) <= compared.runs.keys():
        return []
    rows = [["", *one_row(compared, way)] for way in study.ways]
    for step, best in found:
        for value_, way in step.ways.items():
            decided = f"{step.option} = {value_:g}"
            rows.append([f"**{decided}**" if value_ == best else decided, *one_row(compared, way)])
    last, best = found[-1]
    way = last.ways[best]
    gain = with_interval(compared.difference(way, BASELINE, compared.p_1), sign=True)
    picture = curves(compared, {step.option: step.ways for step in steps})
    write_text(figures / f"{name}.svg", picture)
    return [
        *opening(name, study),
        *table(["decided", *HEAD], rows),
        "",
        f"Found: `{way}`, its P_1 {gain} from the Baseline's.",
        "",
        f"![over the options](figures/{name}.svg)",
        "",
    ]


def opening(name: str, study: Study) -> list[str]:
    """What stands above the table of a study."""
    command = f"    nobackfill bench quality --study {name}"
    return [f"## {study.title}", "", study.says, "", command, ""]


def one_row(compared: Compared, way: str) -> list[str]:
    """What came of one way, and its differences to the Baseline on the same seeds."""
    measures = (value("new_old"), value("new_new"), compared.p_1)

    def to_baseline(measure: Measure) -> str:
        return (
            "–"
            if way == BASELINE
            else with_interval(compared.difference(way, BASELINE, measure), sign=True)
        )

    return [
        name_of(way),
        str(len(compared.runs[way])),
        number(compared.mean(way, value("old_old")).value, digits=2),
        number(compared.mean(way, value("new_old")).value, digits=2),
        number(compared.mean(way, value("new_new")).value, digits=2),
        number(compared.mean(way, compared.p_1).value, digits=2),
        *(to_baseline(measure) for measure in measures),
        number(compared.mean(way, lambda line: line.get("spread")).value, digits=4),
    ]
