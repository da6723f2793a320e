import random
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

if find_spec("sentence_transformers") is None:
    pytest.skip("sentence-transformers is not installed", allow_module_level=True)
sys.path[:0] = [str(Path(__file__).parents[1])]

from tiny_models import pairs, tiny_model

from nobackfill.errors import ConfigError
from nobackfill.integrations.sentence_transformers.token_rows import (
    ODD,
    TokenRows,
    token_keys,
    tokenized,
)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return tiny_model(tmp_path_factory.mktemp("models") / "tiny")


def key_by_loops(ids):
    """The sum of mixed integers of 64 bits, in Python's own."""
    total = 0
    for position, number in enumerate(ids, start=1):
        z = (number + (position << 32)) * ODD[0] % 2**64
        z = (z ^ (z >> 30)) * ODD[1] % 2**64
        z = (z ^ (z >> 27)) * ODD[2] % 2**64
        total = (total + (z ^ (z >> 31))) % 2**64
    return total - 2**64 if total >= 2**63 else total


TEXTS = [[5, 9, 9, 2], [5], [7, 1, 30_000]]


def padded(*, left=False):
    ids, mask = torch.full((3, 5), 99), torch.zeros(3, 5, dtype=torch.int64)
    for row, text in enumerate(TEXTS):
        place = slice(5 - len(text), 5) if left else slice(0, len(text))
        ids[row, place], mask[row, place] = torch.tensor(text), 1
    return {"input_ids": ids, "attention_mask": mask}


FLAT = torch.tensor([number for text in TEXTS for number in text])


@pytest.mark.parametrize(
    "features",
    [
        padded(),
        padded(left=True),
        {"input_ids": FLAT[None], "cu_seq_lens_q": torch.tensor([0, 4, 5, 8])},
        {"input_ids": FLAT, "offsets": torch.tensor([0, 4, 5])},
    ],
    ids=["padded", "padded on the left", "flattened", "offsets"],
)
def test_a_key_is_the_sum_over_tokens_however_they_are_laid_out(features):
    assert token_keys(features).tolist() == [key_by_loops(text) for text in TEXTS]


def test_keys_tell_orders_lengths_and_ids_apart():
    draw = random.Random(0)
    texts = [[draw.randrange(40) for _ in range(draw.randint(1, 6))] for _ in range(2000)]
    texts += [text[::-1] for text in texts] + [[0] * n for n in range(1, 7)]
    width = max(map(len, texts))
    ids = torch.tensor([text + [0] * (width - len(text)) for text in texts])
    mask = torch.tensor([[1] * len(text) + [0] * (width - len(text)) for text in texts])
    keys = token_keys({"input_ids": ids, "attention_mask": mask}).tolist()
    assert len(set(keys)) == len({tuple(text) for text in texts})


def test_rows_are_found_in_any_order_and_padding(model):
    _, texts = pairs(50)
    rows = TokenRows(model, texts)
    order = torch.randperm(50).tolist()
    features = tokenized(model, [*(texts[row] for row in order), "bab bem"], None, None)
    assert rows.rows(model, features).tolist() == [*order, -1]


def test_texts_that_are_cut_alike_have_the_row_of_the_first(model):
    _, texts = pairs(3)
    long = " ".join(texts)  # 30 words, of which 22 are read
    rows = TokenRows(model, [texts[0], long + " bem", long + " bin"])
    assert rows.keys[1] == rows.keys[2]
    assert rows.rows(model, tokenized(model, [long], None, None)).tolist() == [1]


def test_rows_without_text_are_not_found_and_not_alike(model):
    _, texts = pairs(2)
    rows = TokenRows(model, [texts[0], None, None, texts[1]])
    assert len(set(rows.keys.tolist())) == 4
    assert rows.rows(model, tokenized(model, [texts[1], ""], None, None)).tolist() == [3, -1]


def test_another_length_of_the_model_makes_another_table(model):
    _, texts = pairs(4)
    rows = TokenRows(model, texts)
    try:
        model.max_seq_length = 6
        features = tokenized(model, texts, None, None)
        assert features["input_ids"].shape[1] == 6
        assert rows.rows(model, features).tolist() == [0, 1, 2, 3]
    finally:
        model.max_seq_length = 24


def test_prompts_are_tried_in_turn(model):
    _, texts = pairs(4)
    rows = TokenRows(model, texts, ["query: ", "passage: "])
    for prompt in ("query: ", "passage: "):
        found = rows.rows(model, tokenized(model, texts, prompt, None))
        assert found.tolist() == [0, 1, 2, 3]
    assert (rows.rows(model, tokenized(model, texts, None, None)) == -1).all()


def test_images_are_refused():
    with pytest.raises(ConfigError, match=r"has pixel_values\. CompatibleLoss can train models of"):
        token_keys({"pixel_values": torch.zeros(2, 3, 4, 4)})
