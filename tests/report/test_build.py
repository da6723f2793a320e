"""Reports of real runs, tiny ones: what is written, what it says, and who is refused."""

import base64
import io
import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from PIL import Image

import nobackfill as nb
from nobackfill.core.config import Choice, OldConfig, Recipe, TrainConfig
from nobackfill.core.page import Page, Section
from nobackfill.data.registry import make_collection
from nobackfill.errors import ConfigError, DataError
from nobackfill.evaluation.by_modality import evaluate_modalities
from nobackfill.evaluation.evaluate import evaluate
from nobackfill.report.build import Report, report_vectors, unwatched
from nobackfill.report.class_spaces import training_means
from nobackfill.report.from_runs import kinds_of, names_of, report_runs, spaces_of
from nobackfill.report.thumbnails import show_collection, show_files
from nobackfill.report.titles import names_apart, upgrade_title
from nobackfill.training.decoding import Decoding
from nobackfill.training.pipeline import train_run
from nobackfill.training.results import evaluate_run
from nobackfill.training.run import Run
from nobackfill.vectors.space import Space

CPU = torch.device("cpu")
BASELINE = "prototype_alignment"
OLD = Recipe(
    data=Choice(
        "glyphs",
        {"train_classes": 12, "test_classes": 10, "images_per_class": 5, "side": 16},
    ),
    model=Choice("small", {"width": 4, "embedding_dim": 8}),
    train=TrainConfig(step=0, epochs=2, batch_size=16, learning_rate=0.05, seed=7),
)


