"""`nobackfill evaluate --by-modality`, as a person and as a program see it."""

import json

import numpy as np
import pytest
import torch

import nobackfill as nb
from nobackfill.evaluation.by_modality import evaluate_modalities

IMAGES, TEXTS, DIM = 40, 3, 16
LABELS = np.array([*range(IMAGES), *np.repeat(np.arange(IMAGES), TEXTS)])
KINDS = np.array(["image"] * IMAGES + ["text"] * IMAGES * TEXTS)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Old vectors of images and captions, better ones, ones of another space, and alike ones."""
    folder = tmp_path_factory.mktemp("vectors")

    def save(name, seed, noise, space=0, **columns):
        fixed = torch.Generator().manual_seed(space)
        centre, kind = (torch.randn(n, DIM, generator=fixed) for n in (IMAGES, 2))
        random = torch.Generator().manual_seed(seed)
        values = centre[LABELS] + kind[torch.from_numpy((KINDS == "text").astype(int))]
        values += noise * torch.randn(len(LABELS), DIM, generator=random)
        file = nb.Vectors(np.arange(len(LABELS)), values, LABELS, columns=columns)
        file.save(folder / f"{name}.parquet")
        return file

    old = save("old", 1, 1.0, modality=KINDS)
    save("new", 2, 0.4)
    save("stranger", 3, 0.4, space=9)
    save("plain", 4, 1.0)
    nb.Vectors(old.ids, 1.001 * old.vectors, LABELS).save(folder / "same.parquet")
    return folder


def by_modality(files, new="new", old="old"):
    both = ("--old", files / f"{old}.parquet", "--new", files / f"{new}.parquet")
    return "evaluate", *both, "--device", "cpu", "--by-modality"


def test_programs_get_every_direction_the_gap_and_whether_it_is_compatible(command, files):
    code, out, err = command(
        *by_modality(files), "--json", "--independent", files / "stranger.parquet"
    )
    found = json.loads(out)
    assert (code, err) == (0, "")
    assert set(found) == {"directions", "modality_gap", "notes", "compatible"}
    expected = evaluate_modalities(
        *(nb.load_vectors(files / f"{name}.parquet") for name in ("old", "new")),
        independent=nb.load_vectors(files / "stranger.parquet"),
    ).summary()
    assert found == json.loads(json.dumps(expected))
    assert set(found["directions"]) == {"text_to_image", "image_to_text", "text_to_text"}
    for one in found["directions"].values():
        pairs = {"old_old", "new_old", "old_new", "new_new", "independent"}
        assert set(one["metrics"]) == pairs
        assert all({"map", "recall_at_5"} <= set(one["metrics"][pair]) for pair in pairs)
    assert found["compatible"] is True


@pytest.mark.parametrize(
    ("new", "code", "compatible", "says"),
    [
        ("new", 0, True, "Compatible: "),
        ("stranger", 1, False, "Not compatible: "),
        ("same", 3, None, "Undecided: "),
    ],
)
def test_the_exit_code_is_the_verdict_only_if_asked_for(
    command, files, new, code, compatible, says
):
    arguments = by_modality(files, new)
    assert command(*arguments, "--require-compatible")[0] == code
    found, out, _ = command(*arguments, "--require-compatible", "--json")
    assert (found, json.loads(out)["compatible"]) == (code, compatible)
    found, out, _ = command(*arguments)
    assert found == 0
    assert out.startswith(says)


def test_people_read_a_row_for_each_direction(command, files):
    _, out, _ = command(*by_modality(files), "--independent", files / "stranger.parquet")
    summary = evaluate_modalities(
        *(nb.load_vectors(files / f"{name}.parquet") for name in ("old", "new")),
        independent=nb.load_vectors(files / "stranger.parquet"),
    ).summary()
    lines = out.splitlines()
    assert "…" not in out  # nothing is cut
    metrics = summary["directions"]["text_to_image"]["metrics"]
    pairs = ("old_old", "new_old", "old_new", "new_new", "independent")
    for caption, key in (("mAP", "map"), ("Recall@1", "recall_at_1")):
        _, heads, row = lines[lines.index(caption) :][:3]
        assert max(len(heads), len(row)) <= 80
        names = ["old/old", "new/old", "old/new", "new/new", "independent"]
        assert heads.split() == ["direction", *names]
        numbers = [f"{100 * metrics[pair][key]:.2f}" for pair in pairs]
        assert row.split() == ["text", "to", "image", *numbers]
    gap = summary["modality_gap"]
    assert f"{gap['old']:.3f} before, {gap['new']:.3f} after" in out
    assert "Note: image_to_image is left out: no image has another image to find." in out
    assert "text to text" in out


def test_a_pair_that_is_not_measured_is_a_dash(command, files, tmp_path):
    new = nb.load_vectors(files / "new.parquet").select(np.flatnonzero(KINDS == "text"))
    new.save(tmp_path / "texts.parquet")
    code, out, _ = command(*by_modality(files)[:4], tmp_path / "texts.parquet", "--by-modality")
    assert code == 0
    lines = out.splitlines()
    assert lines[lines.index("mAP") + 2].split()[-2:] == ["–", "–"]


def test_a_report_has_the_same_tables_and_lies_beside_its_json(command, files, tmp_path):
    code, out, err = command(*by_modality(files), "--json", "--report", tmp_path / "page.html")
    assert (code, err) == (0, "")
    assert {path.name for path in tmp_path.iterdir()} == {"page.html", "page.md", "page.json"}
    beside = json.loads((tmp_path / "page.json").read_text())
    assert {key: beside[key] for key in json.loads(out)} == json.loads(out)
    text = (tmp_path / "page.md").read_text()
    assert text.startswith("# May new go live on the vectors of old?\n\n**Verdict: compatible**")
    metrics = beside["directions"]["image_to_text"]["metrics"]
    captions = {"map": "mAP", **{f"recall_at_{k}": f"Recall@{k}" for k in (1, 5, 10)}}
    for key, caption in captions.items():
        table = text.split(f"**{caption}**")[1].split("**")[0]
        pairs = ("old_old", "new_old", "old_new", "new_new")
        cells = " | ".join(f"{100 * metrics[pair][key]:.2f}" for pair in pairs)
        assert f"| image to text | {cells} |" in table
    assert "| new texts and old images |" in text
    assert "The modality gap" in (tmp_path / "page.html").read_text()


def test_a_page_of_one_modality_has_no_gap(command, tmp_path):
    random = np.random.default_rng(0)
    for name in ("old", "new"):
        labels, kinds = np.arange(60) % 20, np.full(60, "image")
        values = random.normal(size=(60, 4)).astype(np.float32)
        nb.Vectors(np.arange(60), values, labels, columns={"modality": kinds}).save(
            tmp_path / f"{name}.parquet"
        )
    arguments = (*by_modality(tmp_path), "--require-compatible", "--report", tmp_path / "page.html")
    code, out, _ = command(*arguments)
    assert code == 3
    assert "No direction between two modalities was measured" in out
    assert "The modality gap" not in (tmp_path / "page.md").read_text()


@pytest.mark.parametrize(
    "option",
    [
        ["--slice", "label"],
        ["--flips", "0"],
        ["--false-accept", "0.0"],
        ["--save-queries", "queries.parquet"],
        ["--pairs", "truth.jsonl"],
    ],
)
def test_what_is_of_one_search_cannot_be_asked_of_several(command, files, option):
    code, out, err = command(*by_modality(files), *option)
    assert (code, out) == (2, "")
    assert f"but {option[0]} requires one direction. Leave out the one or the other" in err


def test_without_the_column_it_is_two(command, files):
    code, out, err = command(*by_modality(files, old="plain"))
    assert (code, out) == (2, "")
    assert "needs a column `modality`" in err


def test_without_the_option_a_note_tells_of_it(command, files):
    code, out, _ = command(*by_modality(files)[:-1])
    assert code == 0
    assert "Note: these files contain images and texts: " in out
    assert "--by-modality evaluates each direction" in out
    chosen = command(*by_modality(files)[:-1], "--protocol", "text_to_image")[1]
    assert "--by-modality" not in chosen
