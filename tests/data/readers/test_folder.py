"""Folders of class folders: which classes are searched, and what is passed over."""

import pytest
from PIL import Image

from nobackfill.data.decode import open_image
from nobackfill.data.listing import count_items
from nobackfill.data.readers.folder import read_folder
from nobackfill.errors import ConfigError, DataError


def draw(*paths):
    for path in paths:
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (8, 6)).save(path)


@pytest.fixture
def root(tmp_path):
    """Ten classes with two images each."""
    draw(*(tmp_path / f"class_{number}" / f"{place}.png" for number in range(10) for place in "ab"))
    return tmp_path


def searched(listing):
    return set(listing.classes[listing.columns["split"] == "validation"])


def test_a_class_is_a_folder(root):
    listing = read_folder(root)
    assert listing.files[:3] == ["class_0/a.png", "class_0/b.png", "class_1/a.png"]
    assert listing.classes[:3].tolist() == ["class_0", "class_0", "class_1"]
    assert count_items(listing) == {
        **{"images": 20, "train_images": 16, "train_classes": 8},
        **{"queries": 4, "gallery": 4, "search_classes": 2},
    }
    assert listing.notes == ()
    for file in listing.files:
        open_image(listing.root / file)


@pytest.mark.parametrize(
    ("share", "count"), [(0, 0), (0.01, 1), (0.3, 3), (0.5, 5), (0.99, 9), (1.0, 10), (1, 10)]
)
def test_a_share_of_whole_classes_is_searched(root, share, count):
    listing = read_folder(root, validation=share)
    assert len(searched(listing)) == count
    trained = set(listing.classes[listing.columns["split"] == "train"])
    assert len(trained) == 10 - count
    assert trained.isdisjoint(searched(listing))


def test_the_seed_decides_which(root):
    drawn = [searched(read_folder(root, validation=0.3, seed=seed)) for seed in range(20)]
    assert drawn[0] == searched(read_folder(root, validation=0.3, seed=0))
    assert len({frozenset(classes) for classes in drawn}) > 10
    assert set().union(*drawn) == {f"class_{number}" for number in range(10)}


@pytest.mark.parametrize("share", [-0.1, 1.5, float("nan")])
def test_a_share_that_is_none(root, share):
    with pytest.raises(ConfigError, match="between 0 and 1"):
        read_folder(root, validation=share)


@pytest.mark.parametrize("name", ["validation", "val", "test"])
def test_subfolders_tell_what_is_searched(tmp_path, name):
    draw(*(tmp_path / file for file in ("train/cat/1.jpg", "train/dog/1.jpg", f"{name}/dog/2.jpg")))
    listing = read_folder(tmp_path)
    assert listing.files == ["train/cat/1.jpg", "train/dog/1.jpg", f"{name}/dog/2.jpg"]
    assert listing.classes.tolist() == ["cat", "dog", "dog"]
    assert listing.columns["split"].tolist() == ["train", "train", "validation"]


def test_of_several_subfolders_one_is_searched_and_the_others_are_told(tmp_path):
    draw(*(tmp_path / f"{part}/cat/1.jpg" for part in ("train", "val", "test")))
    listing = read_folder(tmp_path)
    assert listing.files == ["train/cat/1.jpg", "val/cat/1.jpg"]
    assert listing.notes == ("test/ is left out: val/ is searched",)


@pytest.mark.parametrize("name", ["train", "test"])
def test_one_part_alone_is_a_class_like_others(tmp_path, name):
    draw(tmp_path / name / "1.jpg", tmp_path / "plane/1.jpg")
    assert set(read_folder(tmp_path).classes) == {name, "plane"}


def test_images_may_lie_deeper(tmp_path):
    draw(tmp_path / "cat/white/indoor/1.jpg", tmp_path / "cat/2.JPEG", tmp_path / "dog/1.webp")
    listing = read_folder(tmp_path)
    assert listing.files == ["cat/2.JPEG", "cat/white/indoor/1.jpg", "dog/1.webp"]
    assert listing.classes.tolist() == ["cat", "cat", "dog"]


def test_class_folders_may_be_links(root, tmp_path_factory):
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    draw(elsewhere / "1.jpg")
    (root / "linked").symlink_to(elsewhere)
    assert "linked/1.jpg" in read_folder(root).files


def test_what_is_no_image_is_passed_over_and_counted(root):
    draw(root / "loose.png", root / ".cache" / "1.png")
    for other in ("class_0/Thumbs.db", "class_1/._a.png", "class_1/notes.txt"):
        (root / other).write_text("")
    (root / "empty").mkdir()
    listing = read_folder(root)
    assert len(listing.files) == 20
    assert listing.notes == ("4 files that are no images in a class folder are left out",)


def test_a_folder_without_images(tmp_path):
    draw(tmp_path / "1.jpg", tmp_path / "2.jpg")
    with pytest.raises(
        DataError, match=r"number of other files is 2\. Lay the images out as CLASS/IMAGE"
    ):
        read_folder(tmp_path)


def test_a_folder_that_is_not_there(tmp_path):
    with pytest.raises(DataError, match="gone: the folder does not exist"):
        read_folder(tmp_path / "gone")


def test_one_class_cannot_be_shared_out(tmp_path):
    draw(tmp_path / "cat/1.jpg")
    with pytest.raises(DataError, match="there is only cat"):
        read_folder(tmp_path)
    assert read_folder(tmp_path, validation=0).columns["split"].tolist() == ["train"]
