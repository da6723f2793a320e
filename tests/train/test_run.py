import json
import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch

import nobackfill as nb
from nobackfill.config import Choice, OldConfig, Recipe, TrainConfig
from nobackfill.data.collections import make_collection
from nobackfill.errors import ConfigError, DataError, OldSpaceError, SpaceMismatch
from nobackfill.models import make_model
from nobackfill.train.known import know_old_space
from nobackfill.train.run import Run, resolve
from nobackfill.upgrade import embed_collection, train_run

CPU = torch.device("cpu")
DATA = Choice("glyphs", {"train_classes": 10, "test_classes": 5, "images_per_class": 6, "side": 16})
OLD = Recipe(
    data=DATA,
    model=Choice("small", {"width": 4, "embedding_dim": 8}),
    train=TrainConfig(step=0, epochs=2, batch_size=8, learning_rate=0.05, seed=7),
)


@pytest.fixture(scope="module")
def old_run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "old"
    list(train_run(OLD, folder, device=CPU))
    return folder


def new_recipe(old_run, name="ndpp", **options):
    """A recipe that any method can be trained by; to BT2 the old model is the independent one."""
    return replace(
        OLD,
        model=Choice("small", {"width": 4, "embedding_dim": 16}) if name == "bt2" else OLD.model,
        method=Choice(name, options),
        old=OldConfig(run=str(old_run), independent=str(old_run) if name == "bt2" else None),
        train=replace(OLD.train, step=1, epochs=4, seed=1),
    )


def weights(folder):
    from safetensors.torch import load_file

    return load_file(folder / "model.safetensors")


def same(one, other):
    return one.keys() == other.keys() and all(torch.equal(one[key], other[key]) for key in one)


def test_a_run_leaves_what_it_promises(old_run, tmp_path):
    list(train_run(new_recipe(old_run), tmp_path / "new", device=CPU))
    names = {path.name for path in (tmp_path / "new").iterdir()}
    assert {
        "config.toml", "environment.json", "metrics.jsonl", "model.safetensors",
        "evaluation.json", "validation.parquet",
    } <= names  # fmt: skip
    assert not [name for name in names if name.endswith(".part")]
    lines = (tmp_path / "new" / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["epoch"] for line in lines] == [0, 1, 2, 3]
    result = json.loads((tmp_path / "new" / "evaluation.json").read_text())
    assert 0 < result["new_old"] < 1
    vectors = nb.load_vectors(tmp_path / "new" / "validation.parquet")
    old = nb.load_vectors(old_run / "validation.parquet")
    assert vectors.space.parent == old.space.fingerprint
    assert nb.evaluate(old, vectors).summary()["new_old"] == result["new_old"]


@pytest.mark.parametrize("name", [name for name in nb.METHODS if name != "cores"])
@pytest.mark.parametrize("killed_after", [1, 3])
def test_a_resumed_run_equals_one_that_was_never_stopped(old_run, tmp_path, name, killed_after):
    recipe = new_recipe(old_run, name)
    list(train_run(recipe, tmp_path / "whole", device=CPU))
    epochs = train_run(recipe, tmp_path / "stopped", device=CPU)
    for _ in range(killed_after):
        next(epochs)
    epochs.close()
    assert not (tmp_path / "stopped" / "model.safetensors").exists()
    rest = list(train_run(recipe, tmp_path / "stopped", device=CPU, resume=True))
    assert len(rest) == 4 - killed_after
    assert same(weights(tmp_path / "whole"), weights(tmp_path / "stopped"))
    for name in ("metrics.jsonl", "evaluation.json"):
        assert (tmp_path / "whole" / name).read_text() == (tmp_path / "stopped" / name).read_text()


def test_a_run_is_neither_overwritten_nor_mixed_with_another(old_run, tmp_path):
    recipe = new_recipe(old_run)
    next(train_run(recipe, tmp_path / "new", device=CPU))
    with pytest.raises(ConfigError, match="holds one. Go on with it by --resume"):
        next(train_run(recipe, tmp_path / "new", device=CPU))
    other = replace(recipe, train=replace(recipe.train, epochs=9))
    with pytest.raises(ConfigError, match="something else than this recipe"):
        next(train_run(other, tmp_path / "new", device=CPU, resume=True))


