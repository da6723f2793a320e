"""Published checkpoints of APTM are read by their names."""

import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from nobackfill.core.config import Choice
from nobackfill.errors import DataError
from nobackfill.models import make_dual
from nobackfill.models.aptm.names import published_name
from nobackfill.models.base import optional_package

for package in ("timm", "transformers"):
    if find_spec(package) is None:
        pytest.skip(f"{package} is not installed", allow_module_level=True)
    optional_package(package, extra="vision")
sys.path[:0] = [str(Path(__file__).parents[2])]

from aptm_parts import choices, save_tokenizer

IMAGES = torch.randn(2, 1, 96, 32, generator=torch.Generator().manual_seed(2))
TABLE = "relative_position_bias_table"


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    return save_tokenizer(tmp_path_factory.mktemp("tokenizer"))


@pytest.fixture
def source(tokenizer):
    return make_dual(*choices(tokenizer), seed=1).eval()


@pytest.fixture
def published(source):
    """The state dict as the public code writes it, with what it computes."""
    state = {published_name(name): value for name, value in source.state_dict().items()}
    state["text_encoder.bert.embeddings.position_ids"] = torch.arange(64)[None]
    for stage in range(3):
        for block in range(2):
            name = f"vision_encoder.layers.{stage}.blocks.{block}"
            state[f"{name}.attn.relative_position_index"] = torch.zeros(16, 16)
    state["vision_encoder.layers.0.blocks.1.attn_mask"] = torch.zeros(16, 16, 16)
    return state


def save(state, path, **more):
    torch.save({"model": state, "config": {"embed_dim": 12}, **more}, path)
    return str(path)


def loaded(tokenizer, path, **image):
    return make_dual(*choices(tokenizer, weights=path, **image), seed=0).eval()


def same(one, other):
    return all(torch.equal(v, other.state_dict()[k]) for k, v in one.state_dict().items())


def test_the_names_are_those_of_the_public_code(published):
    assert {name.split(".")[0] for name in published} == {
        "vision_encoder", "text_encoder", "vision_proj", "text_proj", "itm_head", "temp"
    }  # fmt: skip
    assert published.keys() >= {
        "vision_encoder.patch_embed.proj.weight",
        "vision_encoder.layers.0.downsample.reduction.weight",
        "vision_encoder.layers.2.blocks.1.attn.relative_position_bias_table",
        "vision_encoder.norm.weight",
        "text_encoder.bert.embeddings.word_embeddings.weight",
        "text_encoder.bert.encoder.layer.3.crossattention.self.query.weight",
        "text_encoder.bert.encoder.layer.3.crossattention.output.LayerNorm.bias",
        "text_encoder.cls.predictions.transform.dense.weight",
        "text_encoder.cls.predictions.bias",
        "vision_proj.weight", "text_proj.bias", "itm_head.0.weight", "itm_head.3.bias", "temp",
    }  # fmt: skip
    assert not [name for name in published if ".layers.2.downsample" in name]
    assert not [name for name in published if ".layer.1.crossattention" in name]


def test_a_checkpoint_gives_the_model_that_wrote_it(tokenizer, source, published, tmp_path):
    model = loaded(tokenizer, save(published, tmp_path / "checkpoint.pth"))
    assert same(source, model)
    texts = model.prepare(["a red coat", "man walking"], ["a", "b"])
    with torch.no_grad():
        for found, expected in zip(model(IMAGES, texts), source(IMAGES, texts), strict=True):
            torch.testing.assert_close(found, expected)
    assert not same(source, make_dual(*choices(tokenizer), seed=0))


def test_names_without_bert_and_safetensors_are_read_too(tokenizer, source, published, tmp_path):
    plain = {name.replace("_encoder.bert.", "_encoder."): v for name, v in published.items()}
    assert same(source, loaded(tokenizer, save(plain, tmp_path / "plain.pth")))
    path = tmp_path / "checkpoint.safetensors"
    save_file({name: value.clone().contiguous() for name, value in published.items()}, path)
    assert same(source, loaded(tokenizer, str(path)))


