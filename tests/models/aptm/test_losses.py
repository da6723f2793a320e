"""Losses of APTM by loops, and what its texts are masked by."""

import math

import pytest
import torch

from nobackfill.models.aptm.losses import draw_negatives, masked_word_loss, matching_loss
from nobackfill.models.aptm.masking import Vocabulary, mask_words
from nobackfill.models.aptm.model import Judged
from nobackfill.training.aptm import aptm_terms

LABELS = torch.tensor([3, 5, 3, 7, 5, 9])
GENERATOR = torch.Generator().manual_seed(4)


def numbers(*shape):
    return torch.randn(*shape, generator=GENERATOR, dtype=torch.float64)


def cosine(a, b):
    dot = sum(x * y for x, y in zip(a, b, strict=True))
    return dot / math.sqrt(sum(x * x for x in a)) / math.sqrt(sum(y * y for y in b))


def contrast_by_loops(image, text, labels, temperature):
    """Every image and text of a person is a match; all share the chance equally."""
    total, count = 0.0, len(labels)
    for queries, keys in ((image, text), (text, image)):
        for i in range(count):
            scores = [math.exp(cosine(queries[i], keys[j]) / temperature) for j in range(count)]
            own = [j for j in range(count) if labels[j] == labels[i]]
            total -= sum(math.log(scores[j] / sum(scores)) for j in own) / len(own)
    return total / (2 * count)


def cross_entropy(logits, target):
    return -math.log(math.exp(logits[target]) / sum(map(math.exp, logits)))


def matching_by_loops(logits):
    costs = [cross_entropy(pair[0], 1) for pair in logits]
    costs += [cross_entropy(pair[n], 0) for pair in logits for n in (1, 2)]
    return sum(costs) / len(costs)


def words_by_loops(scores, targets):
    costs = [
        cross_entropy(scores[row][place], target)
        for row, row_targets in enumerate(targets)
        for place, target in enumerate(row_targets)
        if target != -100
    ]
    return sum(costs) / len(costs)


def test_the_three_losses_are_those_of_the_loops():
    targets = torch.tensor([[4, 0, -100], [2, -100, -100], [1, 3, 5]] * 2)
    judged = Judged(
        image=numbers(6, 5),
        text=numbers(6, 5),
        changed=numbers(6, 5),
        temperature=torch.tensor(0.3, dtype=torch.float64),
        match=numbers(6, 3, 2),
        changed_match=numbers(6, 3, 2),
        words=numbers(6, 3, 8),
    )
    terms = aptm_terms(judged, LABELS, LABELS, targets)
    image, text, changed, _, match, changed_match, words = (each.tolist() for each in judged)
    labels = LABELS.tolist()
    assert {name: term.item() for name, term in terms.items()} == pytest.approx(
        {
            "itc": contrast_by_loops(image, text, labels, 0.3)
            + 0.8 * contrast_by_loops(image, changed, labels, 0.3),
            "itm": matching_by_loops(match) + 0.8 * matching_by_loops(changed_match),
            "mlm": words_by_loops(words, targets.tolist()),
        },
        rel=1e-12,
    )


def test_the_temperature_learns_from_the_contrast():
    temperature = torch.tensor(0.3, dtype=torch.float64, requires_grad=True)
    image, text, changed = numbers(6, 5), numbers(6, 5), numbers(6, 5)
    judged = Judged(
        image, text, changed, temperature, numbers(6, 3, 2), numbers(6, 3, 2), numbers(6, 3, 8)
    )
    aptm_terms(judged, LABELS, LABELS, torch.zeros(6, 3).long())["itc"].backward()

    def loss(value):
        parts = (contrast_by_loops(image, other, LABELS, value) for other in (text, changed))
        first, second = parts
        return float(first + 0.8 * second)

    assert temperature.grad.item() == pytest.approx((loss(0.3001) - loss(0.2999)) / 2e-4, rel=1e-5)


