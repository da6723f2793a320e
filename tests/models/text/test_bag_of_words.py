import re
import subprocess
import sys
import unicodedata
import zlib

import pytest
import torch

from nobackfill.core.config import resolve_options
from nobackfill.core.seeding import seeded
from nobackfill.errors import ConfigError, DataError
from nobackfill.models.text.bag_of_words import TEXT_ENCODERS, TEXT_RESOLVERS, vectors, words
from nobackfill.vectors import Vectors
from nobackfill.vectors.space import Space

TEXTS = ["Top left to centre.", "centre to top left", "A red coat"]
IDS = ["a.jpg#0", "a.jpg#1", "b.jpg#0"]


def seeded_words(**options):
    with seeded(0):
        return words(**options)


# Words.


def features_by_hand(encoder, text):
    """The mean over the words, and the pairs of them, one at a time; then the layer."""
    found = re.findall(r"\w+", text.lower())[: encoder.longest]
    pieces = found + [f"{found[i]} {found[i + 1]}" for i in range(len(found) - 1)]
    total = torch.zeros(encoder.feature_dim)
    for piece in pieces:
        total += encoder.table.weight[1 + zlib.crc32(piece.encode()) % encoder.buckets]
    return encoder.layer(total / len(pieces))


@pytest.mark.parametrize("longest", [2, 64])
def test_features_are_their_formula_written_as_loops(longest):
    encoder = seeded_words(buckets=50, width=8, longest=longest)
    features = encoder(encoder.prepare(TEXTS, IDS))
    assert features.shape == (3, encoder.feature_dim) == (3, 8)
    torch.testing.assert_close(
        features, torch.stack([features_by_hand(encoder, text) for text in TEXTS])
    )


def test_the_order_of_words_tells_texts_apart():
    encoder = seeded_words()
    one, other, _ = encoder(encoder.prepare(TEXTS, IDS))
    assert not torch.allclose(one, other)


def test_case_punctuation_and_ways_of_writing_a_letter_do_not():
    encoder = seeded_words()
    texts = ["Café, crème!", unicodedata.normalize("NFD", "CAFÉ crème"), "café_crème"]
    one, decomposed, joined = encoder.prepare(texts, IDS)
    assert torch.equal(one, decomposed)
    assert torch.equal(one, joined)


def test_words_of_any_script_are_words():
    prepared = words().prepare(["красное пальто 7", "coat", "赤い コート"], IDS)
    assert (prepared > 0).sum(dim=1).tolist() == [5, 1, 3]


def test_a_text_does_not_depend_on_the_texts_beside_it():
    encoder = seeded_words().eval()
    together = encoder(encoder.prepare(TEXTS, IDS))
    for row in range(3):
        alone = encoder(encoder.prepare(TEXTS[row : row + 1], IDS[row : row + 1]))
        torch.testing.assert_close(alone[0], together[row])


def test_words_fall_into_the_same_buckets_in_every_process():
    """Python's own hash of text does not."""
    package = "nobackfill.models.text.bag_of_words"
    program = f"from {package} import words; print(words().prepare({TEXTS}, {IDS}))"
    again = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    ).stdout
    prepared = words().prepare(TEXTS, IDS)
    assert again.strip() == str(prepared)
    assert prepared[2].tolist() == [3652, 3984, 1072, 68, 958, 0, 0]
    assert prepared.dtype == torch.int64


def test_the_same_seed_makes_the_same_weights():
    one, same = seeded_words().state_dict(), seeded_words().state_dict()
    assert all(torch.equal(one[name], same[name]) for name in one)


def test_every_weight_learns_but_that_of_nothing():
    encoder = seeded_words(buckets=5, width=4)
    encoder(encoder.prepare(TEXTS, IDS)).square().sum().backward()
    assert all(parameter.grad.any() for parameter in encoder.parameters())
    assert not encoder.table.weight.grad[0].any()
    assert not encoder.table.weight[0].any()


def test_buckets_stay_within_the_table():
    prepared = words(buckets=2).prepare(TEXTS, IDS)
    assert set(prepared.unique().tolist()) == {0, 1, 2}


@pytest.mark.parametrize("name", ["buckets", "width", "longest"])
def test_an_option_that_makes_no_encoder(name):
    with pytest.raises(ConfigError, match=rf"`{name}` in \[text\] must be at least 1, not 0"):
        words(**{name: 0})