def test_an_unfinished_run_is_no_model(old_run, tmp_path):
    next(train_run(new_recipe(old_run), tmp_path / "new", device=CPU))
    with pytest.raises(DataError, match="wanted a finished run.*--resume"):
        Run.open(tmp_path / "new")
    with pytest.raises(DataError, match="has no config.toml"):
        Run.open(tmp_path)


def test_a_damaged_model_says_so(old_run, tmp_path):
    list(train_run(OLD, tmp_path / "run", device=CPU))
    (tmp_path / "run" / "model.safetensors").write_bytes(b"no weights")
    with pytest.raises(DataError, match="cannot be read"):
        Run.open(tmp_path / "run").model(CPU)


def test_prepares_exactly_what_the_method_needs(old_run):
    collection = make_collection(DATA)
    for name, method in nb.METHODS.items():
        known = know_old_space(resolve(new_recipe(old_run, name)), collection, device=CPU)
        assert known.given == method.needs
        assert known.known_classes == (3 if method.known_only else None)
        if method.needs:
            assert torch.equal(known.labels, collection.labels[collection.training_rows(1)])


def test_the_old_classifier_knows_the_old_classes(old_run):
    collection = make_collection(DATA)
    known = know_old_space(resolve(new_recipe(old_run, "bct")), collection, device=CPU)
    assert known.classifier.shape == (3, 8)
    assert torch.equal(known.classifier, weights(old_run)["method.classifier.weight"])


def test_prototypes_are_the_old_models_of_all_new_classes(old_run):
    collection = make_collection(DATA)
    known = know_old_space(resolve(new_recipe(old_run)), collection, device=CPU)
    rows = collection.training_rows(1)
    with torch.no_grad():
        embeddings = Run.open(old_run).model(CPU)(collection.load(rows))
    expected = nb.class_means(embeddings, collection.labels[rows], 10)
    torch.testing.assert_close(known.prototypes, expected)


def with_vectors(old_run, tmp_path, name="ndpp"):
    vectors = embed_collection(old_run, old_run, split="train", device=CPU)
    vectors.save(tmp_path / "old.parquet")
    recipe = replace(
        new_recipe(old_run, name), old=OldConfig(vectors=str(tmp_path / "old.parquet"))
    )
    return resolve(recipe), vectors


def test_a_file_of_old_vectors_does_as_well_as_the_old_model(old_run, tmp_path):
    collection = make_collection(DATA)
    recipe, vectors = with_vectors(old_run, tmp_path)
    by_run = know_old_space(resolve(new_recipe(old_run)), collection, device=CPU)
    by_file = know_old_space(recipe, collection, device=CPU)
    torch.testing.assert_close(by_file.prototypes, by_run.prototypes)
    vectors.select(np.arange(len(vectors) - 1, -1, -1)).save(tmp_path / "old.parquet")
    backwards = know_old_space(recipe, collection, device=CPU)  # matched by id
    torch.testing.assert_close(backwards.prototypes, by_run.prototypes)
    vectors.select(np.arange(1, len(vectors))).save(tmp_path / "old.parquet")
    with pytest.raises(DataError, match="lacks 1, the first being"):
        know_old_space(recipe, collection, device=CPU)


def test_a_file_of_old_vectors_has_no_classifier(old_run, tmp_path):
    recipe, _ = with_vectors(old_run, tmp_path, "bct")
    with pytest.raises(OldSpaceError, match="a file of old vectors gives only prototypes"):
        next(train_run(recipe, tmp_path / "new", device=CPU))


def test_a_method_that_needs_an_old_model_says_where_to_name_it(tmp_path):
    recipe = replace(OLD, method=Choice("ndpp"))
    with pytest.raises(ConfigError, match="--set old.run="):
        next(train_run(recipe, tmp_path / "new", device=CPU))


def test_the_new_model_must_have_the_old_dimension(old_run, tmp_path):
    recipe = replace(new_recipe(old_run), model=Choice("small", {"embedding_dim": 16}))
    with pytest.raises(
        SpaceMismatch, match="embedding_dim = 16, which `ndpp` .* Set it to 8, or .*bct"
    ):
        next(train_run(recipe, tmp_path / "new", device=CPU))


