import pytest
import torch
from torch import nn

from nobackfill.core.config import Choice
from nobackfill.errors import ConfigError
from nobackfill.models import Backbone, DualEncoder, Embedder, make_dual, make_model
from nobackfill.models.dual import OneSide, resolve_text
from nobackfill.models.text.bag_of_words import TEXT_ENCODERS, words
from nobackfill.models.text.base import TextEncoder
from nobackfill.training.precision import Autocast, in_precision
from nobackfill.vectors import Vectors

MODEL = Choice("small", {"width": 2, "embedding_dim": 8})
TEXT = Choice("words", {"buckets": 64, "width": 6})
TEXTS, IDS = ["a red coat", "a coat", "two birds in a tree"], ["x#0", "x#1", "y#0"]


def images(count=5):
    return torch.randn(count, 1, 16, 16, generator=torch.Generator().manual_seed(0))


def same(one, other):
    one, other = one.state_dict(), other.state_dict()
    return one.keys() == other.keys() and all(torch.equal(one[key], other[key]) for key in one)


# Both encoders


def test_the_same_seed_makes_the_same_weights_of_both_sides():
    one, again, other = (make_dual(MODEL, TEXT, seed=seed) for seed in (3, 3, 4))
    assert same(one, again)
    for side in ("image", "text"):
        weights = [getattr(model, side).projection.weight for model in (one, other)]
        assert not torch.equal(*weights)


def test_the_image_side_starts_as_the_model_of_images_alone():
    assert same(make_dual(MODEL, TEXT, seed=3).image, make_model(MODEL, seed=3))


def test_first_weights_leave_the_global_generator_as_it_was():
    before = torch.get_rng_state()
    make_dual(MODEL, TEXT, seed=3)
    assert torch.equal(torch.get_rng_state(), before)


def test_images_and_texts_come_out_in_one_dimension_and_none_of_what_is_not_given():
    model = make_dual(MODEL, TEXT, seed=0).eval()
    texts = model.prepare(TEXTS, IDS)
    image, text = model(images(), texts)
    assert (image.shape, text.shape) == ((5, 8), (3, 8))
    assert model.embedding_dim == 8
    alone, none = model(images(), None)
    assert torch.equal(alone, image)
    assert none is None
    none, alone = model(None, texts)
    assert none is None
    assert torch.equal(alone, text)


def test_texts_are_prepared_by_the_text_encoder():
    model, encoder = make_dual(MODEL, TEXT, seed=0), words(buckets=64, width=6)
    assert torch.equal(model.prepare(TEXTS, IDS), encoder.prepare(TEXTS, IDS))


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_one_side_gives_that_side_alone(precision):
    model = in_precision(toy(), precision)
    seen = {"image": images(), "text": torch.rand(3, 4)}
    both = dict(zip(seen, model(*seen.values()), strict=True))
    for modality, given in seen.items():
        assert torch.equal(OneSide(model, modality)(given), both[modality])
    assert not torch.equal(both["image"][:3], both["text"])


def test_one_side_shares_the_weights_and_the_mode_of_the_model():
    model = make_dual(MODEL, TEXT, seed=0).eval()
    side = OneSide(model, "text")
    assert not side.training
    assert {id(one) for one in side.parameters()} == {id(one) for one in model.parameters()}
    side.train()
    assert model.training
    assert OneSide(model, "image").training


# Encoders whose features are the embedding


def test_without_a_head_features_are_the_embedding_and_nothing_else_is_saved():
    bare = {"head": "none"}
    model = make_dual(
        Choice("small", {"width": 1, "embedding_dim": 8, **bare}),
        Choice("words", {"buckets": 64, "width": 8, **bare}),
        seed=0,
    ).eval()
    assert not [key for key in model.state_dict() if "projection" in key or ".norm" in key]
    texts = model.prepare(TEXTS, IDS)
    image, text = model(images(), texts)
    assert torch.equal(image, model.image.backbone(images()))
    assert torch.equal(text, model.text.backbone(texts))
    kept = make_dual(MODEL, TEXT, seed=0).state_dict()
    for side in ("image", "text"):
        assert {f"{side}.projection.weight", f"{side}.norm.weight"} <= kept.keys()


