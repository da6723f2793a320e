"""The fits of an assessment share its time."""

import pytest
import torch

from nobackfill.head.assess import fits as module
from nobackfill.head.assess.fits import Fits, fit_maps


@pytest.fixture
def clock(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(module, "monotonic", lambda: now[0])
    return now


def test_each_fit_has_an_equal_share_of_what_is_left(clock):
    fits = Fits({}, lambda step: None, number=3, seconds=30.0, begun=100.0)
    assert fits.share() == 10.0
    clock[0], fits.done = 124.0, 1
    assert fits.share() == 3.0
    clock[0], fits.done = 140.0, 2
    assert fits.share() == 0.0
    assert Fits({}, lambda step: None, number=3, seconds=None, begun=0.0).share() is None


def test_heads_get_the_limit_and_map_new_vectors_alone(items, monkeypatch):
    data, made, real = items(), [], module.CompatibleHead

    def spy(*arguments, **settings):
        made.append((arguments, settings))
        return real(*arguments, **settings)

    monkeypatch.setattr(module, "CompatibleHead", spy)
    steps = []
    settings = {"epochs": 1, "hidden": 4, "seed": 5}
    fits = Fits(settings, steps.append, number=2, seconds=0.0, begun=0.0)
    noise = torch.randn(data.new.shape, generator=torch.Generator().manual_seed(0))
    maps = fit_maps(noise, data.old, data.labels, ["mimic", "auto"], fits)
    assert [arguments for arguments, _ in made] == [("mimic",), ("auto",)]
    for _, settings_of_fit in made:
        assert settings_of_fit == {**settings, "old_query": False, "seconds": 0.0}
    assert list(maps)[-2:] == ["mimic", "auto"]
    assert maps["auto"](noise).shape == data.old.shape  # no old vectors are needed
    assert (str(steps[0]), steps[0].done) == ("fitting mimic", 0)
    assert fits.done == 2
