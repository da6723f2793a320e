import errno
import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from nobackfill.core.atomic_files import write_text
from nobackfill.core.config import Choice, Recipe, TrainConfig
from nobackfill.errors import DataError
from nobackfill.training.checkpoint import load_state, save_state
from nobackfill.training.loop import Epoch
from nobackfill.training.pipeline import train_run

CPU = torch.device("cpu")
RECIPE = Recipe(
    data=Choice(
        "glyphs", {"train_classes": 10, "test_classes": 5, "images_per_class": 6, "side": 16}
    ),
    model=Choice("small", {"width": 4, "embedding_dim": 8}),
    train=TrainConfig(epochs=3, batch_size=16, learning_rate=0.05),
)
FULL = [
    OSError(errno.ENOSPC, "No space left on device"),
    RuntimeError("[enforce fail at inline_container.cc:672] . unexpected pos 64 vs 0\nmore of it"),
]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run that was never stopped."""
    folder = tmp_path_factory.mktemp("runs") / "whole"
    list(train_run(RECIPE, folder, device=CPU))
    return folder


def same_run(one, other):
    names = ("model.safetensors", "metrics.jsonl", "config.toml", "validation.parquet")
    return [name for name in names if (one / name).read_bytes() == (other / name).read_bytes()] == [
        *names
    ]


def fail_at(monkeypatch, call, error):
    """`torch.save` writes a part of the file and fails, the so manieth time it is called."""

    def save(state, path):
        calls.append(path)
        if len(calls) == call:
            Path(path).write_bytes(b"the beginning of a state")
            raise error
        return saved(state, path)

    calls, saved = [], torch.save
    monkeypatch.setattr(torch, "save", save)


@pytest.mark.parametrize("error", FULL, ids=["OSError", "RuntimeError"])
@pytest.mark.parametrize("call", [1, 2, 3])
def test_a_state_that_cannot_be_written_leaves_the_last_one(
    whole, tmp_path, monkeypatch, error, call
):
    run = tmp_path / "run"
    with monkeypatch.context() as patch:
        fail_at(patch, call, error)
        epochs = train_run(RECIPE, run, device=CPU)
        for _ in range(call - 1):
            next(epochs)
        before = (run / "state.pt").read_bytes() if call > 1 else None
        says = f"the state after epoch {call} .*(No space left|enforce fail).*with --resume"
        with pytest.raises(DataError, match=says) as raised:
            next(epochs)
    assert "more of it" not in str(raised.value)  # one line is enough
    assert (run / "state.pt").exists() == (call > 1)
    if call > 1:
        assert (run / "state.pt").read_bytes() == before
        assert len((run / "metrics.jsonl").read_text().splitlines()) == call - 1
    assert not list(run.glob(".*.part"))
    rest = list(train_run(RECIPE, run, device=CPU, resume=True))
    assert [epoch.epoch for epoch in rest] == list(range(call - 1, 3))
    assert same_run(whole, run)


ON_A_FULL_DISK = """
import resource, sys
from pathlib import Path
import torch
from nobackfill.core.config import read_recipe
from nobackfill.errors import DataError
from nobackfill.training.pipeline import train_run

torch.set_num_threads(1)
epochs = train_run(read_recipe(Path(sys.argv[1])), Path(sys.argv[2]), device=torch.device("cpu"))
next(epochs)
resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))  # a state has more bytes than that
try:
    next(epochs)
except DataError as error:
    print(error)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="wants a limit on the size of files")
def test_a_disk_that_is_really_full_leaves_the_last_state(whole, tmp_path):
    run = tmp_path / "run"
    result = subprocess.run(
        [sys.executable, "-c", ON_A_FULL_DISK, str(whole / "config.toml"), str(run)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "Could not write the state after epoch 2" in result.stdout
    assert (run / "state.pt").stat().st_size > 20_000
    assert not list(run.glob(".*.part"))
    assert len(list(train_run(RECIPE, run, device=CPU, resume=True))) == 2
    assert same_run(whole, run)


def test_a_state_is_all_that_its_keepers_are(tmp_path):
    """Weights, momentum and the scale of gradients come back, and the epochs so far."""

    def keepers(seed):
        torch.manual_seed(seed)
        model = nn.Linear(3, 2)
        return {
            "model": model,
            "optimizer": torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9),
            "scaler": torch.amp.GradScaler("cpu", init_scale=2.0**seed),
        }

    def step(kept):
        kept["optimizer"].zero_grad()
        kept["scaler"].scale(kept["model"](torch.ones(1, 3)).square().sum()).backward()
        kept["scaler"].step(kept["optimizer"])
        kept["scaler"].update()

    one, other = keepers(3), keepers(5)
    step(one)
    history = [Epoch(0, 0.1, {"classification": 1.5}), Epoch(1, 0.05, {"classification": 0.5})]
    save_state(tmp_path, one, history)
    assert load_state(tmp_path, other, CPU) == history
    assert other["scaler"].get_scale() == one["scaler"].get_scale() == 8.0
    step(one)
    step(other)  # its momentum is needed for the same step
    assert torch.equal(one["model"].weight, other["model"].weight)
    lines = (tmp_path / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["terms"] for line in lines] == [epoch.terms for epoch in history]


def test_without_a_state_nothing_is_touched(tmp_path):
    model = nn.Linear(3, 2)
    before = model.weight.clone()
    assert load_state(tmp_path, {"model": model}, CPU) == []
    assert torch.equal(model.weight, before)


@pytest.mark.parametrize("wrong", ["damaged", "of another model", "without a part"])
def test_a_state_that_does_not_fit_says_how_to_start_over(tmp_path, wrong):
    save_state(tmp_path, {"model": nn.Linear(3, 2)}, [])
    keepers = {"model": nn.Linear(3, 2)}
    if wrong == "damaged":
        (tmp_path / "state.pt").write_bytes((tmp_path / "state.pt").read_bytes()[:200])
    elif wrong == "of another model":
        keepers = {"model": nn.Linear(4, 2)}
    else:
        keepers["scaler"] = torch.amp.GradScaler("cpu")
    with pytest.raises(DataError, match="Could not read .*state.pt .*Remove it"):
        load_state(tmp_path, keepers, CPU)


def test_the_last_line_for_people_is_not_lost(whole, tmp_path, monkeypatch):
    """State first, then metrics.jsonl: a run that ends in between must write it when resumed."""

    def failing(path, text):
        if path.name == "metrics.jsonl" and text.count("\n") == 3:
            raise OSError(errno.ENOSPC, "No space left on device")
        write_text(path, text)

    run = tmp_path / "run"
    with monkeypatch.context() as patch:
        patch.setattr("nobackfill.training.checkpoint.write_text", failing)
        with pytest.raises(DataError, match="No space left on device"):
            list(train_run(RECIPE, run, device=CPU))
    list(train_run(RECIPE, run, device=CPU, resume=True))
    assert (run / "metrics.jsonl").read_text() == (whole / "metrics.jsonl").read_text()


def test_a_finished_model_that_cannot_be_written_says_so_too(whole, tmp_path, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    run = tmp_path / "run"
    with monkeypatch.context() as patch:
        patch.setattr("nobackfill.training.checkpoint.save_file", full)
        with pytest.raises(DataError, match="No space left on device.*--resume"):
            list(train_run(RECIPE, run, device=CPU))
    list(train_run(RECIPE, run, device=CPU, resume=True))
    assert same_run(whole, run)
