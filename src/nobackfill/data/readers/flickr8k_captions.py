"""Captions of Flickr8k: another caption of the same photograph is the match.

Hodosh, Young and Hockenmaier, Framing Image Description as a Ranking Task, JAIR 2013.
"""

from pathlib import Path

import numpy as np

from nobackfill.data.listing import invalid
from nobackfill.data.readers.flickr8k import CAPTIONS, LISTS, read_captions, read_lists
from nobackfill.data.texts import TextDataset, Texts

SPLITS = {"train": "train", "dev": "unused", "test": "validation"}


def read_flickr8k_captions(root: Path) -> Texts:
    """Reads the captions and the lists of photographs. The images are not needed.

    The group of a caption is its photograph, so all captions of a photograph are in one split. The
    first caption is the query, the other four are documents. The split is that of the official
    lists; captions of the development list, and of photographs in no list, are "unused".

    Args:
        root: Folder of the texts, or the folder that contains `Flickr8k_text/`.
    """
    folder = root / "Flickr8k_text"
    folder = folder if folder.is_dir() else root
    captions = read_captions(folder / CAPTIONS)
    split_of = {name: SPLITS[use] for name, use in read_lists(folder, captions).items()}
    ids, texts, groups, splits, is_query = [], [], [], [], []
    for name, numbered in captions.items():
        for place, (number, text) in enumerate(sorted(numbered.items())):
            if not text:
                raise invalid(folder / CAPTIONS, f"caption {name}#{number} is empty")
            ids.append(f"{name}#{number}")
            texts.append(text)
            groups.append(name)
            splits.append(split_of.get(name, "unused"))
            is_query.append(place == 0)
    queries = np.array(is_query)
    return Texts(
        ids,
        texts,
        np.array(groups),
        {"split": np.array(splits), "is_query": queries, "is_gallery": ~queries},
        notes=("the first caption of a photograph is the query, the others are documents",),
    )


FLICKR8K_CAPTIONS = TextDataset(
    description="Flickr8k's captions: find the others of the same photograph (Hodosh et al., 2013)",
    layout="\n".join([f"Flickr8k_text/{name}" for name in (CAPTIONS, *LISTS)]),
    read=read_flickr8k_captions,
    counts={
        "texts": 40_460,  # 5 of them describe a file that was never published
        "groups": 8_092,
        "train_pairs": 24_000,
        "queries": 1_000,
        "documents": 4_000,
    },
)
