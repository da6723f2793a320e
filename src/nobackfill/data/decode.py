"""Image files into memory: whatever was stored, red, green and blue of 8 bits come out."""

import threading
import warnings
from pathlib import Path

import numpy as np
from PIL import Image

from nobackfill.errors import DataError

SIXTEEN_BITS = 65535
WHITE = (255, 255, 255, 255)

_one_at_a_time = threading.Lock()  # which warnings are shown is a setting of the whole process


def open_image(path: Path, *, at_least: int | None = None) -> Image.Image:
    """Returns the picture in a file, decoded, in RGB.

    Grey is repeated, 16 bits are scaled to 8, what is transparent lies on white, and of several
    frames the first is taken. The orientation that a camera noted (EXIF) is not applied to JPEGs:
    the loaders of the collections' authors do not apply it either.

    Args:
        path: Of the file.
        at_least: How long the short side must stay. A JPEG may then come out 2, 4 or 8 times
            smaller, and several times faster. Boxes are in the pixels of the whole image, so leave
            this out where one is to be cut.
    """
    try:
        with open_quietly(path) as image:
            if at_least is not None:
                image.draft(None, (at_least, at_least))
            image.load()
            return to_rgb(image, path)
    except DataError:
        raise
    except FileNotFoundError:
        raise DataError(
            f"wanted an image at {path}, but there is no such file. Unpack the collection anew, or "
            f"take the image off its list."
        ) from None
    except Exception as error:  # Pillow raises a dozen kinds of errors about broken files
        raise DataError(
            f"wanted an image in {path}, but it cannot be decoded: {told(error)}. Fetch or unpack "
            f"the file anew, or take it off the list."
        ) from None


def image_size(path: Path) -> tuple[int, int]:
    """Returns the width and height of an image; only the head of its file is read."""
    try:
        with open_quietly(path) as image:
            return image.size
    except Exception as error:
        raise DataError(
            f"wanted the size of the image {path}, but its head cannot be read: {told(error)}. "
            f"Fetch or unpack the file anew, or take it off the list."
        ) from None


def open_quietly(path: Path) -> Image.Image:
    """Opens an image without decoding it; odd metadata and large sizes are no reason to warn.

    Pillow still refuses images so large (179 million pixels) that they may be meant to fill memory.
    """
    with _one_at_a_time, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return Image.open(path)


def to_rgb(image: Image.Image, path: Path) -> Image.Image:
    """Returns a copy of a decoded image in RGB; `path` is for the error."""
    if image.mode == "I" or image.mode.startswith("I;16"):
        return from_sixteen_bits(image, path)
    if image.mode == "F":
        raise unknown_range(image, path)
    if "transparency" in image.info or image.mode in ("RGBA", "LA", "PA", "RGBa", "La"):
        image = image.convert("LA") if image.mode == "La" else image
        image = image.convert("RGBA")
        return Image.alpha_composite(Image.new("RGBA", image.size, WHITE), image).convert("RGB")
    return image.convert("RGB")


def from_sixteen_bits(image: Image.Image, path: Path) -> Image.Image:
    """Returns 16-bit grey as RGB, 65535 becoming 255; Pillow itself would cut all above 255 off."""
    grey = np.asarray(image).astype(np.int64)
    if grey.min() < 0 or grey.max() > SIXTEEN_BITS:
        raise unknown_range(image, path)
    scaled = (grey * 255 + SIXTEEN_BITS // 2) // SIXTEEN_BITS
    return Image.fromarray(scaled.astype(np.uint8)).convert("RGB")


def told(error: Exception) -> str:
    """Returns what an error says, or its kind where it says nothing."""
    return str(error) or type(error).__name__


def unknown_range(image: Image.Image, path: Path) -> DataError:
    """Returns the error for pixels of which nobody can tell what white is."""
    return DataError(
        f"wanted pixels of 8 or 16 bits in {path}, but it holds numbers of 32 (Pillow's mode "
        f"{image.mode}), of which white is unknown. Save the image with 8 or 16 bits."
    )
