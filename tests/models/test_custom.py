import sys

import pytest
import torch
from safetensors.torch import save_file

from nobackfill.core.config import Choice
from nobackfill.errors import ConfigError, DataError
from nobackfill.models import make_model
from nobackfill.models.custom import module_backbone

SOURCE = """
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self, width=4, *, act="relu", channels=3):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(channels, width, 3), nn.BatchNorm2d(width)
        self.act = act

    def forward(self, images):
        return self.norm(self.conv(images)).mean(dim=(2, 3))


def make(depth) -> nn.Module:
    return nn.Sequential(*[Net(3 * depth) for _ in range(1)])


class Fixed(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3 * 8 * 8, 5)

    def forward(self, images):
        return self.linear(images.flatten(start_dim=1))


instance = Net(6)
number = 3


def not_a_network() -> nn.Module:
    return 3


def unpooled() -> nn.Module:
    return nn.Conv2d(3, 4, 3)


def squeezed() -> nn.Module:
    return nn.Sequential(Net(4), nn.Flatten(start_dim=0))


def merged() -> nn.Module:
    return nn.Sequential(Net(4), nn.Flatten(start_dim=0), nn.Unflatten(0, (1, -1)))


def says_nothing():
    return Net(4)


class Pair(nn.Module):
    def forward(self, images):
        return images, images
"""


@pytest.fixture(autouse=True)
def module(tmp_path, monkeypatch):
    """The user's own code, in a package of its own."""
    folder = tmp_path / "their_package"
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    (folder / "nets.py").write_text(SOURCE)
    (folder / "lacking.py").write_text("import no_such_package_at_all\n")
    monkeypatch.syspath_prepend(tmp_path)
    yield
    for name in [name for name in sys.modules if name.split(".")[0] == "their_package"]:
        del sys.modules[name]


@pytest.mark.parametrize(
    ("target", "arguments", "feature_dim"),
    [
        ("Net", (), 4),
        ("Net", ("width=7", "act=gelu"), 7),
        ("make", ("depth=2",), 6),
        ("instance", (), 6),
    ],
)
def test_a_class_a_function_or_a_network(target, arguments, feature_dim):
    backbone = module_backbone(target=f"their_package.nets:{target}", arguments=arguments, size=16)
    assert backbone.feature_dim == feature_dim
    assert backbone(torch.zeros(2, 3, 16, 16)).shape == (2, feature_dim)


def test_arguments_arrive_with_their_types():
    backbone = module_backbone(
        target="their_package.nets:Net", arguments=("act=gelu", "channels=1"), channels=1, size=8
    )
    assert backbone.network.act == "gelu"
    assert backbone.network.conv.in_channels == 1


def test_counting_features_changes_nothing():
    backbone = module_backbone(target="their_package.nets:Net", size=8)
    assert backbone.training
    assert backbone.network.training
    assert backbone.network.norm.num_batches_tracked == 0
    assert torch.equal(backbone.network.norm.running_mean, torch.zeros(4))


def test_a_copy_of_a_network_is_trained():
    backbone = module_backbone(target="their_package.nets:instance", size=8)
    theirs = sys.modules["their_package.nets"].instance
    assert torch.equal(backbone.network.conv.weight, theirs.conv.weight)
    backbone.network.conv.weight.data.zero_()
    assert theirs.conv.weight.any()


def test_weights_are_loaded_strictly(tmp_path):
    source = module_backbone(target="their_package.nets:Net", size=8).network
    save_file(source.state_dict(), tmp_path / "weights.safetensors")
    path = str(tmp_path / "weights.safetensors")
    loaded = module_backbone(target="their_package.nets:Net", weights=path, size=8)
    images = torch.randn(2, 3, 8, 8)
    assert torch.equal(loaded.eval()(images), source.eval()(images))
    with pytest.raises(DataError, match=r"conv\.weight \(4, 3, 3, 3\) where the network has \(5,"):
        module_backbone(
            target="their_package.nets:Net", arguments=("width=5",), weights=path, size=8
        )


def test_bare_is_built_without_the_file_and_the_seed_makes_its_weights():
    options = {"target": "their_package.nets:Net", "weights": "gone.pt", "size": 8}
    with pytest.raises(DataError, match="does not exist"):
        make_model(Choice("module", options), seed=0)
    one, same, other = (
        make_model(Choice("module", options), seed=seed, bare=True).backbone.network.conv.weight
        for seed in (0, 0, 1)
    )
    assert torch.equal(one, same)
    assert not torch.equal(one, other)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, '`target` in .model. must be "package.module:attribute", not ""'),
        ({"target": "their_package.nets"}, "package.module:attribute"),
        ({"target": "nowhere_at_all:Net"}, "finds no `nowhere_at_all`.*PYTHONPATH"),
        ({"target": "their_package.nowhere:Net"}, "finds no `their_package.nowhere`"),
        ({"target": "their_package.nets:Nett"}, "module `.*` has no `Nett`"),
        ({"target": "their_package.nets:number"}, "is int, not a network"),
        ({"target": "os:system", "arguments": ("command=true",)}, "call just anything"),
        ({"target": "shutil:rmtree", "arguments": ("path=nowhere",)}, "call just anything"),
        ({"target": "their_package.nets:says_nothing"}, "annotate the function"),
        ({"target": "pathlib:Path", "arguments": ("a=1",)}, "call just anything"),
        ({"target": "their_package.nets:not_a_network"}, "made int, not an nn.Module"),
        (
            {"target": "their_package.nets:instance", "arguments": ("a=1",)},
            r"`arguments` \(a\), but .* already",
        ),
        ({"target": "their_package.nets:Net", "arguments": ("wide=1",)}, "'wide'.*signature"),
        ({"target": "their_package.nets:make"}, "depth"),
        ({"target": "their_package.nets:Net", "arguments": ("width",)}, "must be a list such as"),
        (
            {"target": "their_package.nets:Net", "arguments": ("width=1", "width=2")},
            "each name once",
        ),
        (
            {"target": "their_package.nets:Net", "channels": 1},
            "cannot process images of 1 channels",
        ),
        ({"target": "their_package.nets:Fixed", "size": 9}, "9 x 9 pixels"),
        ({"target": "their_package.nets:unpooled", "size": 8}, r"returned \(2, 4, 6, 6\)"),
        ({"target": "their_package.nets:squeezed", "size": 8}, r"returned \(8,\)"),
        ({"target": "their_package.nets:merged", "size": 8}, r"returned \(1, 8\)"),
        ({"target": "their_package.nets:Pair", "size": 8}, "returned tuple"),
    ],
)
def test_targets_that_are_no_backbone(options, message):
    with pytest.raises(ConfigError, match=message):
        module_backbone(**options)


def test_what_their_code_lacks_is_said_by_python():
    with pytest.raises(ModuleNotFoundError, match="no_such_package_at_all"):
        module_backbone(target="their_package.lacking:Net")
