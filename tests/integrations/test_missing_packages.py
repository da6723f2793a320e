"""Without the package, importing an integration says how to install it."""

import importlib.util
import sys

import pytest
import torch

import nobackfill.integrations
from nobackfill.errors import ConfigError
from nobackfill.integrations.peft import adapter_off

FOLDER = nobackfill.integrations.__path__[0]


@pytest.mark.parametrize("name", ["transformers", "lightning"])
def test_importing_says_what_to_install(name, monkeypatch):
    for package in (name, f"pytorch_{name}"):
        monkeypatch.setitem(sys.modules, package, None)  # as if it were not installed
    spec = importlib.util.spec_from_file_location("missing", f"{FOLDER}/{name}.py")
    with pytest.raises(ConfigError, match=rf"{name} is not installed. `pip install 'nobackfill\["):
        spec.loader.exec_module(importlib.util.module_from_spec(spec))


def test_adapters_say_that_peft_is_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "peft", None)
    with (
        pytest.raises(ConfigError, match=r"peft is not installed. `pip install 'nob"),
        adapter_off(torch.nn.Linear(1, 1)),
    ):
        pass
