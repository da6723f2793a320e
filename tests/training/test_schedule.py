"""Learning rates, against torch's schedulers and against loops over every step."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

from nobackfill.cli.train import _facts
from nobackfill.core.config import TrainConfig, read_recipe
from nobackfill.training.dry_run import count_steps, plan_job
from nobackfill.training.jobs import Job
from nobackfill.training.resolve import resolve
from nobackfill.training.schedule import (
    highest_rate,
    learning_rate,
    make_optimizer,
    set_rate,
    warmup,
)

MARKET = Path(__file__).parents[2] / "recipes" / "market1501"
STEPS = TrainConfig(
    schedule="steps", milestones=(4, 9), epochs=16, learning_rate=1.0, warmup_steps=25,
    warmup_factor=0.1, schedule_start="warmup",
)  # fmt: skip


def rates(config, each):
    """The rate of every step of a training with `each` steps in an epoch."""
    return [
        learning_rate(epoch, config, each) * warmup(epoch * each + step, config)
        for epoch in range(config.epochs)
        for step in range(each)
    ]


@pytest.mark.parametrize("each", [1, 3, 7, 10, 25, 26, 100])
def test_milestones_after_the_warm_up_are_those_of_a_scheduler_that_waits_for_it(each):
    """fast-reid: at the end of an epoch, the scheduler steps if the warm-up has ended."""
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=STEPS.learning_rate)
    scheduler = torch.optim.lr_scheduler.MultiStepLR(optimizer, STEPS.milestones)
    optimizer.step()
    by_hand, steps_made = [], 0
    for _ in range(STEPS.epochs):
        for _ in range(each):
            rise = min(1.0, steps_made / STEPS.warmup_steps)
            by_hand.append(optimizer.param_groups[0]["lr"] * (0.1 * (1 - rise) + rise))
            steps_made += 1
        if steps_made > STEPS.warmup_steps:
            scheduler.step()
    assert rates(STEPS, each) == pytest.approx(by_hand)


@pytest.mark.parametrize("schedule", ["steps", "cosine"])
@pytest.mark.parametrize("start", ["start", "warmup"])
@pytest.mark.parametrize("each", [1, 4, 30])
def test_the_highest_rate_is_that_of_the_highest_step(schedule, start, each):
    config = replace(STEPS, schedule=schedule, schedule_start=start)
    assert highest_rate(config, each) == pytest.approx(max(rates(config, each)))


def market(name, *changes):
    return resolve(read_recipe(MARKET / name, ["data.path=nowhere", *changes]))


@pytest.mark.parametrize(
    ("name", "images"), [("50to100/old.toml", 5663), ("10to100/old.toml", 1371)]
)
def test_the_old_models_of_market_reach_their_whole_rate(name, images):
    config = market(name).train
    each = count_steps(images, config)["each_epoch"]
    assert highest_rate(config, each) == pytest.approx(3.5e-4)
    from_start = replace(config, schedule_start="start")
    share = highest_rate(from_start, each) / 3.5e-4
    assert share == pytest.approx({5663: 1.0, 1371: 0.48}[images], abs=0.005)


def test_a_dry_run_prints_the_highest_rate_and_warns_below_ninety_percent():
    def lines(*changes):
        recipe = market("10to100/old.toml", "expected.train_images=1371", *changes)
        plan = plan_job(Job("old", recipe, Path("runs/old")))
        assert plan.summary()["rate_warning"] == plan.rate_warning
        return {name: text for name, text, _ in _facts(recipe, plan)}, plan

    facts, plan = lines()
    assert facts["highest rate"] == "0.00035"
    assert plan.rate_warning == ""
    facts, plan = lines("train.schedule_start=start")
    assert facts["highest rate"] == "0.000167 of 0.00035"
    assert "reaches only 48% of learning_rate = 0.00035" in plan.rate_warning
    assert plan.rate_warning in [text for text in facts.values()]
    almost = replace(plan, highest_rate=0.9 * plan.learning_rate)
    assert almost.rate_warning == ""
    assert replace(plan, highest_rate=0.8999 * plan.learning_rate).rate_warning


def test_biases_have_their_own_rate():
    model, method = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2)), nn.Linear(2, 4, bias=False)
    config = TrainConfig(learning_rate=0.1, momentum=0.0, weight_decay=0.0, bias_factor=2.0)
    optimizer = make_optimizer(model, method, config)
    before = {name: value.clone() for name, value in model.named_parameters()}
    for parameter in [*model.parameters(), *method.parameters()]:
        parameter.grad = torch.ones_like(parameter)
    set_rate(optimizer, 0.5)
    optimizer.step()
    for name, value in model.named_parameters():
        moved = 1.0 if name.endswith("bias") else 0.5
        torch.testing.assert_close(before[name] - value, torch.full_like(value, moved))
    assert len(make_optimizer(model, method, replace(config, bias_factor=1.0)).param_groups) == 1
