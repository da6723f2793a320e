"""Public collections of texts by name."""

from nobackfill.data.readers.debian import DEBIAN
from nobackfill.data.readers.flickr8k_captions import FLICKR8K_CAPTIONS
from nobackfill.data.texts import TextDataset

TEXT_DATASETS: dict[str, TextDataset] = {
    "debian": DEBIAN,
    "flickr8k_captions": FLICKR8K_CAPTIONS,
}
