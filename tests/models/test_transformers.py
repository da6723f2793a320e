import json
import shutil
import tomllib
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

from nobackfill.core.config import Choice, Recipe, build_recipe, to_toml
from nobackfill.errors import ConfigError, DataError
from nobackfill.models import make_model, resolve_model
from nobackfill.models.base import optional_package
from nobackfill.models.transformers import Pooled, transformers_backbone

if find_spec("transformers") is None:
    pytest.skip("transformers is not installed", allow_module_level=True)
transformers = optional_package("transformers", extra="transformers")
VIT = {
    "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32,
    "image_size": 32, "patch_size": 8,
}  # fmt: skip
TEXT = {
    "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32,
    "vocab_size": 50, "bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 2,
}  # fmt: skip
RESNET = {"embedding_size": 8, "hidden_sizes": [8, 8, 16, 24], "depths": [1, 1, 1, 1]}
IMAGES = torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))


def written(settings):
    return tuple(f"{key}={value}" for key, value in settings.items())


def folder_of(model, path):
    transformers.utils.logging.disable_progress_bar()
    model.eval().save_pretrained(path)
    return str(path)


@pytest.fixture
def vit(tmp_path):
    """A small ViT with its pooler, and its folder."""
    model = transformers.ViTModel(transformers.ViTConfig(**VIT))
    return model, folder_of(model, tmp_path / "vit")


@pytest.mark.parametrize(
    ("architecture", "settings", "feature_dim"),
    [
        ("ResNetConfig", RESNET | {"num_channels": 1}, 24),
        ("ViTConfig", VIT, 16),
        ("CLIPVisionConfig", VIT, 16),
        ("SiglipVisionConfig", VIT, 16),
        ("ConvNextConfig", {"hidden_sizes": [8, 8, 8, 12], "depths": [1, 1, 1, 1]}, 12),
    ],
)
@pytest.mark.parametrize("pool", ["model", "mean"])
def test_features_from_scratch(architecture, settings, feature_dim, pool):
    backbone = transformers_backbone(
        architecture=architecture, settings=written(settings), pool=pool
    )
    assert backbone.feature_dim == feature_dim
    images = torch.randn(2, settings.get("num_channels", 3), 32, 32)
    assert backbone(images).shape == (2, feature_dim)


def test_what_each_way_of_pooling_takes(vit):
    model, path = vit
    output = model(pixel_values=IMAGES)
    expected = {
        "model": output.pooler_output,
        "mean": output.last_hidden_state.mean(dim=1),
        "first": output.last_hidden_state[:, 0],
    }
    for pool, features in expected.items():
        backbone = transformers_backbone(path=path, pool=pool).eval()
        torch.testing.assert_close(backbone(IMAGES), features)


def test_without_a_pooler_it_is_the_mean():
    class NoPooler(torch.nn.Module):
        def forward(self, pixel_values):
            return transformers.modeling_outputs.BaseModelOutput(
                last_hidden_state=pixel_values.flatten(start_dim=2).transpose(1, 2)
            )

    torch.testing.assert_close(Pooled(NoPooler(), "model")(IMAGES), IMAGES.mean(dim=(2, 3)))


def test_a_convolutional_network_is_pooled_over_places():
    model = transformers.ResNetModel(transformers.ResNetConfig(**RESNET)).eval()
    images = torch.randn(2, 3, 96, 96)
    own, mean = (Pooled(model, pool)(images) for pool in ("model", "mean"))
    assert own.shape == (2, 24)
    torch.testing.assert_close(own, mean)


def test_half_precision_becomes_single(tmp_path):
    model = transformers.ResNetModel(transformers.ResNetConfig(**RESNET))
    path = folder_of(model.half(), tmp_path / "half")
    backbone = transformers_backbone(path=path)
    assert {value.dtype for value in backbone.parameters()} == {torch.float32}
    for name, value in model.named_parameters():
        assert torch.equal(backbone.network.model.get_parameter(name), value.float())


def test_the_part_for_images_is_taken_and_the_rest_dropped(tmp_path):
    config = transformers.CLIPConfig(text_config=TEXT, vision_config=VIT)
    model = transformers.CLIPModel(config)
    path = folder_of(model, tmp_path / "clip")
    backbone = transformers_backbone(path=path).eval()
    expected = model.vision_model(pixel_values=IMAGES).pooler_output
    torch.testing.assert_close(backbone(IMAGES), expected)
    assert not any("text" in name for name, _ in backbone.named_parameters())


def test_the_projection_of_clip(tmp_path):
    config = transformers.CLIPConfig(text_config=TEXT, vision_config=VIT, projection_dim=6)
    model = transformers.CLIPModel(config)
    path = folder_of(model, tmp_path / "clip")
    backbone = transformers_backbone(path=path, pool="projected").eval()
    assert backbone.feature_dim == 6
    expected = model.visual_projection(model.vision_model(pixel_values=IMAGES).pooler_output)
    torch.testing.assert_close(backbone(IMAGES), expected)
    with pytest.raises(DataError, match=r" left over \(16\): "):
        transformers_backbone(path=path, pool="projected", settings=("num_hidden_layers=1",))


