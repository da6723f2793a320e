"""What people see of an object: a few lines, a table in a notebook, and rows for pandas."""

import re
import sys
from dataclasses import fields, is_dataclass
from html.parser import HTMLParser

import numpy as np
import pandas as pd
import pytest
import torch

import nobackfill as nb
from nobackfill.core.notebook import page_html
from nobackfill.core.page import Page, Readable
from nobackfill.core.terminal import page_text
from nobackfill.data.listing import GroundTruth
from nobackfill.errors import ConfigError
from nobackfill.gallery.mixed import MixedGallery
from nobackfill.gallery.planning.plan_file import BackfillPlan
from nobackfill.gallery.stores.registry import open_store
from nobackfill.head.arguments import read_arguments

NUMBER = 2000
LABELS = np.arange(NUMBER) % 50
IDS = np.array([f"photographs/2019/{row:06}.jpg" for row in range(NUMBER)])


def side(seed, dim=12):
    random = np.random.default_rng(seed)
    means = random.normal(size=(50, dim))[LABELS]
    return np.float32(means + (0.8 - 0.3 * seed) * random.normal(size=means.shape))


@pytest.fixture(scope="module")
def upgrade():
    columns = {f"column {place}": LABELS for place in range(30)}
    old = nb.Vectors(IDS, side(0), LABELS, columns=columns)
    return old, nb.Vectors(IDS, side(1))


@pytest.fixture(scope="module")
def objects(upgrade, tmp_path_factory):
    """One of each kind that people meet, with thousands of items."""
    old, new = upgrade
    folder = tmp_path_factory.mktemp("gallery")
    old.save(folder / "old.parquet")
    store = open_store(f"flat:{folder / 'old.parquet'}")
    truth = GroundTruth({item: [other] for item, other in zip(IDS, IDS[50:], strict=False)})
    evaluation = nb.evaluate(old, new)
    prototypes = nb.class_means(old.vectors, torch.from_numpy(LABELS), 50)
    head = nb.CompatibleHead("cross_supcon", epochs=1, options={"temperature": 0.2}).fit(new, old)
    plan = BackfillPlan(
        IDS, np.linspace(1, 0, NUMBER), "gain", "clear", {}, 0.1, "a " * 60, None, {}
    )
    return {
        "Vectors": old,
        "Evaluation": evaluation,
        "Comparison": nb.compare(evaluation),
        "Retrieval": evaluation.old_old,
        "Verdict": nb.assess(old, new, epochs=0),
        "CompatibleHead": head,
        "CompatibleHead, not fitted": nb.CompatibleHead("mimic", epochs=2),
        "CompatibilityMatrix": nb.compatibility_matrix({"old": old, "new": new}),
        "NeighborPerturbation": nb.NeighborPerturbation(prototypes, neighbors=7),
        "OptimizedPerturbation": nb.OptimizedPerturbation(prototypes, steps=3),
        "OldSpace": nb.OldSpace(prototypes, old.vectors),
        "SearchPlan": evaluation.plan,
        "GroundTruth": truth,
        "BackfillPlan": plan,
        "FitArguments": read_arguments(new, old, pairs=truth),
        "FlatStore": store,
        "MixedGallery": MixedGallery(store, "new", same_space=True),
    }


KINDS = [
    "Vectors", "Evaluation", "Comparison", "Retrieval", "Verdict", "CompatibleHead",
    "CompatibleHead, not fitted", "CompatibilityMatrix", "NeighborPerturbation",
    "OptimizedPerturbation", "OldSpace", "SearchPlan", "GroundTruth", "BackfillPlan",
    "FitArguments", "FlatStore", "MixedGallery",
]  # fmt: skip
EVERY = pytest.mark.parametrize("kind", KINDS)


def test_every_kind_is_looked_at(objects):
    assert list(objects) == KINDS


@EVERY
def test_a_repr_has_a_few_lines_and_names_the_class(objects, kind):
    text = repr(objects[kind])
    assert text.startswith(f"{type(objects[kind]).__name__}(")
    assert len(text.splitlines()) <= 25
    assert len(text) <= 1500


