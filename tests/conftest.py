"""Settings of the whole test run."""

import sys

import torch

# Tests work on tiny tensors: one thread is as fast, and does not stall on a busy machine.
torch.set_num_threads(1)

# A torchvision built for CUDA does not import beside a torch for CPUs, as two operators are then
# unknown; timm and transformers import it. Declared and never called, they are enough for tests.
try:
    import torchvision  # noqa: F401
except ModuleNotFoundError:
    pass
except (RuntimeError, ImportError):
    for name in [name for name in sys.modules if name.split(".")[0] == "torchvision"]:
        del sys.modules[name]
    OPERATORS = torch.library.Library("torchvision", "DEF")  # gone with its last reference
    for name in ("nms", "qnms"):
        OPERATORS.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    import torchvision  # noqa: F401
