import subprocess
import sys
from importlib.util import find_spec

import pytest
import torch
from safetensors.torch import save_file

from nobackfill.core.config import Choice, Recipe
from nobackfill.errors import ConfigError, DataError
from nobackfill.models import make_model
from nobackfill.models.base import optional_package
from nobackfill.models.timm import timm_backbone
from nobackfill.training.run import Run

if find_spec("timm") is None:
    pytest.skip("timm is not installed", allow_module_level=True)
timm = optional_package("timm", extra="vision")
IMAGES = torch.randn(2, 3, 64, 64, generator=torch.Generator().manual_seed(0))


def values(model):
    return torch.cat([value.flatten().double() for value in model.state_dict().values()])


def last_side(backbone):
    return backbone.network.forward_features(IMAGES).shape[-1]


@pytest.mark.parametrize(
    ("architecture", "feature_dim"),
    [("resnet18", 512), ("resnet26d", 2048), ("mobilenetv3_small_050", 1024), ("test_vit", 64)],
)
def test_features_are_as_many_as_it_says(architecture, feature_dim):
    side = 160 if architecture == "test_vit" else 64
    backbone = timm_backbone(architecture=architecture, channels=1).eval()
    assert backbone.feature_dim == feature_dim
    assert backbone(torch.zeros(2, 1, side, side)).shape == (2, feature_dim)


def test_the_weights_of_a_classifier_give_its_features(tmp_path):
    source = timm.create_model("resnet18", num_classes=7).eval()
    save_file(source.state_dict(), tmp_path / "weights.safetensors")
    backbone = timm_backbone(weights=str(tmp_path / "weights.safetensors")).eval()
    with torch.no_grad():
        expected = source.forward_head(source.forward_features(IMAGES), pre_logits=True)
        torch.testing.assert_close(backbone(IMAGES), expected)
        assert not torch.allclose(timm_backbone().eval()(IMAGES), expected, atol=1e-2)


def test_weights_of_another_architecture_do_not_fit(tmp_path):
    save_file(timm.create_model("resnet34").state_dict(), tmp_path / "weights.safetensors")
    with pytest.raises(
        DataError, match=r"left over \(\d+\): layer1\.2\.bn1\.bias \(64\), .*, and 91 more"
    ):
        timm_backbone(weights=str(tmp_path / "weights.safetensors"))


@pytest.mark.parametrize("architecture", ["resnet18", "resnet26", "resnet26d"])
def test_a_last_stride_of_one_doubles_the_last_map_and_keeps_the_weights(architecture):
    plain = timm_backbone(architecture=architecture).eval()
    fine = timm_backbone(architecture=architecture, last_stride=1).eval()
    assert (last_side(plain), last_side(fine)) == (2, 4)
    assert plain.state_dict().keys() == fine.state_dict().keys()


def test_the_stride_moves_to_the_first_convolution():
    plain = timm_backbone(architecture="resnet26")
    moved = timm_backbone(architecture="resnet26", stride_on_first=True)
    for name in ("layer2", "layer3", "layer4"):
        before, after = (getattr(made.network, name)[0] for made in (plain, moved))
        assert (before.conv1.stride, before.conv2.stride) == ((1, 1), (2, 2))
        assert (after.conv1.stride, after.conv2.stride) == ((2, 2), (1, 1))
    assert last_side(plain) == last_side(moved) == 2
    both = timm_backbone(architecture="resnet26", stride_on_first=True, last_stride=1)
    assert last_side(both) == 4
    assert both.network.layer3[0].conv1.stride == (2, 2)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"architecture": "resnet81"}, "unknown architecture `resnet81`.*Did you mean `resnet"),
        ({"architecture": "?"}, r"`timm.list_models\(\)` lists the known ones"),
        ({"architecture": "test_vit", "last_stride": 1}, "`test_vit` has no `layer4`"),
        ({"architecture": "test_vit", "stride_on_first": True}, "`test_vit` has no `layer2`"),
        ({"architecture": "resnet18", "stride_on_first": True}, "unlike `resnet18`"),
        ({"architecture": "resnetblur18", "last_stride": 1}, "by BlurPool2d"),
        ({"weights": "a.pt", "pretrained": True}, "both `weights` and `pretrained`"),
    ],
)
def test_options_that_cannot_apply(options, message):
    with pytest.raises(ConfigError, match=message):
        timm_backbone(**options)


