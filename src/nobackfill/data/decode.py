"""Decoding of image files to RGB with 8 bits per channel, whatever the file contains."""

import threading
import warnings
from pathlib import Path

import numpy as np
from PIL import Image

from nobackfill.data.listing import invalid
from nobackfill.errors import DataError

SIXTEEN_BITS = 65535
WHITE = (255, 255, 255, 255)
REMEDY = "Fetch or unpack the file again, or take it off the list."

_filter_lock = threading.Lock()  # filters of warnings are a setting of the whole process


def open_image(path: Path, *, at_least: int | None = None) -> Image.Image:
    """Decodes an image file to RGB.

    Grey is repeated, 16 bits are scaled to 8, transparent images get a white background, and of
    several frames the first is used. The orientation that a camera stored (EXIF) is not applied to
    JPEGs: the loaders of the collections' authors do not apply it either.

    Args:
        path: Path of the file.
        at_least: Minimal length of the shorter side. It allows a JPEG to be decoded 2, 4 or 8 times
            smaller, and several times faster. Leave it out if a box will be cropped, which refers
            to pixels of the whole image.
    """
    try:
        with _open(path) as image:
            if at_least is not None:
                image.draft(None, (at_least, at_least))
            image.load()
            return _to_rgb(image, path)
    except DataError:
        raise
    except FileNotFoundError:
        raise DataError(
            f"No image at {path}: the file does not exist. Unpack the collection again, or take "
            f"the image off its list."
        ) from None
    except Exception as error:  # Pillow raises a dozen kinds of errors for broken files
        raise invalid(path, f"the image cannot be decoded ({_reason(error)})", REMEDY) from None


def image_size(path: Path) -> tuple[int, int]:
    """Reads the width and height of an image from the head of its file."""
    try:
        with _open(path) as image:
            return image.size
    except Exception as error:
        raise invalid(
            path, f"the size of the image cannot be read ({_reason(error)})", REMEDY
        ) from None


def _open(path: Path) -> Image.Image:
    """Opens an image without decoding it, and without warnings about metadata or large sizes.

    Pillow still refuses images so large (179 million pixels) that they may be meant to fill memory.
    """
    with _filter_lock, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return Image.open(path)


def _to_rgb(image: Image.Image, path: Path) -> Image.Image:
    """Returns a copy of a decoded image in RGB; `path` is for the error."""
    if image.mode == "I" or image.mode.startswith("I;16"):
        # Scale 65535 to 255; Pillow itself would cut off all above 255.
        grey = np.asarray(image).astype(np.int64)
        if grey.min() >= 0 and grey.max() <= SIXTEEN_BITS:
            scaled = (grey * 255 + SIXTEEN_BITS // 2) // SIXTEEN_BITS
            return Image.fromarray(scaled.astype(np.uint8)).convert("RGB")
    if image.mode in ("I", "F") or image.mode.startswith("I;16"):
        raise invalid(
            path,
            f"its pixels have 32 bits (Pillow's mode {image.mode}), so the value of white is "
            f"unknown",
            "Save the image with 8 or 16 bits.",
        )
    if "transparency" in image.info or image.mode in ("RGBA", "LA", "PA", "RGBa", "La"):
        image = image.convert("LA") if image.mode == "La" else image
        image = image.convert("RGBA")
        return Image.alpha_composite(Image.new("RGBA", image.size, WHITE), image).convert("RGB")
    return image.convert("RGB")


def _reason(error: Exception) -> str:
    """Returns the message of an error, or its type if it has none."""
    return str(error) or type(error).__name__
