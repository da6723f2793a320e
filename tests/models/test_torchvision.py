import csv
import os
import sys
import zipfile
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

from nobackfill.core.config import Choice
from nobackfill.errors import ConfigError, DataError
from nobackfill.models import make_model
from nobackfill.models.base import optional_package
from nobackfill.models.torchvision import torchvision_backbone

if find_spec("torchvision") is None:
    pytest.skip("torchvision is not installed", allow_module_level=True)
models = optional_package("torchvision", extra="vision").models
DATA = Path(os.environ.get("NOBACKFILL_DATA", "/nowhere"))
IMAGES = torch.randn(2, 3, 64, 64, generator=torch.Generator().manual_seed(0))


def classifier(architecture, classes=5):
    return models.get_model(architecture, num_classes=classes).eval()


@pytest.mark.parametrize(
    ("architecture", "feature_dim"),
    [
        ("resnet18", 512),
        ("mobilenet_v2", 1280),
        ("mobilenet_v3_small", 576),
        ("squeezenet1_1", 512),
    ],
)
@pytest.mark.parametrize("channels", [1, 3])
def test_features_are_pooled_whatever_the_size(architecture, feature_dim, channels):
    backbone = torchvision_backbone(architecture=architecture, channels=channels).eval()
    assert backbone.feature_dim == feature_dim
    for side in (64, 96):
        assert backbone(torch.zeros(2, channels, side, side)).shape == (2, feature_dim)


@pytest.mark.parametrize(
    ("architecture", "to_logits"),
    [
        ("resnet18", lambda source: source.fc),
        ("mobilenet_v2", lambda source: source.classifier),
        ("shufflenet_v2_x0_5", lambda source: source.fc),
        ("convnext_tiny", lambda source: source.classifier[2]),
    ],
)
def test_the_features_are_what_the_removed_classifier_saw(architecture, to_logits, tmp_path):
    source = classifier(architecture)
    torch.save(source.state_dict(), tmp_path / "weights.pth")
    path = str(tmp_path / "weights.pth")
    backbone = torchvision_backbone(architecture=architecture, weights=path).eval()
    with torch.no_grad():
        torch.testing.assert_close(to_logits(source)(backbone(IMAGES)), source(IMAGES))


def test_features_alone_are_enough(tmp_path):
    tensors = classifier("mobilenet_v2").state_dict()
    tensors = {k: v for k, v in tensors.items() if k.startswith("features.")}
    torch.save(tensors, tmp_path / "weights.pth")
    path = str(tmp_path / "weights.pth")
    backbone = torchvision_backbone(architecture="mobilenet_v2", weights=path)
    assert torch.equal(backbone.network.features[0][0].weight, tensors["features.0.0.weight"])
    with pytest.raises(DataError, match="missing"):
        torchvision_backbone(architecture="mobilenet_v3_small", weights=path)
    with pytest.raises(DataError, match=r"features\.0\.0\.weight \(32, 3, 3, 3\) where .*\(32, 1,"):
        torchvision_backbone(architecture="mobilenet_v2", weights=path, channels=1)


def test_no_dropout_of_the_classifier_is_left():
    backbone = torchvision_backbone(architecture="mobilenet_v2")
    assert not any(isinstance(layer, nn.Dropout) for layer in backbone.modules())


def test_strides_change_as_asked():
    backbone = torchvision_backbone(architecture="resnet50", stride_on_first=True, last_stride=1)
    blocks = [getattr(backbone.network, f"layer{number}")[0] for number in (2, 3, 4)]
    assert [block.conv1.stride for block in blocks] == [(2, 2), (2, 2), (1, 1)]
    assert [block.conv2.stride for block in blocks] == [(1, 1), (1, 1), (1, 1)]
    assert [block.downsample[0].stride for block in blocks] == [(2, 2), (2, 2), (1, 1)]


@pytest.mark.parametrize("last_stride", [1, 2])
def test_a_last_stride_of_one_doubles_the_last_map(last_stride):
    backbone = torchvision_backbone(last_stride=last_stride)
    seen = []
    backbone.network.layer4.register_forward_hook(lambda *given: seen.append(given[-1].shape[-2:]))
    backbone(torch.zeros(2, 3, 256, 128))
    assert seen == [(16, 8) if last_stride == 1 else (8, 4)]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"architecture": "resnet81"}, "unknown architecture `resnet81`.*Did you mean `resnet"),
        ({"architecture": "fcn_resnet50"}, "unknown architecture"),
        ({"architecture": "googlenet"}, "returns several"),
        ({"architecture": "mobilenet_v2", "last_stride": 1}, "has no `layer4`"),
        ({"architecture": "resnet18", "stride_on_first": True}, "unlike `resnet18`"),
        ({"weights": "a.pt", "pretrained": True}, "both `weights` and `pretrained`"),
        ({"channels": 1, "pretrained": True}, "`channels` in .model. is 1, but"),
    ],
)
def test_options_that_cannot_apply(options, message):
    with pytest.raises(ConfigError, match=message):
        torchvision_backbone(**options)


