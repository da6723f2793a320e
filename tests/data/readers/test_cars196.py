"""Cars196 in its combined layout, and as it comes when something went wrong."""

import sys

import numpy as np
import pytest
from PIL import Image
from scipy.io import savemat

from nobackfill.data.decode import open_image
from nobackfill.data.listing import count_items
from nobackfill.data.readers.cars196 import read_cars196
from nobackfill.errors import DataError

NUMBERS = [1, 98, 99, 196, 99]  # 98 is the last class to train on
NAMES = [f"Make {number} Sedan 2012" for number in range(1, 197)]
FILES = [f"car_ims/{place:06}.jpg" for place in range(1, 6)]


def write(root, numbers=NUMBERS, names=NAMES, files=FILES):
    """The annotations as MATLAB lays them out: a row of structs, and a row of cells."""
    (root / "car_ims").mkdir(exist_ok=True)
    for file in FILES:
        Image.new("L", (8, 6)).save(root / file)
    kinds = [("relative_im_path", object), ("bbox_x1", object), ("class", object), ("test", object)]
    rows = [(file, 1.0, float(number), 0) for file, number in zip(files, numbers, strict=True)]
    contents = {
        "annotations": np.array([rows], dtype=kinds),
        "class_names": np.array([names], dtype=object),
    }
    savemat(root / "cars_annos.mat", contents)
    return root


def test_the_first_98_classes_are_to_train_on(tmp_path):
    listing = read_cars196(write(tmp_path))
    assert listing.files == FILES
    assert listing.classes.tolist() == [NAMES[number - 1] for number in NUMBERS]
    assert listing.columns["split"].tolist() == ["train"] * 2 + ["validation"] * 3
    assert count_items(listing) == {
        **{"images": 5, "train_images": 2, "train_classes": 2},
        **{"queries": 3, "gallery": 3, "search_classes": 2},
    }
    for file in listing.files:
        assert open_image(listing.root / file).mode == "RGB"


def test_a_single_car(tmp_path):
    assert read_cars196(write(tmp_path, NUMBERS[:1], files=FILES[:1])).files == FILES[:1]


def test_files_that_no_list_names_do_no_harm(tmp_path):
    write(tmp_path)
    Image.new("RGB", (8, 6)).save(tmp_path / "car_ims" / "other.jpg")
    assert len(read_cars196(tmp_path).files) == 5


def test_a_list_that_is_missing(tmp_path):
    (write(tmp_path) / "cars_annos.mat").unlink()
    with pytest.raises(DataError, match=r"cars_annos\.mat: the file does not exist.*devkit"):
        read_cars196(tmp_path)


def test_images_that_are_missing(tmp_path):
    (write(tmp_path) / "car_ims").rename(tmp_path / "cars_train")
    with pytest.raises(DataError, match="car_ims: the folder does not exist"):
        read_cars196(tmp_path)


def test_a_list_cut_short(tmp_path):
    path = write(tmp_path) / "cars_annos.mat"
    path.write_bytes(path.read_bytes()[:2000])
    with pytest.raises(DataError, match=r"cars_annos\.mat: it cannot be read"):
        read_cars196(tmp_path)


def test_another_list_under_the_name(tmp_path):
    write(tmp_path)
    savemat(tmp_path / "cars_annos.mat", {"annotations": np.eye(3), "other": 1})
    with pytest.raises(DataError, match="it lacks `annotations` and `class_names`"):
        read_cars196(tmp_path)


@pytest.mark.parametrize("number", [0, 197])
def test_a_class_without_a_name(tmp_path, number):
    with pytest.raises(DataError, match="it has 5 images and 196 class names"):
        read_cars196(write(tmp_path, [*NUMBERS[:4], number]))


def test_an_image_that_is_listed_twice(tmp_path):
    with pytest.raises(DataError, match=r"000001\.jpg twice"):
        read_cars196(write(tmp_path, files=[FILES[0], *FILES[:4]]))


def test_without_scipy_the_error_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "scipy.io", None)
    with pytest.raises(DataError, match=r"pip install 'nobackfill\[cars196\]'"):
        read_cars196(write(tmp_path))
