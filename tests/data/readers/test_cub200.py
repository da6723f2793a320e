"""CUB-200-2011 in its official layout, and as it comes when something went wrong."""

import pytest
from PIL import Image

from nobackfill.data.decode import open_image
from nobackfill.data.listing import count_items
from nobackfill.data.readers.cub200 import read_cub200
from nobackfill.errors import DataError

BIRDS = {  # class 100 is the last to train on, class 101 the first that is searched
    1: "001.Albatross/A_0046.jpg",
    2: "100.Pelican/P_0001.jpg",
    3: "101.White_Pelican/W_0002.jpg",
    4: "101.White_Pelican/W_0001.jpg",
    7: "200.Yellowthroat/Y_0001.jpg",
}
CLASSES = {
    1: "001.Albatross",
    100: "100.Pelican",
    101: "101.White_Pelican",
    200: "200.Yellowthroat",
}
LABELS = {1: 1, 2: 100, 3: 101, 4: 101, 7: 200}


def lines(table, separator=" "):
    return "".join(f"{number}{separator}{value}\n" for number, value in table.items())


@pytest.fixture
def root(tmp_path):
    """A folder as the authors pack it, with five birds."""
    folder = tmp_path / "CUB_200_2011"
    for bird in BIRDS.values():
        (folder / "images" / bird).parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (8, 6)).save(folder / "images" / bird)
    (folder / "images.txt").write_text(lines(BIRDS))
    (folder / "image_class_labels.txt").write_text(lines(dict(reversed(LABELS.items()))))
    (folder / "classes.txt").write_text(lines(CLASSES))
    return tmp_path


@pytest.mark.parametrize("below", ["", "CUB_200_2011"])
def test_the_first_hundred_species_are_to_train_on(root, below):
    listing = read_cub200(root / below)
    assert listing.files == list(BIRDS.values())
    assert listing.classes.tolist() == [CLASSES[LABELS[number]] for number in BIRDS]
    assert listing.columns["split"].tolist() == ["train"] * 2 + ["validation"] * 3
    assert count_items(listing) == {
        **{"images": 5, "train_images": 2, "train_classes": 2},
        **{"queries": 3, "gallery": 3, "search_classes": 2},
    }
    for file in listing.files:
        assert open_image(listing.root / file).size == (8, 6)


def test_files_that_no_list_names_do_no_harm(root):
    Image.new("RGB", (8, 6)).save(root / "CUB_200_2011" / "images" / "001.Albatross" / "other.jpg")
    (root / "CUB_200_2011" / "images" / "Thumbs.db").write_text("")
    (root / "CUB_200_2011" / "attributes.txt").write_text("")
    assert len(read_cub200(root).files) == 5


@pytest.mark.parametrize("name", ["images.txt", "image_class_labels.txt", "classes.txt"])
def test_a_list_that_is_missing(root, name):
    (root / "CUB_200_2011" / name).unlink()
    with pytest.raises(DataError, match=rf"{name}: No such file.* Unpack the collection"):
        read_cub200(root)


def test_images_that_are_missing(root):
    (root / "CUB_200_2011" / "images").rename(root / "CUB_200_2011" / "pictures")
    with pytest.raises(DataError, match="images: the folder does not exist"):
        read_cub200(root)


def test_a_named_file_that_is_missing_is_told_when_opened(root):
    listing = read_cub200(root)
    (listing.root / listing.files[0]).unlink()
    with pytest.raises(DataError, match=r"A_0046\.jpg: the file does not exist"):
        open_image(listing.root / listing.files[0])


def test_a_wrong_separator(root):
    (root / "CUB_200_2011" / "images.txt").write_text(lines(BIRDS, ","))
    with pytest.raises(
        DataError,
        match=r"images\.txt: line 1 must have 2 columns separated by white space, but has 1",
    ):
        read_cub200(root)


@pytest.mark.parametrize(
    ("name", "line", "told"),
    [
        ("images.txt", "3 101.White_Pelican/W_0009.jpg\n", "'3', which is repeated"),
        ("images.txt", "8 101.White_Pelican/W_0001.jpg\n", r"image 8 .*has the class None"),
        ("image_class_labels.txt", "3 101\n", "'3', which is repeated"),
        ("classes.txt", "one 001.Albatross\n", "'one', which is not a number"),
    ],
)
def test_a_line_too_many(root, name, line, told):
    with (root / "CUB_200_2011" / name).open("a") as file:
        file.write(line)
    with pytest.raises(DataError, match=told):
        read_cub200(root)


def test_an_image_that_is_listed_under_two_numbers(root):
    (root / "CUB_200_2011" / "images.txt").write_text(lines({**BIRDS, 3: BIRDS[4]}))
    with pytest.raises(DataError, match=r"W_0001\.jpg twice"):
        read_cub200(root)


def test_a_class_without_a_name(root):
    (root / "CUB_200_2011" / "image_class_labels.txt").write_text(lines({**LABELS, 2: 50}))
    with pytest.raises(DataError, match=r"image 2 .*has the class 50"):
        read_cub200(root)
