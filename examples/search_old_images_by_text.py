"""An old image gallery, asked by a new text encoder. No image is embedded again.

    python examples/search_old_images_by_text.py [FOLDER]

Built-in data: drawn characters, and sentences that tell their strokes. The old model was trained on
30 % of the characters; its image vectors are the gallery. The new model saw all, and was trained to
ask that gallery. Takes a minute or two; a second time, the finished runs are used.
"""

import sys
from pathlib import Path

import torch

import nobackfill as nb
from nobackfill.core.config import read_recipe
from nobackfill.training.embed import embed_sentences
from nobackfill.training.pipeline import train_run

RECIPES = Path(__file__).parents[1] / "recipes" / "captioned_glyphs"
CPU = torch.device("cpu")


def train(name, folder, changes):
    """Trains a recipe in a folder, or finds it finished there."""
    recipe = read_recipe(RECIPES / f"{name}.toml", changes)
    for epoch in train_run(recipe, folder, device=CPU, resume=True):
        print(f"{name}: epoch {epoch.epoch + 1}", end="\r", file=sys.stderr)


def precision(texts, gallery, k=8):
    """Of the first k images that each text finds, the share that is what it describes."""
    found, _ = nb.nearest(unit(texts), unit(gallery), k)
    asked, labels = torch.from_numpy(texts.labels), torch.from_numpy(gallery.labels)
    return float((labels[found] == asked[:, None]).double().mean())


def unit(vectors):
    """Of unit length, so that inner products are cosines."""
    return torch.nn.functional.normalize(vectors.vectors, dim=1)


def main(work, changes=()):
    """The whole way; returns how often the old and the new text encoder find what they ask for."""
    old, new = work / "old", work / "ndpp"
    train("old", old, list(changes))
    train("ndpp", new, [*changes, f"old.run={old}"])

    stored = nb.load_vectors(old / "validation.parquet")
    fresh = nb.load_vectors(new / "validation.parquet")  # of the same images and sentences
    is_image = stored.columns["modality"] == "image"
    gallery = stored.select(is_image)  # what the service holds today
    before, after = (precision(texts.select(~is_image), gallery) for texts in (stored, fresh))
    print(f"{int((~is_image).sum()):,} sentences, {len(gallery):,} stored images")
    print(f"right among the first 8: {before:.1%} by the old text encoder, {after:.1%} by the new")

    sentence = "A line from top left to bottom right, and a mark low down on the left, rising."
    query = embed_sentences(new, [sentence])  # any text, as a person would type it
    found, cosines = nb.nearest(unit(query), unit(gallery), 3)
    print(sentence)
    for place, cosine in zip(found[0].tolist(), cosines[0].tolist(), strict=True):
        print(f"  {cosine:.3f}  {gallery.ids[place]}")
    return before, after


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "runs/captioned_glyphs"))