def test_negatives_are_drawn_by_similarity_and_never_of_the_same_person():
    query, keys = numbers(6, 4), numbers(6, 4)
    torch.manual_seed(0)
    draws = 20_000
    counts = torch.zeros(6, 6)
    for _ in range(draws // 100):
        found = torch.stack(
            [draw_negatives(query, keys, LABELS, temperature=0.4) for _ in range(100)]
        )
        for i in range(6):
            counts[i] += torch.bincount(found[:, i], minlength=6)
    for i in range(6):
        shares = [math.exp(cosine(query[i], keys[j]) / 0.4) for j in range(6)]
        shares = [share / sum(shares) + 1e-5 for share in shares]
        own = [0.0 if LABELS[j] == LABELS[i] else shares[j] for j in range(6)]
        expected = torch.tensor([share / sum(own) for share in own])
        assert ((counts[i] > 0) <= (expected > 0)).all()
        torch.testing.assert_close(counts[i] / draws, expected.float(), atol=0.015, rtol=0)


def test_a_batch_of_one_person_has_no_negatives_and_costs_only_the_matches():
    labels, logits = torch.tensor([4, 4]), numbers(2, 3, 2)
    torch.manual_seed(0)
    found = draw_negatives(numbers(2, 3), numbers(2, 3), labels, temperature=0.1)
    assert found.shape == (2,)
    own = [cross_entropy(pair[0], 1) for pair in logits.tolist()]
    assert matching_loss(logits, labels).item() == pytest.approx(sum(own) / 2)


def test_unused_places_cost_nothing():
    scores = numbers(1, 3, 5)
    two = masked_word_loss(scores[:, :2], torch.tensor([[1, 4]]))
    assert masked_word_loss(scores, torch.tensor([[1, 4, -100]])) == two


# Masked words. Tokens: 0 fills up, 2 starts, 3 ends, 4 is the mask; 5 to 29 are words, of which
# 20 to 29 continue the word before.

VOCABULARY = Vocabulary(4, torch.arange(40) >= 20)


def text(*tokens, length):
    row = [2, *tokens, 3]
    filled = row + [0] * (length - len(row))
    return torch.tensor([filled, [1] * len(row) + [0] * (length - len(row))])


def masked_often(prepared, times=400):
    generator = torch.Generator().manual_seed(1)
    return mask_words(prepared[None].repeat(times, 1, 1), VOCABULARY, generator)


@pytest.mark.parametrize(
    ("words", "expected"), [(1, 1), (5, 1), (10, 2), (22, 6), (40, 10), (54, 10)]
)
def test_a_quarter_of_the_tokens_is_masked_and_at_most_ten(words, expected):
    prepared = text(*[5 + n % 15 for n in range(words)], length=60)
    found = masked_often(prepared, 50)
    assert found.places.shape == (50, 10)
    assert ((found.targets != -100).sum(dim=1) == expected).all()


def test_what_is_masked_is_asked_for_and_the_ends_and_padding_stay():
    prepared = text(5, 20, 6, 7, 8, 21, 22, 9, 10, 11, 12, length=16)
    found = masked_often(prepared)
    for numbers_, places, targets in zip(
        found.prepared[:, 0], found.places, found.targets, strict=True
    ):
        asked = {p: t for p, t in zip(places.tolist(), targets.tolist(), strict=True) if t != -100}
        assert len(asked) == int((targets != -100).sum())  # no place twice
        assert all(1 <= place <= 11 for place in asked)
        assert all(prepared[0, place] == target for place, target in asked.items())
        rest = [place for place in range(16) if place not in asked]
        assert torch.equal(numbers_[rest], prepared[0, rest])
    assert torch.equal(found.prepared[:, 1], prepared[1].expand(400, -1))


def test_masked_tokens_become_the_mask_any_token_or_stay():
    prepared = text(*[5 + n for n in range(15)], *[5 + n for n in range(15)], length=32)
    found = masked_often(prepared, 2000)
    used = found.targets != -100
    now = found.prepared[:, 0].gather(1, found.places)[used]
    before = found.targets[used]
    mask, same = (now == 4).double().mean(), (now == before).double().mean()
    other = ((now != 4) & (now != before)).double().mean()
    assert mask == pytest.approx(0.8 + 0.1 / 40, abs=0.01)
    assert same == pytest.approx(0.1 + 0.1 / 40, abs=0.01)
    assert other == pytest.approx(0.1 * 38 / 40, abs=0.01)
    assert set(now.tolist()) == set(range(40))


def test_whole_words_are_masked_and_sometimes_several_in_a_row():
    words = [[5], [6, 20], [7], [8, 21, 22], [9], [10], [11], [12]]
    prepared = text(*[token for word in words for token in word], *range(5, 18), length=28)
    found = masked_often(prepared, 1000)
    place_of, place = [], 1
    for word in words:
        place_of.append(list(range(place, place + len(word))))
        place += len(word)
    broken = split = neighbours = 0
    for row in found.places.tolist():
        chosen = {p for p in row if p}
        for places in place_of:
            hit = len(chosen & set(places))
            broken += 0 < hit < len(places)  # only the last word of all may be cut
            split += hit > 0
        neighbours += any(p + 1 in chosen for p in chosen if p > 11)
    assert broken < 0.15 * split
    assert neighbours > 500  # by chance alone, 6 of 24 places


def test_the_draws_follow_the_generator():
    prepared = text(*range(5, 18), length=16)[None]
    one, same, other = (
        mask_words(prepared, VOCABULARY, torch.Generator().manual_seed(seed)) for seed in (1, 1, 2)
    )
    assert torch.equal(one.prepared, same.prepared)
    assert not torch.equal(one.places, other.places)