def test_old_vectors_of_other_data_are_made_anew_and_not_kept(old_run, tmp_path):
    recipe = new_recipe(old_run)
    other = replace(recipe, data=Choice("glyphs", {**DATA.options, "seed": 7}))
    before = (old_run / "validation.parquet").read_bytes()
    list(train_run(other, tmp_path / "new", device=CPU))
    old, new = (
        embed_collection(run, tmp_path / "new", split="validation", device=CPU)
        for run in (old_run, tmp_path / "new")
    )
    result = json.loads((tmp_path / "new" / "evaluation.json").read_text())
    assert result["old_old"] == nb.evaluate(old, new).summary()["old_old"]
    assert (old_run / "validation.parquet").read_bytes() == before


def test_a_classifier_of_other_classes_is_refused(old_run, tmp_path):
    recipe = new_recipe(old_run, "bct")
    other = replace(recipe, data=Choice("glyphs", {**DATA.options, "shares": [0.5, 1.0]}))
    with pytest.raises(ConfigError, match="classes numbered as when the old classifier"):
        next(train_run(other, tmp_path / "new", device=CPU))
    later = Choice("glyphs", {**DATA.options, "shares": [0.3, 0.6, 1.0]})  # the same beginning
    next(train_run(replace(recipe, data=later), tmp_path / "later", device=CPU))


def test_a_longer_embedding_meets_the_old_gallery_with_its_first_dimensions(old_run, tmp_path):
    recipe = replace(
        new_recipe(old_run, "bct"), model=Choice("small", {"width": 4, "embedding_dim": 12})
    )
    list(train_run(recipe, tmp_path / "new", device=CPU))
    vectors = nb.load_vectors(tmp_path / "new" / "validation.parquet")
    assert (vectors.dim, vectors.compatible_dim) == (12, 8)
    shorter = replace(recipe, model=Choice("small", {"width": 4, "embedding_dim": 4}))
    with pytest.raises(SpaceMismatch, match="Set it to 8"):
        next(train_run(shorter, tmp_path / "shorter", device=CPU))


@pytest.mark.parametrize("wrong", ["step", "data", "old"])
def test_what_cannot_run_leaves_no_folder_behind(old_run, tmp_path, wrong):
    recipe = new_recipe(old_run)
    if wrong == "step":
        recipe = replace(recipe, train=replace(recipe.train, step=5))
    if wrong == "data":
        recipe = replace(recipe, data=Choice("glyphs", {"train_classes": 1}))
    if wrong == "old":
        recipe = replace(recipe, old=OldConfig(run=str(tmp_path / "nowhere")))
    with pytest.raises((ConfigError, DataError)):
        next(train_run(recipe, tmp_path / "new", device=CPU))
    assert not (tmp_path / "new").exists()


def test_weights_of_unknown_origin_are_not_taken_for_a_finished_run(old_run, tmp_path):
    list(train_run(OLD, tmp_path / "run", device=CPU))
    (tmp_path / "run" / "config.toml").unlink()
    with pytest.raises(ConfigError, match="weights and no config.toml"):
        next(train_run(OLD, tmp_path / "run", device=CPU))


def test_a_damaged_state_says_how_to_start_over(tmp_path):
    next(train_run(OLD, tmp_path / "run", device=CPU))
    state = tmp_path / "run" / "state.pt"
    state.write_bytes(state.read_bytes()[:100])
    with pytest.raises(DataError, match="Remove it and run again with --resume"):
        next(train_run(OLD, tmp_path / "run", device=CPU, resume=True))
    state.unlink()
    assert len(list(train_run(OLD, tmp_path / "run", device=CPU, resume=True))) == 2


def test_the_lineage_of_a_run_outlives_the_folder_of_its_parent(old_run, tmp_path):
    copied = tmp_path / "old"
    shutil.copytree(old_run, copied)
    list(train_run(new_recipe(copied), tmp_path / "new", device=CPU))
    list(train_run(new_recipe(copied, "independent"), tmp_path / "alone", device=CPU))
    parent = nb.load_vectors(tmp_path / "new" / "validation.parquet").space.parent
    assert parent == nb.load_vectors(copied / "validation.parquet").space.fingerprint
    assert nb.load_vectors(tmp_path / "alone" / "validation.parquet").space.parent is None


def test_embedding_gives_back_every_column(old_run):
    collection = make_collection(DATA)
    vectors = embed_collection(old_run, old_run, split="validation", device=CPU)
    rows = collection.validation_rows()
    assert vectors.ids.tolist() == [collection.ids[row] for row in rows]
    assert vectors.labels.tolist() == collection.labels[rows].tolist()
    assert set(vectors.columns) == {"split", "is_query", "is_gallery", "family"}
    with pytest.raises(ConfigError, match="unknown split `test`"):
        embed_collection(old_run, old_run, split="test", device=CPU)


