"""In which precision a model works. The loss is always in float32."""

from typing import Any

import torch
from torch import Tensor, nn

HALF = {"bfloat16": torch.bfloat16, "float16": torch.float16}


class Autocast(nn.Module):
    """A model that works in half precision where that is safe; embeddings come out in float32.

    Args:
        model: Images in, embeddings out; or images and texts in, both embeddings out.
        precision: "bfloat16" or "float16".
    """

    def __init__(self, model: nn.Module, precision: str):
        super().__init__()
        self.model, self.precision = model, precision

    def forward(self, *inputs: Tensor | None) -> Any:
        """Returns what the model makes of the inputs, in float32."""
        device = next(one.device for one in inputs if one is not None)
        with torch.autocast(device.type, HALF[self.precision]):
            made = self.model(*inputs)
        if isinstance(made, Tensor):
            return made.float()
        return tuple(None if one is None else one.float() for one in made)


def in_precision(model: nn.Module, precision: str) -> nn.Module:
    """The same model, working in that precision; its parameters stay as they are."""
    return Autocast(model, precision) if precision in HALF else model


def scaler_for(precision: str, device: torch.device) -> torch.amp.GradScaler:
    """Keeps gradients in float16 from vanishing; does nothing in other precisions."""
    return torch.amp.GradScaler(device.type, enabled=precision == "float16")
