"""Versions, devices and optional packages of this machine, for `nobackfill doctor`."""

import importlib
import os
import platform
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, packages_distributions, version
from typing import Any

import torch

import nobackfill

# optional package: (extra that installs it, purpose)
OPTIONAL = {
    "timm": ("vision", "backbones of timm"),
    "torchvision": ("vision", "backbones of torchvision"),
    "transformers": ("transformers", "backbones and text models of transformers"),
    "sentence_transformers": ("sentence-transformers", "fine-tuning on pairs of texts"),
    "peft": ("peft", "upgrades by LoRA"),
    "lightning": ("lightning", "our methods in Lightning"),
    "accelerate": ("multi", "training on many GPUs"),
    "triton": ("triton", "faster search on GPUs; installed with torch for CUDA"),
    "tensorboard": ("tensorboard", "curves while training"),
    "scipy": ("cars196", "the lists of Cars196"),
    "openTSNE": ("tsne", "maps in reports by t-SNE instead of PCA"),
    "faiss": ("faiss", "galleries in faiss indexes"),
    "usearch": ("usearch", "galleries in usearch indexes"),
    "qdrant_client": ("qdrant", "galleries in Qdrant"),
    "psycopg": ("pgvector", "galleries in PostgreSQL"),
    "lancedb": ("lancedb", "galleries in LanceDB"),
    "pymilvus": ("milvus", "galleries in Milvus"),
    "onnx": ("onnx", "heads as ONNX files"),
    "onnxruntime": ("onnx", "checking ONNX files"),
}


# what to import of a package whose own import loads nothing
PARTS = {"timm": "create_model", "torchvision": "transforms", "transformers": "BertModel"}

UNKNOWN_OPERATOR = "operator torchvision::"  # torchvision was built for another build of torch


@dataclass(frozen=True)
class Package:
    """An optional package.

    Attributes:
        name: Name by which it is imported.
        extra: Extra of nobackfill that installs it.
        gives: Purpose of the package.
        version: Installed version, or None.
        problem: Reason why an installed package cannot be imported, or "".
    """

    name: str
    extra: str
    gives: str
    version: str | None
    problem: str = ""

    @property
    def works(self) -> bool:
        """Whether the package is installed and can be imported."""
        return self.version is not None and not self.problem


@dataclass(frozen=True)
class Environment:
    """Versions, devices and optional packages of this machine.

    Attributes:
        nobackfill: Version of nobackfill.
        python: Version of Python.
        system: Operating system and architecture.
        torch: Version of torch.
        threads: Number of threads that torch uses.
        devices: Devices, the default of `--device auto` first.
        packages: Optional packages.
        data: Folder in NOBACKFILL_DATA and whether it exists; None if the variable is not set.
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
        """Returns the same as a dictionary for JSON."""
        packages = [asdict(package) | {"works": package.works} for package in self.packages]
        data = self.data and {"folder": self.data[0], "exists": self.data[1]}
        return asdict(self) | {"packages": packages, "data": data, "devices": list(self.devices)}


def check_environment(names: Iterable[str] | None = None) -> Environment:
    """Inspects this machine. Imports every package, which takes a while.

    Args:
        names: Names of the packages to check; all of `OPTIONAL` by default.
    """
    folder = os.environ.get("NOBACKFILL_DATA")
    return Environment(
        nobackfill=nobackfill.__version__,
        python=platform.python_version(),
        system=f"{platform.system()} {platform.release()}, {platform.machine()}",
        torch=torch.__version__,
        threads=torch.get_num_threads(),
        devices=tuple(devices()),
        packages=tuple(check_package(name) for name in (OPTIONAL if names is None else names)),
        data=None if folder is None else (folder, os.path.isdir(folder)),
    )


def devices() -> list[str]:
    """Returns descriptions of the devices, GPUs first."""
    gpus = [torch.cuda.get_device_properties(gpu) for gpu in range(torch.cuda.device_count())]
    return [
        *(f"cuda:{i} ({g.name}, {g.total_memory / 2**30:.0f} GiB)" for i, g in enumerate(gpus)),
        f"cpu ({os.cpu_count()} cores)",
    ]


def check_package(name: str) -> Package:
    """Checks whether an optional package is installed and can be imported."""
    extra, gives = OPTIONAL[name]
    installed = installed_version(name)
    if installed is None:
        return Package(name, extra, gives, None)
    problem = ""
    try:
        module = importlib.import_module(name)
        if part := PARTS.get(name):
            getattr(module, part)  # transformers imports its models on first use
    except Exception as error:  # report any error that users would get
        cause = first_cause(error)
        problem = (str(cause).splitlines() or [type(cause).__name__])[0]
    return Package(name, extra, gives, installed, problem)


def installed_version(name: str) -> str | None:
    """Returns the version of an importable package, or None.

    It may be installed under another name: `faiss` is part of `faiss-cpu`.
    """
    try:
        return version(name)
    except PackageNotFoundError:
        distributions = packages_distributions().get(name)
        return version(distributions[0]) if distributions else None


def first_cause(error: BaseException) -> BaseException:
    """Follows the causes of an error (`raise … from …`) to the first one."""
    while error.__cause__ is not None:
        error = error.__cause__
    return error