class Outline(HTMLParser):
    """Checks that tags are closed in order, and collects the text."""

    def __init__(self):
        super().__init__()
        self.open, self.text = [], []

    def handle_starttag(self, tag, attrs):
        assert tag in {"p", "b", "table", "tr", "th", "td", "ul", "li", "caption"}
        self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)


@EVERY
def test_a_notebook_shows_the_page_that_is_printed(objects, kind):
    value = objects[kind]
    assert isinstance(value.page(), Page)
    assert value._repr_html_() == page_html(value.page())
    assert str(value) == page_text(value.page())
    outline = Outline()
    outline.feed(value._repr_html_())
    assert outline.open == []
    shown = " ".join(" ".join(outline.text).split())
    page = value.page()
    captions = [table.caption for section in page.sections for table in section.tables]
    titles = [section.title for section in page.sections if len(page.sections) > 1]
    for sentence in (*page.summary, *page.caveats, *captions, *titles):
        assert " ".join(sentence.split()) in shown


def test_the_numbers_are_in_the_lines(objects):
    for kind, pattern in {
        "Vectors": r"Vectors\(2000 x 12 float32, labelled, columns: column 0",
        "Comparison": r"^Comparison\(2,000 queries: [\d,]+ lose their first hit, \d+ gain one\)$",
        "Verdict": r"mAP keep the old model \d+\.\d\d, .* test queries\)$",
        "CompatibleHead": r"options=\{'temperature': 0.2\}, epochs=1\), fitted by labels: 12 to 12",
        "CompatibleHead, not fitted": r"^CompatibleHead\(method='mimic', epochs=2\)$",
        "CompatibilityMatrix": r"2 models, AC 0.00, AM 0.\d{3}, 2,000 queries, 2,000 gallery",
        "NeighborPerturbation": r"50 prototypes of 12 dimensions, neighbors=7, moved by \d\.\d\d°",
        "OptimizedPerturbation": r"steps=3, moved by \d+\.\d\d° on average",
        "OldSpace": r"prototypes=<50 x 12 float32>, embeddings=<2,000 x 12 float32>, classifier=N",
        "GroundTruth": r"relevant=<1,950 entries>, ignored=\{\}",
        "BackfillPlan": r"ids=<2,000 <U27>, scores=<2,000 float64>, order='gain'.*text of 120 char",
        "FlatStore": r"^FlatStore\(flat:.*old.parquet, collection 'old'\)$",
        "MixedGallery": r"new half 'new', scores as they are",
    }.items():
        assert re.search(pattern, repr(objects[kind])), repr(objects[kind])


def test_a_perturbation_prints_the_angle_that_it_moved(objects):
    moved = objects["NeighborPerturbation"]
    cosine = torch.nn.functional.cosine_similarity(moved.old.double(), moved.moved.double())
    angle = cosine.clamp(max=1).arccos().rad2deg().mean().item()
    printed = float(re.search(r"moved by ([\d.]+)°", repr(moved))[1])
    assert printed == pytest.approx(angle, abs=0.006)
    assert angle > 0.01


def test_a_head_prints_its_results(objects):
    text, progress = str(objects["CompatibleHead"]), objects["CompatibleHead"].progress_
    for name, value in progress.closed.items():
        assert re.search(rf"{name}, closed form +new/old +{100 * value:.2f}", text)
    for name, value in progress.stored.items():
        assert re.search(rf"stored {name} +new/new +{100 * value:.2f}", text)
    assert "no column `split`" in text
    assert "is not fitted" in str(nb.CompatibleHead())


def test_vectors_print_their_first_items(objects):
    lines = str(objects["Vectors"]).splitlines()
    assert [line.split()[0] for line in lines[3:8]] == IDS[:5].tolist()
    assert lines[8] == "… and 1,995 more"
    assert max(map(len, lines[2:])) <= 80
    assert "column 29" in objects["Vectors"]._repr_html_()
    short = str(nb.Vectors([1], torch.eye(1), columns={"text": ["a\nb" * 100]}))
    assert "more" not in short
    assert "…" in short


