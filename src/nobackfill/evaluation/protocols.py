"""Search protocols by name."""

from dataclasses import dataclass
from typing import Literal

from nobackfill.core.suggest import suggest
from nobackfill.errors import ConfigError


@dataclass(frozen=True)
class Protocol:
    """Rules of a search."""

    description: str
    at: int | None = None  # cut-off rank of the average precision, or None
    # whether items of the query's label and camera count; they do not in re-id
    same_camera: bool = True
    leave_one_out: bool = False  # whether every item queries all others, regardless of the columns
    # area under the precision-recall curve, by "step" or by "trapezoid"
    area: Literal["step", "trapezoid"] = "step"
    # modality of the queries and of the gallery, values of the column `modality`
    modalities: tuple[str, str] | None = None


PROTOCOLS: dict[str, Protocol] = {
    "plain": Protocol("queries and gallery by their columns; plain average precision"),
    "leave-one-out": Protocol("every item queries all others", leave_one_out=True),
    "market1501": Protocol("the query's label in its own camera is ignored", same_camera=False),
    "gldv2": Protocol("average precision cut at 100", at=100),
    "roxford_rparis": Protocol("area by trapezoids, as its authors compute it", area="trapezoid"),
    "inshop": Protocol("photographs of customers query those of the shop; plain average precision"),
    "flickr8k": Protocol(
        "captions query the image that they describe, by cosine", modalities=("text", "image")
    ),
    "text_to_image": Protocol("texts query images", modalities=("text", "image")),
    "image_to_text": Protocol("images query texts", modalities=("image", "text")),
    "rstpreid": Protocol(
        "texts query images of the person, by cosine alone", modalities=("text", "image")
    ),
}


def protocol_named(name: str | None) -> tuple[str, Protocol]:
    """Returns a protocol and its name; "plain" if `name` is None."""
    name = name or "plain"
    if name not in PROTOCOLS:
        raise ConfigError(f"unknown protocol `{name}`. {suggest(name, PROTOCOLS)}")
    return name, PROTOCOLS[name]