def test_a_run_starts_from_the_weights_of_its_seed(tmp_path):
    for seed in (7, 8):
        still = replace(OLD.train, seed=seed, epochs=1, learning_rate=1e-30)
        list(train_run(replace(OLD, train=still), tmp_path / str(seed), device=CPU))
    run = Run.open(tmp_path / "8")
    first = make_model(run.recipe.model, seed=8).projection.weight
    assert torch.equal(run.model(CPU).projection.weight, first)
    assert not torch.equal(run.classifier(), Run.open(tmp_path / "7").classifier())


def test_moved_prototypes_are_those_the_method_ended_with(old_run, tmp_path):
    for name in ("ndpp", "odpp"):
        list(train_run(new_recipe(old_run, name), tmp_path / name, device=CPU))
        old = weights(tmp_path / name)["method.old"]
        moved = Run.open(tmp_path / name).moved_prototypes()
        assert not torch.equal(moved, old)
        assert torch.nn.functional.cosine_similarity(moved, old).min() > 0.5
    assert Run.open(old_run).moved_prototypes() is None


def test_other_weights_are_another_space(old_run, tmp_path):
    list(train_run(replace(OLD, train=replace(OLD.train, seed=8)), tmp_path / "run", device=CPU))
    spaces = [nb.load_vectors(f / "validation.parquet").space for f in (old_run, tmp_path / "run")]
    assert spaces[0].fingerprint != spaces[1].fingerprint


def test_embeds_the_data_it_is_given_not_that_of_the_model(old_run, tmp_path):
    data = "[data]\nname = 'glyphs'\ntrain_classes = 8\ntest_classes = 3\nimages_per_class = 6\n"
    (tmp_path / "other.toml").write_text(data + "side = 16\n")
    vectors = embed_collection(old_run, tmp_path / "other.toml", split="train", device=CPU)
    assert len(vectors) == 8 * 6


def test_a_file_of_old_vectors_is_the_parent_space(old_run, tmp_path):
    recipe, old = with_vectors(old_run, tmp_path)
    list(train_run(recipe, tmp_path / "new", device=CPU))
    new = nb.load_vectors(tmp_path / "new" / "validation.parquet")
    assert new.space.parent == old.space.fingerprint


def test_the_old_space_can_be_moved_to_a_device():
    known = nb.OldSpace(prototypes=torch.eye(2)).to("meta")
    assert known.prototypes.device.type == "meta"


def test_glyphs_are_loaded_from_minus_one_to_one():
    images = make_collection(DATA).load(torch.arange(60))
    assert images.min() == -1
    assert 0.5 < images.max() <= 1


@pytest.fixture(scope="module")
def mapped_run(old_run, tmp_path_factory):
    """A run of RM whose embedding is longer than the old one."""
    folder = tmp_path_factory.mktemp("runs") / "rm"
    model = Choice("small", {"width": 4, "embedding_dim": 12})
    list(train_run(replace(new_recipe(old_run, "rm"), model=model), folder, device=CPU))
    return folder


def test_mapped_queries_ask_the_old_gallery_and_nothing_else(old_run, mapped_run):
    old, new, query = (
        nb.load_vectors(path)
        for path in (
            old_run / "validation.parquet",
            mapped_run / "validation.parquet",
            mapped_run / "validation_query.parquet",
        )
    )
    assert (new.dim, new.compatible_dim, query.dim) == (12, None, 8)
    assert new.space.parent is None  # its gallery serves no old query
    assert query.space.parent == old.space.fingerprint
    assert query.space.fingerprint != new.space.fingerprint
    result = json.loads((mapped_run / "evaluation.json").read_text())
    assert result["new_old"] == nb.evaluate(old, query).summary()["new_old"]
    assert result["new_new"] == nb.evaluate(new, new).summary()["new_new"]
    assert nb.evaluate(old, new, query_for_old=query).summary() == result
    run = Run.open(mapped_run)
    collection = make_collection(DATA)
    images = collection.load(collection.validation_rows())
    with torch.no_grad():
        torch.testing.assert_close(query.vectors, run.sides().query.eval()(run.model(CPU)(images)))


