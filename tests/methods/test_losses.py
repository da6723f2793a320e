from math import exp, log

import pytest
import torch
import torch.nn.functional as F

from nobackfill.methods.losses import (
    first_dims,
    known_class_loss,
    mimic_loss,
    pair_contrast,
    prototype_loss,
    same_class,
    smooth_average_precision,
    supervised_contrast,
)


def cosine(a, b):
    return (a @ b / (a.norm() * b.norm())).item()


def prototype_loss_by_hand(new, labels, moved, old, temperature):
    """The formula of the docstring, one item and one class at a time."""
    total = 0.0
    for e, y in zip(new, labels.tolist(), strict=True):
        own = exp(cosine(e, moved[y]) / temperature)
        others = sum(exp(cosine(e, old[c]) / temperature) for c in range(len(old)) if c != y)
        total -= log(own / (own + others))
    return total / len(new)


def random(*shape, seed):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("temperature", [0.07, 1.0])
def test_prototype_loss_is_its_formula_written_as_loops(temperature):
    new, moved, old = random(6, 4, seed=0), random(5, 4, seed=1), random(5, 4, seed=2)
    labels = torch.tensor([0, 1, 2, 3, 4, 4])
    loss = prototype_loss(new, labels, moved, old, temperature=temperature)
    assert loss.item() == pytest.approx(
        prototype_loss_by_hand(new, labels, moved, old, temperature), abs=1e-10
    )


def test_only_the_own_prototype_is_moved():
    new, old = random(1, 4, seed=0), random(5, 4, seed=1)
    labels, elsewhere = torch.tensor([2]), old.clone()
    elsewhere[[0, 1, 3, 4]] = random(4, 4, seed=2)
    as_it_was = prototype_loss(new, labels, old, old)
    assert torch.equal(prototype_loss(new, labels, elsewhere, old), as_it_was)
    assert not torch.equal(prototype_loss(new, labels, old, elsewhere), as_it_was)


def test_length_plays_no_part():
    new, old = random(3, 4, seed=0), random(5, 4, seed=1)
    labels = torch.tensor([0, 1, 2])
    torch.testing.assert_close(
        prototype_loss(5 * new, labels, 0.2 * old, 7 * old), prototype_loss(new, labels, old, old)
    )


def test_known_class_loss_is_the_mean_over_known_classes():
    logits, labels = random(4, 3, seed=0), torch.tensor([0, 5, 2, 3])
    expected = F.cross_entropy(logits[[0, 2]], labels[[0, 2]])
    torch.testing.assert_close(known_class_loss(logits, labels), expected)


def test_known_class_loss_of_strangers_only_is_zero_and_has_a_gradient():
    logits = torch.randn(2, 3, requires_grad=True)
    loss = known_class_loss(logits, torch.tensor([3, 4]))
    loss.backward()
    assert loss.item() == 0
    assert torch.equal(logits.grad, torch.zeros(2, 3))


def test_first_dims_passes_the_gradient():
    vectors = torch.ones(1, 3, requires_grad=True)
    first_dims(vectors, 2).sum().backward()
    assert torch.equal(vectors.grad, torch.tensor([[1.0, 1.0, 0.0]]))


def test_mimic_loss_is_one_less_the_cosine_of_each_with_its_own():
    new, old = random(5, 4, seed=0), random(5, 4, seed=1)
    by_hand = sum(1 - cosine(e, f) for e, f in zip(new, old, strict=True)) / 5
    assert mimic_loss(new, old).item() == pytest.approx(by_hand, abs=1e-10)
    assert mimic_loss(3 * old, old).item() == pytest.approx(0, abs=1e-10)
    assert mimic_loss(-old, 7 * old).item() == pytest.approx(2, abs=1e-10)


def contrast_by_hand(query, keys, positive, temperature, left_out=None):
    """The formula of the docstring, one query and one positive key at a time."""
    total = 0.0
    for i, q in enumerate(query):
        seen = [j for j in range(len(keys)) if left_out is None or not left_out[i, j]]
        shares = {j: exp(cosine(q, keys[j]) / temperature) for j in seen}
        own = [j for j in seen if positive[i, j]]
        for p in own:
            total -= log(shares[p] / sum(shares.values())) / len(own)
    return total / len(query)