@pytest.fixture(scope="module", autouse=True)
def by_pca():
    """Which of the two ways a map is laid out by is not asked here, and this is the quicker one."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("nobackfill.evaluation.tsne._open_tsne", lambda: None)
        yield


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """The old model, an independent one, and two methods with two seeds each."""
    folder = tmp_path_factory.mktemp("runs")
    train(OLD, folder / "old")
    train(new_recipe(folder, "independent", 0, independent=None), folder / "independent")
    for name in (BASELINE, "bct"):
        for seed in (0, 1):
            train(new_recipe(folder, name, seed), folder / f"{name}-{seed}")
    return folder


def new_recipe(folder, name, seed, *, independent="independent", **options):
    return replace(
        OLD,
        method=Choice(name, options),
        old=OldConfig(
            run=str(folder / "old"),
            independent=str(folder / independent) if independent else None,
        ),
        train=replace(OLD.train, step=1, seed=seed),
    )


def train(recipe, folder):
    list(train_run(recipe, folder, device=CPU))


def reported(runs, *names, **more):
    return report_runs([runs / name for name in names], device=CPU, **more)


FOUR = [f"{name}-{seed}" for name in (BASELINE, "bct") for seed in (0, 1)]


@pytest.fixture(scope="module")
def one(runs):
    """The report of one run, by t-SNE where that is installed."""
    return reported(runs, "bct-0")


@pytest.fixture(scope="module")
def four(runs):
    return reported(runs, *FOUR)


def evaluation_of(runs, name):
    run = Run.open(runs / name)
    return evaluate_run(run, make_collection(run.recipe.data), device=CPU)


def strictly(text):
    def refuse(constant):
        raise AssertionError(f"{constant} is no JSON")

    return json.loads(text, parse_constant=refuse)


def section(page, title):
    (found,) = [one for one in page.sections if one.title == title]
    return found


# One run


def test_a_report_is_a_page_and_the_same_for_programs(one, tmp_path):
    written = one.save(tmp_path / "sub" / "page.html")
    assert {path.name for path in written} == {
        "page.html", "page.md", "page.json", "page.queries.parquet",
    }  # fmt: skip
    assert set((tmp_path / "sub").iterdir()) == set(written)
    html, markdown = (
        path.with_suffix(s).read_text() for path in written[-1:] for s in (".html", ".md")
    )
    for text in (html, markdown):
        assert "May bct-0 go live on the stored vectors?" in text
        assert one.page.summary[1] in text


def test_every_query_has_a_row_with_its_values(runs, one, tmp_path):
    one.save(tmp_path / "page.html")
    table = pq.read_table(tmp_path / "page.queries.parquet").to_pydict()
    evaluation = evaluation_of(runs, "bct-0")
    assert table["id"] == evaluation.query_ids.tolist()
    assert len(table["id"]) == 20
    for name in ("old_old", "new_old", "new_new", "independent"):
        pair = evaluation.pairs[name]
        assert table[f"average_precision_{name}"] == pair.average_precision.tolist()
        assert table[f"first_hit_{name}"] == pair.first_hit.tolist()
    assert table["num_relevant"] == evaluation.old_old.num_relevant.tolist()
    assert table["label"] == evaluation.query_columns["label"].tolist()


def test_its_json_is_strict_and_has_the_numbers_of_the_evaluation(runs, one, tmp_path):
    one.save(tmp_path / "page.html")
    told = strictly((tmp_path / "page.json").read_text())
    summary = strictly((runs / "bct-0" / "evaluation.json").read_text())
    assert {key: told[key] for key in summary} == summary
    assert told["made_of"]["data"] == "glyphs"
    assert {"lost", "won", "slices", "confused_classes", "similarities", "spaces"} <= told.keys()


def test_two_reports_are_equal_byte_for_byte(runs, one, tmp_path, monkeypatch):
    monkeypatch.undo()  # by t-SNE, too, where that is installed
    for place, report in (("one", one), ("other", reported(runs, "bct-0"))):
        report.save(tmp_path / place / "page.html")
    for path in (tmp_path / "one").iterdir():
        assert path.read_bytes() == (tmp_path / "other" / path.name).read_bytes(), path.name


def test_it_says_what_the_numbers_were_made_of(runs, one):
    old, new = (nb.load_vectors(runs / name / "validation.parquet") for name in ("old", "bct-0"))
    made_of = dict(one.page.made_of)
    assert made_of["new model"] == "bct-0, method bct"
    assert made_of["old model"] == str(runs / "old")
    assert made_of["independent model"] == str(runs / "independent")
    assert made_of["new space"] == new.space.fingerprint
    assert made_of["parent space"] == old.space.fingerprint
    assert made_of["queries"] == "20"
    assert one.facts["made_of"].items() <= made_of.items()


def test_its_verdict_is_that_of_the_evaluation(runs, one):
    summary = strictly((runs / "bct-0" / "evaluation.json").read_text())
    assert one.page.verdict == summary["verdict"]


def test_queries_and_what_they_find_are_shown_as_pictures(one):
    tables = section(one.page, "Query by query").tables
    changed = [table for table in tables[1:] if table.rows]
    assert changed  # so small a model changes something
    for table in changed:
        for row in table.rows:
            for cell in (row[0], row[-2], row[-1]):
                assert all(picture.source.startswith("data:image/jpeg") for picture in cell)


def test_a_run_with_other_tests_has_a_table_of_them(runs, tmp_path):
    recipe = new_recipe(runs, "bct", 0, independent=None)
    other = Choice("glyphs", {**OLD.data.options, "test_classes": 5, "seed": 3})
    train(replace(recipe, tests={"hard": other}), tmp_path / "run")
    report = reported(tmp_path, "run", title="Shall we?")
    assert report.page.title == "Shall we?"
    (row,) = section(report.page, "Other tests").tables[0].rows
    summary = strictly((tmp_path / "run" / "evaluation.json").read_text())
    assert row[0] == "hard"
    assert row[2] == f"{100 * summary['tests']['hard']['new_old']:.1f}"
    assert report.facts["tests"] == summary["tests"]
    assert report.facts["new_old"] == summary["new_old"]  # the first is the run's own data
    assert report.page.made_of["independent model"] == "none"
    assert any("P-scores" in what for what in report.page.not_measured)


# Several runs


def test_several_runs_stand_in_one_table(runs, four, tmp_path):
    (table,) = section(four.page, "What each method gives").tables
    rows = {row[0]: dict(zip(table.columns, row, strict=True)) for row in table.rows}
    assert set(rows) == {BASELINE, "bct"}
    for kind, row in rows.items():
        values = [
            strictly((runs / f"{kind}-{seed}" / "evaluation.json").read_text())["new_old"]
            for seed in (0, 1)
        ]
        half = 12.7062 * abs(values[1] - values[0]) / 2
        assert row["seeds"] == "2"
        assert row["new/old"] == f"{50 * sum(values):.1f} ± {100 * half:.1f}"
    assert rows["bct"]["Δ Baseline"] != "–"
    names = [row[0] for row in section(four.page, "Every run").tables[0].rows]
    assert names == FOUR


def test_several_runs_are_written_without_queries(runs, four, tmp_path):
    written = four.save(tmp_path / "page.html")
    assert {path.name for path in written} == {"page.html", "page.md", "page.json"}
    told = strictly((tmp_path / "page.json").read_text())
    assert [one["name"] for one in told["runs"]] == FOUR
    assert [one["seed"] for one in told["runs"]] == [0, 1, 0, 1]
    assert told["methods"]["bct"]["new_old"].keys() == {"mean", "half_width", "seeds"}
    assert told["methods"][BASELINE]["against_baseline"] is None
    assert told["methods"]["bct"]["verdicts"] == {
        verdict: sum(one["summary"]["verdict"] == verdict for one in told["runs"][2:])
        for verdict in ("compatible", "not compatible", "undecided")
    }
    assert told["not_measured"] == list(four.page.not_measured)


def test_two_comparisons_are_equal_byte_for_byte(runs, four, tmp_path):
    four.save(tmp_path / "one" / "page.html")
    reported(runs, *FOUR).save(tmp_path / "other" / "page.html")
    for path in (tmp_path / "one").iterdir():
        assert path.read_bytes() == (tmp_path / "other" / path.name).read_bytes(), path.name


def test_beside_the_baseline_it_is_told_how_similar_classes_are(runs, four):
    (table,) = section(four.page, "How similar different classes are").tables
    assert [row[0] for row in table.rows] == ["old", BASELINE, "bct"]
    alone = reported(runs, "bct-0", "bct-1")
    assert "How similar different classes are" not in [one.title for one in alone.page.sections]


def means_by_hand(vectors, labels):
    unit = torch.nn.functional.normalize(torch.as_tensor(vectors).double(), dim=1)
    sums = [unit[labels == label].sum(dim=0) for label in np.unique(labels)]
    return [one / one.norm() for one in sums]


def spaces_by_hand(runs, place):
    """Class means of the old and of two new models, of training items or of searched ones."""
    means = {}
    for name, folder in (("old", "old"), (BASELINE, f"{BASELINE}-1"), ("bct", "bct-1")):
        if place == "searched":
            file = nb.load_vectors(runs / folder / "validation.parquet")
            means[name] = means_by_hand(file.vectors, file.labels)
            continue
        collection = make_collection(Run.open(runs / "bct-1").recipe.data)
        rows = collection.training_rows(-1)
        vectors = Run.open(runs / folder).embed(collection, rows, device=CPU)
        means[name] = means_by_hand(vectors, collection.labels[rows].numpy())
    return means


@pytest.mark.parametrize(("place", "classes"), [("training", 12), ("searched", 10)])
def test_class_means_are_those_of_one_seed_and_of_the_place_asked_for(runs, place, classes):
    names = (f"{BASELINE}-1", "bct-1", "bct-0")  # the last is of another seed
    report = report_runs([runs / name for name in names], classes=place, device=CPU)
    means = spaces_by_hand(runs, place)
    assert {len(rows) for rows in means.values()} == {classes}
    pairs = [(i, j) for i in range(classes) for j in range(i)]
    spread = report.facts["spread"]
    assert (spread["classes"], set(spread["models"])) == (place, set(means))
    for name, rows in means.items():
        cosines = [float(rows[i] @ rows[j]) for i, j in pairs]
        assert spread["models"][name]["as_they_are"] == pytest.approx(np.std(cosines), abs=1e-5)
    alike = [
        (i, j) for i, j in pairs if all(means[n][i] @ means[n][j] > 0 for n in ("old", BASELINE))
    ]
    part = section(report.page, "How similar different classes are")
    assert f"for the {len(alike):,} pairs" in part.text
    for row in part.tables[0].rows:
        cosines = [float(means[row[0]][i] @ means[row[0]][j]) for i, j in alike]
        assert float(row[1]) == pytest.approx(np.mean(cosines), abs=6e-4)
    figures = section(report.page, "How evenly class means are spread").figures
    assert len(figures) == (place == "training")
    assert all(figure.svg.startswith("<svg") for figure in figures)


def test_training_means_are_stored_and_read_again(runs, tmp_path, monkeypatch):
    shutil.copytree(runs / "bct-0", tmp_path / "bct-0")
    run = Run.open(tmp_path / "bct-0")
    (tmp_path / "bct-0" / "training_means.safetensors").unlink(missing_ok=True)
    collection = make_collection(run.recipe.data)
    first = training_means(run, collection, device=CPU)
    monkeypatch.setattr(Run, "embed", None)  # no image is needed
    again = training_means(run, collection, device=CPU)
    assert {name: part.tolist() for name, part in first.items()} == {
        name: part.tolist() for name, part in again.items()
    }


def test_without_the_training_set_the_searched_classes_serve_and_the_page_says_so(runs):
    run = Run.open(runs / f"{BASELINE}-0")
    gone = replace(run.recipe, data=Choice("market1501", {"path": "nowhere"}))
    spaces, reason = spaces_of(
        {BASELINE: Run(run.folder, gone)}, "training", Decoding(), device=CPU, watch=unwatched
    )
    assert spaces.place == "searched"
    assert "nowhere" in reason


def test_one_upgrade_shows_the_spread_of_its_training_classes(runs):
    report = report_runs([runs / f"{BASELINE}-0"], device=CPU)
    (table,) = section(report.page, "How evenly class means are spread").tables
    assert [row[0] for row in table.rows] == ["old", BASELINE, "independent"]
    searched = report_runs([runs / f"{BASELINE}-0"], classes="searched", device=CPU)
    titles = [part.title for part in searched.page.sections]
    assert "How evenly class means are spread" not in titles


def test_a_method_that_maps_its_queries_is_reported_with_the_others(runs, tmp_path):
    recipe = new_recipe(runs, "rm", 0)
    train(replace(recipe, model=Choice("small", {"width": 4, "embedding_dim": 6})), tmp_path / "rm")
    alone = report_runs([tmp_path / "rm"], device=CPU)
    summary = strictly((tmp_path / "rm" / "evaluation.json").read_text())
    assert alone.facts["new_old"] == summary["new_old"]
    alone.save(tmp_path / "page.html")
    both = report_runs([runs / f"{BASELINE}-0", tmp_path / "rm"], device=CPU)
    (table,) = section(both.page, "How similar different classes are").tables
    assert [row[0] for row in table.rows] == ["old", BASELINE, "rm"]  # each in its own space
    searched = report_runs(
        [runs / f"{BASELINE}-0", tmp_path / "rm"], classes="searched", device=CPU
    )
    (table,) = section(searched.page, "How similar different classes are").tables
    assert [row[0] for row in table.rows] == ["old", BASELINE]


# Evaluations that were left in the folders


@pytest.fixture
def copied(runs, tmp_path):
    """One run that may be changed."""
    shutil.copytree(runs / "bct-0", tmp_path / "bct-0")
    return tmp_path


@pytest.mark.parametrize("left", ["without what was searched", "nothing"])
def test_an_evaluation_of_an_older_version_is_made_anew(runs, copied, left):
    path = copied / "bct-0" / "evaluation.json"
    summary = strictly(path.read_text())
    path.unlink()
    if left != "nothing":
        older = {key: value for key, value in summary.items() if key != "searched"}
        path.write_text(json.dumps({**older, "new_old": 9.0}))
    report = report_runs([copied / "bct-0", runs / "bct-1"], device=CPU)
    assert report.facts["runs"][0]["summary"] == summary
    assert strictly(path.read_text()) == summary


def test_an_evaluation_of_this_version_is_taken_as_it_is(runs, copied):
    path = copied / "bct-0" / "evaluation.json"
    path.write_text(json.dumps({**strictly(path.read_text()), "new_old": 0.123}))
    before = path.read_bytes()
    report = report_runs([copied / "bct-0", runs / "bct-1"], device=CPU)
    assert report.facts["runs"][0]["summary"]["new_old"] == 0.123
    assert path.read_bytes() == before


# Who is refused


def test_a_run_without_an_old_model_is_refused(runs):
    for names in (["old"], ["bct-0", "old"]):
        with pytest.raises(DataError, match="/old has no old model to compare with"):
            reported(runs, *names)


def test_an_unfinished_run_is_refused(runs, tmp_path):
    epochs = train_run(new_recipe(runs, "bct", 5), tmp_path / "half", device=CPU)
    next(epochs)
    epochs.close()
    with pytest.raises(DataError, match="half is not finished"):
        report_runs([runs / "bct-0", tmp_path / "half"], device=CPU)
    with pytest.raises(DataError, match="no config.toml"):
        report_runs([tmp_path], device=CPU)


def test_the_same_run_twice_is_refused(runs):
    with pytest.raises(DataError, match="two of `bct` have the seed 0, the second being .*bct-0"):
        reported(runs, "bct-0", "bct-0")


@pytest.mark.parametrize(
    "options",
    [
        {"test_classes": 11},
        {"variation": 2.0},
    ],
    ids=["more classes", "other pictures"],
)
def test_runs_on_other_galleries_are_refused(runs, tmp_path, options):
    recipe = new_recipe(runs, "bct", 5)
    elsewhere = replace(
        recipe,
        data=Choice("glyphs", {**OLD.data.options, **options}),
        train=replace(recipe.train, epochs=1),
    )
    train(elsewhere, tmp_path / "elsewhere")
    with pytest.raises(DataError, match="bct-0 and elsewhere used different items"):
        report_runs([runs / "bct-0", tmp_path / "elsewhere"], device=CPU)


@pytest.mark.parametrize("name", ["page.txt", "page", "page.htm", "page.json"])
def test_a_page_that_does_not_end_in_html_is_refused_and_nothing_is_written(one, tmp_path, name):
    with pytest.raises(ConfigError, match=r"End it in \.html"):
        one.save(tmp_path / name)
    assert not list(tmp_path.iterdir())


def test_everything_is_made_before_anything_is_written(one, tmp_path, monkeypatch):
    with pytest.raises(ValueError, match="JSON"):
        Report(one.page, {"value": float("nan")}, one.evaluation).save(tmp_path / "page.html")

    def fail(page):
        raise RuntimeError("out of ink")

    for name in ("render_html", "render_markdown"):
        monkeypatch.setattr(f"nobackfill.report.build.{name}", fail)
        with pytest.raises(RuntimeError, match="out of ink"):
            one.save(tmp_path / "page.html")
    assert not list(tmp_path.iterdir())


# What runs are called


def kinds(*recipes):
    return kinds_of(recipes)


NDPP = Recipe(method=Choice("ndpp", {"neighbors": 10}), train=TrainConfig(seed=1))


def test_a_run_is_called_by_its_method():
    assert kinds(NDPP, replace(NDPP, method=Choice("bct"))) == ["ndpp", "bct"]


def test_seeds_and_which_old_run_it_was_make_no_difference():
    other = replace(
        NDPP,
        train=replace(NDPP.train, seed=2),
        old=OldConfig(run="runs/old-2", independent="runs/free-2"),
    )
    assert kinds(NDPP, other) == ["ndpp", "ndpp"]


def test_runs_of_one_method_are_told_apart_by_what_differs():
    more = replace(NDPP, method=Choice("ndpp", {"neighbors": 100}))
    longer = replace(NDPP, train=replace(NDPP.train, epochs=99, seed=3))
    bct = replace(NDPP, method=Choice("bct"), train=replace(NDPP.train, epochs=7))
    assert kinds(NDPP, more) == ["ndpp (neighbors=10)", "ndpp (neighbors=100)"]
    assert kinds(NDPP, more, longer, bct) == [
        "ndpp (neighbors=10, epochs=30)",
        "ndpp (neighbors=100, epochs=30)",
        "ndpp (neighbors=10, epochs=99)",
        "bct",
    ]


def test_a_setting_that_only_one_has_is_named():
    odpp = replace(NDPP, method=Choice("ndpp", {"neighbors": 10, "old_strength": 0.5}))
    assert kinds(NDPP, odpp) == ["ndpp (old_strength=None)", "ndpp (old_strength=0.5)"]


def test_what_was_trained_on_is_a_difference():
    wide = replace(NDPP, data=Choice("glyphs", {"side": 48}), model=Choice("small", {"width": 8}))
    assert kinds(replace(NDPP, data=Choice("glyphs", {"side": 32})), wide) == [
        "ndpp (side=32, width=None)",
        "ndpp (side=48, width=8)",
    ]


def test_what_was_expected_makes_no_difference():
    assert kinds(NDPP, replace(NDPP, expected={"new_old": {"value": 0.5}})) == ["ndpp", "ndpp"]


# Two files of vectors


def labelled(seed, **more):
    labels = np.arange(80) % 10
    centre = torch.randn(10, 6, generator=torch.Generator().manual_seed(0))
    generator = torch.Generator().manual_seed(seed)
    values = centre[labels] + 0.8 * torch.randn(80, 6, generator=generator)
    return nb.Vectors([f"item {i}" for i in range(80)], values, labels, **more)


def test_two_files_make_a_report(tmp_path):
    space = Space(dim=6, weights="a")
    texts = np.array([f"text of {i}" for i in range(80)])
    old, new = labelled(1, columns={"text": texts}), labelled(2, space=space)
    evaluation = evaluate(old, new)
    report = report_vectors(evaluation, [old, new], title="Shall we?")
    assert report.page.title == "Shall we?"
    assert report.page.made_of["old space"] == "not declared"
    assert report.page.made_of["new space"] == space.fingerprint
    assert report.evaluation is evaluation
    assert report.facts["new_old"] == evaluation.new_old.mean_average_precision
    lost = section(report.page, "Query by query").tables[1]
    assert lost.rows[0][0] == f"text of {lost.rows[0][1].split()[1]}"
    written = report.save(tmp_path / "page.html")
    assert len(written) == 4
    strictly((tmp_path / "page.json").read_text())


# How items are shown


def pixels_of(uri):
    data = base64.b64decode(uri.partition(",")[2])
    return np.asarray(Image.open(io.BytesIO(data)).convert("L")).astype(int)


def test_pictures_of_a_collection_are_its_images():
    collection = make_collection(OLD.data)
    ids = [collection.ids[3], "nobody", collection.ids[70]]
    shown = show_collection(collection)(ids)
    assert set(shown) == {ids[0], ids[2]}
    for row, item in ((3, ids[0]), (70, ids[2])):
        stored = collection.load(torch.tensor([row]), None)[0, 0].numpy().astype(int)
        assert np.abs(pixels_of(shown[item]) - stored).mean() < 6
    assert show_collection(collection)(["nobody"]) == {}
    assert show_collection(collection)([]) == {}


@pytest.mark.parametrize("channels", [1, 3])
def test_pixels_that_are_no_bytes_are_stretched_to_them(channels):
    grey = torch.linspace(-2, 3, 64).reshape(1, 1, 8, 8).expand(2, channels, 8, 8)
    collection = replace(make_collection(OLD.data), load=lambda rows, _: grey[: len(rows)])
    (uri,) = show_collection(collection)(collection.ids[:1]).values()
    shown = pixels_of(uri)
    assert shown.shape == (8, 8)
    assert shown[0, 0] < 20
    assert shown[-1, -1] > 235
    flat = replace(collection, load=lambda rows, _: torch.full((len(rows), 1, 8, 8), 0.5))
    assert len(show_collection(flat)(flat.ids[:2])) == 2


@pytest.fixture
def pictures(tmp_path):
    for name, color in (("red", (255, 0, 0)), ("blue", (0, 0, 255))):
        Image.new("RGB", (200, 100), color).save(tmp_path / f"{name}.png")
    (tmp_path / "broken.png").write_bytes(b"no picture")
    return tmp_path


def file_of(ids, **columns):
    return nb.Vectors(ids, torch.eye(len(ids)), columns=columns)


def test_files_show_items_by_their_paths_and_texts(pictures):
    paths = np.array([str(pictures / "red.png"), str(pictures / "broken.png"), "nowhere.png", ""])
    texts = np.array(["a red cup", "broken", "", "only a text"])
    shown = show_files([file_of(list("abcd"), path=paths, text=texts)])(list("abcdz"))
    assert set(shown) == {"a", "b", "d"}
    assert shown["a"].startswith("data:image/jpeg")
    assert shown["b"] == "broken"
    assert shown["d"] == "only a text"


def test_paths_may_lie_below_the_folder_of_the_data(pictures, monkeypatch):
    monkeypatch.setenv("NOBACKFILL_DATA", str(pictures))
    shown = show_files([file_of([4, 7], path=np.array(["blue.png", "gone.png"]))])([4, 7])
    assert list(shown) == [4]
    assert shown[4].startswith("data:image/jpeg")


def test_each_file_shows_the_items_it_has(pictures):
    old = file_of(list("ab"), text=np.array(["old a", "old b"]))
    new = file_of(list("bc"), text=np.array(["new b", "new c"]))
    assert show_files([old, new])(list("cab")) == {"a": "old a", "b": "old b", "c": "new c"}
    assert show_files([file_of(list("ab"))])(["a", "b"]) == {}
    assert show_files([])(["a"]) == {}


def test_a_picture_is_better_than_a_text(pictures):
    told = file_of(["a"], text=np.array(["a cup"]))
    drawn = file_of(["a"], path=np.array([str(pictures / "red.png")]))
    for files in ([told, drawn], [drawn, told]):
        assert show_files(files)(["a"])["a"].startswith("data:image/jpeg")


def test_a_report_without_an_evaluation_has_no_queries_to_write(tmp_path):
    page = Page("T", ["Do this."], [Section("S", "Text.")])
    written = Report(page, {"a": 1}).save(tmp_path / "page.html")
    assert len(written) == 3
    assert strictly((tmp_path / "page.json").read_text()) == {"a": 1}


def test_runs_of_one_name_are_told_apart_by_the_folder_above():
    apart, alike = (
        [Run(Path(folder), NDPP) for folder in folders]
        for folders in (("a/x", "b/y"), ("a/x", "b/x"))
    )
    assert names_of(apart) == ["x", "y"]
    assert names_of(alike) == ["a/x", "b/x"]


# What two files are called


@pytest.mark.parametrize(
    ("old", "new", "names"),
    [
        ("old.parquet", "new.parquet", ("old", "new")),
        (
            "runs/old/validation.parquet",
            "runs/ndpp/validation.parquet",
            ("old/validation", "ndpp/validation"),
        ),
        ("a/x/v.npz", "b/x/v.npz", ("a/x/v", "b/x/v")),
        ("v.parquet", "new/v.parquet", None),
        ("same/v.parquet", "same/v.npz", ("v.parquet", "v.npz")),
        ("same/v.parquet", "same/v.parquet", ("v.parquet", "v.parquet")),
    ],
)
def test_two_files_are_called_by_what_tells_them_apart(old, new, names, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    wanted = names or (f"{tmp_path.name}/v", "new/v")
    assert names_apart(Path(old), Path(new)) == wanted
    assert upgrade_title(Path(old), Path(new)) == (
        f"May {wanted[1]} go live on the vectors of {wanted[0]}?"
    )


# Who waits is told what is being done


def test_what_is_being_done_is_told_in_order(runs, tmp_path):
    old, new = (nb.load_vectors(runs / name / "validation.parquet") for name in ("old", "bct-0"))
    told = []
    report_vectors(evaluate(old, new), [old, new], title="T", watch=told.append)
    assert len(told) == len(set(told)) == 2
    for names in (["bct-0"], FOUR):
        some = []
        reported(runs, *names, watch=some.append)
        assert some[-2:] == told
        assert all("searching" in step for step in some[:-2])
        assert some[-3].done == (some[-3].total if len(names) == 1 else len(names) - 1)


# Images and texts


@pytest.fixture(scope="module")
def told_runs(tmp_path_factory):
    """Models of glyphs and of the sentences that tell them; two seeds of the new one."""
    folder = tmp_path_factory.mktemp("told")
    data = Choice("glyphs", {**OLD.data.options, "captions": 2})
    old = replace(OLD, data=data, text=Choice("words", {"buckets": 512, "width": 8}))
    train(old, folder / "old")
    for seed in (0, 1):
        train(
            replace(
                old,
                method=Choice("ndpp"),
                old=OldConfig(run=str(folder / "old")),
                train=replace(OLD.train, step=1, seed=seed),
            ),
            folder / f"ndpp-{seed}",
        )
    return folder


def by_modality(told_runs, name):
    files = [nb.load_vectors(told_runs / one / "validation.parquet") for one in ("old", name)]
    return evaluate_modalities(*files)


def decided(told_runs, name, **verdicts):
    """Makes the run's record tell other verdicts of its directions, as other data would."""
    path = told_runs / name / "evaluation.json"
    summary = strictly(path.read_text())
    for direction, verdict in verdicts.items():
        one = summary if direction == summary["direction"] else summary["tests"][direction]
        one["verdict"] = verdict
    path.write_text(json.dumps(summary))