def test_a_package_that_does_not_fit_this_torch(monkeypatch):
    class Broken:
        def find_spec(self, name, path=None, target=None):
            if name == "torchvision":
                raise RuntimeError("operator torchvision::nms does not exist")

    monkeypatch.delitem(sys.modules, "torchvision")
    monkeypatch.setattr(sys, "meta_path", [Broken(), *sys.meta_path])
    with pytest.raises(ConfigError, match=r"cannot be imported here: operator .*Install the rel"):
        torchvision_backbone(architecture="mobilenet_v2")
    assert torchvision_backbone().feature_dim == 512  # our own


def test_the_seed_makes_the_first_weights():
    choice = Choice("torchvision", {"architecture": "mobilenet_v2", "channels": 1})
    one, same, other = (make_model(choice, seed=seed).state_dict() for seed in (0, 0, 1))
    for name, value in one.items():
        assert torch.equal(value, same[name])
    for name in ("backbone.network.features.0.0.weight", "projection.weight"):
        assert not torch.equal(one[name], other[name])


# The given weights, on real images.

GIVEN = {
    "mobilenet_v2": {
        "architecture": "mobilenet_v2",
        "weights": str(DATA / "weights/mobilenet_v2_features_imagenet.safetensors"),
    },
    "resnet50": {
        "architecture": "resnet50",
        "weights": str(DATA / "weights/resnet50_v1_imagenet_fp16.safetensors"),
        "stride_on_first": True,
    },
}


@pytest.fixture(scope="module")
def birds():
    """Four images of each of six classes, at 160 pixels; their labels; their rows."""
    if not (DATA / "cub200").exists() or not (DATA / "weights").exists():
        pytest.skip(f"no cub200 and weights under NOBACKFILL_DATA={DATA}")
    with (DATA / "cub200" / "manifest.csv").open() as file:
        table = list(csv.DictReader(file))
    labels = np.array([row["label"] for row in table])
    classes = list(dict.fromkeys(labels))[100:112:2]
    rows = np.concatenate([np.flatnonzero(labels == label)[:4] for label in classes])
    mean, spread = torch.tensor([0.485, 0.456, 0.406]), torch.tensor([0.229, 0.224, 0.225])
    images = []
    with zipfile.ZipFile(DATA / "cub200" / "cub200_128.zip") as archive:
        for row in rows:
            with archive.open(table[row]["path"]) as file:
                image = (
                    Image.open(file).convert("RGB").resize((160, 160), Image.Resampling.BILINEAR)
                )
            images.append((torch.from_numpy(np.array(image)) / 255 - mean) / spread)
    return torch.stack(images).permute(0, 3, 1, 2), labels[rows], rows


def features_of(images, **options):
    with torch.no_grad():
        return torchvision_backbone(**options).eval()(images)


def compare(features, stored):
    """The stored distance of each pair over our own, and how the two correlate."""
    ours, theirs = torch.pdist(features), torch.pdist(stored)
    return theirs / ours, torch.corrcoef(torch.stack([ours, theirs]))[0, 1]


@pytest.mark.real
@pytest.mark.parametrize("name", GIVEN)
def test_given_weights_reproduce_the_features_measured_elsewhere(name, birds):
    """The stored ones went through a PCA: that shortens distances a little, and lengthens none."""
    images, labels, rows = birds
    features = features_of(images, **GIVEN[name])
    with np.load(DATA / "cub200" / "features.npz", allow_pickle=False) as file:
        stored = torch.from_numpy(file[name][rows].astype(np.float32))
    ratio, correlation = compare(features, stored)
    assert 0.85 < ratio.min() < ratio.max() < 1
    assert correlation > 0.985
    cosines = nn.functional.cosine_similarity(features[:, None], features[None], dim=2).numpy()
    same = labels[:, None] == labels[None]
    np.fill_diagonal(cosines, np.nan)
    assert np.nanmean(cosines[same]) > np.nanmean(cosines[~same]) + 0.08
    if name == "resnet50":  # the strides where torchvision has them: the weights fit, and mislead
        wrong = features_of(images, **GIVEN[name] | {"stride_on_first": False})
        assert compare(wrong, stored)[1] < 0.9