POSITIVE = torch.tensor(
    [[1, 0, 0, 0, 0], [0, 1, 1, 0, 0], [1, 1, 0, 1, 1], [0, 0, 0, 0, 0]], dtype=torch.bool
)  # 1, 2, 4 and no positives: their shares are exact in any precision
LEFT_OUT = torch.tensor(
    [[0, 1, 1, 0, 0], [1, 0, 0, 0, 0], [1, 1, 0, 0, 0], [0, 0, 0, 1, 0]], dtype=torch.bool
)


@pytest.mark.parametrize("temperature", [0.07, 1.0])
@pytest.mark.parametrize("left_out", [None, LEFT_OUT])
def test_supervised_contrast_is_its_formula_written_as_loops(temperature, left_out):
    query, keys = random(4, 3, seed=0), random(5, 3, seed=1)
    loss = supervised_contrast(query, keys, POSITIVE, temperature=temperature, left_out=left_out)
    by_hand = contrast_by_hand(query, keys, POSITIVE, temperature, left_out)
    assert loss.item() == pytest.approx(by_hand, abs=1e-10)


def test_the_temperature_of_the_contrast_is_that_of_the_paper_where_none_is_given():
    query, keys = random(4, 3, seed=0), random(5, 3, seed=1)
    given = supervised_contrast(query, keys, POSITIVE, temperature=0.07)
    assert torch.equal(supervised_contrast(query, keys, POSITIVE), given)


def test_a_key_that_is_left_out_is_as_if_it_were_not_there():
    query, keys = random(4, 3, seed=0), random(5, 3, seed=1)
    left_out = torch.zeros(4, 5, dtype=torch.bool)
    left_out[:, 2] = True
    others = [0, 1, 3, 4]
    torch.testing.assert_close(
        supervised_contrast(query, keys, POSITIVE, left_out=left_out),
        supervised_contrast(query, keys[others], POSITIVE[:, others]),
    )


def test_a_query_without_positives_costs_nothing_and_has_a_gradient():
    query = random(2, 3, seed=0).requires_grad_()
    loss = supervised_contrast(
        query, random(5, 3, seed=1), torch.zeros(2, 5, dtype=torch.bool), left_out=LEFT_OUT[:2]
    )
    loss.backward()
    assert loss.item() == 0
    assert torch.equal(query.grad, torch.zeros(2, 3, dtype=torch.float64))


def test_all_positives_of_a_query_are_drawn_alike_whatever_their_length():
    query, keys = torch.ones(1, 2, dtype=torch.float64), torch.eye(2, dtype=torch.float64)
    keys[0] *= 9
    loss = supervised_contrast(query, keys, torch.tensor([[True, True]]), temperature=0.5)
    assert loss.item() == pytest.approx(log(2), abs=1e-10)


def test_same_class_is_who_shares_a_label_and_each_with_itself():
    labels = torch.tensor([3, 1, 3, 0])
    for i, row in enumerate(same_class(labels).tolist()):
        assert row == [bool(labels[i] == labels[j]) for j in range(4)]
        assert row[i]


def precision_by_hand(query, keys, positive, temperature):
    """The formula of the docstring, one query, one positive and one other key at a time."""
    total = 0.0
    for i, q in enumerate(query):
        near = [cosine(q, key) for key in keys]
        own = [p for p in range(len(keys)) if positive[i, p]]
        for p in own:
            among_own = among_all = 1.0
            for j in range(len(keys)):
                if j != p:
                    ahead = 1 / (1 + exp(-(near[j] - near[p]) / temperature))
                    among_all += ahead
                    among_own += ahead if positive[i, j] else 0
            total += among_own / among_all / len(own)
    return total / len(query)


RANKED = torch.tensor(
    [[1, 0, 0, 0, 0], [0, 1, 1, 0, 0], [1, 1, 0, 1, 1], [1, 1, 1, 1, 1]], dtype=torch.bool
)


@pytest.mark.parametrize("temperature", [0.01, 0.3])
def test_smooth_average_precision_is_its_formula_written_as_loops(temperature):
    query, keys = random(4, 3, seed=0), random(5, 3, seed=1)
    found = smooth_average_precision(query, keys, RANKED, temperature=temperature)
    assert found.item() == pytest.approx(precision_by_hand(query, keys, RANKED, temperature))
    stretched = smooth_average_precision(7 * query, 0.1 * keys, RANKED, temperature=temperature)
    torch.testing.assert_close(stretched, found)


