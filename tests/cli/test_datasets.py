"""`nobackfill datasets` as a person or a script calls it."""

import io
import json
from dataclasses import replace

import pytest
from PIL import Image

from nobackfill.cli import datasets as show_datasets
from nobackfill.cli import progress_lines
from nobackfill.core.console import PlainConsole
from nobackfill.data.han import HAN_FACES
from nobackfill.data.registry import DATASETS, DRAWN
from nobackfill.data.text_collections import TEXT_DATASETS

NAMES = """
    bounding_box_train/0002_c1s1_000451_03.jpg bounding_box_train/0007_c3s3_077419_03.jpg
    query/0001_c1s1_001051_00.jpg bounding_box_test/0001_c2s1_000301_00.jpg
    bounding_box_test/-1_c1s1_000401_03.jpg
""".split()
COUNTS = {
    "images": 4, "train_images": 2, "train_classes": 2,
    "queries": 1, "gallery": 1, "search_classes": 1,
}  # fmt: skip


@pytest.fixture
def command(nobackfill, monkeypatch):
    """Runs `nobackfill datasets` on a wide terminal."""

    def run(*arguments):
        monkeypatch.setattr(show_datasets, "console", PlainConsole(width=200))
        return nobackfill("datasets", *arguments)

    return run


@pytest.fixture
def root(tmp_path, monkeypatch):
    """A tiny Market-1501, and authors who say that it is whole."""
    monkeypatch.setitem(DATASETS, "market1501", replace(DATASETS["market1501"], counts=COUNTS))
    for name in NAMES:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        Image.effect_noise((32, 64), 50).save(tmp_path / name)
    return tmp_path


def test_every_collection_is_listed_with_its_layout_and_its_counts(command):
    code, out, _ = command()
    assert code == 0
    for name, dataset in DATASETS.items():
        assert name in out
        assert dataset.description in out
        for line in dataset.layout.splitlines():
            assert line in out
    assert "12,936 train images" in out
    assert "datasets check NAME PATH" in out


def test_the_list_is_one_json_object(command):
    code, out, _ = command("--json")
    listed = {row["name"]: row for row in json.loads(out)["datasets"]}
    assert code == 0
    assert list(listed) == [*DRAWN, *DATASETS, *TEXT_DATASETS]
    assert listed["inshop"]["counts"]["queries"] == 14_218
    assert listed["market1501"]["layout"] == DATASETS["market1501"].layout.splitlines()


def test_a_whole_copy_exits_with_0(command, root):
    code, out, _ = command("check", "market1501", root)
    assert code == 0
    assert "Matches the official release (4 of 4 images opened)." in out
    assert "1 junk images" in out
    assert "1 files are not used, the first: bounding_box_test/-1_c1s1_000401_03.jpg" in out


def test_counts_stand_beside_the_official_ones_and_a_difference_exits_with_1(command, root):
    (root / NAMES[1]).unlink()
    code, out, _ = command("check", "market1501", root)
    assert code == 1
    rows = [line.split() for line in out.splitlines()]
    assert ["train", "images", "1", "2", "✗"] in rows
    assert ["queries", "1", "1"] in rows
    assert "Differs from the official release" in out


def test_a_truncated_file_exits_with_1_and_is_named_if_it_is_opened(command, root):
    path = root / NAMES[2]
    path.write_bytes(path.read_bytes()[:300])
    code, out, _ = command("check", "market1501", root, "--decode", "all")
    assert code == 1
    assert f"1 files cannot be opened, the first: {NAMES[2]} (" in out
    assert command("check", "market1501", root, "--decode", "none")[0] == 0


def test_a_missing_file_exits_with_1_and_is_named(command, tmp_path):
    (tmp_path / "imgs").mkdir()
    entry = {"id": 0, "img_path": "0000_c14_0031.jpg", "captions": ["a", "b"], "split": "test"}
    (tmp_path / "data_captions.json").write_text(json.dumps([entry]))
    code, out, _ = command("check", "rstpreid", tmp_path)
    assert code == 1
    assert "1 files are missing, the first: imgs/0000_c14_0031.jpg" in out
    rows = [line.split() for line in out.splitlines()]
    assert ["queries", "0", "–"] in rows  # texts ask here, and the authors count no images


@pytest.mark.parametrize("before", [True, False])
def test_the_check_is_one_json_object_wherever_that_is_asked(command, root, before):
    path = root / NAMES[2]
    path.write_bytes(path.read_bytes()[:300])
    check = ["check", "market1501", root]
    code, out, _ = command(*(["--json", *check] if before else [*check, "--json"]))
    result = json.loads(out)
    assert code == 1
    assert result["counts"] == result["official"] == COUNTS
    assert result["undecodable"]["first"] == NAMES[2]
    assert result["undecodable"]["reason"]
    assert result["missing"]["first"] is None
    assert result["unused"]["number"] == 1
    assert result["passed"] is False


def test_progress_goes_to_stderr(capsys, monkeypatch):
    terminal = PlainConsole(file=io.StringIO(), force_terminal=True)
    monkeypatch.setattr(progress_lines, "console", terminal)
    monkeypatch.setattr(progress_lines, "DELAY", 0.0)
    assert list(show_datasets.watch_files(["a", "b"])) == ["a", "b"]
    assert "opening images" in terminal.file.getvalue()
    assert not capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["check", "market-1501", "."], "Did you mean `market1501`"),
        (["check", "market1501", "no/such/folder"], "No images of Market-1501"),
        (["check", "inshop", "no/such/folder"], "list_eval_partition.txt"),
        (["check"], "NAME is missing"),
        (["check", "market1501"], "PATH is missing"),
        (["chek", "market1501", "."], "chek"),
        (["check", "market1501", ".", "--decode", "most"], "most"),
    ],
)
def test_what_cannot_run_exits_with_2_and_says_why(command, arguments, says):
    code, out, err = command(*arguments)
    assert code == 2
    assert says in err
    assert not out


def test_missing_fonts_of_han_are_named_with_their_packages(nobackfill, tmp_path):
    for name in ("HanaMinA.ttf", "ukai.ttc"):
        (tmp_path / name).touch()
    code, out, _ = nobackfill("datasets", "check", "han", tmp_path)
    assert code == 1
    words = " ".join(out.split())
    assert "2 of 16 typefaces are installed" in words
    assert "apt-get install fonts-arphic-uming fonts-babelstone-han" in words
    assert "fonts-hanazono" not in words.split("apt-get install")[1].split("typeface")[0]


def test_fonts_of_han_that_are_all_there_pass(nobackfill, tmp_path):
    for face in HAN_FACES:
        (tmp_path / face.file).touch()
    code, out, _ = nobackfill("datasets", "check", "han", tmp_path, "--json")
    facts = json.loads(out)
    assert (code, facts["passed"], facts["missing_packages"]) == (0, True, [])
    assert facts["installed"]["ukai"] == str(tmp_path / "ukai.ttc")