def test_either_side_can_be_embedded(old_run, mapped_run):
    for run, dims in ((mapped_run, (8, 12)), (old_run, (8, 8))):
        sides = (
            embed_collection(run, old_run, split="validation", side=side, device=CPU)
            for side in ("query", "gallery")
        )
        assert tuple(vectors.dim for vectors in sides) == dims
    with pytest.raises(ConfigError, match="unknown side `queries`. Did you mean `query`"):
        embed_collection(mapped_run, old_run, side="queries", device=CPU)


def test_bt2_is_longer_and_its_first_dimensions_meet_the_old_gallery(old_run, tmp_path):
    list(train_run(new_recipe(old_run, "bt2"), tmp_path / "new", device=CPU))
    new = nb.load_vectors(tmp_path / "new" / "validation.parquet")
    old = nb.load_vectors(old_run / "validation.parquet")
    assert (new.dim, new.compatible_dim) == (8 + 32, 8)
    torch.testing.assert_close(new.vectors.norm(dim=-1), torch.full((len(new),), 5**0.5))
    cut = nb.Vectors(new.ids, new.vectors[:, :8], new.labels, columns=new.columns)
    result = json.loads((tmp_path / "new" / "evaluation.json").read_text())
    assert result["new_old"] == nb.evaluate(old, cut).summary()["new_old"]
    assert not (tmp_path / "new" / "validation_query.parquet").exists()


def test_an_old_model_of_bt2_is_known_by_what_it_stores(old_run, tmp_path):
    list(train_run(new_recipe(old_run, "bt2"), tmp_path / "bt2", device=CPU))
    recipe = replace(
        new_recipe(tmp_path / "bt2", "mimic"),
        model=Choice("small", {"width": 4, "embedding_dim": 40}),
    )
    known = know_old_space(resolve(recipe), make_collection(DATA), device=CPU)
    assert known.embeddings.shape == (60, 40)


def test_bt2_asks_for_an_independent_model(old_run, tmp_path):
    recipe = replace(new_recipe(old_run, "bt2"), old=OldConfig(run=str(old_run)))
    with pytest.raises(OldSpaceError, match="old.independent.*or choose a method"):
        next(train_run(recipe, tmp_path / "new", device=CPU))


def test_cores_needs_an_old_model_of_its_own_kind(tmp_path):
    cores = replace(
        OLD, model=Choice("small", {"width": 4, "embedding_dim": 9}), method=Choice("cores")
    )
    list(train_run(cores, tmp_path / "old", device=CPU))
    new = replace(
        cores,
        old=OldConfig(run=str(tmp_path / "old")),
        train=replace(cores.train, step=1, seed=1),
    )
    list(train_run(new, tmp_path / "new", device=CPU))
    assert (tmp_path / "new" / "evaluation.json").exists()
    with pytest.raises(DataError, match="`cores` trains none"):
        Run.open(tmp_path / "old").classifier()
    short = replace(new, model=Choice("small", {"width": 4, "embedding_dim": 8}), old=OldConfig())
    with pytest.raises(ConfigError, match="10 classes.*embedding_dim to 9"):
        next(train_run(short, tmp_path / "short", device=CPU))


def test_the_old_model_may_see_the_augmented_view(old_run, tmp_path):
    recipe = new_recipe(old_run, "mimic")
    same_view = replace(recipe, train=replace(recipe.train, old_view="same"))
    list(train_run(recipe, tmp_path / "test", device=CPU))
    list(train_run(same_view, tmp_path / "same", device=CPU))
    assert not same(weights(tmp_path / "test"), weights(tmp_path / "same"))


@pytest.mark.parametrize("name", ["ndpp", "bct", "independent"])
def test_a_view_that_no_one_looks_at_is_refused(old_run, tmp_path, name):
    recipe = new_recipe(old_run, name)
    recipe = replace(recipe, train=replace(recipe.train, old_view="same"))
    with pytest.raises(ConfigError, match='Leave `old_view` at "test"'):
        next(train_run(recipe, tmp_path / "new", device=CPU))


def test_old_vectors_of_a_file_may_say_how_many_classes_were_known(old_run, tmp_path):
    recipe, _ = with_vectors(old_run, tmp_path)
    recipe = replace(recipe, method=Choice("unibct"))
    collection = make_collection(DATA)
    assert know_old_space(resolve(recipe), collection, device=CPU).known_classes is None
    told = replace(recipe, old=replace(recipe.old, known_classes=4))
    assert know_old_space(resolve(told), collection, device=CPU).known_classes == 4