def test_smooth_average_precision_counts_by_the_steep_and_learns_by_the_gentle_sigmoid():
    keys = random(5, 3, seed=1)

    def gradient(**temperatures):
        query = random(4, 3, seed=0).requires_grad_()
        value = smooth_average_precision(query, keys, RANKED, **temperatures)
        return value.item(), torch.autograd.grad(value, query)[0]

    value, slope = gradient()
    same, same_slope = gradient(temperature=0.01, gradient_temperature=0.1)
    assert (value, torch.equal(slope, same_slope)) == (same, True)
    other, other_slope = gradient(gradient_temperature=0.5)
    assert other == value
    assert not torch.allclose(other_slope, slope)
    value, slope = gradient(temperature=0.3, gradient_temperature=0.3)  # one sigmoid: a true slope
    step = 1e-6 * torch.eye(3, dtype=torch.float64)[0]
    moved = []
    for sign in (1, -1):
        query = random(4, 3, seed=0)
        query[1] += sign * step
        moved.append(smooth_average_precision(query, keys, RANKED, temperature=0.3).item())
    assert slope[1, 0].item() == pytest.approx((moved[0] - moved[1]) / 2e-6, abs=1e-7)


# Images and texts


def pair_contrast_by_hand(image, text, labels, temperature):
    """Each image asks all texts and each text all images, one pair at a time."""
    total = 0.0
    for queries, keys in ((image, text), (text, image)):
        for i, query in enumerate(queries):
            every = [exp(cosine(query, key) / temperature) for key in keys]
            own = [j for j in range(len(keys)) if labels[j] == labels[i]]
            total -= sum(log(every[j] / sum(every)) for j in own) / len(own) / len(queries)
    return total / 2


PAIRS = random(6, 4, seed=0), random(6, 4, seed=1)
CLASSES = {"repeated": [0, 1, 0, 2, 0, 1], "different": [3, 1, 4, 0, 5, 2], "one": [2] * 6}


@pytest.mark.parametrize("labels", CLASSES.values(), ids=CLASSES)
@pytest.mark.parametrize("temperature", [0.07, 1.0])
def test_pair_contrast_is_its_formula_written_as_loops(labels, temperature):
    image, text = PAIRS
    found = pair_contrast(image, text, torch.tensor(labels), temperature=temperature)
    by_hand = pair_contrast_by_hand(image, text, labels, temperature)
    assert found.item() == pytest.approx(by_hand, abs=1e-10)


def test_pair_contrast_has_the_temperature_of_the_docstring():
    image, text = PAIRS
    labels = torch.tensor(CLASSES["repeated"])
    assert torch.equal(
        pair_contrast(image, text, labels), pair_contrast(image, text, labels, temperature=0.07)
    )


def test_where_each_class_is_one_pair_pair_contrast_is_the_loss_of_clip():
    """As its paper has it: the cross entropy of both directions, whose answer is the diagonal."""
    image, text = PAIRS
    logits = F.normalize(image, dim=1) @ F.normalize(text, dim=1).T / 0.2
    own = torch.arange(6)
    clip = (F.cross_entropy(logits, own) + F.cross_entropy(logits.T, own)) / 2
    found = pair_contrast(image, text, torch.tensor(CLASSES["different"]), temperature=0.2)
    torch.testing.assert_close(found, clip)
    repeated = pair_contrast(image, text, torch.tensor(CLASSES["repeated"]), temperature=0.2)
    assert abs(repeated - clip) > 0.01


def test_pair_contrast_treats_images_and_texts_alike_and_moves_both():
    image, text = (one.clone().requires_grad_() for one in PAIRS)
    labels = torch.tensor(CLASSES["repeated"])
    loss = pair_contrast(image, text, labels)
    torch.testing.assert_close(pair_contrast(text, image, labels), loss)
    pulls = torch.autograd.grad(loss, (image, text))
    assert all(pull.norm(dim=1).min() > 0 for pull in pulls)
    torch.testing.assert_close(pair_contrast(5 * image, 0.1 * text, labels), loss)


def test_pairs_that_are_together_cost_less_than_pairs_that_are_swapped():
    image = torch.eye(4)
    labels = torch.arange(4)
    assert (
        pair_contrast(image, image, labels)
        < 1e-4
        < 1
        < pair_contrast(image, image[[1, 0, 3, 2]], labels)
    )
