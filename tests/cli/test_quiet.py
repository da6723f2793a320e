"""--quiet in every command: neither progress nor notes; results and errors stay."""

import json

import pytest
import typer

from nobackfill.cli.main import LazyCommand, app


def commands_below(command, *words):
    command = command.load() if isinstance(command, LazyCommand) else command
    names = command.list_commands(None) if hasattr(command, "list_commands") else ()
    if not names:
        yield words, command
    for name in names:
        yield from commands_below(command.get_command(None, name), *words, name)


COMMANDS = dict(commands_below(typer.main.get_command(app)))


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_every_command_has_it(words):
    (option,) = [each for each in COMMANDS[words].params if "--quiet" in each.opts]
    assert option.opts == ["--quiet", "-q"]


@pytest.fixture
def files(tmp_path, monkeypatch):
    import numpy as np
    import torch

    import nobackfill as nb

    monkeypatch.chdir(tmp_path)
    generator, labels = torch.Generator().manual_seed(0), np.arange(120) % 12
    centre = torch.randn(12, 8, generator=generator)
    for name, noise in (("old", 1.5), ("new", 0.5)):
        values = centre[labels] + noise * torch.randn(120, 8, generator=generator)
        nb.Vectors(np.arange(120), values, labels).save(tmp_path / f"{name}.parquet")
    return ("--old", "old.parquet", "--new", "new.parquet")


def test_notes_are_left_out_and_results_stay(nobackfill, files):
    code, loud, _ = nobackfill("evaluate", *files)
    assert code == 0
    assert "Note" in loud
    code, out, err = nobackfill("evaluate", *files, "--quiet")
    assert (code, err) == (0, "")
    assert out.splitlines() == [line for line in loud.splitlines() if not line.startswith("Note")]
    assert nobackfill("evaluate", *files)[1] == loud  # it holds for one command


@pytest.mark.parametrize("name", ["evaluate", "assess"])
def test_what_was_guessed_in_reading_is_a_note_on_stderr(nobackfill, files, name):
    import polars as pl

    for file in files[1::2]:
        table = pl.read_parquet(file).rename({"id": "doc_id"}).drop("label")
        table.write_ipc(f"{file}.arrow")
    line = (name, *(f"{word}.arrow" if word.endswith("parquet") else word for word in files))
    _, out, err = nobackfill(*line)
    assert "old.parquet.arrow: `doc_id` is read as the id" in err
    assert "doc_id" not in out
    assert nobackfill(*line, "--quiet")[2] == ""


def test_json_is_the_same(nobackfill, files):
    loud = json.loads(nobackfill("evaluate", *files, "--json")[1])
    assert loud["notes"]
    assert json.loads(nobackfill("evaluate", *files, "--json", "-q")[1]) == loud


def test_errors_stay(nobackfill, files):
    code, out, err = nobackfill("evaluate", *files, "--protocol", "plane", "-q")
    assert (code, out) == (2, "")
    assert err == "nobackfill: unknown protocol `plane`. Did you mean `plain`?\n"


def test_a_training_is_silent(nobackfill, tmp_path):
    recipe = tmp_path / "recipe.toml"
    recipe.write_text('[data]\nname = "glyphs"\n[model]\nname = "small"\n')
    sizes = ("data.train_classes=20", "data.test_classes=5", "data.side=16", "model.width=4")
    sizes = [word for size in (*sizes, "train.epochs=1") for word in ("--set", size)]
    code, out, err = nobackfill("train", recipe, "-o", tmp_path / "loud", *sizes)
    assert code == 0
    assert "epoch 1/1" in err
    code, out, err = nobackfill("train", recipe, "-o", tmp_path / "quiet", *sizes, "--quiet")
    assert (code, err) == (0, "")
    assert "The model is in" in out
