"""Items in a report: as a small picture, as a text, or by their id."""

import base64
import io
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from PIL import Image

from nobackfill.core.atomic_files import find_path
from nobackfill.core.page import Cell, Picture
from nobackfill.core.short_names import short_id, shorten
from nobackfill.data.collection import Collection
from nobackfill.data.decode import open_image
from nobackfill.errors import DataError
from nobackfill.evaluation.file_columns import columns_of
from nobackfill.vectors import Vectors

# Takes ids; returns the data URI of a picture, or a text, for those that have one.
Show = Callable[[Sequence[Any]], Mapping[Any, str]]
SIDE = 96  # pixels of a picture


def show_ids(ids: Sequence[Any]) -> Mapping[Any, str]:
    """Shows every item by its id."""
    return {}


def show_collection(collection: Collection) -> Show:
    """Shows the images and texts of a collection."""

    def show(ids: Sequence[Any]) -> dict[Any, str]:
        texts: dict[Any, str] = {}
        if collection.captions is not None:
            captions = zip(collection.captions.ids, collection.captions.texts, strict=True)
            texts = {item: text for item, text in captions if item in set(ids)}
        row = {item: place for place, item in enumerate(collection.ids)}
        images = [item for item in ids if item in row]
        if not images:
            return texts
        pixels = collection.load(torch.tensor([row[item] for item in images]), None)
        if pixels.dtype != torch.uint8:
            low, high = pixels.min(), pixels.max()
            pixels = ((pixels - low) / (high - low).clamp(min=1e-9) * 255).to(torch.uint8)
        return texts | {
            item: thumbnail(Image.fromarray(image.permute(1, 2, 0).squeeze(-1).numpy()))
            for item, image in zip(images, pixels, strict=True)
        }

    return show


def show_files(files: Sequence[Vectors], *, side: int = SIDE) -> Show:
    """Shows items by the columns `path` (an image file, if it exists) and `text` of the files.

    Args:
        files: Files with these columns, or without.
        side: Longest side of a picture in pixels.
    """

    def show(ids: Sequence[Any]) -> dict[Any, str]:
        shown: dict[Any, str] = {}
        for file in files:
            stored = set(file.ids.tolist())
            here = np.array([item for item in ids if item in stored])
            columns = columns_of([file], here) if len(here) else {}
            for item, text in zip(here.tolist(), columns.get("text", ()), strict=False):
                if text:
                    shown.setdefault(item, str(text))
            for item, path in zip(here.tolist(), columns.get("path", ()), strict=False):
                if picture := _picture(str(path), side):
                    shown[item] = picture
        return shown

    return show


def _picture(path: str, side: int) -> str | None:
    """A thumbnail of an image file; None if the file cannot be read."""
    try:
        return thumbnail(open_image(find_path(path, "image")), side)
    except DataError:
        return None


def thumbnail(image: Image.Image, side: int = SIDE) -> str:
    """A small JPEG of a picture, as a data URI."""
    small = image.convert("RGB")
    small.thumbnail((side, side))
    out = io.BytesIO()
    small.save(out, "JPEG", quality=82)
    return "data:image/jpeg;base64," + base64.b64encode(out.getvalue()).decode()


def as_cell(
    ids: Sequence[Any], shown: Mapping[Any, str], right: Sequence[bool] = (), *, folder: str = ""
) -> Cell:
    """Items in a cell of a table: pictures if all have one, else texts or ids, one per line.

    Args:
        ids: Ids of the items.
        shown: Result of a `Show`.
        right: Whether each item is relevant; empty if that does not apply.
        folder: Prefix of the ids to leave out (`common_folder`).
    """
    marks: Sequence[bool | None] = list(right) or [None] * len(ids)
    both = list(zip(ids, marks, strict=True))
    is_picture = [shown.get(item, "").startswith("data:image/") for item in ids]
    if ids and all(is_picture):
        return tuple(Picture(shown[item], str(item), mark) for item, mark in both)
    sign = {True: "✓\N{NO-BREAK SPACE}", False: "✗\N{NO-BREAK SPACE}", None: ""}
    texts = [
        short_id(item, folder) if picture or item not in shown else shorten(shown[item])
        for item, picture in zip(ids, is_picture, strict=True)
    ]
    return "\n".join(sign[mark] + text for text, mark in zip(texts, marks, strict=True))
