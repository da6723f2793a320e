"""A torchvision for CUDA beside the same release of torch for CPUs: all but its operators works."""

import importlib
import sys
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, requires

import torch
from torch.library import Library

from nobackfill.core.environment import UNKNOWN_OPERATOR

OPERATORS = ("nms", "qnms")  # torchvision describes them when it is imported, and no backbone calls
_declared: list[Library] = []  # a library that is garbage-collected takes its operators along


def import_torchvision_here() -> None:
    """Imports torchvision if it is installed; if its build lacks operators, declares them first.

    Compiled operators of a torchvision for CUDA cannot be loaded beside a torch for CPUs. Its
    import then fails, and with it that of timm and of most models of transformers. Declared but not
    defined, the operators let all three be imported. Other errors of the import are left to
    the package that needs torchvision.
    """
    if "torchvision" in sys.modules:
        return
    try:
        importlib.import_module("torchvision")
    except RuntimeError as error:
        if UNKNOWN_OPERATOR in str(error) and is_made_for(torch.__version__) and not _declared:
            declare_operators()
    except ImportError:
        pass


def declare_operators() -> None:
    """Declares the operators of torchvision, and forgets a torchvision that was half imported."""
    for name in [name for name in sys.modules if name.partition(".")[0] == "torchvision"]:
        del sys.modules[name]
    library = Library("torchvision", "DEF")
    for name in OPERATORS:
        library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    _declared.append(library)


def is_made_for(
    release: str, *, requirements: Callable[[str], list[str] | None] = requires
) -> bool:
    """Whether the installed torchvision belongs to a release of torch, of whatever build.

    Example:
        >>> is_made_for("2.13.0+cpu", requirements=lambda name: ["numpy", "torch==2.13.0"])
        True
        >>> is_made_for("2.12.1+cpu", requirements=lambda name: ["numpy", "torch==2.13.0"])
        False
    """
    try:
        required = requirements("torchvision") or []
    except PackageNotFoundError:
        return False
    public = release.partition("+")[0]
    return any(
        entry.replace(" ", "").replace("(", "").replace(")", "") == f"torch=={public}"
        for entry in required
    )
