"""The boxes around the queries of ROxford5k and RParis6k, in the pixels of the files at hand."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from nobackfill.data.decode import image_size
from nobackfill.data.listing import read_text
from nobackfill.errors import DataError

SIZES = "original_sizes.json"

Box = tuple[float, float, float, float]


def read_boxes(root: Path, queries: Sequence[str], entries: Sequence[dict[str, Any]]) -> list[Box]:
    """Returns the box of each query: left, top, right, bottom.

    Boxes were drawn on the original images. Where `original_sizes.json` (of each name, the width
    and height) lies in the folder, the images were made smaller, and so are the boxes.

    Args:
        root: The folder that holds `jpg/`.
        queries: The files of the queries in it.
        entries: Of the ground truth, one per query; the box is under `bbx`.
    """
    sizes = read_sizes(root / SIZES)
    boxes: list[Box] = []
    for file, entry in zip(queries, entries, strict=True):
        left, top, right, bottom = map(float, entry["bbx"])
        across, down = (1.0, 1.0) if sizes is None else scale_of(root / "jpg" / file, sizes)
        boxes.append((left * across, top * down, right * across, bottom * down))
    return boxes


def read_sizes(path: Path) -> dict[str, tuple[int, int]] | None:
    """Returns the original width and height of each image; None where there is no such file."""
    if not path.exists():
        return None
    try:
        sizes = json.loads(read_text(path, "the original sizes"))
        return {name: (int(width), int(height)) for name, (width, height) in sizes.items()}
    except (ValueError, TypeError, AttributeError) as error:
        raise DataError(
            f"wanted names with widths and heights as JSON in {path}, but {error}. Write it anew, "
            f"or remove it if the images have their original sizes."
        ) from None


def scale_of(path: Path, sizes: dict[str, tuple[int, int]]) -> tuple[float, float]:
    """Returns how much of its original width and height an image still has."""
    if path.name not in sizes:
        raise DataError(
            f"wanted the original size of every query, but {SIZES} does not name {path.name}. Add "
            f"it, or remove the file if the images have their original sizes."
        )
    (width, height), (original_width, original_height) = image_size(path), sizes[path.name]
    return width / original_width, height / original_height
