"""The 20 pairs of characters that the old model confuses most, in the spaces of several models.

    nobackfill bench quality --suite han-4k --methods prototype_alignment,ndpp,odpp --seeds 1
    python benchmarks/confused_characters.py bench-work/han-4k/as_it_is/0 -o confused.png

Reads the runs `old`, `prototype_alignment`, `ndpp` and `odpp` in the folder of a seed. The picture
has one panel per model: all drawings of the 40 characters, laid out by t-SNE (`pip install
'nobackfill[tsne]'`) in the space of that model, one colour per pair, dots for one character and
rings for the other, and the characters themselves above and below the median of their drawings.
Prints for each model the share of queries that take one character of a pair for the other: new
queries on old drawings, and new on new.
"""

import argparse
from pathlib import Path
from statistics import fmean

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import torch
import torch.nn.functional as F
from matplotlib.offsetbox import AnnotationBbox, OffsetImage

import nobackfill as nb
from nobackfill.data.fonts import kept_drawings, unpack
from nobackfill.data.han import HAN, HAN_FACES
from nobackfill.evaluation.confusion import confused_classes
from nobackfill.evaluation.tsne import on_a_plane

TITLES = {
    "old": "old model",
    "prototype_alignment": "Baseline",
    "ndpp": "NDPP",
    "odpp": "ODPP",
}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="runs of one seed")
    parser.add_argument("--file", default="validation.parquet", help="vectors in each run")
    parser.add_argument("--pairs", type=int, default=20)
    parser.add_argument("-o", "--output", type=Path, default=Path("confused.png"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    vectors = {
        name: nb.load_vectors(options.folder / name / options.file)
        for name in TITLES
        if (options.folder / name / options.file).exists()
    }
    found = {
        name: confused_classes(nb.evaluate(vectors["old"], new), count=options.pairs)
        for name, new in vectors.items()
        if name != "old"
    }
    print_shares(found)
    pairs = next(iter(found.values()))
    draw(vectors, [(pair.one, pair.other) for pair in pairs], options.output)


def print_shares(found):
    """One line per model: the means over the pairs, in percent."""
    first = next(iter(found.values()))
    queries = sum(pair.queries for pair in first)
    print(f"{len(first)} pairs, {queries} queries; old/old {share(first, 'old_old'):.1f} %")
    for name, pairs in found.items():
        cosine = fmean(pair.new_cosine for pair in pairs)
        print(
            f"{name:20s} new/old {share(pairs, 'new_old'):.1f} %, "
            f"new/new {share(pairs, 'new_new'):.1f} %, cosine of means {cosine:.3f} "
            f"({fmean(pair.old_cosine for pair in pairs):.3f} in the old space)"
        )


def share(pairs, key):
    """Percentage of the queries of all pairs that are confused."""
    queries = sum(pair.queries for pair in pairs)
    return 100 * sum(pair.queries * getattr(pair, key) for pair in pairs) / queries


def draw(vectors, pairs, output):
    """Writes the picture."""
    items = next(iter(vectors.values()))
    place = {}  # pair and member; a character of several pairs counts for the most similar one
    for number, pair in enumerate(pairs):
        for member, label in enumerate(pair):
            place.setdefault(label, (number, member))
    rows = np.flatnonzero(np.isin(items.labels, list(place)))
    labels = items.labels[rows]
    texts = {label: items.columns["text"][rows][labels == label][0] for label in place}
    parts = {
        name: F.normalize(one.vectors[torch.from_numpy(rows)].float(), dim=1)
        for name, one in vectors.items()
    }
    points = {name: on_a_plane({name: part})[1][name] for name, part in parts.items()}
    pictures = drawings_of(texts.values())
    colors = mpl.colormaps["tab20"].colors
    figure, axes = plt.subplots(2, 2, figsize=(16, 16), layout="constrained")
    for axis, (name, laid) in zip(axes.flat, points.items(), strict=False):
        for label, (number, member) in place.items():
            own = laid[torch.from_numpy(labels == label)].numpy()
            color = colors[number % len(colors)]
            fill = color if member == 0 else "none"
            axis.scatter(*own.T, s=16, facecolors=fill, edgecolors=color, linewidths=0.8)
            image = OffsetImage(pictures[texts[label]], zoom=0.6, cmap="gray")
            box = AnnotationBbox(
                image,
                np.median(own, axis=0),
                xybox=(0, 30 if member == 0 else -30),
                boxcoords="offset points",
                bboxprops={"edgecolor": color, "boxstyle": "square,pad=0.1"},
                arrowprops={"arrowstyle": "-", "color": color},
            )
            axis.add_artist(box)
        axis.set(title=TITLES[name], xticks=[], yticks=[])
    figure.savefig(output, dpi=75)


def drawings_of(texts):
    """One drawing of each character, ink in black."""
    drawings = kept_drawings("han-40.npz", "", HAN_FACES, HAN, side=40)
    found = {}
    for text in texts:
        row = int(np.flatnonzero(drawings.characters == ord(text))[0])
        found[text] = 1 - unpack(torch.from_numpy(drawings.bits[row])[None, None])[0, 0].numpy()
    return found


if __name__ == "__main__":
    main()