def test_tables_of_other_windows_are_interpolated(tokenizer, published, tmp_path):
    """A table that is a plane stays the same plane, up to its scale; a constant stays constant."""
    state = dict(published)
    for name, value in published.items():
        if name.endswith(TABLE) and "layers.0" in name:
            down, right = torch.meshgrid(torch.arange(-6, 7), torch.arange(-6, 7), indexing="ij")
            plane = (0.5 + 0.03 * down + 0.01 * right).flatten()[:, None]
            state[name] = plane.repeat(1, value.shape[1])
    model = loaded(tokenizer, save(state, tmp_path / "wide.pth"))
    for block in model.swin.swin.layers[0].blocks:
        table = block.attn.relative_position_bias_table.detach().view(7, 7, -1)
        assert table.mean().item() == pytest.approx(0.5, abs=1e-3)
        assert (table[:, :, 0].diff(dim=0) > 0).all()
        assert (table[:, :, 0].diff(dim=1) > 0).all()
        slope = (table[-1, :, 0] - table[0, :, 0]) / (table[:, -1, 0] - table[:, 0, 0]).mean()
        assert slope.mean().item() == pytest.approx(3, abs=0.05)
    assert torch.equal(
        model.swin.swin.layers[1].blocks[0].attn.relative_position_bias_table,
        published["vision_encoder.layers.1.blocks.0.attn.relative_position_bias_table"],
    )


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda state: state.pop("temp"), r"missing \(1\): temp \(\)"),
        (lambda state: state.pop("text_encoder.bert.encoder.layer.2.crossattention.self.key.bias"),
         r"missing \(1\): text_encoder.bert.encoder.layer.2.crossattention.self.key.bias"),
        (lambda state: state.update({"img_cls.1.weight": torch.zeros(2)}),
         r"left over \(1\): img_cls.1.weight"),
        (lambda state: state.update({"vision_proj.bias": torch.zeros(7)}),
         r"of another shape \(1\): vision_proj.bias \(7\) where the network has \(12\)"),
    ],
)  # fmt: skip
def test_weights_that_do_not_fit_are_named(tokenizer, published, tmp_path, change, says):
    change(published)
    with pytest.raises(DataError, match=says):
        loaded(tokenizer, save(published, tmp_path / "checkpoint.pth"))


class Harmful:
    def __reduce__(self):
        return (Path.touch, (Path("touched"),))


def test_nothing_in_a_checkpoint_is_executed(tokenizer, published, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DataError, match="Cannot read weights"):
        loaded(tokenizer, save(published, tmp_path / "checkpoint.pth", extra=Harmful()))
    assert not Path("touched").exists()


def test_a_finished_run_needs_no_checkpoint(tokenizer):
    model, text = choices(tokenizer, weights="gone.pth", swin_weights="gone too.pth")
    make_dual(model, text, seed=0, bare=True)
    with pytest.raises(DataError, match=r"gone"):
        make_dual(model, text, seed=0)


@pytest.mark.parametrize("names", ["timm", "authors"])
def test_a_swin_alone_can_start_the_image_encoder(tokenizer, source, published, tmp_path, names):
    if names == "timm":
        state = source.swin.swin.state_dict()
    else:
        start = "vision_encoder."
        state = {k.removeprefix(start): v for k, v in published.items() if k.startswith(start)}
    path = save(state | {"head.weight": torch.zeros(5, 32)}, tmp_path / "swin.pth")
    model = make_dual(*choices(tokenizer, swin_weights=path), seed=0)
    assert same(source.swin, model.swin)
    assert not same(source.text, model.text)


def test_a_bert_with_its_masked_word_head_can_start_the_text_encoder(tokenizer, source, tmp_path):
    import transformers

    model, text = choices(tokenizer)
    config = source.bert.model.config
    torch.manual_seed(0)
    bert = transformers.BertForMaskedLM(config)
    bert.save_pretrained(tmp_path / "bert")
    options = {"tokenizer": tokenizer, "fusion_from": 2, "path": str(tmp_path / "bert")}
    found = make_dual(model, Choice("aptm", options), seed=0).bert.model
    for name, value in bert.state_dict().items():
        assert torch.equal(found.state_dict()[name], value)
    assert hasattr(found.bert.encoder.layer[2], "crossattention")
