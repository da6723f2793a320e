"""How far a fit is, by steps and by time, and what it learns from in between."""

from dataclasses import replace
from math import cos, pi

import pytest
import torch

import nobackfill as nb
from nobackfill.head import fitting, schedule
from nobackfill.head import validation as heldout
from nobackfill.head.examples import Examples
from nobackfill.head.fitting import Learner
from nobackfill.head.schedule import FitConfig, Schedule, rounds

CONFIG = FitConfig(epochs=2, batch_size=16, learning_rate=0.1)


def examples_of(items):
    return Examples(torch.randn(items, 3), torch.randn(items, 2), torch.arange(items) % 7)


@pytest.mark.parametrize(
    ("settings", "items", "total"),
    [
        ({"epochs": 3}, 32, 6),
        ({"epochs": 3}, 33, 9),  # the last batch is a short one
        ({"epochs": 1}, 5, 1),
    ],
)
def test_shares_by_steps(clock, settings, items, total):
    schedule = Schedule(FitConfig(batch_size=16, **settings), items, 0.0)
    assert schedule.total == total
    clock.seconds = 1e9  # time says nothing without a limit
    for step in range(total):
        assert schedule.done == pytest.approx(step / total)
        assert schedule.done < 1
        schedule.steps += 1
    assert schedule.done == 1
    assert schedule.done >= 1


def test_shares_by_time_or_by_steps_whichever_is_further(clock):
    schedule = Schedule(FitConfig(epochs=2, batch_size=16, seconds=20.0), 32, begun=100.0)
    shares = []
    for seconds, steps in ((100, 0), (105, 0), (105, 1), (105, 3), (118, 3), (120, 3), (150, 3)):
        clock.seconds, schedule.steps = float(seconds), steps
        shares.append(schedule.done)
        assert (schedule.done >= 1) == (seconds >= 120)
    assert shares == pytest.approx([0, 0.25, 0.25, 0.75, 0.9, 1, 1])
    clock.seconds, schedule.steps = 101.0, 4
    assert schedule.done >= 1  # all steps were made in time


def test_late_is_what_has_steps_left_when_time_is_up(clock):
    schedule = Schedule(FitConfig(epochs=2, batch_size=16, seconds=20.0), 32, begun=0.0)
    found = []
    for seconds, steps in ((0, 0), (19, 3), (20, 3), (21, 4), (19, 4)):
        clock.seconds, schedule.steps = float(seconds), steps
        found.append(schedule.is_late)
    assert found == [False, False, True, False, False]
    clock.seconds = 1e9
    assert not Schedule(FitConfig(), 32, begun=0.0).is_late  # without a limit


def test_without_seconds_left_nothing_is_begun(clock):
    assert Schedule(FitConfig(seconds=0.0), 32, begun=0.0).done >= 1
    assert Schedule(FitConfig(seconds=float("inf")), 32, begun=-1e9).done < 1
    assert Schedule(FitConfig(epochs=0), 32, begun=0.0).done < 1


