"""`nobackfill assess` on pairs, as a person and as a program call it."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import nobackfill as nb
from nobackfill.cli import output
from nobackfill.cli.exit_codes import code_of_assessment
from nobackfill.core.console import PlainConsole
from nobackfill.evaluation.bootstrap import Interval
from nobackfill.head.assess.assess import Verdict
from nobackfill.head.assess.candidates import Candidate
from nobackfill.head.assess.crowding import Crowding
from nobackfill.report.pages.assessment import assessment_page

LABELS = np.arange(320) % 40
QUICK = ["--epochs", "1", "--device", "cpu"]


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Vectors with labels, and pairs that say the same of all items but the last class's."""
    folder = tmp_path_factory.mktemp("vectors")
    generator = torch.Generator().manual_seed(0)
    centre = F.normalize(torch.randn(40, 12, generator=generator), dim=1)[LABELS]
    for name, noise in (("old", 1.5), ("new", 0.5)):
        vectors = centre + noise * torch.randn(320, 12, generator=generator) / 12**0.5
        columns = {"scene": np.array([f"scene {label}" for label in LABELS])}
        nb.Vectors(np.arange(320), vectors, LABELS, columns=columns).save(folder / f"{name}.npz")
        split = {"split": np.where(LABELS < 8, "train", "validation")}
        nb.Vectors(np.arange(320), vectors, columns=split).save(folder / f"split {name}.npz")
    rows = [f"{i},{i + 40}" for i in range(280) if i % 40 != 39]
    (folder / "pairs.csv").write_text("\n".join(["query,relevant", *rows]))
    return folder


@pytest.fixture
def assess(files, nobackfill):
    """Runs `nobackfill assess` on the files."""
    given = ["--old", files / "old.npz", "--new", files / "new.npz", *QUICK]
    return lambda *arguments: nobackfill("assess", *given, *arguments)


def test_pairs_from_a_file_do_what_python_does(assess, files):
    code, out, _ = assess("--pairs", files / "pairs.csv", "--json")
    old, new = (nb.load_vectors(files / f"{side}.npz") for side in ("old", "new"))
    few = LABELS != 39
    expected = nb.assess(old.select(few), new.select(few), epochs=1)
    found = json.loads(out)
    assert code == code_of_assessment(expected.verdict)
    assert found["notes"][0].startswith("8 of 320 items are in no pair")
    by_label = expected.summary()
    assert {**found, "notes": [], "crowding": {}} == {**by_label, "notes": [], "crowding": {}}
    closest = [pair[2] for pair in found["crowding"].pop("closest")]  # classes have other names
    assert closest == [pair[2] for pair in by_label["crowding"].pop("closest")]
    assert found["crowding"] == by_label["crowding"]


def test_a_person_is_told_who_takes_no_part(assess, files, tmp_path):
    page = tmp_path / "page.html"
    out = assess("--pairs", files / "pairs.csv", "--report", page)[1]
    assert "Note: 8 of 320 items are in no pair and are not used" in out
    assert "8 of 320 items are in no pair" in page.read_text()


def test_items_of_all_splits_take_part(assess, files):
    sides = ["--old", files / "split old.npz", "--new", files / "split new.npz"]
    counts = json.loads(assess(*sides, "--pairs", files / "pairs.csv", "--json")[1])["counts"]
    assert (counts["items"], counts["classes"], counts["fitted_classes"]) == (312, 39, 8)


@pytest.mark.parametrize("option", ["--label", "--group"])
def test_a_column_of_groups_is_one_of_labels(assess, option):
    assert json.loads(assess(option, "scene", "--json")[1])["counts"]["classes"] == 40


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--pairs", "pairs.csv", "--group", "scene"], "one kind of supervision"),
        (["--pairs", "gone.csv"], "gone.csv"),
        (["--new", "wrong.npz"], "20 items differ"),
    ],
)
def test_what_cannot_be_assessed_is_two(assess, files, arguments, says):
    old = nb.load_vectors(files / "old.npz")
    labels = np.where(np.arange(320) < 20, 77, LABELS)
    nb.Vectors(old.ids, old.vectors, labels).save(files / "wrong.npz")
    code, out, err = assess(*[files / one if "." in one else one for one in arguments])
    assert (code, out) == (2, "")
    assert says in " ".join(err.split())


def a_verdict(*names):
    """One in which every number is as long as can be."""
    most = Interval(-1.0, -1.0, -1.0, 0.95, 30)
    every = ("map", "recall_at_1", "ndcg_at_10")
    metrics, changes = dict.fromkeys(every, 1.0), dict.fromkeys(every, most)
    share = replace(most, mean=1.0)
    candidates = [Candidate(name, 1.0, metrics, changes, most, share, share) for name in names]
    return Verdict(
        "keep the old model", "it loses.", candidates, names[-1], 1.0,
        Crowding(40, 0.5, 9, 0.5, [("a", "b", 0.9)]),
        {"test_queries": 9, "test_classes": 8, "validation_classes": 7, "fitted_classes": 6},
        notes=["a note"],
    )  # fmt: skip


def test_the_table_fits_eighty_columns_whatever_its_numbers(monkeypatch, capsys):
    monkeypatch.setattr(output, "console", PlainConsole(width=80))
    names = ["keep the old model", "old vectors with a head", "independent_contrastive"]
    page = assessment_page(a_verdict(*names), title="Is it worth it?")
    output.print_page(page, {}, as_json=False)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("Keep the old model: ")
    lines = lines[2:]
    assert max(map(len, lines[:4])) <= 80
    assert lines[0].split() == "way mAP Recall@1 nDCG@10 lose gain pays".split()
    assert lines[1].split() == "keep the old model 100.00 100.00 100.00".split()
    numbers = "100.00 100.00 100.00 100.0 % 100.0 % no"
    assert lines[3].split() == ["independent_contrastive", "*", *numbers.split()]
    assert lines[4].startswith("9 queries of 8 classes; lose, gain: first hits; * was chosen")
    assert "--report and --json have intervals." in lines[4]
    assert lines[-1] == "Note: a note."


