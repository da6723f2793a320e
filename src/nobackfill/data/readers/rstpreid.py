"""RSTPReid: people found by their descriptions.

Zhu et al., DSSL: Deep Surroundings-person Separation Learning for Text-based Person Retrieval,
ACM Multimedia 2021.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np

from nobackfill.data.listing import (
    Dataset,
    Listing,
    invalid,
    read_text,
    require_folder,
    role_columns,
)

LIST, IMAGES = "data_captions.json", "imgs"
KEYS = {"id": int, "img_path": str, "captions": list, "split": str}
ROLES = {"train": "train", "val": "unused", "test": "gallery"}


def read_rstpreid(root: Path) -> Listing:
    """Reads images, people and captions. Classes are people.

    The test images are the gallery. Queries are texts, the captions of the gallery, so `is_query`
    is False for all images. The split of the validation images is "unused".

    Args:
        root: Folder that contains the list and the images.
    """
    entries = _read_entries(root / LIST)
    require_folder(root / IMAGES, "images of RSTPReid")
    return Listing(
        root=root,
        files=[f"{IMAGES}/{entry['img_path']}" for entry in entries],
        classes=np.array([str(entry["id"]) for entry in entries]),
        columns=role_columns(np.array([ROLES[entry["split"]] for entry in entries])),
        captions=[tuple(entry["captions"]) for entry in entries],
        notes=("queries are texts: the captions of the gallery",),
    )


def _read_entries(path: Path) -> list[dict[str, Any]]:
    """Reads the entries of the list, and checks that each has the keys in `KEYS`."""
    try:
        entries = json.loads(read_text(path, "the list of images and captions of RSTPReid"))
    except json.JSONDecodeError as error:
        raise invalid(path, f"line {error.lineno} is not valid JSON: {error.msg}") from None
    if not isinstance(entries, list) or not entries:
        raise invalid(path, "it must be a list of entries")
    for number, entry in enumerate(entries):
        if not _is_complete(entry):
            raise invalid(
                path,
                f"every entry must have `id` (a number), `img_path`, `captions` (a list of texts) "
                f"and `split` ({', '.join(ROLES)}), but entry {number} is "
                f"{json.dumps(entry)[:200]}",
            )
    return entries


def _is_complete(entry: object) -> bool:
    return (
        isinstance(entry, dict)
        and all(isinstance(entry.get(key), kind) for key, kind in KEYS.items())
        and all(isinstance(text, str) for text in entry["captions"])
        and entry["img_path"] != ""
        and entry["split"] in ROLES
    )


RSTPREID = Dataset(
    description="RSTPReid: people found by their descriptions (Zhu et al., ACM MM 2021)",
    layout="data_captions.json\nimgs/0000_c14_0031.jpg …",
    read=read_rstpreid,
    protocol="rstpreid",
    counts={
        "images": 20_505,
        "train_images": 18_505,
        "train_classes": 3_701,
        "gallery": 1_000,
        "search_classes": 200,
        "captions": 41_010,  # two per image; those of the gallery, 2,000, are the queries
    },
)
