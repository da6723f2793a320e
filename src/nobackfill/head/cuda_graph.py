"""Training steps recorded as CUDA graphs, which run without Python between the kernels."""

from collections.abc import Callable

import torch
from jaxtyping import Int
from torch import Tensor

WARMUP = 3  # steps before the recording, in which libraries allocate what they need


class RecordedStep:
    """A step of training, recorded as a CUDA graph.

    A recording repeats the same kernels on the same memory. It works for batches of one size, as
    long as the inputs of the step stay in place; call `forget` after moving them. Batches of other
    sizes run without the recording.
    The step trains on a batch, returns whether it updated the network, and must not read any value
    back from the GPU.
    """

    def __init__(
        self, step: Callable[[Int[Tensor, " batch"]], bool], size: int, device: torch.device
    ):
        self.step, self.warmed_up = step, 0
        self.places = torch.zeros(size, dtype=torch.int64, device=device)
        self.side_stream = torch.cuda.Stream(device)
        self.graph: torch.cuda.CUDAGraph | None = None

    def __call__(self, places: Int[Tensor, " batch"]) -> bool:
        """Trains on a batch; returns whether the network was updated."""
        if len(places) != len(self.places):
            return self.step(places.to(self.places.device))
        self.places.copy_(places)
        if self.warmed_up < WARMUP:
            return self._warm_up()
        if self.graph is None:
            self.graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self.graph):
                self.step(self.places)
        self.graph.replay()
        return True

    def forget(self) -> None:
        """Drops the recording, which is invalid once the inputs of the step move."""
        self.graph = None

    def _warm_up(self) -> bool:
        """Makes a step without recording, in a side stream as CUDA graphs require."""
        self.side_stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.side_stream):
            updated = self.step(self.places)
        torch.cuda.current_stream().wait_stream(self.side_stream)
        self.warmed_up += updated
        return updated
