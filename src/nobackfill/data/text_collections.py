"""Public collections of texts by name."""

from pathlib import Path

from nobackfill.core.atomic_files import find_path
from nobackfill.data.readers.debian import DEBIAN
from nobackfill.data.readers.flickr8k_captions import FLICKR8K_CAPTIONS
from nobackfill.data.texts import TextDataset, Texts
from nobackfill.errors import ConfigError

TEXT_DATASETS: dict[str, TextDataset] = {
    "debian": DEBIAN,
    "flickr8k_captions": FLICKR8K_CAPTIONS,
}


def read_texts(name: str, path: Path | None = None) -> Texts:
    """Reads a collection of texts.

    Args:
        name: Name in `TEXT_DATASETS`.
        path: Its file or folder; None for the usual place, if it has one.
    """
    dataset = TEXT_DATASETS[name]
    if path is None and not dataset.place:
        raise ConfigError(f"PATH is missing: pass the folder of {name}.")
    return dataset.read(find_path(path or dataset.place, "collection"))