def test_no_projection(vit, tmp_path):
    with pytest.raises(ConfigError, match=r'no ViTModelWithProjection.*`pool = "model"`'):
        transformers_backbone(path=vit[1], pool="projected")
    alone = transformers.CLIPVisionModel(transformers.CLIPVisionConfig(**VIT))
    path = folder_of(alone, tmp_path / "alone")
    with pytest.raises(
        DataError, match=r'weights of the projection\..*`pool = "model"` in \[model'
    ):
        transformers_backbone(path=path, pool="projected")


def test_a_configuration_without_a_model():
    with pytest.raises(ConfigError, match=r"transformers has no BitsAndBytesModel"):
        transformers_backbone(architecture="BitsAndBytesConfig")


def test_a_classifier_has_no_pooler(tmp_path):
    model = transformers.ViTForImageClassification(transformers.ViTConfig(**VIT))
    path = folder_of(model, tmp_path / "classifier")
    with pytest.raises(DataError, match=r'weights of the pooler\. Set `pool = "first"`'):
        transformers_backbone(path=path)
    backbone = transformers_backbone(path=path, pool="first").eval()
    torch.testing.assert_close(
        model.classifier(backbone(IMAGES)), model(pixel_values=IMAGES).logits
    )


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        (
            "num_hidden_layers=3",
            r" missing \(16\): \S*layers?\.2\..*, and 11 more.* Remove `settings`",
        ),
        ("num_hidden_layers=1", r" left over \(16\): \S*layers?\.1\..*, and 11 more.* Remove"),
        ("patch_size=16", r" of another shape \(2\): embeddings\.\S+, embeddings\.\S+ "),
    ],
)
def test_settings_that_the_folder_does_not_have(vit, setting, message):
    with pytest.raises(DataError, match=message):
        transformers_backbone(path=vit[1], settings=(setting,))


def test_settings_on_top_of_a_folder(vit):
    backbone = transformers_backbone(path=vit[1], settings=("hidden_dropout_prob=0.5",))
    assert backbone.network.model.config.hidden_dropout_prob == 0.5
    assert backbone.network.model.config.num_hidden_layers == 2


def test_a_setting_of_an_older_release_is_passed_over(vit):
    config = Path(vit[1]) / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"long_gone": 1}))
    assert torch.equal(
        transformers_backbone(path=vit[1]).eval()(IMAGES), vit[0](pixel_values=IMAGES).pooler_output
    )


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({}, ConfigError, "has neither `path` .* nor `architecture`"),
        ({"architecture": "ViTConfg"}, ConfigError, "Did you mean `ViTConfig`"),
        ({"architecture": "ViTModel"}, ConfigError, "unknown architecture"),
        (
            {"architecture": "ViTConfig", "settings": ("hidden_sise=3",)},
            ConfigError,
            "hidden_sise",
        ),
        (
            {"architecture": "ViTConfig", "settings": ("hidden_size",)},
            ConfigError,
            "must be a list",
        ),
        ({"path": "no/such/folder"}, DataError, "has no config.json"),
    ],
)
def test_options_that_make_no_model(options, error, message):
    with pytest.raises(error, match=message):
        transformers_backbone(**options)


def test_a_folder_without_safetensors(vit):
    (weights,) = Path(vit[1]).glob("*.safetensors")
    weights.unlink()
    with pytest.raises(DataError, match="cannot be loaded: .* Save the model again"):
        transformers_backbone(path=vit[1])


def test_a_folder_of_an_unknown_kind(vit):
    (Path(vit[1]) / "config.json").write_text('{"model_type": "nonesuch"}')
    with pytest.raises(DataError, match="transformers .* does not know the model"):
        transformers_backbone(path=vit[1])


def test_a_run_is_built_again_when_the_folder_is_gone(vit):
    """As a run folder does: from the resolved recipe, and its own weights."""
    model, path = vit
    choice = resolve_model(Choice("transformers", {"path": path, "embedding_dim": 8}))
    trained = make_model(choice, seed=0).eval()
    text = to_toml(Recipe(model=choice))
    shutil.rmtree(path)

    again = resolve_model(build_recipe(tomllib.loads(text)).model)
    assert to_toml(Recipe(model=again)) == text
    with pytest.raises(DataError):
        make_model(again, seed=0)
    bare = make_model(again, seed=1, bare=True).eval()
    assert not torch.equal(bare(IMAGES), trained(IMAGES))
    bare.load_state_dict(trained.state_dict())
    assert torch.equal(bare(IMAGES), trained(IMAGES))


def test_the_seed_makes_the_first_weights():
    choice = Choice("transformers", {"architecture": "ViTConfig", "settings": written(VIT)})
    one, same, other = (make_model(choice, seed=seed).state_dict() for seed in (0, 0, 1))
    for name, value in one.items():
        assert torch.equal(value, same[name])
    kernel = next(name for name in one if name.endswith("patch_embeddings.projection.weight"))
    assert not torch.equal(one[kernel], other[kernel])


def test_loading_says_nothing_and_leaves_the_logging_as_it_was(vit, capfd):
    logging = transformers.utils.logging
    logging.enable_progress_bar()
    before = logging.get_verbosity()
    transformers_backbone(path=vit[1])
    assert capfd.readouterr() == ("", "")
    assert logging.get_verbosity() == before
    assert logging.is_progress_bar_enabled()
