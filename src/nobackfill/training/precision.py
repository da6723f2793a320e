"""Numeric precision of the model during training. The loss is always computed in float32."""

from typing import Any

import torch
from torch import Tensor, nn

HALF = {"bfloat16": torch.bfloat16, "float16": torch.float16}


class Autocast(nn.Module):
    """Runs a model in half precision where that is safe and returns float32 embeddings.

    Args:
        model: Network from images to embeddings, or from images and texts to both embeddings.
        precision: "bfloat16" or "float16".
    """

    def __init__(self, model: nn.Module, precision: str):
        super().__init__()
        self.model, self.precision = model, precision

    def forward(self, *inputs: Tensor | None) -> Any:
        """Returns the model's embeddings of the inputs in float32."""
        device = next(tensor.device for tensor in inputs if tensor is not None)
        with torch.autocast(device.type, HALF[self.precision]):
            outputs = self.model(*inputs)
        if isinstance(outputs, Tensor):
            return outputs.float()
        return tuple(None if output is None else output.float() for output in outputs)


def in_precision(model: nn.Module, precision: str) -> nn.Module:
    """Returns the model with its forward pass in a precision; the parameters stay in float32."""
    return Autocast(model, precision) if precision in HALF else model


def scaler_for(precision: str, device: torch.device) -> torch.amp.GradScaler:
    """Creates the gradient scaler for float16; it has no effect in other precisions."""
    return torch.amp.GradScaler(device.type, enabled=precision == "float16")
