"""Our own ResNets, compared with those of timm and torchvision where these can be imported."""

import sys
from importlib.util import find_spec

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import save_file

from nobackfill.errors import ConfigError, DataError
from nobackfill.models.base import optional_package
from nobackfill.models.resnet import DEPTHS, ResNet
from nobackfill.models.timm import timm_backbone
from nobackfill.models.torchvision import torchvision_backbone

IMAGES = torch.randn(2, 3, 64, 64, generator=torch.Generator().manual_seed(0))
PARAMETERS = {"resnet18": 11_176_512, "resnet50": 23_508_032}  # published, without the classifier


def package(name):
    if find_spec(name) is None:
        pytest.skip(f"{name} is not installed")
    return optional_package(name, extra="vision")


@pytest.fixture
def without_packages(monkeypatch):
    """Neither timm nor torchvision can be imported."""
    for name in ("timm", "torchvision"):
        monkeypatch.setitem(sys.modules, name, None)


def by_hand(network, images):
    """The forward pass of ResNet-18 as functions of its named weights."""
    weights = network.state_dict()

    def norm(name, values):
        parts = (f"{name}.{part}" for part in ("running_mean", "running_var", "weight", "bias"))
        return F.batch_norm(values, *(weights[part] for part in parts), False)

    values = F.conv2d(images, weights["conv1.weight"], stride=2, padding=3)
    values = F.max_pool2d(norm("bn1", values).clamp(min=0), 3, 2, 1)
    for layer in range(1, 5):
        for block in range(2):
            name, stride = f"layer{layer}.{block}", 2 if layer > 1 and block == 0 else 1
            inner = F.conv2d(values, weights[f"{name}.conv1.weight"], stride=stride, padding=1)
            inner = norm(f"{name}.bn1", inner).clamp(min=0)
            inner = norm(f"{name}.bn2", F.conv2d(inner, weights[f"{name}.conv2.weight"], padding=1))
            if f"{name}.downsample.0.weight" in weights:
                values = F.conv2d(values, weights[f"{name}.downsample.0.weight"], stride=stride)
                values = norm(f"{name}.downsample.1", values)
            values = (values + inner).clamp(min=0)
    return values.mean(dim=(2, 3))


def test_the_smallest_is_its_layers_written_out():
    network = ResNet("resnet18").double()
    for _ in range(2):
        network(IMAGES.double())  # running statistics other than 0 and 1
    images = IMAGES.double()
    torch.testing.assert_close(network.eval()(images), by_hand(network, images))


@pytest.mark.parametrize("architecture", PARAMETERS)
def test_has_as_many_parameters_as_published(architecture):
    network = ResNet(architecture)
    assert sum(each.numel() for each in network.parameters()) == PARAMETERS[architecture]


@pytest.mark.parametrize("architecture", DEPTHS)
def test_is_that_of_timm_weight_by_weight_from_the_same_seed(architecture):
    timm = package("timm")
    torch.manual_seed(3)
    theirs = timm.create_model(architecture, num_classes=0).state_dict()
    torch.manual_seed(3)
    ours = ResNet(architecture, zero_last=True).state_dict()
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)


@pytest.mark.parametrize("architecture", ["resnet18", "resnet50", "resnet101"])
def test_weights_of_torchvision_fit_and_give_its_features(architecture, tmp_path, monkeypatch):
    models = package("torchvision").models
    source = models.get_model(architecture).eval()
    save_file(source.state_dict(), tmp_path / "weights.safetensors")
    source.fc = torch.nn.Identity()
    for name in ("timm", "torchvision"):
        monkeypatch.setitem(sys.modules, name, None)
    for make, name in (
        (timm_backbone, f"{architecture}.tv_in1k"),
        (torchvision_backbone, architecture),
    ):
        ours = make(architecture=name, weights=str(tmp_path / "weights.safetensors")).eval()
        torch.testing.assert_close(ours(IMAGES), source(IMAGES))


@pytest.mark.parametrize("make", [timm_backbone, torchvision_backbone])
def test_takes_the_place_of_a_package_that_is_missing(make, without_packages):
    backbone = make(architecture="resnet18", channels=1, last_stride=1).eval()
    assert backbone.feature_dim == 512
    assert backbone.network.forward_features(IMAGES[:, :1]).shape == (2, 512, 4, 4)
    assert backbone(IMAGES[:, :1]).shape == (2, 512)
    assert make(architecture="resnet50", stride_on_first=True).feature_dim == 2048


@pytest.mark.parametrize(
    ("make", "name"), [(timm_backbone, "timm"), (torchvision_backbone, "torchvision")]
)
def test_what_only_the_package_has_is_an_error_that_names_it(
    make, name, without_packages, monkeypatch
):
    with pytest.raises(ConfigError, match=f"{name} is not installed.*nobackfill.vision"):
        make(architecture="mobilenet_v2")
    monkeypatch.delenv("NOBACKFILL_DATA", raising=False)
    with pytest.raises(DataError, match=f"{name} could not download its weights for `resnet18`"):
        make(pretrained=True)


def test_blocks_start_as_their_shortcut_only_where_timm_has_it():
    for zero_last in (False, True):
        block = ResNet("resnet50", zero_last=zero_last).layer1[0]
        assert bool((block.bn3.weight == 0).all()) is zero_last
        assert bool((block.bn2.weight == 1).all())
