import os
import signal
import subprocess
import sys

import pytest
import torch

from nobackfill.config import Choice, Recipe, TrainConfig
from nobackfill.errors import ConfigError, DataError
from nobackfill.train.lock import in_use
from nobackfill.upgrade import train_run

CPU = torch.device("cpu")
RECIPE = Recipe(
    data=Choice(
        "glyphs", {"train_classes": 10, "test_classes": 5, "images_per_class": 6, "side": 16}
    ),
    model=Choice("small", {"width": 4, "embedding_dim": 8}),
    train=TrainConfig(epochs=2, batch_size=16),
)
HOLDER = """
import sys
from pathlib import Path
from nobackfill.train.lock import in_use

with in_use(Path(sys.argv[1])):
    print("mine", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def holder(tmp_path):
    """Another process that holds the folder until it is told, or killed."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path / "run")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout.readline() == "mine\n"
    yield process
    process.kill()
    process.communicate()


def refused(folder):
    says = "another process does so already. Wait for it"
    with pytest.raises(ConfigError, match=says), in_use(folder):
        pytest.fail("both are in")


def test_a_folder_that_another_process_holds_is_refused_until_it_is_killed(holder, tmp_path):
    refused(tmp_path / "run")
    refused(tmp_path / "run")  # to be refused frees nothing
    with in_use(tmp_path / "other"):
        pass
    with pytest.raises(ConfigError, match="another process"):
        next(train_run(RECIPE, tmp_path / "run", device=CPU))
    assert [path.name for path in (tmp_path / "run").iterdir()] == [".lock"]
    os.kill(holder.pid, signal.SIGKILL)
    holder.wait()
    assert len(list(train_run(RECIPE, tmp_path / "run", device=CPU))) == 2


def test_a_folder_is_free_again_after_its_block_even_if_that_failed(tmp_path):
    with pytest.raises(ZeroDivisionError), in_use(tmp_path / "run"):
        raise ZeroDivisionError
    with in_use(tmp_path / "run"):
        pass


def test_a_run_holds_its_folder_from_its_first_epoch_to_its_end(tmp_path):
    epochs = train_run(RECIPE, tmp_path / "run", device=CPU)
    next(epochs)
    with pytest.raises(ConfigError, match="another process"):
        next(train_run(RECIPE, tmp_path / "run", device=CPU, resume=True))
    epochs.close()  # as a stopped training is
    assert len(list(train_run(RECIPE, tmp_path / "run", device=CPU, resume=True))) == 1
    list(train_run(RECIPE, tmp_path / "run", device=CPU, resume=True))


def test_a_place_that_cannot_be_written_says_so(tmp_path):
    (tmp_path / "file").write_text("in the way")
    says = "wanted to write into .*Choose another place"
    with pytest.raises(DataError, match=says), in_use(tmp_path / "file" / "run"):
        pytest.fail("there is no such folder")
