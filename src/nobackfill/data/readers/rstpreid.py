"""RSTPReid: people found by what is written of them.

Zhu et al., DSSL: Deep Surroundings-person Separation Learning for Text-based Person Retrieval,
ACM Multimedia 2021.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np

from nobackfill.data.listing import Dataset, Listing, read_text, require_folder
from nobackfill.errors import DataError

LIST, IMAGES = "data_captions.json", "imgs"
WHAT = "the list of images and captions of RSTPReid"
KEYS = {"id": int, "img_path": str, "captions": list, "split": str}
SPLITS = {"train": "train", "val": "unused", "test": "validation"}


def read_rstpreid(root: Path) -> Listing:
    """Reads images, people and captions. Classes are people.

    The test images are the gallery. Queries are texts, the captions of the gallery: no image is
    one, so `is_query` is False throughout. The validation images get the split "unused".

    Args:
        root: The folder that holds the list and the images.
    """
    entries = _read_entries(root / LIST)
    require_folder(root / IMAGES, "the images of RSTPReid")
    split = np.array([SPLITS[entry["split"]] for entry in entries])
    return Listing(
        root=root,
        files=[f"{IMAGES}/{entry['img_path']}" for entry in entries],
        classes=np.array([str(entry["id"]) for entry in entries]),
        columns={
            "split": split,
            "is_query": np.zeros(len(entries), dtype=bool),
            "is_gallery": split == "validation",
        },
        captions=[tuple(entry["captions"]) for entry in entries],
        notes=("queries are texts: the captions of the gallery",),
    )


def _read_entries(path: Path) -> list[dict[str, Any]]:
    """The entries of the list, each with what `KEYS` names."""
    try:
        entries = json.loads(read_text(path, WHAT))
    except json.JSONDecodeError as error:
        raise DataError(
            f"wanted {WHAT} as JSON, but line {error.lineno} of {path} is none: {error.msg}. "
            f"Unpack the file anew."
        ) from None
    if not isinstance(entries, list) or not entries:
        raise DataError(f"wanted a list of entries in {path}, but it holds none. Unpack it anew.")
    for number, entry in enumerate(entries):
        if not _is_whole(entry):
            raise DataError(
                f"wanted `id` (a number), `img_path`, `captions` (a list of texts) and `split` "
                f"({', '.join(SPLITS)}) in every entry of {path}, but entry {number} is "
                f"{json.dumps(entry)[:200]}. Unpack the file anew."
            )
    return entries


def _is_whole(entry: object) -> bool:
    return (
        isinstance(entry, dict)
        and all(isinstance(entry.get(key), kind) for key, kind in KEYS.items())
        and all(isinstance(text, str) for text in entry["captions"])
        and entry["img_path"] != ""
        and entry["split"] in SPLITS
    )


RSTPREID = Dataset(
    says="RSTPReid: people found by what is written of them (Zhu et al., ACM MM 2021)",
    layout="data_captions.json\nimgs/0000_c14_0031.jpg …",
    read=read_rstpreid,
    protocol="rstpreid",
    counts={
        "images": 20_505,
        "train_images": 18_505,
        "train_classes": 3_701,
        "gallery": 1_000,
        "search_classes": 200,
        "captions": 41_010,  # two of each image; those of the gallery, 2,000, are the queries
    },
)
