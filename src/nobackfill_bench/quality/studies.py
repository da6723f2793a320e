"""The paper's studies on our suites: one table each, with other options or other data."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from nobackfill.core.atomic_files import write_text
from nobackfill_bench.markdown import name_of, number, table, with_interval
from nobackfill_bench.quality.figures import curves
from nobackfill_bench.quality.greedy_search import Search
from nobackfill_bench.quality.option_choice import TRIALS, OptionChoice, options_in, scores
from nobackfill_bench.quality.paired import BASELINE, Compared, Measure, value
from nobackfill_bench.quality.study import Study, grid
from nobackfill_bench.results_log import Line

DATES = (
    "Studies of glyphs, but the first two, were run on 16 November 2026, before old and new models "
    "got other initial weights (commit 11f50d3). Their runs (quality/glyphs-studies.jsonl) are "
    "compared with each other, not with those of the table above."
)
HEAD = [
    "way", "seeds", "old/old", "new/old", "new/new", "P_1", "Δ new/old to Baseline", "Δ new/new",
    "Δ P_1", "spread",
]  # fmt: skip
SCORES = {"p_1": "P_1", "both": "mean of new/old and new/new"}
VARIANTS = (BASELINE, "ndpp_old", "ndpp", "odpp_old", "odpp")


STUDIES: dict[str, Study] = {
    "options": OptionChoice(
        "glyphs",
        "Options chosen by one rule",
        "Weights and temperatures of published methods were tuned on other data. Here every method "
        "has four trials: its published options (for ours: the defaults) and three others. A trial "
        "is a whole upgrade on two seeds (200 and 201) that no table has. Old and new models never "
        "see 40 of the 200 training classes, and these are searched (`data.held_out_classes=40`); "
        "the 100 classes of the table take no part. The trial with the highest mean P_1 is chosen, "
        "then run on the table's seeds and classes. `mimic`, `cores` and the independent models "
        "have no such options.",
        (),
        seeds=5,
        trials=TRIALS,
        held_out=("data.held_out_classes=40",),
        trial_seeds=range(200, 202),
    ),
    "variants": Study(
        "glyphs",
        "The paper's five variants",
        "Does it help to move the prototypes, by old neighbours alone or also by new ones?",
        VARIANTS,
        seeds=5,
    ),
    "readings": Study(
        "glyphs-studies",
        "What the paper leaves open",
        "NDPP by Algorithm 1 (accumulates; our default) or by Eq. 8 (restarts each epoch), and "
        "with the strength in other code by the same authors; neighbours sought from the old "
        "prototype (default) or the moved one, weights clamped at 0 (default) or as printed; ODPP "
        "by Adam (default) or SGD, with all pairs (default) or sampled ones, with inner products "
        "(default) or cosines, continued (default) or begun again each epoch. Prototypes: means of "
        "unit vectors made unit again (default), not made unit, or of raw vectors.",
        (
            BASELINE,
            "ndpp",
            "ndpp:accumulate=false",
            "ndpp:old_strength=0.4",
            "ndpp:seek_from=moved",
            "ndpp:clamp_weights=false",
            "ndpp:normalize=false",
            "ndpp:normalize=false,unit_items=false",
            "odpp",
            "odpp:optimizer=sgd",
            "odpp:pairs=sampled,pairs_per_epoch=3200",
            "odpp:hinge=cosine",
            "odpp:accumulate=false",
            "odpp:optimizer=sgd,pairs=sampled",
            "odpp:normalize=false",
            "odpp:normalize=false,unit_items=false",
        ),
        seeds=5,
    ),
    "ndpp-search": Study(
        "glyphs-studies",
        "NDPP: strengths and neighbours",
        "As in the paper: first the best old strength, then the best new strength, then the best "
        "number of neighbours. The best value has the highest mean P_1 on the searched classes "
        "themselves, so the result is optimistic.",
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
        "glyphs-studies",
        "ODPP: thresholds and weight",
        "As above: the old threshold, the new threshold, then the weight of the new term.",
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
    "han-variants": Study(
        "han-4k",
        "The paper's five variants at 3,997 classes",
        "As above, with Han characters.",
        ("independent", *VARIANTS),
    ),
    "han-ndpp-search": Study(
        "han-4k-short",
        "NDPP at 3,997 classes: strengths and neighbours",
        "A greedy search over a coarse grid, one seed. The best value has the highest mean of "
        "new/old and new/new on validation characters. (P_1 needs an independent model that is "
        "better than the old one, which these short trainings do not give.)",
        (BASELINE,),
        seeds=1,
        search=Search(
            "ndpp",
            {"old_strength": (0.1, 0.4), "new_strength": (0.1,), "neighbors": (10,)},
            by="both",
        ),
    ),
    "han-odpp-search": Study(
        "han-4k-short",
        "ODPP at 3,997 classes: thresholds and weight",
        "As above: the old threshold, the new threshold, then the weight of the new term.",
        (BASELINE,),
        seeds=1,
        search=Search(
            "odpp",
            {"old_threshold": (0.4, 0.8), "new_threshold": (0.4,), "new_weight": (10,)},
            by="both",
        ),
    ),
    "classes": Study(
        "glyphs-studies",
        "As classes grow",
        "Glyphs with 50 to 1,500 training classes; the old model is trained on 15 % of them. Does "
        "perturbation help with more classes?",
        ("independent", BASELINE, "ndpp", "odpp", "janus"),
        {f"{n:,} classes": (f"data.train_classes={n}",) for n in (50, 100, 400, 800, 1500)},
    ),
    "omniglot-classes": Study(
        "omniglot",
        "As classes grow, Omniglot",
        "The new model is trained on a part of the 964 characters, the old one on a tenth of "
        "that part.",
        ("independent", BASELINE, "ndpp", "odpp", "janus"),
        {
            f"{int(964 * share)} classes": (f"data.shares=[{share / 10:g},{share:g}]",)
            for share in (0.1, 0.3)
        },
    ),
    "crowding": Study(
        "glyphs-studies",
        "As the old space gets crowded",
        "Glyphs in families whose members become more similar (0.5 in the suite). Does "
        "perturbation help in a crowded space?",
        ("independent", BASELINE, "ndpp", "odpp", "janus"),
        {f"crowding {c:g}": (f"data.crowding={c:g}",) for c in (0.0, 0.25, 0.75, 1.0)},
    ),
    "member-contrast-parts": Study(
        "glyphs",
        "Every part of `member_contrast`",
        "40 of the 200 training classes are held out and searched; the classes of the table above "
        "take no part. `share` is the share of the contrast that the model learns from (default "
        "0.25), `cosine=false` has the usual linear classifier. Alignment with class means, mapped "
        "at the same share and with a cosine classifier, differs by the old vectors alone.",
        (
            "independent",
            BASELINE,
            f"{BASELINE}:cosine=true",
            f"{BASELINE}_mapped",
            f"{BASELINE}_mapped:share=0.25,cosine=true",
            "janus",
            "member_contrast",
            "member_contrast:cosine=false",
            *grid("member_contrast", "share", (0.5, 1)),
        ),
        settings={"40 training classes held out": ("data.held_out_classes=40",)},
        seeds=6,
        first_seed=100,
    ),
    "janus-parts": Study(
        "glyphs-studies",
        "Every part of `janus`",
        "`share` is how much of the ranking the model learns (default 0.5; with 0 the model is "
        "independent, as with `rm`), `partners` the number of partners (1), `weight` the weight of "
        "the loss (2). Without map and partners, at a weight of 1, `janus` is `rbcl`.",
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


def render_studies(results: Mapping[str, Sequence[Line]], figures: Path) -> list[str]:
    """Returns a section for each study that has results.

    Args:
        results: Result lines of each suite.
        figures: Folder for the figures.
    """
    parts: list[str] = []
    for name, study in STUDIES.items():
        parts += one_study(name, study, results.get(study.suite, ()), figures)
    return ["# Studies", "", DATES, "", *parts] if parts else []


def one_study(name: str, study: Study, lines: Sequence[Line], figures: Path) -> list[str]:
    """Returns the section of one study; empty if it was not run."""
    if isinstance(study, OptionChoice):
        return one_choice(name, study, lines)
    if study.search is not None:
        return one_search(name, study, study.search, lines, figures)
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


def one_search(
    name: str, study: Study, search: Search, lines: Sequence[Line], figures: Path
) -> list[str]:
    """Returns the section of a search: the values of each step and the final result."""
    steps, compared = study.steps(lines), study.compared(lines)
    decided = [(step, step.best) for step in steps if step.best is not None]
    if len(decided) < len(steps) or not set(study.ways) <= compared.runs.keys():
        return []
    rows = [["", *one_row(compared, way)] for way in study.ways]
    for step, best in decided:
        for setting, way in step.ways.items():
            label = f"{step.option} = {setting:g}"
            rows.append([f"**{label}**" if setting == best else label, *one_row(compared, way)])
    last, best = decided[-1]
    way = last.ways[best]
    score = search.measure(compared)
    gain = with_interval(compared.difference(way, BASELINE, score), sign=True)
    picture = curves(compared, {step.option: step.ways for step in steps})
    write_text(figures / f"{name}.svg", picture)
    return [
        *opening(name, study),
        *table(["decided", *HEAD], rows),
        "",
        f"Result: `{way}`; its {SCORES[search.by]} differs from that of the Baseline by {gain}.",
        "",
        f"![over the options](figures/{name}.svg)",
        "",
    ]


def one_choice(name: str, study: OptionChoice, lines: Sequence[Line]) -> list[str]:
    """Returns the section of a choice of options: P_1 of each trial, and the best on the suite."""
    chosen = study.chosen(lines)
    if len(chosen) < len(study.trials):
        return []
    trials, last = scores(study, lines)
    rows = []
    for method in sorted(chosen, key=lambda method: -last.mean(chosen[method], last.p_1).value):
        way = chosen[method]
        tried = ", ".join(
            f"{f'**{options_in(trial)}**' if trial == way else options_in(trial)} "
            f"{number(trials.mean(trial, trials.p_1).value, digits=2)}"
            for trial in study.tried(method)
        )
        rows.append(
            [
                name_of(method),
                tried,
                *(
                    number(last.mean(variant, measure).value, digits=2)
                    for measure in (value("new_old"), value("new_new"), last.p_1)
                    for variant in (method, way)
                ),
                "–" if way == method
                else with_interval(last.difference(way, method, last.p_1), sign=True),
            ]
        )  # fmt: skip
    measures = ("new/old", "new/new", "P_1")
    pairs = [words for heading in measures for words in (f"{heading} as published", "chosen")]
    head = ["method", "P_1 of the trials, on held-out training classes", *pairs, "Δ P_1"]
    return [*opening(name, study), *table(head, rows), ""]


def opening(name: str, study: Study) -> list[str]:
    """Returns the text above the table of a study."""
    command = f"    nobackfill bench quality --study {name}"
    return [f"## {study.title}", "", study.text, "", command, ""]


def one_row(compared: Compared, way: str) -> list[str]:
    """Returns the results of one method and its paired differences from the Baseline."""
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
