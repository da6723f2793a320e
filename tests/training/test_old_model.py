"""What a recipe must name of the old model: refused before anything is trained."""

from dataclasses import replace

import pytest
import torch

from nobackfill.core.config import Choice, OldConfig, Recipe, TrainConfig
from nobackfill.errors import ConfigError, DataError, OldSpaceError, SpaceMismatch
from nobackfill.training.embed import embed_collection
from nobackfill.training.old_model import check_old_model
from nobackfill.training.pipeline import train_run
from nobackfill.training.resolve import resolve

CPU = torch.device("cpu")
DATA = Choice("glyphs", {"train_classes": 10, "test_classes": 5, "images_per_class": 6, "side": 16})
OLD = Recipe(
    data=DATA,
    model=Choice("small", {"width": 2, "embedding_dim": 8}),
    train=TrainConfig(step=0, epochs=1, batch_size=8),
)
TEXT = Choice("words", {"buckets": 64, "width": 4})


@pytest.fixture(scope="module")
def olds(tmp_path_factory):
    """What [old] may name, by a word for each."""
    folder = tmp_path_factory.mktemp("runs")
    told = replace(OLD, data=Choice("glyphs", {**DATA.options, "captions": 2}), text=TEXT)
    for name, recipe in {"run": OLD, "texts": told}.items():
        list(train_run(recipe, folder / name, device=CPU))
    embed_collection(folder / "run", folder / "run", split="train", device=CPU).save(
        folder / "old.parquet"
    )
    return {
        "nothing": {},
        "run": {"run": str(folder / "run")},
        "texts": {"run": str(folder / "texts")},
        "vectors": {"vectors": str(folder / "old.parquet")},
        "gone": {"run": str(folder / "gone")},
    }


def recipe_of(method, old, *, dim=8, text=None, view="test", **more):
    data = DATA if text is None else Choice("glyphs", {**DATA.options, "captions": 2})
    return resolve(
        replace(
            OLD,
            data=data,
            text=text,
            model=Choice("small", {"width": 2, "embedding_dim": dim}),
            method=Choice(method),
            old=OldConfig(**old, **more),
            train=replace(OLD.train, step=1, old_view=view),
        )
    )


@pytest.mark.parametrize(
    ("method", "old", "more", "error", "says"),
    [
        ("ndpp", "nothing", {}, ConfigError, "`ndpp` needs prototypes of .* names none"),
        ("bct", "nothing", {}, ConfigError, "`bct` needs classifier of .* names none"),
        ("bct", "vectors", {}, OldSpaceError, "a file of old vectors provides only prototypes"),
        ("bct", "texts", {}, OldSpaceError, "was trained on images and texts without one"),
        ("bct", "gone", {"known_classes": 3}, DataError, "is not a run folder"),
        ("bt2", "run", {}, OldSpaceError, "names none. Train one with the method"),
        ("bt2", "run", {"independent": "no/where"}, ConfigError, "no/where, which does not exist"),
        ("ndpp", "run", {"independent": "no/where"}, ConfigError, "no/where, which does not exist"),
        ("ndpp", "run", {"known_classes": 3}, ConfigError, "applies only to `vectors`"),
        ("cores", "run", {}, ConfigError, "with `cores`, but .* was trained with `independent`"),
        ("mimic", "run", {"view": "same", "text": TEXT}, ConfigError, "does not work with .text."),
        ("mimic", "vectors", {"view": "same"}, ConfigError, "names no old run. Leave"),
        ("ndpp", "run", {"view": "same"}, ConfigError, "`ndpp` does not. Leave"),
        ("unibct_spr", "run", {"view": "same"}, ConfigError, "`unibct_spr` does not. Leave"),
        ("ndpp", "run", {"dim": 12}, SpaceMismatch, "Set embedding_dim to 8"),
        ("ndpp", "vectors", {"dim": 12}, SpaceMismatch, "Set embedding_dim to 8"),
    ],
)
def test_what_a_method_cannot_use_is_refused(olds, method, old, more, error, says):
    with pytest.raises(error, match=says):
        check_old_model(recipe_of(method, olds[old], **more))


@pytest.mark.parametrize(
    ("method", "old", "more"),
    [
        ("independent", "nothing", {}),
        ("independent", "run", {}),
        ("ndpp", "run", {}),
        ("ndpp", "vectors", {"known_classes": 3}),
        ("bct", "run", {"dim": 12}),
        ("mimic", "run", {"view": "same"}),
        ("mimic", "texts", {"text": TEXT}),
        ("cores", "nothing", {}),
    ],
)
def test_what_it_can_use_is_taken(olds, method, old, more):
    check_old_model(recipe_of(method, olds[old], **more))


def test_an_independent_model_that_is_there_is_taken(olds):
    independent = olds["run"]["run"]
    check_old_model(recipe_of("bt2", olds["run"], dim=16, independent=independent))