@pytest.mark.parametrize("longest", [1, 2, 3, 4, 7, 100])
@pytest.mark.parametrize("items", [16, 100, 112])
def test_long_epochs_come_in_even_parts(monkeypatch, longest, items):
    monkeypatch.setattr(schedule, "ROUND", longest)
    per_epoch = -(-items // 16)
    made = list(rounds(examples_of(items), CONFIG))
    for epoch in range(2):
        parts = [one for one in made if one.epoch == epoch]
        assert [one.begins_epoch for one in parts] == [True] + [False] * (len(parts) - 1)
        lengths = [len(one.batches) for one in parts]
        assert sum(lengths) == per_epoch
        assert max(lengths) <= longest
        assert max(lengths) - min(lengths) <= 1
        assert len(lengths) == -(-per_epoch // longest)  # no more than needed
        batches = [batch for one in parts for batch in one.batches]
        assert {len(batch) for batch in batches[:-1]} <= {16}
        assert sorted(torch.cat(batches).tolist()) == list(range(items))
    assert [one.epoch for one in made] == sorted(one.epoch for one in made)


@pytest.mark.parametrize("together", [1, 4])
def test_the_seed_decides_the_order_and_epochs_differ(together):
    examples = examples_of(64)

    def orders(seed):
        made = rounds(examples, replace(CONFIG, together=together, seed=seed))
        return [torch.cat(list(one.batches)) for one in made]

    one, again, other = orders(0), orders(0), orders(1)
    assert torch.equal(one[0], again[0])
    assert torch.equal(one[1], again[1])
    assert not torch.equal(one[0], one[1])
    assert not torch.equal(one[0], other[0])


def test_items_of_a_class_come_together_into_a_batch():
    classes = torch.arange(64) % 16
    examples = Examples(torch.randn(64, 3), torch.randn(64, 2), classes)
    batches = next(rounds(examples, replace(CONFIG, together=4))).batches
    assert [len(classes[batch].unique()) for batch in batches] == [4, 4, 4, 4]


@pytest.fixture
def rates(monkeypatch):
    """The learning rate of each step."""
    found, step = [], torch.optim.AdamW.step

    def remember(self, *given):
        found.extend({group["lr"] for group in self.param_groups})
        return step(self, *given)

    monkeypatch.setattr(torch.optim.AdamW, "step", remember)
    return found


def test_the_learning_rate_falls_along_half_a_cosine(fit, parts, recording, rates):
    _, progress, steps = fit(parts, "recording", CONFIG)
    assert rates == pytest.approx([0.1 * (1 + cos(pi * step / 8)) / 2 for step in range(8)])
    assert (progress.planned, progress.seen, progress.done, steps) == (8, 8, 1.0, 8)
    assert not progress.late


def ticking(monkeypatch, clock, seconds):
    """Lets every step take so long."""
    step = Learner.step

    def slow(self, places):
        made = step(self, places)
        clock.seconds += seconds
        return made

    monkeypatch.setattr(Learner, "step", slow)


def test_time_that_is_up_ends_it_within_an_epoch(fit, parts, recording, rates, clock, monkeypatch):
    ticking(monkeypatch, clock, 2.0)
    config = replace(CONFIG, epochs=100, seconds=13.0)
    _, progress, steps = fit(parts, "recording", config)  # 4 steps an epoch
    assert steps == 7
    assert clock.seconds == 14.0  # the step that was begun was finished
    assert len(progress.history) == 2
    assert (progress.planned, progress.seen, progress.done) == (400, 7, 1.0)
    assert progress.late
    assert rates == pytest.approx([0.1 * (1 + cos(pi * 2 * step / 13)) / 2 for step in range(7)])
    assert rates[-1] < 0.02 * 0.1  # near 0
    assert recording[0].epochs == [(0, 100), (1, 100)]


def test_no_round_is_begun_when_time_was_up_before(fit, parts, recording, clock):
    clock.seconds = 50.0
    _, progress, steps = fit(parts, "recording", replace(CONFIG, seconds=10.0), begun=30.0)
    assert (steps, progress.history, recording[0].epochs) == (0, [], [])


def test_time_counts_from_when_it_is_told(fit, parts, recording, clock, monkeypatch):
    ticking(monkeypatch, clock, 1.0)
    config = replace(CONFIG, seconds=6.0)
    assert fit(parts, "recording", config, begun=-3.0)[2] == 3
    assert fit(parts, "recording", config)[2] == 6  # from now on


def test_measuring_takes_time_too(fit, parts, recording, clock, monkeypatch, in_place):
    ticking(monkeypatch, clock, 1.0)
    measure = heldout.new_old_map

    def slow(*given):
        clock.seconds += 5.0
        return measure(*given)

    config = replace(CONFIG, epochs=9, seconds=12.0)
    in_place("new_old_map", slow)
    _, progress, steps = fit(parts, "recording", config)
    assert (steps, len(progress.history)) == (7, 2)  # 4 steps, 5 seconds, 3 steps


def test_a_head_whose_time_was_up_says_so(items, head, clock, monkeypatch, tmp_path):
    data = items()  # 72 items to fit on
    ticking(monkeypatch, clock, 1.0)
    settings = {"batch_size": 16, "epochs": 40}
    done = head(seconds=8.0, **settings).fit(data.new, data.old, data.labels)
    assert done.notes_[0] == (
        "the limit of 8 seconds ended training after 8 of 200 steps; the learning rate fell "
        "over that time"
    )
    clock.seconds = 0.0
    done.save_pretrained(tmp_path)
    read = nb.CompatibleHead.from_pretrained(tmp_path)
    assert (read.progress_, read.notes_) == (done.progress_, done.notes_)
    in_time = head(seconds=1000.0, **settings | {"epochs": 1}).fit(data.new, data.old, data.labels)
    assert not any("limit" in note for note in in_time.notes_)


def test_seconds_count_from_the_beginning_of_a_fit(items, head, clock, monkeypatch):
    data = items()
    ticking(monkeypatch, clock, 1.0)
    choose = fitting.choose_closed_form

    def slow(*given):
        clock.seconds += 5.0
        return choose(*given)

    monkeypatch.setattr("nobackfill.head.learn.choose_closed_form", slow)
    done = head(seconds=8.0, batch_size=16).fit(data.new, data.old, data.labels)
    assert "the limit of 8 seconds ended training after 3 of 15 steps" in done.notes_[0]


def test_time_that_was_up_before_the_first_step_is_told(items, head):
    data = items()
    done = head(seconds=0.0).fit(data.new, data.old, data.labels)
    assert done.progress_.history == []
    assert "the limit of 0 seconds ended training after 0 of " in done.notes_[0]


@pytest.mark.parametrize("method", ["independent", "unibct_spr"])
def test_a_method_that_makes_no_step_of_a_batch_is_not_late(items, head, method):
    data = items()
    done = head(method, seconds=1e6, epochs=8).fit(data.new, data.old, data.labels)
    assert not [note for note in done.notes_ if "ended training" in note]


def test_batches_without_a_step_are_seen_all_the_same(fit, parts):
    _, progress, steps = fit(parts, "independent", CONFIG)
    assert (steps, progress.seen, progress.planned, progress.done) == (0, 8, 8, 1.0)


@pytest.mark.parametrize("longest", [1, 2, 100])
def test_an_epoch_is_begun_once_however_many_rounds_it_has(
    fit, parts, recording, monkeypatch, longest
):
    monkeypatch.setattr(schedule, "ROUND", longest)
    _, progress, steps = fit(parts, "recording", replace(CONFIG, patience=99))
    assert recording[0].epochs == [(0, 2), (1, 2)]
    assert len(progress.history) == 2 * -(-4 // longest)
    assert steps == 8
