"""A step that a GPU records once and plays again: no Python between its kernels."""

from collections.abc import Callable

import torch
from jaxtyping import Int
from torch import Tensor

FIRST = 3  # steps made by hand, so that libraries have set up what they need


class RecordedStep:
    """A step of training, recorded as a CUDA graph.

    A recording repeats the same kernels on the same memory. So it holds for batches of one size,
    until something that the step reads is put elsewhere: then `forget` it. Batches of other sizes
    are done by hand.

    Args:
        step: Takes the items of a batch, learns from them, and says whether there was anything to
            learn. It must not look at any value on its way.
        size: Of the batches that are recorded.
        device: A GPU.
    """

    def __init__(
        self, step: Callable[[Int[Tensor, " batch"]], bool], size: int, device: torch.device
    ):
        self.step, self.by_hand = step, 0
        self.places = torch.zeros(size, dtype=torch.int64, device=device)
        self.aside = torch.cuda.Stream(device)
        self.graph: torch.cuda.CUDAGraph | None = None

    def __call__(self, places: Int[Tensor, " batch"]) -> bool:
        """Learns from a batch."""
        if len(places) != len(self.places):
            return self.step(places.to(self.places.device))
        self.places.copy_(places)
        if self.by_hand < FIRST:
            return self._step_aside()
        if self.graph is None:
            self.graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self.graph):
                self.step(self.places)
        self.graph.replay()
        return True

    def forget(self) -> None:
        """Drops the recording: what the step reads may be elsewhere now."""
        self.graph = None

    def _step_aside(self) -> bool:
        """A step by hand, in a stream of its own, as recordings want it."""
        self.aside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.aside):
            learned = self.step(self.places)
        torch.cuda.current_stream().wait_stream(self.aside)
        self.by_hand += learned
        return learned
