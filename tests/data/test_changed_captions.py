"""Captions with swapped or deleted words."""

from collections import Counter

import pytest
import torch

from nobackfill.data.changed_captions import (
    change_caption,
    delete_words,
    insert_words,
    read_synonyms,
    replace_words,
    swap_words,
)
from nobackfill.errors import DataError

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
    assert change_caption(text, GENERATOR, {}) != ""
    assert change_caption(text, torch.Generator().manual_seed(3)) == change_caption(
        text, torch.Generator().manual_seed(3)
    )


SYNONYMS = {f"w{n}": [f"s{n}", f"t{n}"] for n in range(20)} | {"w29": []}


def test_a_tenth_of_the_words_is_replaced_by_synonyms_wherever_they_stand():
    words = [*WORDS, "w3"]  # 31 words, so three are replaced
    seen = set()
    for _ in range(300):
        found = replace_words(words, GENERATOR, SYNONYMS)
        changed = {(a, b) for a, b in zip(words, found, strict=True) if a != b}
        assert len(changed) == 3
        assert all(b in SYNONYMS[a] for a, b in changed)
        assert found[3] == found[30]
        seen |= changed
    assert len(seen) == 40
    assert replace_words(["w25", "x"], GENERATOR, SYNONYMS) == ["w25", "x"]


def test_synonyms_of_a_tenth_of_the_words_are_inserted_anywhere():
    places = set()
    for _ in range(500):
        found = insert_words(WORDS, GENERATOR, SYNONYMS)
        new = [word for word in found if word not in WORDS]
        assert [word for word in found if word in WORDS] == WORDS
        assert len(new) == 3
        assert all(word[0] in "st" and int(word[1:]) < 20 for word in new)
        places |= {place for place, word in enumerate(found) if word in new}
    assert places >= set(range(30))
    assert insert_words(["x", "y"], GENERATOR, SYNONYMS) == ["x", "y"]


def test_with_synonyms_each_of_the_four_changes_is_as_frequent():
    counts = Counter()
    for _ in range(2000):
        found = change_caption(" ".join(WORDS), GENERATOR, SYNONYMS).split()
        new = any(word[0] in "st" for word in found)
        counts[new, len(found) - len(WORDS) if new else sorted(found) == sorted(WORDS)] += 1
    assert {key for key in counts if key[0]} == {(True, 0), (True, 3)}
    assert counts[True, 0] == pytest.approx(500, abs=80)
    assert counts[True, 3] == pytest.approx(500, abs=80)
    assert counts[False, False] == pytest.approx(500 * (1 - 0.9**30), abs=80)


def test_a_file_of_synonyms_is_checked(tmp_path):
    path = tmp_path / "synonyms.json"
    path.write_text('{"coat": ["jacket", "parka"]}')
    assert read_synonyms(path) == {"coat": ["jacket", "parka"]}
    for wrong in ('["coat"]', '{"coat": "jacket"}', "coat"):
        path.write_text(wrong)
        with pytest.raises(DataError, match="Write a list of synonyms for each word"):
            read_synonyms(path)
