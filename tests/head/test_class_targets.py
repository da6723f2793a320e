"""Ridge regressions onto mixtures of own old vectors and class means, against loops in float64."""

import numpy as np
import pytest
import torch

from nobackfill.head.class_targets import SHARES, STRENGTH, forms_of, target_moments
from nobackfill.head.closed_form import RIGID, closed_forms, moments, paired_blocks, without
from nobackfill.head.examples import Examples


@pytest.fixture
def examples():
    generator = torch.Generator().manual_seed(0)
    new, old = torch.randn(40, 5, generator=generator), torch.randn(40, 4, generator=generator)
    return Examples(new, 7 * old, torch.arange(40) % 8)


def unit(rows):
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def mixed_by_loops(examples, share):
    """Least squares with extra rows that pull to 0, onto targets that are mixed item by item."""
    new, old = unit(examples.new.double().numpy()), unit(examples.old.double().numpy())
    labels, targets = examples.classes.tolist(), []
    for own, label in zip(old, labels, strict=True):
        mean = sum(row for row, other in zip(old, labels, strict=True) if other == label)
        targets.append((1 - share) * own + share * mean / np.linalg.norm(mean))
    new_mean, target_mean = new.mean(axis=0), np.mean(targets, axis=0)
    centred = new - new_mean
    pull = np.sqrt(STRENGTH * (centred**2).sum() / new.shape[1])
    rows = np.concatenate([centred, pull * np.eye(new.shape[1])])
    wanted = np.concatenate([targets - target_mean, np.zeros((new.shape[1], 4))])
    weight = np.linalg.lstsq(rows, wanted, rcond=None)[0].T
    return weight, target_mean - weight @ new_mean


@pytest.mark.parametrize("share", SHARES)
def test_a_mixture_is_that_of_loops(examples, share):
    form = forms_of(target_moments(examples, [5])[0])[f"ridge 0.1, {share:.0%} class means"]
    weight, bias = mixed_by_loops(examples, share)
    np.testing.assert_allclose(form.weight.numpy(), weight, atol=1e-5)
    np.testing.assert_allclose(form.bias.numpy(), bias, atol=1e-5)


def test_the_other_forms_are_those_without_classes(examples):
    forms = forms_of(target_moments(examples, [5])[0])
    for name, form in closed_forms(examples).items():
        torch.testing.assert_close(forms[name].weight, form.weight, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(forms[name].bias, form.bias, rtol=1e-4, atol=1e-5)
    assert RIGID in forms


def test_each_modality_has_its_own_statistics_and_common_class_means(examples):
    kinds = torch.arange(40) // 20
    both = Examples(examples.new, examples.old, examples.classes, modality=kinds)
    first, second = target_moments(both, [5, 3])
    assert (first.rows, second.rows) == (20, 20)
    assert second.new_new.shape == (3, 3)
    whole = target_moments(examples, [5])[0]
    torch.testing.assert_close((first.old_mean + second.old_mean) / 2, whole.old_mean)


@pytest.mark.parametrize("away", [3, 17, 38])
def test_statistics_without_a_part_are_those_of_the_rest(away):
    generator = torch.Generator().manual_seed(1)
    new = torch.randn(40, 5, generator=generator, dtype=torch.float64) + 3
    old = torch.randn(40, 4, generator=generator, dtype=torch.float64) - 1
    total, part, rest = (
        moments(paired_blocks(new[rows], old[rows]))
        for rows in (slice(None), slice(away), slice(away, None))
    )
    found = without(total, part)
    assert found.rows == 40 - away
    for name in ("new_mean", "old_mean", "new_new", "old_new"):
        torch.testing.assert_close(getattr(found, name), getattr(rest, name))