def test_dataclasses_describe_what_they_hold(objects):
    for value in objects.values():
        if is_dataclass(value) and f"{fields(value)[0].name}=" in repr(value):
            assert all(f"{field.name}=" in repr(value) for field in fields(value))
    truth = GroundTruth({"a": ["b"]}, {str(row): [] for row in range(1000)})
    assert (
        repr(truth) == "GroundTruth(relevant={'a': ['b']}, ignored=<1,000 entries>, judgements={})"
    )


def test_results_become_frames(objects):
    evaluation = objects["Evaluation"]
    frame = evaluation.to_pandas()
    assert frame["id"].tolist() == IDS.tolist()
    assert frame["first_hit_new_old"].tolist() == evaluation.new_old.first_hit.tolist()
    assert frame["average_precision_old_old"].mean() == pytest.approx(
        evaluation.old_old.mean_average_precision
    )
    pd.testing.assert_frame_equal(frame, objects["Comparison"].to_pandas())
    verdict = objects["Verdict"]
    ways = verdict.to_pandas().set_index("way")
    assert list(ways.index) == [way.name for way in verdict.candidates]
    for way in verdict.candidates:
        row = ways.loc[way.name]
        assert (row["map"], row["map_change"]) == (way.test, way.gain.mean)
        assert (row["added_low"], row["added_high"]) == (way.added.low, way.added.high)
        assert (row["lost"], row["gained"], row["pays"]) == (
            way.lost.mean, way.gained.mean, way.pays,
        )  # fmt: skip
    matrix = objects["CompatibilityMatrix"]
    assert matrix.to_pandas().loc["new", "old"] == matrix.map[1][0]
    assert matrix.to_pandas().to_numpy().tolist() == [list(row) for row in matrix.map]
    retrieval = objects["Retrieval"].to_pandas()
    assert retrieval["num_relevant"].tolist() == [39] * NUMBER


def test_vectors_come_back_from_their_frame(objects):
    vectors = objects["Vectors"]
    back = nb.as_vectors(vectors.to_pandas())
    assert torch.equal(back.vectors, vectors.vectors)
    assert back.ids.tolist() == vectors.ids.tolist()
    assert back.labels.tolist() == vectors.labels.tolist()
    assert set(back.columns) == set(vectors.columns)


@pytest.mark.parametrize(
    "kind", ["Vectors", "Evaluation", "Comparison", "Retrieval", "Verdict", "CompatibilityMatrix"]
)
def test_without_pandas_the_error_says_so(objects, kind, monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ConfigError, match="requires pandas.*pip install pandas"):
        objects[kind].to_pandas()


def test_a_readable_without_a_page_shows_its_repr():
    class Plain(Readable):
        def __repr__(self):
            return "Plain(<b>)"

    assert str(Plain()) == "Plain(<b>)"
    assert Plain()._repr_html_() == "<p>Plain(&lt;b&gt;)</p>"


@pytest.mark.parametrize("command", ["evaluate", "assess", "matrix"])
def test_print_shows_what_the_command_prints(upgrade, command, tmp_path, nobackfill, capsys):
    paths = {name: tmp_path / f"{name}.parquet" for name in ("old", "new")}
    for vectors, path in zip(upgrade, paths.values(), strict=True):
        vectors.select(np.arange(400)).save(path)
    if command == "matrix":
        options = [*paths.values(), "--device", "cpu"]
        result = nb.compatibility_matrix(
            {name: nb.load_vectors(path) for name, path in paths.items()}
        )
    else:
        options = ["--old", paths["old"], "--new", paths["new"], "--device", "cpu"]
        options += ["--epochs", "0"] if command == "assess" else []
        more = {"epochs": 0} if command == "assess" else {}
        result = getattr(nb, command)(*paths.values(), **more)
    _, out, _ = nobackfill(command, *options)
    print(result)
    assert out == capsys.readouterr().out
