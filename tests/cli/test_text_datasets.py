"""`nobackfill datasets` for collections of texts."""

import json

import pytest

from nobackfill.data.pair_files import read_pair_file
from nobackfill.data.text_collections import TEXT_DATASETS, read_texts
from nobackfill.errors import ConfigError

LONG = "A long description that says what the package is good for, in more than eighty characters."


@pytest.fixture
def mirror(tmp_path):
    folder = tmp_path / "lists"
    folder.mkdir()
    (folder / "x_Translation-en").write_text(
        "\n".join(
            f"Package: p{number}\nDescription-en: synopsis of package {number}\n {LONG} {number}\n"
            for number in range(50)
        )
    )
    return folder


def test_collections_of_texts_are_listed(nobackfill):
    code, out, _ = nobackfill("datasets", "--json")
    assert code == 0
    listed = {entry["name"]: entry for entry in json.loads(out)["datasets"]}
    assert set(TEXT_DATASETS) <= set(listed)
    assert listed["flickr8k_captions"]["counts"]["train_pairs"] == 24_000


def test_a_mirror_is_checked(nobackfill, mirror):
    code, out, _ = nobackfill("datasets", "check", "debian", mirror, "--json")
    facts = json.loads(out)
    assert code == 0
    assert facts["counts"]["texts"] == 100
    assert facts["counts"]["train_pairs"] + facts["counts"]["queries"] == 50
    code, out, _ = nobackfill("datasets", "check", "debian", mirror)
    assert code == 0
    assert "no official counts" in out


def test_a_part_of_the_captions_differs(nobackfill, tmp_path):
    for name, image in (("train", "a.jpg"), ("dev", "b.jpg"), ("test", "c.jpg")):
        (tmp_path / f"Flickr_8k.{name}Images.txt").write_text(image + "\n")
    lines = [f"{image}.jpg#{number}\t{image} {number}" for image in "abc" for number in range(2)]
    (tmp_path / "Flickr8k.token.txt").write_text("\n".join(lines) + "\n")
    code, out, _ = nobackfill("datasets", "check", "flickr8k_captions", tmp_path, "--json")
    assert code == 1
    assert json.loads(out)["differences"]["texts"] == 6 - 40_460
    code, out, _ = nobackfill("datasets", "check", "flickr8k_captions", tmp_path)
    assert code == 1
    assert "Differs from the official release" in out


def test_pairs_are_written_as_training_reads_them(nobackfill, mirror, tmp_path):
    output = tmp_path / "pairs.jsonl"
    code, out, _ = nobackfill("datasets", "pairs", "debian", mirror, "-o", output)
    pairs = read_texts("debian", mirror).pairs("train")
    assert code == 0
    assert out.startswith(f"{len(pairs)} pairs of debian (train)")
    assert read_pair_file(output) == pairs
    nobackfill("datasets", "pairs", "debian", mirror, "-o", output, "--split", "validation")
    assert read_pair_file(output) == read_texts("debian", mirror).pairs("validation")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["pairs", "debian"], "-o is missing"),
        (["pairs", "cub200", "-o", "x.jsonl"], "no collection of texts 'cub200'"),
        (["pairs", "-o", "x.jsonl"], "no collection of texts"),
        (["check", "flickr8k_captions"], "PATH is missing"),
        (["pairs", "debian", "absent", "-o", "x.jsonl"], "absent"),
    ],
)
def test_what_cannot_be_done_ends_with_2(nobackfill, tmp_path, monkeypatch, words, message):
    monkeypatch.chdir(tmp_path)
    code, _, error = nobackfill("datasets", *words)
    assert code == 2
    assert message in error
    assert list(tmp_path.iterdir()) == []


def test_a_split_without_pairs_names_the_others(nobackfill, mirror, tmp_path):
    code, _, error = nobackfill(
        "datasets", "pairs", "debian", mirror, "-o", tmp_path / "x", "--split", "trian"
    )
    assert code == 2
    assert "Did you mean `train`?" in error


def test_a_collection_without_a_usual_place_needs_a_path():
    with pytest.raises(ConfigError, match="PATH is missing"):
        read_texts("flickr8k_captions")
