"""Stanford Online Products in its official layout, and as it comes when something went wrong."""

import pytest
from PIL import Image

from nobackfill.data.decode import open_image
from nobackfill.data.listing import count_items
from nobackfill.data.readers.stanford_products import read_stanford_products
from nobackfill.errors import DataError

HEAD = "image_id class_id super_class_id path\n"
TRAIN = (
    "1 1 1 bicycle_final/11_0.JPG\n2 1 1 bicycle_final/11_1.JPG\n3 2 5 coffee_maker_final/7.JPG\n"
)
TEST = "4 11319 1 bicycle_final/99_0.JPG\n5 11319 1 bicycle_final/99_1.JPG\n"


def write(root, train=HEAD + TRAIN, test=HEAD + TEST):
    for line in (TRAIN + TEST).splitlines():
        path = root / line.split()[3]
        path.parent.mkdir(exist_ok=True)
        Image.new("CMYK", (8, 6)).save(path, "JPEG")
    (root / "Ebay_train.txt").write_text(train)
    (root / "Ebay_test.txt").write_text(test)
    return root


def test_both_lists_are_read(tmp_path):
    listing = read_stanford_products(write(tmp_path))
    assert listing.files == [line.split()[3] for line in (TRAIN + TEST).splitlines()]
    assert listing.classes.tolist() == ["1", "1", "2", "11319", "11319"]
    assert listing.columns["split"].tolist() == ["train"] * 3 + ["validation"] * 2
    assert listing.columns["kind"].tolist()[1:4] == ["bicycle", "coffee_maker", "bicycle"]
    assert count_items(listing) == {
        **{"images": 5, "train_images": 3, "train_classes": 2},
        **{"queries": 2, "gallery": 2, "search_classes": 1},
    }
    for file in listing.files:
        assert open_image(listing.root / file).mode == "RGB"


def test_lines_may_end_as_on_windows(tmp_path):
    write(tmp_path, train=(HEAD + TRAIN).replace("\n", "\r\n"))
    assert read_stanford_products(tmp_path).files[2] == "coffee_maker_final/7.JPG"


def test_files_that_no_list_names_do_no_harm(tmp_path):
    write(tmp_path)
    (tmp_path / "bicycle_final" / "._11_0.JPG").write_text("")
    (tmp_path / "Ebay_info.txt").write_text("")
    assert len(read_stanford_products(tmp_path).files) == 5


@pytest.mark.parametrize("name", ["Ebay_train.txt", "Ebay_test.txt"])
def test_a_list_that_is_missing(tmp_path, name):
    (write(tmp_path) / name).unlink()
    with pytest.raises(DataError, match=rf"{name}: No such file"):
        read_stanford_products(tmp_path)


def test_a_folder_that_is_missing(tmp_path):
    with pytest.raises(DataError, match="gone: the folder does not exist"):
        read_stanford_products(tmp_path / "gone")


def test_a_head_that_is_missing_would_lose_an_image(tmp_path):
    with pytest.raises(
        DataError, match=r"Ebay_test\.txt: its first line must be .* but it is '4 11319"
    ):
        read_stanford_products(write(tmp_path, test=TEST))


def test_a_wrong_separator(tmp_path):
    with pytest.raises(
        DataError, match=r"Ebay_train\.txt: line 2 must have 4 .* but has 1: '1,1,1,"
    ):
        read_stanford_products(write(tmp_path, train=HEAD + TRAIN.replace(" ", ",")))


def test_a_list_without_images(tmp_path):
    with pytest.raises(DataError, match=r"Ebay_test\.txt: the list of images is empty"):
        read_stanford_products(write(tmp_path, test=HEAD))


def test_an_image_in_both_lists(tmp_path):
    with pytest.raises(DataError, match=r"bicycle_final/11_1\.JPG twice"):
        read_stanford_products(write(tmp_path, test=HEAD + TEST + TRAIN.splitlines()[1]))


def test_a_file_cut_short_is_told_when_opened(tmp_path):
    listing = read_stanford_products(write(tmp_path))
    path = listing.root / listing.files[1]
    path.write_bytes(path.read_bytes()[:-30])
    with pytest.raises(DataError, match=r"11_1\.JPG.*cannot be decoded"):
        open_image(path)
