"""What tests of kernels share."""

import pytest
import torch


@pytest.fixture
def nothing_is_right_by_chance(monkeypatch):
    """Empty tensors hold NaN, so what a kernel does not write does not look as if it had."""

    def filled(make):
        def empty(*given, **options):
            made = make(*given, **options)
            return made.fill_(torch.nan) if made.is_floating_point() else made

        return empty

    monkeypatch.setattr(torch, "empty", filled(torch.empty))
    monkeypatch.setattr(torch, "empty_like", filled(torch.empty_like))
    monkeypatch.setattr(torch.Tensor, "new_empty", filled(torch.Tensor.new_empty))
