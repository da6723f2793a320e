import sys

import pytest

from nobackfill.errors import ConfigError
from nobackfill.training.loop import Epoch
from nobackfill.training.tensorboard import with_tensorboard

EPOCHS = [
    Epoch(0, 0.1, {"classification": 2.5, "compatibility": 1.0}),
    Epoch(1, 0.05, {"classification": 1.5, "compatibility": 0.25}),
    Epoch(2, 0.01, {"classification": 0.5, "compatibility": 0.125}),
]


def read(folder):
    """What TensorBoard would show: (step, value) of each curve, of all files together."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder / "tensorboard"))
    events.Reload()
    return {
        tag: [(event.step, event.value) for event in events.Scalars(tag)]
        for tag in events.Tags()["scalars"]
    }


def test_every_term_is_a_curve_and_the_epochs_are_passed_on(tmp_path):
    assert list(with_tensorboard(EPOCHS, tmp_path)) == EPOCHS
    curves = read(tmp_path)
    assert set(curves) == {"loss/classification", "loss/compatibility", "learning_rate", "seconds"}
    assert curves["loss/classification"] == [(0, 2.5), (1, 1.5), (2, 0.5)]
    assert curves["loss/compatibility"] == [(0, 1.0), (1, 0.25), (2, 0.125)]
    rates = [value for _, value in curves["learning_rate"]]
    assert rates == pytest.approx([0.1, 0.05, 0.01])
    assert all(seconds >= 0 for _, seconds in curves["seconds"])


def test_what_was_written_before_a_stop_is_there_and_a_resumed_run_adds_to_it(tmp_path):
    epochs = with_tensorboard(EPOCHS, tmp_path)
    next(epochs)
    assert read(tmp_path)["loss/compatibility"] == [(0, 1.0)]  # at once, not at the end
    epochs.close()
    list(with_tensorboard(EPOCHS[1:], tmp_path))
    assert read(tmp_path)["loss/compatibility"] == [(0, 1.0), (1, 0.25), (2, 0.125)]


def test_no_epoch_is_waited_for_before_it_is_asked_for(tmp_path):
    def counted():
        for epoch in EPOCHS:
            trained.append(epoch)
            yield epoch

    trained = []
    epochs = with_tensorboard(counted(), tmp_path)
    assert trained == []
    next(epochs)
    assert len(trained) == 1


def test_a_run_that_has_nothing_left_to_train_leaves_no_file(tmp_path):
    assert list(with_tensorboard([], tmp_path)) == []
    assert not list(tmp_path.iterdir())


def test_only_the_first_of_several_processes_writes(tmp_path, monkeypatch):
    monkeypatch.setattr("nobackfill.training.tensorboard.is_main", lambda: False)
    assert list(with_tensorboard(EPOCHS, tmp_path)) == EPOCHS
    assert not list(tmp_path.iterdir())


def test_without_tensorboard_it_is_told_before_anything_is_trained(tmp_path, monkeypatch):
    def never():
        pytest.fail("an epoch was trained first")
        yield

    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(ConfigError, match="not installed.*or leave --tensorboard out"):
        next(with_tensorboard(never(), tmp_path))
