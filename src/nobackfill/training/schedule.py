"""Learning rates: the schedule over epochs, the warm-up over steps, and the optimiser's groups."""

import math
from collections.abc import Iterator

import torch
from torch import nn

from nobackfill.core.config import TrainConfig
from nobackfill.models.aptm.model import Aptm

LINEAR_STEPS = ((0.4, 1.0), (0.7, 0.5), (1.0, 0.2))  # ends of the steps, and their factors


def learning_rate(epoch: int | float, config: TrainConfig, steps_per_epoch: int = 1) -> float:
    r"""Returns the learning rate at an epoch, without the warm-up's factor.

    .. math::
        \text{cosine:}\quad \eta_t = \tfrac12 \eta_0 (1 + \cos(\pi t' / T')), \qquad
        \text{steps:}\quad \eta_t = \eta_0 \cdot 10^{-|\{m : m \le t'\}|}, \qquad
        \text{linear\_steps:}\quad \eta_t = \eta_0\, f_t \min(1, (T - t) / (T - W))

    The first two change from epoch to epoch, the third at each step: `t` has a fraction. It falls
    to 0 in a line from the end of the warm-up, :math:`W`, times a factor of 1, 0.5 after 40 % of
    the training and 0.2 after 70 %, as in the public code of APTM with a warm-up of 10 %.

    By default :math:`t' = t` and :math:`T' = T`. With `schedule_start = "warmup"`, epochs count
    from the one in which the warm-up ends, as in fast-reid: :math:`t' = \max(0, t - w)` and
    :math:`T' = T - w`, where :math:`w` is the number of epochs that are all warm-up.

    Example:
        >>> [learning_rate(t, TrainConfig(epochs=4, learning_rate=1.0)) for t in (0, 2)]
        [1.0, 0.5]
        >>> late = TrainConfig(schedule="steps", milestones=(1,), learning_rate=1.0, epochs=9,
        ...                    warmup_steps=25, schedule_start="warmup")
        >>> [learning_rate(t, late, steps_per_epoch=10) for t in (2, 3)]
        [1.0, 0.1]
    """
    if config.schedule == "linear_steps":
        rise, share = config.warmup_steps / steps_per_epoch, epoch / config.epochs
        factor = next((factor for end, factor in LINEAR_STEPS if share < end), 0.0)
        left = (config.epochs - epoch) / max(config.epochs - rise, 1 / steps_per_epoch)
        return config.learning_rate * factor * min(1.0, left)
    whole = config.warmup_steps // steps_per_epoch if config.schedule_start == "warmup" else 0
    passed = max(0, int(epoch) - whole)
    if config.schedule == "cosine":
        scale = (1 + math.cos(math.pi * passed / max(1, config.epochs - whole))) / 2
    else:
        scale = 0.1 ** sum(milestone <= passed for milestone in config.milestones)
    return config.learning_rate * scale


def warmup(step: int, config: TrainConfig) -> float:
    r"""Returns the warm-up factor of the learning rate at a step.

    .. math::
        w_s = f + (1 - f) \min(1, s / S)

    with `f` = `warmup_factor` and `S` = `warmup_steps`.

    Example:
        >>> config = TrainConfig(warmup_steps=10, warmup_factor=0.5)
        >>> [warmup(step, config) for step in (0, 5, 10, 99)]
        [0.5, 0.75, 1.0, 1.0]
    """
    if config.warmup_steps == 0:
        return 1.0
    share = min(1.0, step / config.warmup_steps)
    return config.warmup_factor + (1 - config.warmup_factor) * share


def highest_rate(config: TrainConfig, steps_per_epoch: int) -> float:
    """Returns the highest learning rate of a training, warm-up included.

    The warm-up never falls within an epoch, so the last step of each epoch has its highest rate;
    a schedule that falls at each step has it where the warm-up ends.

    Example:
        >>> short = TrainConfig(learning_rate=1.0, epochs=2, warmup_steps=100, warmup_factor=0.0,
        ...                     schedule="steps")
        >>> highest_rate(short, steps_per_epoch=25)
        0.49
    """
    last = config.epochs * steps_per_epoch - 1
    ends = [(epoch + 1) * steps_per_epoch - 1 for epoch in range(config.epochs)]
    return max(
        learning_rate(step / steps_per_epoch, config, steps_per_epoch) * warmup(step, config)
        for step in (*ends, min(config.warmup_steps, last))
    )


def set_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    """Sets the learning rate of every group, times the group's own factor."""
    for group in optimizer.param_groups:
        group["lr"] = rate * group.get("factor", 1.0)


def make_optimizer(
    model: nn.Module, method: nn.Module, config: TrainConfig
) -> torch.optim.Optimizer:
    """Creates the optimiser of the parameters of model and method.

    Biases form a group of their own if their rate differs (`bias_factor`), and so do the groups of
    APTM, which has upper layers with another rate and weights without decay.
    """
    rate, decay = config.learning_rate, config.weight_decay
    if isinstance(model, Aptm):
        groups = aptm_groups(model, method, config)
    else:
        named = [*model.named_parameters(), *method.named_parameters()]
        groups = list(_groups(named, config))
    if config.optimizer in ("adam", "adamw"):
        kind = torch.optim.Adam if config.optimizer == "adam" else torch.optim.AdamW
        return kind(groups, lr=rate, weight_decay=decay, betas=(0.9, config.beta2))
    return torch.optim.SGD(groups, lr=rate, momentum=config.momentum, weight_decay=decay)


def _groups(
    named: list[tuple[str, nn.Parameter]], config: TrainConfig
) -> Iterator[dict[str, object]]:
    """Yields one group of all parameters, or those of weights and of biases."""
    if config.bias_factor == 1:
        yield {"params": [parameter for _, parameter in named]}
        return
    for is_bias, factor in ((False, 1.0), (True, config.bias_factor)):
        own = [p for name, p in named if (name.rpartition(".")[2] == "bias") == is_bias]
        if own:
            yield {"params": own, "factor": factor, "lr": config.learning_rate * factor}


def aptm_groups(model: Aptm, method: nn.Module, config: TrainConfig) -> list[dict[str, object]]:
    """Returns groups by rate and decay; see `Aptm.rate_factor`. Those of the method are as usual.

    `bias_factor` multiplies the rates of biases, as for other models.
    """
    groups: dict[tuple[float, float], list[nn.Parameter]] = {}
    for name, parameter in model.named_parameters():
        decay = config.weight_decay if model.decays(name) else 0.0
        bias = config.bias_factor if name.endswith("bias") else 1.0
        groups.setdefault((bias * model.rate_factor(name), decay), []).append(parameter)
    for name, parameter in method.named_parameters():
        bias = config.bias_factor if name.endswith("bias") else 1.0
        groups.setdefault((bias, config.weight_decay), []).append(parameter)
    return [
        {
            "params": own,
            "factor": factor,
            "weight_decay": decay,
            "lr": factor * config.learning_rate,
        }
        for (factor, decay), own in groups.items()
    ]