@pytest.mark.parametrize(("side", "features"), [("model", 16), ("text", 6)])
def test_without_a_head_the_width_must_fit(side, features):
    tables = {"model": MODEL, "text": TEXT}
    tables[side] = Choice(tables[side].name, {**tables[side].options, "head": "none"})
    says = f"makes {features} and `embedding_dim` is 8. Set it to {features}, or take `head"
    with pytest.raises(ConfigError, match=says):
        make_dual(tables["model"], tables["text"], seed=0)


# By name


def test_an_unknown_text_encoder_suggests_a_known_one():
    with pytest.raises(ConfigError, match="unknown text encoder `word` in .text.. Did you mean `w"):
        make_dual(MODEL, Choice("word"), seed=0)
    with pytest.raises(ConfigError, match=f"Known: {', '.join(TEXT_ENCODERS)}"):
        resolve_text(Choice("bert"))


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"bucket": 3}, "unknown key `bucket` in .text.. Did you mean `buckets`"),
        ({"width": "wide"}, "`width` in .text. must be int"),
        (
            {"head": "mlp"},
            "`head` in .text. must be one of linear, affine, no_norm, none, not 'mlp'",
        ),
    ],
)
def test_options_of_a_text_encoder_are_checked(options, says):
    with pytest.raises(ConfigError, match=says):
        resolve_text(Choice("words", options))


def test_defaults_are_written_out_and_the_usual_head_is_not():
    resolved = resolve_text(Choice("words", {"width": 6, "head": "linear"}))
    assert resolved == Choice("words", {"buckets": 4096, "width": 6, "longest": 64})
    bare = resolve_text(Choice("words", {"head": "none"}))
    assert bare.options["head"] == "none"
    for one in (resolved, bare):
        assert resolve_text(one) == one


def test_a_model_is_built_again_when_the_vectors_of_its_texts_are_gone(tmp_path):
    """It gets its weights from a run; only who asks for texts needs the file."""
    path = tmp_path / "texts.safetensors"
    Vectors(IDS, torch.eye(3, 5)).save(path)
    resolved = resolve_text(Choice("vectors", {"path": str(path)}))
    found = make_dual(MODEL, resolved, seed=0, bare=True)
    assert torch.equal(found.prepare(TEXTS[:2], IDS[1:]), torch.eye(3, 5)[1:])
    for left in tmp_path.iterdir():
        left.unlink()
    again = make_dual(MODEL, resolved, seed=0, bare=True)
    assert again.text.projection.weight.shape == (8, 5)


# In half precision. No product is made in it here: some processors cannot, so toys look on instead.


class HalfText(TextEncoder):
    feature_dim, says = 4, "as it is"

    def forward(self, prepared):
        return in_half(prepared)


class HalfImage(nn.Module):
    def forward(self, images):
        return in_half(images.flatten(1)[:, 100:104])


def in_half(features):
    """As a layer answers that is asked to work in half precision."""
    asked = torch.is_autocast_enabled("cpu")
    return features.to(torch.get_autocast_dtype("cpu")) if asked else features


def toy():
    return DualEncoder(
        Embedder(Backbone(HalfImage(), 4), 4, "none"), Embedder(HalfText(), 4, "none")
    )


@pytest.mark.parametrize("half", [torch.bfloat16, torch.float16])
def test_in_half_precision_both_come_out_in_single(half):
    model = Autocast(toy(), str(half).removeprefix("torch."))
    with torch.autocast("cpu", half):
        assert [one.dtype for one in model.model(images(), torch.rand(3, 4))] == [half, half]
    image, text = model(images(), torch.rand(3, 4))
    assert (image.dtype, text.dtype) == (torch.float32, torch.float32)
    assert torch.equal(image, images().flatten(1)[:, 100:104].to(half).float())
    assert model(images(), None)[1] is None
    assert model(None, torch.rand(3, 4))[0] is None
