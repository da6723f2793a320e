"""Omniglot in its official layout, and as it comes when something went wrong."""

import numpy as np
import pytest
from PIL import Image

from nobackfill.data.decode import open_image
from nobackfill.data.listing import count_items
from nobackfill.data.readers.omniglot import read_omniglot
from nobackfill.errors import DataError

FILES = [
    "images_background/Greek/character01/0394_02.png",
    "images_background/Greek/character01/0394_10.png",
    "images_background/Greek/character02/0395_01.png",
    "images_background/Latin/character01/0683_01.png",
    "images_evaluation/Angelic/character01/0965_01.png",
    "images_evaluation/Angelic/character01/0965_02.png",
]


@pytest.fixture
def root(tmp_path):
    for file in reversed(FILES):
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.eye(105) == 0).save(tmp_path / file)
    return tmp_path


def test_both_folders_are_read(root):
    listing = read_omniglot(root)
    assert listing.files == FILES
    assert listing.classes.tolist() == [
        *["Greek/character01"] * 2,
        *["Greek/character02", "Latin/character01"],
        *["Angelic/character01"] * 2,
    ]
    assert listing.columns["split"].tolist() == ["train"] * 4 + ["validation"] * 2
    assert listing.columns["alphabet"].tolist()[2:5] == ["Greek", "Latin", "Angelic"]
    assert listing.columns["drawer"].tolist() == [2, 10, 1, 1, 1, 2]
    assert listing.notes == ()
    assert count_items(listing) == {
        **{"images": 6, "train_images": 4, "train_classes": 3},
        **{"queries": 2, "gallery": 2, "search_classes": 1},
    }
    image = open_image(root / FILES[0])
    assert (image.mode, image.size, image.getpixel((3, 3))) == ("RGB", (105, 105), (0, 0, 0))


def test_other_files_are_left_out_and_counted(root):
    for other in (
        "images_background/readme.txt",
        "images_background/Greek/character01/._0394_02.png",
    ):
        (root / other).write_text("")
    (root / "images_evaluation" / "0001_01.png").write_text("")
    listing = read_omniglot(root)
    assert listing.files == FILES
    assert [note.split(" such as ")[0] for note in listing.notes] == [
        "2 other files",
        "1 other files",
    ]


@pytest.mark.parametrize("folder", ["images_background", "images_evaluation"])
def test_a_folder_that_is_missing(root, folder):
    (root / folder).rename(root / "elsewhere")
    with pytest.raises(DataError, match=f"{folder}: the folder does not exist"):
        read_omniglot(root)


def test_a_folder_inside_itself(root):
    """As some programs unpack: images_evaluation/images_evaluation/Angelic/…"""
    (root / "images_evaluation").rename(root / "inner")
    (root / "images_evaluation").mkdir()
    (root / "inner").rename(root / "images_evaluation" / "images_evaluation")
    with pytest.raises(DataError, match=r"Unpack images_evaluation\.zip again"):
        read_omniglot(root)
