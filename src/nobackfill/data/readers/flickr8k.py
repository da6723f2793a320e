"""Flickr8k: photos, each described by five people.

Hodosh, Young and Hockenmaier, Framing Image Description as a Ranking Task, JAIR 2013.
"""

from collections.abc import Container
from pathlib import Path
from typing import Literal

import numpy as np

from nobackfill.data.listing import (
    Dataset,
    Listing,
    invalid,
    read_table,
    require_folder,
    role_columns,
)

CAPTIONS = "Flickr8k.token.txt"
LISTS = {
    "Flickr_8k.trainImages.txt": "train",
    "Flickr_8k.devImages.txt": "dev",
    "Flickr_8k.testImages.txt": "test",
}


def read_flickr8k(root: Path, *, searched: Literal["test", "dev"] = "test") -> Listing:
    """Reads the three lists and the captions. Each image is a class of its own.

    The test images are the gallery. Queries are texts, the captions of the gallery, so `is_query`
    is False for all images. The split is "unused" for images of the development list, and for those
    that have captions but are in no list.

    Args:
        root: Folder that contains the texts, in `Flickr8k_text/` or itself, and the images, in
            `Flicker8k_Dataset/` (as the authors spell it) or `Images/`. Ids are file names without
            a folder.
        searched: Images of the gallery: those of the "test" list, or, for choosing settings, of the
            "dev" list.
    """
    texts = root / "Flickr8k_text"
    texts = texts if texts.is_dir() else root
    captions = read_captions(texts / CAPTIONS)
    listed = read_lists(texts, captions)
    files = list(listed)
    role_of = {searched: "gallery", "train": "train"}
    roles = [role_of.get(use, "unused") for use in listed.values()]

    # Add the images that are in no list. One of the "images" with captions is no JPEG.
    others = [name for name in captions if name not in listed and name.endswith(".jpg")]
    files += others
    roles += ["unused"] * len(others)
    notes = [
        f"{len(captions[name])} captions of {name}, a file that was never published, are left out"
        for name in captions
        if not name.endswith(".jpg")
    ]
    return Listing(
        root=_image_folder(root),
        files=files,
        classes=np.array(files),
        columns=role_columns(np.array(roles)),
        captions=[tuple(captions[name].values()) for name in files],
        notes=("queries are texts: the captions of the gallery", *notes),
    )


def read_lists(folder: Path, captions: Container[str]) -> dict[str, str]:
    """Reads the list of each image, "train", "dev" or "test"; each must have captions."""
    use_of: dict[str, str] = {}
    for list_name, use in LISTS.items():
        rows = read_table(folder / list_name, "a list of Flickr8k", separator="\t", columns=1)
        for (name,) in rows:
            if name in use_of:
                raise invalid(
                    folder / list_name, f"the lists name {name} twice", "Remove one of the lines."
                )
            use_of[name] = use
            if name not in captions:
                raise invalid(
                    folder / CAPTIONS,
                    f"it has no caption of {name}, an image of {list_name}",
                    "Unpack both again.",
                )
    return use_of


def read_captions(path: Path) -> dict[str, dict[str, str]]:
    """Reads the captions of each image, by their number."""
    captions: dict[str, dict[str, str]] = {}
    for key, text in read_table(path, "the captions of Flickr8k", separator="\t", columns=2):
        name, hash_sign, number = key.rpartition("#")
        if not hash_sign:
            raise invalid(
                path,
                f"captions must be keyed by image and number, such as 1000268201_693b08cb0e.jpg#0, "
                f"but one has the key {key!r}",
            )
        if number in captions.setdefault(name, {}):
            raise invalid(path, f"it has {key} twice", "Remove one of the lines.")
        captions[name][number] = text
    return captions


def _image_folder(root: Path) -> Path:
    """Returns the folder of the images."""
    official, other = root / "Flicker8k_Dataset", root / "Images"
    if other.is_dir() and not official.is_dir():
        return other
    return require_folder(official, "images of Flickr8k (there, or in Images/)")


FLICKR8K = Dataset(
    description="Flickr8k: photos, each described by five people (Hodosh et al., JAIR 2013)",
    layout=(
        "Flickr8k_text/Flickr8k.token.txt (or without Flickr8k_text/, as the next three)\n"
        "Flickr8k_text/Flickr_8k.trainImages.txt\n"
        "Flickr8k_text/Flickr_8k.devImages.txt\n"
        "Flickr8k_text/Flickr_8k.testImages.txt\n"
        "Flicker8k_Dataset/1000268201_693b08cb0e.jpg … (or Images/)"
    ),
    read=read_flickr8k,
    protocol="flickr8k",
    counts={
        "images": 8_091,  # 91 of them are in no list
        "train_images": 6_000,
        "train_classes": 6_000,
        "gallery": 1_000,
        "search_classes": 1_000,
        "captions": 40_455,
    },
)
