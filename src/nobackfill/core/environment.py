"""What is installed, which devices there are, and what works: for a person who is stuck."""

import importlib
import os
import platform
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import torch

import nobackfill

# of each package that is not always there: the extra that brings it, and what it is for
OPTIONAL = {
    "timm": ("vision", "backbones of timm"),
    "torchvision": ("vision", "backbones of torchvision"),
    "transformers": ("transformers", "backbones and text models of transformers"),
    "accelerate": ("multi", "training on many GPUs"),
    "triton": ("triton", "faster search on GPUs; torch for CUDA brings it"),
    "tensorboard": ("tensorboard", "curves while training"),
    "scipy": ("cars196", "the lists of Cars196"),
    "openTSNE": ("tsne", "maps in reports by t-SNE, not PCA"),
    "faiss": ("faiss", "galleries in faiss indexes"),
    "usearch": ("usearch", "galleries in usearch indexes"),
    "qdrant_client": ("qdrant", "galleries in Qdrant"),
    "psycopg": ("pgvector", "galleries in PostgreSQL"),
    "lancedb": ("lancedb", "galleries in LanceDB"),
    "pymilvus": ("milvus", "galleries in Milvus"),
    "onnx": ("onnx", "heads as ONNX files"),
    "onnxruntime": ("onnx", "checking these files"),
}


@dataclass(frozen=True)
class Package:
    """A package that is not always there.

    Attributes:
        name: As it is imported.
        extra: Of nobackfill that brings it.
        gives: What it is for.
        version: None where it is not installed.
        problem: Why it cannot be imported though it is installed; empty where it can.
    """

    name: str
    extra: str
    gives: str
    version: str | None
    problem: str = ""

    @property
    def works(self) -> bool:
        """Whether it can be used."""
        return self.version is not None and not self.problem


@dataclass(frozen=True)
class Examination:
    """What was found.

    Attributes:
        nobackfill: Its version.
        python: Its version.
        system: The machine and its system.
        torch: Its version.
        threads: How many torch computes with.
        devices: What there is to compute on, the one that `--device auto` takes first.
        packages: Those that are not always there.
        data: The folder that NOBACKFILL_DATA names, and whether it is there.
    """

    nobackfill: str
    python: str
    system: str
    torch: str
    threads: int
    devices: tuple[str, ...]
    packages: tuple[Package, ...]
    data: tuple[str, bool] | None

    def summary(self) -> dict[str, Any]:
        """The same for JSON."""
        packages = [asdict(one) | {"works": one.works} for one in self.packages]
        data = (
            None if self.data is None else dict(zip(("folder", "exists"), self.data, strict=True))
        )
        return asdict(self) | {"packages": packages, "data": data, "devices": list(self.devices)}


def examine(names: Iterable[str] | None = None) -> Examination:
    """Looks at all of it; packages are really imported, which takes a while.

    Args:
        names: Of the packages; all of `OPTIONAL` by default.
    """
    folder = os.environ.get("NOBACKFILL_DATA")
    return Examination(
        nobackfill=nobackfill.__version__,
        python=platform.python_version(),
        system=f"{platform.system()} {platform.release()}, {platform.machine()}",
        torch=torch.__version__,
        threads=torch.get_num_threads(),
        devices=tuple(devices()),
        packages=tuple(look_at(name) for name in (OPTIONAL if names is None else names)),
        data=None if folder is None else (folder, os.path.isdir(folder)),
    )


def devices() -> list[str]:
    """What there is to compute on, the best first."""
    found = []
    for number in range(torch.cuda.device_count()):
        known = torch.cuda.get_device_properties(number)
        found.append(f"cuda:{number} ({known.name}, {known.total_memory / 2**30:.0f} GiB)")
    return [*found, f"cpu ({os.cpu_count()} cores)"]


def look_at(name: str) -> Package:
    """One package, which is imported to see whether it can be."""
    extra, gives = OPTIONAL[name]
    try:
        known = version(name)
    except PackageNotFoundError:
        return Package(name, extra, gives, None)
    try:
        importlib.import_module(name)
    except Exception as error:  # whatever it is, it is what a user would meet
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        return Package(name, extra, gives, known, problem=reason)
    return Package(name, extra, gives, known)
