"""APTM's forward pass against a slow reading of the public facts, in float64."""

import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

from nobackfill.core.config import Choice
from nobackfill.errors import ConfigError
from nobackfill.models import make_dual, make_model
from nobackfill.models.aptm.names import published_name
from nobackfill.models.base import optional_package

for package in ("timm", "transformers"):
    if find_spec(package) is None:
        pytest.skip(f"{package} is not installed", allow_module_level=True)
    optional_package(package, extra="vision")
sys.path[:0] = [str(Path(__file__).parents[2]), str(Path(__file__).parent)]

import slow_aptm as slow
from aptm_parts import IMAGE, choices, save_tokenizer

from nobackfill.models.aptm.swin import aptm_image

TEXTS = ["A man, walking.", "red shirts", "a red coat in the middle", "a man in a T-shirt"]
IDS = [f"{number}.jpg#0" for number in range(4)]
SHAPE = {key: IMAGE[key] for key in ("depths", "heads", "window")}
HEADS, FUSION = 2, range(2, 4)


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    return save_tokenizer(tmp_path_factory.mktemp("tokenizer"))


@pytest.fixture(scope="module")
def aptm(tokenizer):
    """A tiny APTM in float64, whose every weight is far from 0."""
    model = make_dual(*choices(tokenizer), seed=0).double().eval()
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if name != "temp":
                weight += 0.2 * torch.randn(weight.shape, generator=generator, dtype=weight.dtype)
    return model


@pytest.fixture(scope="module")
def batch(aptm):
    images = torch.randn(4, 1, 96, 32, generator=torch.Generator().manual_seed(2)).double()
    return images, aptm.prepare(TEXTS, IDS)


@pytest.fixture(scope="module")
def weights(aptm):
    return {published_name(name): value.detach() for name, value in aptm.state_dict().items()}


@pytest.fixture(scope="module")
def by_hand(weights, batch):
    """Tokens of each image, and of each text after the lower layers."""
    images, prepared = batch
    tokens = [slow.image_tokens(weights, image, **SHAPE) for image in images]
    texts = [slow.read_text(weights, *text.tolist(), heads=HEADS, until=2) for text in prepared]
    return tokens, texts


def near(one, other):
    torch.testing.assert_close(one, other, atol=1e-9, rtol=1e-9)


def test_texts_are_read_in_lower_case_without_signs(aptm):
    plain, written = ("a man in a t shirt", "A man - in a T-shirt!")
    assert torch.equal(aptm.prepare([plain], ["x"]), aptm.prepare([written], ["x"]))
    assert aptm.prepare(["red " * 90], ["x"]).shape == (1, 2, 56)


def test_the_embeddings_are_those_of_the_slow_reading(aptm, batch, by_hand, weights):
    tokens, texts = by_hand
    with torch.no_grad():
        image, text = aptm(*batch)
        near(aptm.swin.tokens(batch[0]), torch.stack(tokens))
    near(image, torch.stack([slow.linear(weights, "vision_proj", t[0]) for t in tokens]))
    near(text, torch.stack([slow.linear(weights, "text_proj", t[0]) for t in texts]))


def test_each_modality_alone_is_embedded_alike(aptm, batch):
    with torch.no_grad():
        image, text = aptm(*batch)
        near(aptm(batch[0], None)[0], image)
        near(aptm(None, batch[1])[1], text)
        assert aptm(batch[0], None)[1] is None


def test_what_training_judges_is_that_of_the_slow_reading(aptm, batch, by_hand, weights):
    images, prepared = batch
    tokens, _ = by_hand
    changed = aptm.prepare(["man walking a", "shirts", "a red the middle", "a man a in"], IDS)
    masked = prepared.clone()
    places = torch.tensor([[2, 3], [1, 0], [5, 2], [4, 0]])
    masked[torch.arange(4)[:, None], 0, places] = 4
    masked[[1, 3], 0, 0] = prepared[[1, 3], 0, 0]
    labels = torch.tensor([0, 1, 1, 2])
    torch.manual_seed(5)
    with torch.no_grad():
        judged = aptm.judge(images, prepared, changed, masked, places, labels)
        image, text = aptm(images, prepared)
        near(judged.image, image)
        near(judged.text, text)
        near(judged.changed, aptm(None, changed)[1])

    # The first pair is an image with its own text; negatives are one of some candidates.
    def logits(versions, of_text, of_image):
        numbers, seen = versions[of_text].tolist()
        read = slow.read_text(weights, numbers, seen, heads=HEADS, until=2)
        fused = slow.fuse(weights, read, seen, tokens[of_image], heads=HEADS, layers=FUSION)
        return slow.match_logits(weights, fused)

    for versions, found in ((prepared, judged.match), (changed, judged.changed_match)):
        table = {(t, i): logits(versions, t, i) for t in range(4) for i in range(4)}
        for own in range(4):
            near(found[own, 0], table[own, own])
            others = [other for other in range(4) if labels[other] != labels[own]]
            for pairs, logit in (
                ([(own, other) for other in others], found[own, 1]),
                ([(other, own) for other in others], found[own, 2]),
            ):
                assert any(torch.allclose(table[pair], logit, atol=1e-9) for pair in pairs)

    for row in range(4):
        numbers, seen = masked[row].tolist()
        read = slow.read_text(weights, numbers, seen, heads=HEADS, until=2)
        fused = slow.fuse(weights, read, seen, tokens[row], heads=HEADS, layers=FUSION)
        for column, place in enumerate(places[row].tolist()):
            near(judged.words[row, column], slow.word_scores(weights, fused[place]))