def test_of_several_ridge_regressions_the_best_on_validation_classes_is_printed(
    monkeypatch, capsys
):
    monkeypatch.setattr(output, "console", PlainConsole(width=80))
    verdict = a_verdict("keep the old model", "ridge 0.1", "ridge 0.01", "ridge 0.001", "mimic")
    for candidate, validation in zip(verdict.candidates[1:4], (0.3, 0.5, 0.4), strict=True):
        object.__setattr__(candidate, "validation", validation)
    page = assessment_page(verdict, title="T")
    output.print_page(page, {}, as_json=False)
    out = capsys.readouterr().out
    assert [line.split()[1] for line in out.splitlines() if line.startswith("ridge")] == ["0.01"]
    assert "2 more ways" in out
    assert len(page.sections[0].tables[0].rows) == 5  # on the page


def test_items_without_a_partner_are_told(assess, files, tmp_path):
    new = nb.load_vectors(files / "new.npz")
    new.select(np.arange(10, 320)).save(tmp_path / "few.npz")
    note = (
        "10 of 320 items of the old file are not in the new one and are not used (first: 0, 1, 2)"
    )
    page = tmp_path / "page.html"
    given = ["--new", tmp_path / "few.npz", "--report", page]
    assert json.loads(assess(*given, "--json")[1])["notes"][0] == note
    assert note in page.read_text()
    assert f"Note: {note}." in assess("--new", tmp_path / "few.npz")[1]


def test_json_has_the_metrics_and_flips_of_every_way(assess):
    """What `evaluate` finds on the same items, for the two ways that need no head."""
    found = json.loads(assess("--json")[1])
    for way in found["candidates"]:
        assert way["metrics"]["map"] == way["test"]
        assert way["changes"]["map"] == way["gain"]
        assert way["pays"] is (way["verdict"] == "compatible" and way["added"]["low"] > 0)
        flips = way["positive_flips"]["mean"] - way["negative_flips"]["mean"]
        assert way["changes"]["recall_at_1"]["mean"] == pytest.approx(flips, abs=1e-9)
    assert set(found["candidates"][0]["metrics"]) == {"map", "recall_at_1", "ndcg_at_10"}


def test_only_queries_search_and_only_gallery_items_are_searched(assess, files, tmp_path):
    """Items in neither role are vectors at random here: a way that searched them would show it."""
    clean, spoiled = {}, {}
    for side in ("old", "new"):
        file = nb.load_vectors(files / f"{side}.npz")
        rows = np.arange(len(file)) // 40  # the rows of a class, from 0 to 7
        roles = {"is_query": rows < 3, "is_gallery": (rows >= 2) & (rows < 6)}
        clean[side] = tmp_path / f"{side}.npz"
        nb.Vectors(file.ids, file.vectors, LABELS, columns=roles).save(clean[side])
        noise = file.vectors.clone()
        noise[rows > 5] = torch.randn(80, 12, generator=torch.Generator().manual_seed(9))
        spoiled[side] = tmp_path / f"noise {side}.npz"
        nb.Vectors(file.ids, noise, LABELS, columns=roles).save(spoiled[side])
    results = []
    for sides in (clean, spoiled):
        given = ["--old", sides["old"], "--new", sides["new"], "--epochs", "0", "--json"]
        results.append(json.loads(assess(*given)[1]))
    for result in results:
        assert result["counts"]["test_queries"] == 3 * 8
    for place in (0, -1):  # the old model, and a full backfill: neither depends on the fit
        way, other = ({**result["candidates"][place], "added": 0} for result in results)
        assert way == other


def test_one_role_alone_is_two(assess, files, tmp_path):
    for side in ("old", "new"):
        file = nb.load_vectors(files / f"{side}.npz")
        roles = {"is_query": np.arange(320) < 160}
        nb.Vectors(file.ids, file.vectors, LABELS, columns=roles).save(tmp_path / f"{side}.npz")
    code, _, err = assess("--old", tmp_path / "old.npz", "--new", tmp_path / "new.npz")
    assert code == 2
    neither = f"neither {tmp_path / 'old.npz'} nor {tmp_path / 'new.npz'} has `is_gallery`"
    assert neither in " ".join(err.split())


def test_without_labels_rankings_are_compared_and_nothing_is_recommended(
    files, nobackfill, tmp_path
):
    sides = [
        *("--old", tmp_path / "old.npz", "--new", tmp_path / "new.npz"),
        *("--device", "cpu"),
    ]
    for side in ("old", "new"):
        file = nb.load_vectors(files / f"{side}.npz")
        nb.Vectors(file.ids, file.vectors).save(tmp_path / f"{side}.npz")
    code, out, _ = nobackfill("assess", *sides, "--report", tmp_path / "page.html")
    assert code == 3
    assert out.startswith("Inconclusive: Quality was not measured")
    assert "second stage" in out
    assert len(out.splitlines()) <= 25
    assert "judging-data" in (tmp_path / "page.html").read_text()
    code, out, _ = nobackfill("assess", *sides, "--json")
    facts = json.loads(out)
    assert (code, facts["verdict"], facts["candidates"]) == (3, "inconclusive", [])
    assert facts["reason"].startswith("quality was not measured")
    assert set(facts["overlap"]) == {"new_old", "new_new", "two_stage"}
    code, _, err = nobackfill("assess", *sides, "--method", "mimic")
    assert code == 2
    assert "--method mimic requires labels or pairs" in err
