"""`method="auto"`: what is tried on which classes, what is chosen, and what a blend is."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from nobackfill.errors import ConfigError
from nobackfill.evaluation.bootstrap import paired_interval
from nobackfill.evaluation.metrics import retrieval
from nobackfill.head import auto
from nobackfill.head.auto import (
    CANDIDATES,
    KEPT,
    LONGER,
    RIGID,
    SHARES,
    Candidate,
    blend_of,
    fit_best,
    measure_blends,
    outputs,
    trial_config,
    weights_from,
)
from nobackfill.head.class_targets import forms_of, target_moments
from nobackfill.head.fitting import weights_of
from nobackfill.head.learn import gain_over_old
from nobackfill.head.network import HeadNetwork
from nobackfill.head.schedule import FitConfig, Progress
from nobackfill.head.split import split_items
from nobackfill.head.validation import new_old_map

QUICK = FitConfig(method="auto", epochs=8, batch_size=32, learning_rate=1e-2)


@pytest.fixture
def split(items):
    data = items()
    return split_items(data.new, data.old, data.labels, "labels", share=0.2, seed=0, several=True)


@pytest.fixture
def network():
    torch.manual_seed(0)
    return HeadNetwork(8, 6, hidden=16).eval()


@pytest.fixture
def trained(monkeypatch):
    """What every training was given: examples, settings and the weights it began with."""
    seen, real = [], auto.train

    def spy(network, examples, config, progress):
        seen.append((examples, config, weights_of(network)))
        return real(network, examples, config, progress)

    monkeypatch.setattr(auto, "train", spy)
    return seen


def run(network, split, config=QUICK):
    progress = Progress()
    on_folds = fit_best(
        network, split, config=config, progress=progress, begun=0.0, watch=lambda progress: None
    )
    return progress, on_folds


def rows_of(examples):
    return set(examples.rows.tolist())


def test_every_candidate_is_tried_on_classes_that_it_was_not_trained_on(network, split, trained):
    progress, _ = run(network, split)
    methods = [config.method for _, config, _ in trained]
    assert methods[:3] == list(CANDIDATES)
    assert len(split.folds) == 3
    for place, fold in enumerate(split.folds):
        first = 0 if place == 0 else 3 + KEPT * (place - 1)
        number = 3 if place == 0 else KEPT
        assert rows_of(fold.fitted) | rows_of(fold.held_out) == rows_of(split.everything)
        for examples, _, _ in trained[first : first + number]:
            assert rows_of(examples) == rows_of(fold.fitted)
            assert not rows_of(examples) & rows_of(fold.held_out)
    assert set(methods[3:5]) == set(methods[5:7]) == set(progress.tried) - {progress.start}


def test_all_trainings_begin_at_the_same_correction(network, split, trained):
    initial = weights_of(network)
    run(network, split)
    for _, _, begun in trained:
        for name in ("inner.weight", "inner.bias", "outer.weight", "outer.bias"):
            torch.testing.assert_close(begun[name], initial[name], rtol=0, atol=0)


def test_the_winner_is_fitted_again_to_all_classes(network, split, trained):
    progress, _ = run(network, split)
    assert progress.method in CANDIDATES
    examples, config, begun = trained[-1]
    assert rows_of(examples) == rows_of(split.everything)
    assert config.method == progress.method
    forms = forms_of(target_moments(split.everything, [8])[0])
    torch.testing.assert_close(begun["affine.weight"], forms[progress.start].weight)


def test_what_it_reports_is_the_mean_over_the_folds(network, split):
    progress, on_folds = run(network, split)
    final, values = weights_of(network), []
    for weights, fold in zip(on_folds, split.folds, strict=True):
        network.load_state_dict(weights)
        values.append(new_old_map(network, fold.held_out))
    assert progress.kept == pytest.approx(np.mean(values), abs=1e-6)
    assert progress.kept == max(progress.tried.values()) >= max(progress.closed.values()) - 1e-9
    assert not all(torch.equal(final[name], on_folds[0][name]) for name in final)


def test_the_gain_is_that_of_all_held_out_queries(network, split):
    _, on_folds = run(network, split)
    changes, groups = [], []
    for place, (weights, fold) in enumerate(zip(on_folds, split.folds, strict=True)):
        network.load_state_dict(weights)
        held = fold.held_out
        with torch.no_grad():
            query = network(held.new[held.rows])
        labels = held.classes.tolist()
        after, before = (
            retrieval(side, held.old, labels, labels, exclude_self=True).average_precision
            for side in (query, held.old)
        )
        changes.append(after - before)
        groups += [(place, label) for label in labels]
    names = np.unique([f"{place} {label}" for place, label in groups], return_inverse=True)[1]
    expected = paired_interval(torch.cat(changes).numpy(), names)
    found = gain_over_old(network, on_folds, split.folds)
    assert found.mean == pytest.approx(expected.mean, abs=1e-6)
    assert found.groups == expected.groups == 10


@pytest.mark.parametrize("share", SHARES)
def test_a_blend_is_the_sum_of_both_maps(network, split, share):
    held = split.folds[0].held_out
    rotation = weights_of(network)
    for weight in network.parameters():
        torch.nn.init.normal_(weight)
    trained = weights_of(network)
    after, before = (outputs(network, weights, held) for weights in (trained, rotation))
    lengths = [
        sum(float(row.double().norm()) for row in rows) / len(rows) for rows in (after, before)
    ]
    expected = share * after + (1 - share) * lengths[0] / lengths[1] * before
    blend = blend_of(network, trained, rotation, share, held)
    torch.testing.assert_close(outputs(network, blend, held), expected, rtol=1e-4, atol=1e-4)
    # The value of a blend is that of the network with its weights.
    candidate = Candidate("cross_supcon")
    measure_blends(candidate, after, before, held)
    network.load_state_dict(blend)
    assert candidate.values[share] == [pytest.approx(new_old_map(network, held), abs=1e-6)]


def test_training_that_diverged_never_wins(network, split):
    held = split.folds[0].held_out
    good, bad = Candidate("cross_supcon"), Candidate("rbcl")
    turned = outputs(network, weights_of(network), held)
    measure_blends(good, turned, turned, held)
    measure_blends(bad, turned * float("nan"), turned, held)
    assert auto.finite(bad.value) < auto.finite(good.value)
    progress, _ = run(network, split, replace(QUICK, learning_rate=1e12))
    assert progress.kept >= max(progress.closed.values()) - 1e-9
    assert all(weight.isfinite().all() for weight in weights_of(network).values())


def test_of_ruined_heads_the_least_is_taken(network, split):
    held = split.folds[0].held_out
    rotation = outputs(network, weights_from(network, weights_of(network), maps_of(split)), held)
    ruined = Candidate("cross_supcon")
    measure_blends(ruined, rotation.roll(1, dims=1), rotation, held)
    assert ruined.share == min(SHARES)
    measure_blends(nothing := Candidate("rbcl"), -rotation, rotation, held)
    assert np.isnan(nothing.values[0.5][0])  # half of each is no direction at all


def maps_of(split):
    return [forms_of(target_moments(split.everything, [8])[0])[RIGID]]


def test_a_fit_of_many_classes_is_longer(network, items, trained):
    data = items(classes=460, per_class=3)
    split = split_items(data.new, data.old, data.labels, "labels", share=0.2, seed=0, several=True)
    assert len(split.folds) == 1
    progress, _ = run(network, split, replace(QUICK, epochs=16))
    plain = trial_config(replace(QUICK, epochs=16), progress.method, None).epochs
    assert [config.epochs for _, config, _ in trained] == [
        *(LONGER * trial_config(replace(QUICK, epochs=16), name, None).epochs
          for name in CANDIDATES),
        LONGER**2 * plain,
    ]  # fmt: skip


def test_it_keeps_to_a_limit_of_time(items, head):
    data = items()
    done = head("auto", seconds=0.0).fit(data.new, data.old, data.labels)
    assert done.progress_.seen == 0
    assert "the limit of 0 seconds ended training after 0 of" in " ".join(done.notes_)
    assert done.progress_.kept >= max(done.progress_.closed.values()) - 1e-9


def test_options_belong_to_a_method(items, head):
    data = items()
    with pytest.raises(ConfigError, match="takes no `options`"):
        head("auto", options={"weight": 1.0}).fit(data.new, data.old, data.labels)