def test_negatives_are_similar_to_the_text_and_to_the_image(aptm, batch, monkeypatch):
    """With the most similar of another person in place of a draw."""
    images, prepared = batch
    labels = torch.tensor([0, 1, 1, 2])
    unit = torch.nn.functional.normalize

    def most_similar(query, keys, labels, *, temperature):
        assert float(temperature) == pytest.approx(0.07)
        cosines = unit(query, dim=1) @ unit(keys, dim=1).T
        return cosines.masked_fill(labels[:, None] == labels, -2).argmax(dim=1)

    monkeypatch.setattr("nobackfill.models.aptm.model.draw_negatives", most_similar)
    with torch.no_grad():
        judged = aptm.judge(images, prepared, prepared, prepared, prepared[:, 0, :1] * 0, labels)
        image_of = most_similar(judged.text, judged.image, labels, temperature=0.07)
        text_of = most_similar(judged.image, judged.text, labels, temperature=0.07)
        assert not torch.equal(image_of, text_of)
        read, tokens, own = aptm.bert.read(prepared), aptm.swin.tokens(images), torch.arange(4)
        for column, (text, image) in enumerate([(own, own), (own, image_of), (text_of, own)]):
            fused = aptm.bert.fuse(read[text], prepared[text, 1], tokens[image])
            near(judged.match[:, column], aptm.itm_head(fused[:, 0]))


def test_the_windows_of_384_by_128_are_square_and_smaller_in_the_last_stages():
    def windows(window):
        small = {"width": 8, "depths": (2, 2, 2, 2), "heads": (1, 1, 1, 1)}
        stages = aptm_image(window=window, **small).network.swin.layers
        return [[(block.window_size, block.shift_size) for block in s.blocks] for s in stages]

    plain = (0, 0)
    assert windows(8) == [
        [((8, 8), plain), ((8, 8), (4, 4))],
        [((8, 8), plain), ((8, 8), (4, 4))],
        [((8, 8), plain), ((8, 8), plain)],
        [((4, 4), plain), ((4, 4), plain)],
    ]
    assert [stage[1] for stage in windows(12)] == [
        ((12, 12), (6, 6)), ((12, 12), (6, 6)), ((8, 8), plain), ((4, 4), plain)
    ]  # fmt: skip


def test_by_default_it_is_swin_b_with_1024_features():
    with torch.device("meta"):
        backbone = aptm_image()
    assert backbone.feature_dim == 1024
    assert sum(weight.numel() for weight in backbone.parameters()) == 86_753_016


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"size": (96,)}, "must be height and width"),
        ({"size": (96, 36)}, "multiples of 16 for 3 stages"),
        ({"heads": (1, 2)}, "one number per stage"),
        ({"heads": (1, 2, 3)}, "must divide the channels .*, but 3 does not"),
    ],
)
def test_options_that_contradict_each_other_are_errors(options, says):
    with pytest.raises(ConfigError, match=says):
        make_model(Choice("aptm", IMAGE | options), seed=0)


def test_images_of_another_size_are_an_error(aptm):
    with pytest.raises(ConfigError, match="made for images of 96 x 32 pixels, but gets 64 x 32"):
        aptm(torch.zeros(1, 1, 64, 32).double(), None)


def test_both_parts_belong_together(tokenizer):
    model, text = choices(tokenizer)
    with pytest.raises(ConfigError, match='Set `name = "aptm"` in .text. too'):
        make_dual(model, Choice("words"), seed=0)
    with pytest.raises(ConfigError, match='Set `name = "aptm"` in .model. too'):
        make_dual(Choice("small"), text, seed=0)
    with pytest.raises(ConfigError, match="`head` in .model. must be 'affine'"):
        make_dual(Choice("aptm", IMAGE | {"head": "linear"}), text, seed=0)


def test_the_layers_that_attend_to_images_must_be_some(tokenizer):
    model, text = choices(tokenizer)
    for wrong in (0, 4):
        with pytest.raises(ConfigError, match="`fusion_from` in .text. must lie between 1 and 3"):
            make_dual(model, Choice("aptm", {**text.options, "fusion_from": wrong}), seed=0)


def test_a_timm_that_is_too_old_is_named(monkeypatch):
    from timm.models.swin_transformer import SwinTransformerBlock

    monkeypatch.delattr(SwinTransformerBlock, "set_input_size")
    with pytest.raises(ConfigError, match="Install a later release"):
        aptm_image()


def test_without_timm_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "timm", None)
    with pytest.raises(ConfigError, match=r"pip install 'nobackfill\[vision\]'"):
        aptm_image()