def test_a_text_without_a_word():
    with pytest.raises(DataError, match=r"1 of 3 .* letters or digits; the first is 'a.jpg#1'"):
        words().prepare(["a", "?!", "b"], IDS)


# Every encoder.


@pytest.mark.parametrize("encoder", [words(), vectors(path="no.npz", width=2)])
@pytest.mark.parametrize("blank", ["", " \n\t"])
def test_a_blank_text_is_named(encoder, blank):
    with pytest.raises(DataError, match=r"2 of 3 texts are empty or blank; the first is 'a.jpg#1'"):
        encoder.prepare(["a", blank, blank], IDS)


def test_texts_without_ids():
    with pytest.raises(DataError, match="3 texts and 2 ids"):
        words().prepare(TEXTS, IDS[:2])


def test_no_text_at_all():
    encoder = words()
    assert encoder(encoder.prepare([], [])).shape == (0, 128)


@pytest.mark.parametrize("name", TEXT_ENCODERS)
def test_options_are_those_of_a_recipe(name):
    options = resolve_options(TEXT_ENCODERS[name], {}, where="text")
    assert options
    with pytest.raises(ConfigError, match=r"unknown key `widht` in \[text\]"):
        resolve_options(TEXT_ENCODERS[name], {"widht": 1}, where="text")


# Vectors.


@pytest.fixture
def stored(tmp_path):
    """Vectors of the texts and of one more, in another order, and their file."""
    matrix = torch.randn(4, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    path = str(tmp_path / "captions.safetensors")
    made = Vectors(["b.jpg#0", "x", "a.jpg#1", "a.jpg#0"], matrix.half(), space=Space(3, "cafe"))
    made.save(path)
    return made, path


def test_vectors_are_looked_up_by_id(stored):
    made, path = stored
    encoder = vectors(path=path)
    features = encoder(encoder.prepare(TEXTS, IDS))
    assert features.dtype == torch.float32
    assert encoder.feature_dim == 3
    assert torch.equal(features, made.vectors[[3, 2, 0]].float())


def test_ids_that_are_numbers_are_found(tmp_path):
    Vectors([7, 8], torch.eye(2)).save(tmp_path / "numbered.npz")
    encoder = vectors(path=str(tmp_path / "numbered.npz"))
    assert torch.equal(encoder.prepare(["a", "b"], ["8", "7"]), torch.eye(2)[[1, 0]])


def test_a_missing_text_is_named(stored):
    with pytest.raises(
        DataError, match=r"vectors of 2 of 3 texts; the first is 'c#0'.* ids such as 'b.jpg#0'"
    ):
        vectors(path=stored[1]).prepare(TEXTS, ["a.jpg#0", "c#0", "c#1"])


def test_a_run_is_built_again_when_the_file_is_gone(stored, tmp_path):
    options = TEXT_RESOLVERS["vectors"](resolve_options(vectors, {"path": stored[1]}, where="text"))
    assert options["width"] == 3
    (tmp_path / "captions.safetensors").unlink()
    again = vectors(**options)
    assert again.feature_dim == 3
    assert again.space == options["space"]
    with pytest.raises(DataError, match=r"No text vectors at .*captions.safetensors"):
        again.prepare(TEXTS, IDS)
    with pytest.raises(ConfigError, match=r"\[text\] has no `path`"):
        vectors(**options | {"path": None}).prepare(TEXTS, IDS)


@pytest.mark.parametrize(("dim", "weights"), [(4, "cafe"), (3, "beef"), (3, None)])
def test_the_file_is_not_changed_for_that_of_another_model(stored, dim, weights):
    _, path = stored
    encoder = vectors(path=path)
    space = Space(dim, weights) if weights else None
    other = path.replace("captions", "others")
    Vectors(IDS, torch.ones(3, dim), space=space).save(other)
    encoder.path = other
    with pytest.raises(DataError, match=rf"given vectors of 3 dim.* but they have {dim} dim"):
        encoder.prepare(TEXTS, IDS)


def test_vectors_want_a_path():
    with pytest.raises(ConfigError, match=r"\[text\] has no `path`"):
        vectors()
