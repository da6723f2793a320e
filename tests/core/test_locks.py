import os
import signal
import subprocess
import sys
from contextlib import contextmanager

import pytest
import torch

from nobackfill.core.config import Choice, Recipe, TrainConfig, to_toml
from nobackfill.core.locks import lock_folder
from nobackfill.errors import ConfigError, DataError
from nobackfill.training.pipeline import train_run

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
from nobackfill.core.locks import lock_folder

with lock_folder(Path(sys.argv[1])):
    print("mine", flush=True)
    sys.stdin.read()
"""


@contextmanager
def another(program, *arguments):
    """Another Python process, which is killed at the latest at the end of the block."""
    process = subprocess.Popen(
        [sys.executable, "-c", program, *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.stdin.close()  # which ends its workers too
        process.stdout.close()
        process.wait()


def refused(folder):
    says = "Another process trains in .* Wait for it"
    with pytest.raises(ConfigError, match=says), lock_folder(folder):
        pytest.fail("both are in")


def test_a_folder_that_another_process_holds_is_refused_until_it_is_killed(tmp_path):
    with another(HOLDER, tmp_path / "run") as holder:
        assert holder.stdout.readline() == "mine\n"
        refused(tmp_path / "run")
        refused(tmp_path / "run")  # to be refused frees nothing
        with lock_folder(tmp_path / "other"):
            pass
        with pytest.raises(ConfigError, match="Another process"):
            next(train_run(RECIPE, tmp_path / "run", device=CPU))
        assert [path.name for path in (tmp_path / "run").iterdir()] == [".lock"]
        os.kill(holder.pid, signal.SIGKILL)
        holder.wait()
    assert len(list(train_run(RECIPE, tmp_path / "run", device=CPU))) == 2


def test_a_second_try_of_the_same_process_does_not_free_the_folder(tmp_path):
    with lock_folder(tmp_path):
        refused(tmp_path)
        with another(HOLDER, tmp_path) as other:
            assert other.stdout.readline() == ""  # it was refused, too


def test_a_folder_is_free_again_after_its_block_even_if_that_failed(tmp_path):
    with pytest.raises(ZeroDivisionError), lock_folder(tmp_path / "run"):
        raise ZeroDivisionError
    with another(HOLDER, tmp_path / "run") as holder:
        assert holder.stdout.readline() == "mine\n"


TRAINER = """
import sys
from pathlib import Path
import torch
from nobackfill.core.config import read_recipe
from nobackfill.training.pipeline import train_run

torch.set_num_threads(1)
recipe = read_recipe(Path(sys.argv[1]) / "recipe.toml")
for epoch in train_run(recipe, Path(sys.argv[1]) / "run", device=torch.device("cpu")):
    print(epoch.epoch, flush=True)
    sys.stdin.readline()
"""


def test_a_run_holds_its_folder_until_it_is_trained(tmp_path):
    (tmp_path / "recipe.toml").write_text(to_toml(RECIPE))
    with another(TRAINER, tmp_path) as trainer:
        for epoch in ("0\n", "1\n"):
            assert trainer.stdout.readline() == epoch
            with pytest.raises(ConfigError, match="Another process"):
                next(train_run(RECIPE, tmp_path / "run", device=CPU, resume=True))
            trainer.stdin.write("go on\n")
            trainer.stdin.flush()
        assert trainer.wait() == 0
    assert list(train_run(RECIPE, tmp_path / "run", device=CPU, resume=True)) == []


WITH_A_WORKER = """
import os, sys
from pathlib import Path
from nobackfill.core.locks import lock_folder

with lock_folder(Path(sys.argv[1])):
    if os.fork():
        print("mine", flush=True)
    sys.stdin.read()
"""


@pytest.mark.skipif(sys.platform == "win32", reason="no process is forked there")
def test_a_killed_process_frees_its_folder_even_if_a_worker_of_it_lives_on(tmp_path):
    with another(WITH_A_WORKER, tmp_path / "run") as process:
        assert process.stdout.readline() == "mine\n"
        refused(tmp_path / "run")
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        with lock_folder(tmp_path / "run"):
            pass


def test_a_place_that_cannot_be_written_says_so(tmp_path):
    (tmp_path / "file").write_text("in the way")
    says = "Cannot write into .*Choose another folder"
    with pytest.raises(DataError, match=says), lock_folder(tmp_path / "file" / "run"):
        pytest.fail("there is no such folder")
