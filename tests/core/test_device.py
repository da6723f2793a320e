"""Choice of the device to compute on."""

import pytest
import torch

from nobackfill.core.device import choose_device
from nobackfill.errors import ConfigError


@pytest.mark.parametrize(
    ("name", "current"), [("cuda:1", ["cuda:1"]), ("cuda", []), ("cpu", []), ("auto", [])]
)
def test_a_gpu_that_is_named_by_its_number_becomes_the_current_one(monkeypatch, name, current):
    set_to = []
    monkeypatch.setattr(torch, "zeros", lambda *size, device: None)  # as if all were there
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "set_device", lambda device: set_to.append(str(device)))
    assert str(choose_device(name)) == ("cuda" if name == "auto" else name)
    assert set_to == current


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
@pytest.mark.parametrize("name", ["cuda:1", "no such device"])
def test_a_device_that_is_not_there_is_refused(name):
    with pytest.raises(ConfigError, match=f"`{name}`.*--device cpu"):
        choose_device(name)
