"""Captions with swapped or deleted words."""

from collections import Counter

import torch

from nobackfill.data.changed_captions import change_caption, delete_words, swap_words

WORDS = [f"w{n}" for n in range(30)]
GENERATOR = torch.Generator().manual_seed(0)


def test_a_tenth_of_the_words_is_swapped_in_pairs():
    for count, swaps in ((2, 1), (9, 1), (19, 1), (30, 3)):
        for _ in range(50):
            found = swap_words(WORDS[:count], GENERATOR)
            assert sorted(found) == sorted(WORDS[:count])
            moved = sum(a != b for a, b in zip(found, WORDS, strict=False))
            assert moved <= 2 * swaps
            assert swaps > 1 or moved == 2


def test_each_word_is_deleted_with_a_chance_of_a_tenth():
    left = [delete_words(WORDS, GENERATOR) for _ in range(2000)]
    assert all(words == [word for word in WORDS if word in set(words)] for words in left)
    kept = Counter(word for words in left for word in words)
    assert all(abs(kept[word] / 2000 - 0.9) < 0.03 for word in WORDS)


def test_one_word_always_stays():
    for _ in range(500):
        assert 1 <= len(delete_words(["a", "b"], GENERATOR)) <= 2
    assert change_caption("alone", GENERATOR) == "alone"


def test_half_of_the_captions_lose_their_order_and_half_some_words():
    text = " ".join(WORDS)
    swapped = sum(
        sorted(change_caption(text, GENERATOR).split()) == sorted(WORDS) for _ in range(1000)
    )
    assert 450 < swapped < 600  # half, and 4 % of the others lose no word
    assert change_caption(text, torch.Generator().manual_seed(3)) == change_caption(
        text, torch.Generator().manual_seed(3)
    )