def test_weights_that_do_not_come(monkeypatch):
    def offline(*arguments, pretrained, **options):
        assert pretrained
        raise OSError("no network")

    monkeypatch.setattr(timm, "create_model", offline)
    with pytest.raises(DataError, match=r"no network\. Get them .* pass the file as `weights`"):
        timm_backbone(pretrained=True)


def test_the_seed_makes_the_first_weights():
    choice = Choice("timm", {"architecture": "resnet18", "embedding_dim": 8})
    one, same, other = (values(make_model(choice, seed=seed)) for seed in (0, 0, 1))
    assert torch.equal(one, same)
    assert not torch.equal(one, other)


@pytest.mark.parametrize("name", ["timm", "torchvision"])
def test_a_bare_model_is_built_without_the_file(name, tmp_path):
    choice = Choice(name, {"weights": str(tmp_path / "gone.safetensors"), "embedding_dim": 8})
    with pytest.raises(DataError, match="does not exist"):
        make_model(choice, seed=0)
    bare = make_model(choice, seed=0, bare=True)
    assert bare.embedding_dim == 8


def test_a_run_gives_its_model_when_the_file_is_gone(tmp_path):
    choice = Choice("timm", {"weights": str(tmp_path / "gone.safetensors"), "embedding_dim": 8})
    trained = make_model(choice, seed=3, bare=True).eval()
    tensors = {f"model.{k}": v.contiguous() for k, v in trained.state_dict().items()}
    save_file(tensors, tmp_path / "model.safetensors")
    model = Run(tmp_path, Recipe(model=choice)).model(torch.device("cpu"))
    assert torch.equal(model(IMAGES), trained(IMAGES))


@pytest.mark.parametrize("name", ["timm", "torchvision"])
def test_a_bare_model_asks_for_no_pretrained_weights(name, monkeypatch):
    monkeypatch.setattr(torch.hub, "load_state_dict_from_url", None)
    monkeypatch.setattr("timm.models._builder.load_pretrained", None)
    choice = Choice(name, {"pretrained": True, "embedding_dim": 8})
    with pytest.raises(DataError, match="could not download"):
        make_model(choice, seed=0)
    make_model(choice, seed=0, bare=True)


@pytest.mark.parametrize(
    ("name", "package", "extra", "options"),
    [
        ("timm", "timm", "vision", {"architecture": "mobilenetv3_small_050"}),
        ("torchvision", "torchvision", "vision", {"architecture": "mobilenet_v2"}),
        ("transformers", "transformers", "transformers", {"architecture": "ViTConfig"}),
    ],
)
def test_a_package_that_is_not_installed(name, package, extra, options, monkeypatch):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ConfigError) as raised:
        make_model(Choice(name, options), seed=0)
    assert str(raised.value) == (
        f"{package} is not installed. `pip install 'nobackfill[{extra}]'`, or choose another "
        f"backbone."
    )


def test_the_table_of_backbones_loads_no_optional_package():
    code = "import sys, nobackfill.models; "
    code += "assert not {'timm', 'torchvision', 'transformers'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_pretrained_weights_among_the_data_are_taken_before_any_network(tmp_path, monkeypatch):
    source = timm.create_model("resnet10t", num_classes=7).eval()
    (tmp_path / "weights").mkdir()
    save_file(source.state_dict(), tmp_path / "weights" / "resnet10t.safetensors")
    monkeypatch.setenv("NOBACKFILL_DATA", str(tmp_path))
    backbone = timm_backbone(architecture="resnet10t", pretrained=True).eval()
    expected = source.forward_head(source.forward_features(IMAGES), pre_logits=True)
    torch.testing.assert_close(backbone(IMAGES), expected)
