import re

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from nobackfill.errors import DataError
from nobackfill.models import load_weights


def network(width=4):
    return nn.Sequential(nn.Conv2d(3, width, 3), nn.BatchNorm2d(width))


def trained(width=4):
    """A network whose every value differs from those a new one starts with."""
    made = network(width)
    for value in made.state_dict().values():
        value.copy_(torch.randn(value.shape) * 3 + 7)
    return made


def values(made):
    return torch.cat([value.flatten().double() for value in made.state_dict().values()])


def saved(tensors, path):
    if path.suffix == ".safetensors":
        save_file(tensors, path)
    else:
        torch.save(tensors, path)
    return path


@pytest.mark.parametrize("name", ["weights.safetensors", "weights.pt", "weights.pth"])
def test_every_value_of_the_file_arrives(name, tmp_path):
    source, target = trained(), network()
    load_weights(target, saved(source.state_dict(), tmp_path / name))
    assert torch.equal(values(target), values(source))


@pytest.mark.parametrize(
    "wrap",
    [
        lambda tensors: {"state_dict": tensors, "epoch": 3},
        lambda tensors: {"model": tensors},
        lambda tensors: {f"module.{key}": value for key, value in tensors.items()},
        lambda tensors: {f"backbone.{key}": value for key, value in tensors.items()},
        lambda tensors: {
            "state_dict": {f"module.backbone.{key}": value for key, value in tensors.items()}
        },
        lambda tensors: tensors | {"fc.weight": torch.ones(9, 4), "head.fc.bias": torch.ones(9)},
    ],
    ids=["state_dict", "model", "module.", "backbone.", "all of these", "a head"],
)
def test_what_is_common_around_the_names_is_removed(wrap, tmp_path):
    source, target = trained(), network()
    load_weights(target, saved(wrap(source.state_dict()), tmp_path / "weights.pt"))
    assert torch.equal(values(target), values(source))


def test_a_prefix_that_the_network_has_too_stays(tmp_path):
    source, target = (nn.ModuleDict({"backbone": network()}) for _ in range(2))
    load_weights(target, saved(source.state_dict(), tmp_path / "weights.pt"))
    assert torch.equal(values(target), values(source))


def test_two_names_that_would_become_one_are_left_over(tmp_path):
    tensors = {"0.weight": torch.zeros(2, 2), "0.bias": torch.zeros(2)}
    tensors["backbone.0.weight"] = torch.ones(2, 2)
    with pytest.raises(DataError, match=r"left over \(1\): backbone\.0\.weight"):
        load_weights(
            nn.Sequential(nn.Linear(2, 2)), saved(tensors, tmp_path / "weights.safetensors")
        )


def test_a_head_that_the_network_has_is_loaded_and_not_dropped(tmp_path):
    source, target = (nn.ModuleDict({"body": network(), "fc": nn.Linear(4, 2)}) for _ in range(2))
    path = saved(source.state_dict(), tmp_path / "weights.safetensors")
    load_weights(target, path)
    assert torch.equal(target["fc"].weight, source["fc"].weight)
    with pytest.raises(DataError, match=r"left over \(2\): fc\.bias \(2\), fc\.weight \(2, 4\)"):
        load_weights(nn.ModuleDict({"body": network()}), path, without=())


def test_the_network_keeps_its_dtype(tmp_path):
    source, target = trained().half(), network()
    load_weights(target, saved(source.state_dict(), tmp_path / "weights.safetensors"))
    assert target[0].weight.dtype == torch.float32
    assert torch.equal(target[0].weight, source[0].weight.float())


def test_only_counters_may_be_absent(tmp_path):
    tensors = trained().state_dict()
    del tensors["1.num_batches_tracked"]
    load_weights(network(), saved(tensors, tmp_path / "weights.safetensors"))
    del tensors["1.running_var"]
    with pytest.raises(DataError, match=r"missing \(1\): 1\.running_var \(4\)"):
        load_weights(network(), saved(tensors, tmp_path / "weights.safetensors"))


def test_what_does_not_fit_is_listed_by_kind_and_nothing_is_changed(tmp_path):
    target = network()
    before = values(target).clone()
    tensors = network(width=5).state_dict()
    del tensors["0.bias"]
    tensors |= {f"extra.{i}": torch.zeros(i + 1, 2) for i in range(7)}
    path = saved(tensors, tmp_path / "weights.safetensors")
    with pytest.raises(DataError) as raised:
        load_weights(target, path)
    missing, left_over, shapes = str(raised.value).split("; ")
    start = f"The weights in {path} do not fit the network. missing (1): 0.bias (4)"
    assert missing == start
    assert left_over.startswith("left over (7): extra.0 (1, 2), extra.1 (2, 2), ")
    assert left_over.endswith("extra.4 (5, 2), and 2 more")
    assert "0.weight (5, 3, 3, 3) where the network has (4, 3, 3, 3)" in shapes
    assert shapes.startswith("of another shape (5)")
    assert "). Choose the architecture" in shapes
    assert torch.equal(values(target), before)


class Code:
    def __reduce__(self):
        return (print, ("run",))


@pytest.mark.parametrize(
    ("name", "write", "message"),
    [
        ("a.pt", lambda path: None, "does not exist"),
        ("a.safetensors", lambda path: None, "does not exist"),
        ("a.safetensors", lambda path: path.write_bytes(b"no weights"), "Cannot read weights"),
        ("a.pt", lambda path: path.write_bytes(b"no weights"), "Cannot read weights"),
        ("a.pt", lambda path: path.write_bytes(b""), "Cannot read weights"),
        ("a.pt", lambda path: torch.save({"a": Code()}, path), "Cannot read weights"),
        ("a.pt", lambda path: torch.save([torch.ones(1)], path), "contains list"),
        ("a.pt", lambda path: torch.save({}, path), "without entries"),
        ("a.pt", lambda path: torch.save({"epoch": 3}, path), "`epoch` is int, no tensor"),
    ],
)
def test_a_file_without_weights(name, write, message, tmp_path, capsys):
    path = tmp_path / name
    write(path)
    with pytest.raises(DataError, match=message) as raised:
        load_weights(network(), path)
    assert re.search(r"(Pass|Save|Write|Correct) ", str(raised.value))
    assert "run" not in capsys.readouterr().out