def test_of_images_and_texts_the_verdict_is_that_of_all_directions(told_runs):
    wanted = by_modality(told_runs, "ndpp-0")
    made = reported(told_runs, "ndpp-0")
    assert made.page.verdict == made.facts["verdict"] == wanted.verdict
    assert made.facts["compatible"] == wanted.compatible
    assert made.facts["verdicts"] == {name: one.verdict for name, one in wanted.directions.items()}
    for name in ("text_to_image", "image_to_text"):
        gain = wanted.directions[name].differences["new_old - old_old"].mean
        assert f"{100 * gain:+.2f}" in made.page.summary[0]
        assert f"from {name.replace('_', ' ')}" in made.page.summary[0]


@pytest.mark.parametrize("other", ["compatible", "undecided", "not compatible"])
def test_one_direction_in_doubt_is_enough_for_a_page_and_for_a_table(told_runs, tmp_path, other):
    copy = tmp_path / "told"
    shutil.copytree(told_runs, copy)
    for name in ("ndpp-0", "ndpp-1"):
        decided(
            copy, name, text_to_image="compatible", image_to_text=other, text_to_text="undecided"
        )
    assert reported(copy, "ndpp-0").page.verdict == other
    both = reported(copy, "ndpp-0", "ndpp-1")
    (kind,) = both.facts["methods"].values()
    assert kind["verdicts"][other] == 2
    assert ("none may go live" in both.page.summary[0]) == (other != "compatible")
    assert both.page.summary[-1].startswith("Numbers are from text to image; a run is compatible")


def test_of_images_alone_no_directions_are_told(one):
    assert "verdicts" not in one.facts
    assert one.facts["verdict"] == one.page.verdict
