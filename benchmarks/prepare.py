"""Unpacks the small copies of real collections into the layouts that their authors publish.

    NOBACKFILL_DATA=... python benchmarks/prepare.py OUT [--only cub200 omniglot]

Afterwards `OUT/cub200`, `OUT/roxford5k`, … are what `nobackfill.data` reads under these names, and
`OUT/landmarks50/manifest.csv` is a manifest. A collection appears under its name once it is whole;
a second run passes over what is there.
"""

import argparse
import os
import shutil
import stat
import zipfile
from pathlib import Path, PurePosixPath

import numpy as np
from PIL import Image

from nobackfill.errors import DataError


def prepare_cub200(source, folder):
    unpack(source / "cub200_128.zip", folder, {"CUB_200_2011/": "CUB_200_2011/"})


def prepare_landmarks50(source, folder):
    unpack(source / "landmarks50_128.zip", folder, {"landmark_images/": "landmark_images/"})
    shutil.copyfile(source / "manifest.csv", folder / "manifest.csv")


def prepare_roxford5k(source, folder):
    unpack(source / "roxford5k_176.zip", folder, {"images/": "jpg/"})
    for name in ("gnd_roxford5k.pkl", "original_sizes.json"):
        shutil.copyfile(source / name, folder / name)


def prepare_flickr8k(source, folder):
    folders = {"images/": "Flicker8k_Dataset/", "text/": "Flickr8k_text/"}  # as the authors spell
    unpack(source / "flickr8k_112.zip", folder, folders)


def prepare_omniglot(source, folder):
    """Draws black ink on white, as in the original; images are numbered by class and drawer."""
    with np.load(source / "omniglot_105_packed.npz", allow_pickle=False) as packed:
        height, width = packed["shape"]
        ink = np.unpackbits(packed["images_packed"], axis=1, count=height * width)
        labels, drawers, classes = packed["labels"], packed["drawer"], packed["classes"]
    for name in classes:
        require_inside(str(name))
        (folder / str(name)).mkdir(parents=True)
    for bits, label, drawer in zip(ink, labels, drawers, strict=True):
        paper = Image.fromarray((1 - bits.reshape(height, width)) * 255)
        file = f"{label + 1:04}_{drawer:02}.png"
        paper.convert("1").save(folder / str(classes[label]) / file)


def prepare_weights(source, folder):
    """Links, as they are large; copies where the system knows no links."""
    for file in sorted(source.glob("*.safetensors")):
        try:
            (folder / file.name).symlink_to(file.resolve())
        except OSError:
            shutil.copyfile(file, folder / file.name)


COLLECTIONS = {
    "cub200": prepare_cub200,
    "landmarks50": prepare_landmarks50,
    "roxford5k": prepare_roxford5k,
    "flickr8k": prepare_flickr8k,
    "omniglot": prepare_omniglot,
    "weights": prepare_weights,
}


def unpack(archive, folder, folders):
    """Unpacks the files below some folders of a .zip, each under another name.

    Args:
        archive: The .zip.
        folder: Where to.
        folders: For a folder in the archive, what it is called outside; the others are left out.
    """
    with zipfile.ZipFile(archive) as file:
        for member in file.infolist():
            require_inside(member.filename)
            if stat.S_ISLNK(member.external_attr >> 16):
                raise DataError(f"{archive} holds the link {member.filename}. Do not trust it.")
            old = next((old for old in folders if member.filename.startswith(old)), None)
            if old is None or member.is_dir():
                continue
            target = folder / (folders[old] + member.filename.removeprefix(old))
            target.parent.mkdir(parents=True, exist_ok=True)
            with file.open(member) as packed, target.open("wb") as unpacked:
                shutil.copyfileobj(packed, unpacked)


def require_inside(name):
    """Raises if a name would lead out of the folder that it is unpacked into."""
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or "\\" in name or ":" in name:
        raise DataError(f"wanted names inside the archive, but got {name!r}. Do not trust it.")


def prepare(name, data, out):
    """Makes `out/name` of what lies in `data/name`, whole or not at all."""
    source, target, unfinished = data / name, out / name, out / f".{name}.part"
    if target.exists():
        print(f"{name}: is there, passed over", flush=True)
        return
    if not source.is_dir():
        print(f"{name}: not at {source}, passed over", flush=True)
        return
    print(f"{name}: unpacking …", flush=True)
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(parents=True)
    COLLECTIONS[name](source, unfinished)
    unfinished.rename(target)
    print(f"{name}: {sum(path.is_file() for path in target.rglob('*')):,} files", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("out", type=Path, help="the folder to unpack into")
    parser.add_argument("--only", nargs="+", choices=COLLECTIONS, default=list(COLLECTIONS))
    options = parser.parse_args()
    if "NOBACKFILL_DATA" not in os.environ:
        parser.error("set NOBACKFILL_DATA to the folder that holds the packed collections")
    for name in options.only:
        prepare(name, Path(os.environ["NOBACKFILL_DATA"]), options.out)


if __name__ == "__main__":
    main()
