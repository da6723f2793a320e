import json
import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch

import nobackfill as nb
from nobackfill.core.config import Choice, OldConfig, Recipe, TrainConfig
from nobackfill.data.loader import Batch
from nobackfill.data.registry import make_collection
from nobackfill.errors import ConfigError, DataError, OldSpaceError, SpaceMismatch
from nobackfill.models import make_model
from nobackfill.models.embed import embed, to_vectors
from nobackfill.training.embed import embed_collection
from nobackfill.training.loop import embed_old_view
from nobackfill.training.old_model import check_old_model, load_old_model, prepare_old_space
from nobackfill.training.pipeline import train_run
from nobackfill.training.resolve import resolve
from nobackfill.training.results import evaluate_run
from nobackfill.training.run import Run
from nobackfill.vectors.records import declare_space, space_of
from nobackfill.vectors.space import CompatibleWith

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


def test_images_that_a_model_does_not_take_are_a_sentence(old_run, tmp_path):
    """Before the first epoch, and where a model embeds a collection later."""
    wrong = replace(OLD, model=Choice("small", {"width": 4, "embedding_dim": 8, "channels": 3}))
    told = "cannot process images of 1 channels and 16 x 16 pixels: .* Set `channels` in"
    with pytest.raises(ConfigError, match=told):
        list(train_run(wrong, tmp_path / "run", device=CPU))
    assert not (tmp_path / "run" / "model.safetensors").exists()
    collection = make_collection(DATA)
    with pytest.raises(ConfigError, match=told):
        embed(make_model(wrong.model, seed=0), collection, collection.validation_rows())


def test_another_error_while_embedding_is_no_matter_of_the_images():
    class Broken(torch.nn.Linear):
        def forward(self, images):
            if images.any():
                raise RuntimeError("something else")
            return images

    collection = make_collection(DATA)
    with pytest.raises(RuntimeError, match="something else"):
        embed(Broken(1, 1), collection, collection.validation_rows())


def test_a_run_is_neither_overwritten_nor_mixed_with_another(old_run, tmp_path):
    recipe = new_recipe(old_run)
    next(train_run(recipe, tmp_path / "new", device=CPU))
    with pytest.raises(ConfigError, match="already contains a run. Continue it with --resume"):
        next(train_run(recipe, tmp_path / "new", device=CPU))
    other = replace(recipe, train=replace(recipe.train, epochs=9))
    with pytest.raises(ConfigError, match="differs from this recipe"):
        next(train_run(other, tmp_path / "new", device=CPU, resume=True))


def test_an_unfinished_run_is_no_model(old_run, tmp_path):
    next(train_run(new_recipe(old_run), tmp_path / "new", device=CPU))
    with pytest.raises(DataError, match="is not finished.*--resume"):
        Run.open(tmp_path / "new")
    with pytest.raises(DataError, match="it has no config.toml"):
        Run.open(tmp_path)
    with pytest.raises(DataError, match="gone is not a run folder: it does not exist"):
        Run.open(tmp_path / "gone")


def test_an_old_run_that_is_not_there_is_named_as_the_recipe_does(old_run, tmp_path):
    gone = tmp_path / "gone"
    with pytest.raises(ConfigError, match=rf'`run = "{gone}"` in \[old\].*train RECIPE -o {gone}`'):
        next(train_run(new_recipe(gone), tmp_path / "new", device=CPU))
    assert not (tmp_path / "new").exists()
    old = shutil.copytree(old_run, tmp_path / "old")
    weights = (old / "model.safetensors").rename(tmp_path / "weights")
    with pytest.raises(DataError, match="is not finished.*--resume"):
        next(train_run(new_recipe(old), tmp_path / "new", device=CPU))
    weights.rename(old / "model.safetensors")
    list(train_run(new_recipe(old), tmp_path / "new", device=CPU))
    shutil.rmtree(old)
    assert Run.start(new_recipe(old), tmp_path / "new", resume=True).finished  # outlives it


def test_a_damaged_model_says_so(old_run, tmp_path):
    list(train_run(OLD, tmp_path / "run", device=CPU))
    (tmp_path / "run" / "model.safetensors").write_bytes(b"no weights")
    with pytest.raises(DataError, match="Could not read the weights"):
        Run.open(tmp_path / "run").model(CPU)


def test_prepares_exactly_what_the_method_needs(old_run):
    collection = make_collection(DATA)
    for name, method in nb.METHODS.items():
        if method.same_kind:
            continue  # has an old model of its own
        known = prepare_old_space(resolve(new_recipe(old_run, name)), collection, device=CPU)
        assert known.given == method.needs
        assert known.known_classes == (3 if method.old_classes_only else None)
        if method.needs:
            assert torch.equal(known.labels, collection.labels[collection.training_rows(1)])


def test_the_old_classifier_knows_the_old_classes(old_run):
    collection = make_collection(DATA)
    known = prepare_old_space(resolve(new_recipe(old_run, "bct")), collection, device=CPU)
    assert known.classifier.shape == (3, 8)
    assert torch.equal(known.classifier, weights(old_run)["method.classifier.weight"])


def test_prototypes_are_the_old_models_of_all_new_classes(old_run):
    collection = make_collection(DATA)
    known = prepare_old_space(resolve(new_recipe(old_run)), collection, device=CPU)
    rows = collection.training_rows(1)
    with torch.no_grad():
        embeddings = Run.open(old_run).model(CPU)(collection.view(rows))
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
    by_run = prepare_old_space(resolve(new_recipe(old_run)), collection, device=CPU)
    by_file = prepare_old_space(recipe, collection, device=CPU)
    torch.testing.assert_close(by_file.prototypes, by_run.prototypes)
    vectors.select(np.arange(len(vectors) - 1, -1, -1)).save(tmp_path / "old.parquet")
    backwards = prepare_old_space(recipe, collection, device=CPU)  # matched by id
    torch.testing.assert_close(backwards.prototypes, by_run.prototypes)
    vectors.select(np.arange(1, len(vectors))).save(tmp_path / "old.parquet")
    with pytest.raises(DataError, match="lacks the vectors of 1 of"):
        prepare_old_space(recipe, collection, device=CPU)


def test_a_file_of_old_vectors_has_no_classifier(old_run, tmp_path):
    recipe, _ = with_vectors(old_run, tmp_path, "bct")
    with pytest.raises(OldSpaceError, match="a file of old vectors provides only prototypes"):
        next(train_run(recipe, tmp_path / "new", device=CPU))


def test_a_method_that_needs_an_old_model_says_where_to_name_it(tmp_path):
    recipe = replace(OLD, method=Choice("ndpp"))
    with pytest.raises(ConfigError, match="--set old.run="):
        next(train_run(recipe, tmp_path / "new", device=CPU))


def test_the_new_model_must_have_the_old_dimension(old_run, tmp_path):
    recipe = replace(new_recipe(old_run), model=Choice("small", {"embedding_dim": 16}))
    with pytest.raises(
        SpaceMismatch, match="`ndpp` cannot .*embedding_dim = 16.* Set embedding_dim to 8, or .*bct"
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
    with pytest.raises(ConfigError, match="classes are numbered differently"):
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
    with pytest.raises(SpaceMismatch, match="Set embedding_dim to 8"):
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
        still = replace(OLD.train, weights_seed=seed, epochs=1, learning_rate=1e-30)
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
    images = make_collection(DATA).view(torch.arange(60))
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
    images = collection.view(collection.validation_rows())
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
    known = prepare_old_space(resolve(recipe), make_collection(DATA), device=CPU)
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
    other_kind = replace(OLD, model=cores.model)
    list(train_run(other_kind, tmp_path / "other", device=CPU))
    with pytest.raises(ConfigError, match="trained with `cores`, but .* with `independent`"):
        next(
            train_run(
                replace(new, old=OldConfig(run=str(tmp_path / "other"))),
                tmp_path / "mixed",
                device=CPU,
            )
        )
    elsewhere = replace(new, data=Choice("glyphs", {**DATA.options, "seed": 5}))
    with pytest.raises(ConfigError, match="classes are numbered differently"):
        next(train_run(elsewhere, tmp_path / "elsewhere", device=CPU))
    vectors = {
        kind: nb.load_vectors(tmp_path / kind / "validation.parquet") for kind in ("old", "new")
    }
    assert vectors["new"].space.parent == vectors["old"].space.fingerprint
    short = replace(new, model=Choice("small", {"width": 4, "embedding_dim": 8}), old=OldConfig())
    with pytest.raises(ConfigError, match="10 classes.*embedding_dim to 9"):
        next(train_run(short, tmp_path / "short", device=CPU))


def test_the_old_model_may_see_the_augmented_view(old_run, tmp_path):
    recipe = new_recipe(old_run, "mimic")
    same_view = replace(recipe, train=replace(recipe.train, old_view="same"))
    list(train_run(recipe, tmp_path / "test", device=CPU))
    list(train_run(same_view, tmp_path / "same", device=CPU))
    assert not same(weights(tmp_path / "test"), weights(tmp_path / "same"))


@pytest.mark.parametrize("name", ["ndpp", "bct", "independent", "unibct_spr"])
def test_a_view_that_no_one_looks_at_is_refused(old_run, tmp_path, name):
    recipe = new_recipe(old_run, name)
    recipe = replace(recipe, train=replace(recipe.train, old_view="same"))
    with pytest.raises(ConfigError, match='Leave `old_view` at "test"'):
        next(train_run(recipe, tmp_path / "new", device=CPU))


def test_old_vectors_of_a_file_may_say_how_many_classes_were_known(old_run, tmp_path):
    recipe, _ = with_vectors(old_run, tmp_path)
    recipe = replace(recipe, method=Choice("unibct"))
    collection = make_collection(DATA)
    assert prepare_old_space(resolve(recipe), collection, device=CPU).known_classes is None
    told = replace(recipe, old=replace(recipe.old, known_classes=4))
    assert prepare_old_space(resolve(told), collection, device=CPU).known_classes == 4


def longer_model(dim):
    return Choice("small", {"width": 4, "embedding_dim": dim})


def test_known_classes_are_counted_in_the_old_models_own_data(tmp_path):
    """The last step of the old data is not the last of the new."""
    first = Choice("glyphs", {**DATA.options, "shares": [0.3]})
    old = replace(OLD, data=first, train=replace(OLD.train, step=-1, epochs=1))
    list(train_run(old, tmp_path / "old", device=CPU))
    known = prepare_old_space(
        resolve(new_recipe(tmp_path / "old", "bct")), make_collection(DATA), device=CPU
    )
    assert known.known_classes == len(known.classifier) == 3


def test_only_what_is_trained_on_is_known(old_run):
    data = Choice("glyphs", {**DATA.options, "shares": [0.3, 0.6, 1.0]})
    collection = make_collection(data)
    recipe = replace(new_recipe(old_run, "dual_tuning"), data=data)  # the second step of three
    known = prepare_old_space(resolve(recipe), collection, device=CPU)
    assert known.labels.unique().tolist() == list(range(6))
    assert known.prototypes.shape == (6, 8)
    assert known.embeddings.shape == (36, 8)


def test_the_independent_model_is_another_than_the_old(old_run, tmp_path):
    alone = replace(new_recipe(old_run, "independent"), model=longer_model(12))
    list(train_run(alone, tmp_path / "alone", device=CPU))
    recipe = new_recipe(old_run, "bt2")
    recipe = replace(recipe, old=replace(recipe.old, independent=str(tmp_path / "alone")))
    known = prepare_old_space(resolve(recipe), make_collection(DATA), device=CPU)
    for part, run in ((known.embeddings, old_run), (known.independent, tmp_path / "alone")):
        vectors = embed_collection(run, old_run, split="train", device=CPU).vectors
        torch.testing.assert_close(part, vectors)


@pytest.mark.parametrize("name", ["rm", "bt2"])
def test_an_old_model_is_known_and_seen_by_what_it_stores(old_run, mapped_run, tmp_path, name):
    run, dim = mapped_run, 12
    if name == "bt2":
        run, dim = tmp_path / "bt2", 40
        list(train_run(new_recipe(old_run, "bt2"), run, device=CPU))
    stored = embed_collection(run, old_run, split="train", device=CPU).vectors
    assert stored.shape == (60, dim) == (60, Run.open(run).dim)
    recipe = replace(new_recipe(run, "mimic"), model=longer_model(dim))
    recipe = resolve(replace(recipe, train=replace(recipe.train, old_view="same")))
    collection = make_collection(DATA)
    known = prepare_old_space(recipe, collection, device=CPU)
    torch.testing.assert_close(known.embeddings, stored)
    images = collection.view(collection.training_rows(1))
    batch = Batch(images, torch.zeros(60, dtype=torch.int64), torch.arange(60))
    old = embed_old_view(load_old_model(recipe, CPU), batch)["old"]
    torch.testing.assert_close(old, stored)


def test_the_old_model_is_there_only_where_it_is_asked_to_look(old_run):
    assert load_old_model(resolve(new_recipe(old_run, "mimic")), CPU) is None


def test_a_file_of_old_vectors_sees_no_augmented_view(old_run, tmp_path):
    recipe, _ = with_vectors(old_run, tmp_path, "mimic")
    recipe = replace(recipe, train=replace(recipe.train, old_view="same"))
    with pytest.raises(ConfigError, match="the recipe names no old run"):
        next(train_run(recipe, tmp_path / "new", device=CPU))
    recipe = new_recipe(old_run, "bct")
    recipe = replace(recipe, train=replace(recipe.train, old_view="same"))
    with pytest.raises(ConfigError, match="`bct` does not"):
        next(train_run(recipe, tmp_path / "new", device=CPU))


@pytest.mark.parametrize(
    ("name", "dim", "says"),
    [
        ("ndpp", 12, "requires 8 dimensions. Set"),
        ("ndpp", 4, "requires 8 dimensions. Set"),
        ("lwf", 4, "requires 8 dimensions or more. Set"),
        ("lwf", 12, None),
        ("rm", 4, None),
        ("rm", 12, None),
        ("bt2", 4, None),
        ("independent", 4, "requires 8 dimensions or more. Set"),
        ("independent", 12, None),
    ],
)
def test_dimensions_are_checked_before_anything_is_trained(old_run, name, dim, says):
    recipe = resolve(replace(new_recipe(old_run, name), model=longer_model(dim)))
    if says is None:
        check_old_model(recipe)
        return
    with pytest.raises(SpaceMismatch, match=says) as error:
        check_old_model(recipe)
    listed = str(error.value).partition("method that can: ")[2].rstrip(".").split(", ")
    assert {"rm", "bt2"} <= set(listed)
    assert ("bct" in listed) == ("lwf" in listed) == (dim > 8)
    assert not {"ndpp", "advbct", "cores"} & set(listed)


def test_a_file_of_old_vectors_sets_the_dimension_too(old_run, tmp_path):
    recipe, _ = with_vectors(old_run, tmp_path)
    with pytest.raises(SpaceMismatch, match="Set embedding_dim to 8"):
        check_old_model(resolve(replace(recipe, model=longer_model(12), method=Choice("ndpp"))))
    longer = replace(recipe, model=longer_model(12), method=Choice("rm"))
    list(train_run(longer, tmp_path / "new", device=CPU))
    query = embed_collection(tmp_path / "new", old_run, side="query", device=CPU)
    assert (query.dim, query.compatible_dim) == (8, None)
    assert query.space.parent == nb.load_vectors(tmp_path / "old.parquet").space.fingerprint


def test_a_longer_embedding_names_the_old_space_as_its_parent(old_run, tmp_path):
    recipe = replace(new_recipe(old_run, "bct"), model=longer_model(12))
    list(train_run(recipe, tmp_path / "new", device=CPU))
    space = nb.load_vectors(tmp_path / "new" / "validation.parquet").space
    assert space.parent == nb.load_vectors(old_run / "validation.parquet").space.fingerprint
    assert (space.dim, space.method) == (12, "bct")


def test_the_lineage_of_a_run_is_that_of_the_day_it_was_trained(old_run, tmp_path):
    copied = tmp_path / "old"
    shutil.copytree(old_run, copied)
    list(train_run(new_recipe(copied), tmp_path / "new", device=CPU))
    shutil.rmtree(copied)
    list(train_run(replace(OLD, train=replace(OLD.train, seed=8)), copied, device=CPU))
    again = embed_collection(tmp_path / "new", old_run, device=CPU)
    assert again.space.parent == nb.load_vectors(old_run / "validation.parquet").space.fingerprint


def test_either_side_is_ready_for_a_test(mapped_run):
    run = Run.open(mapped_run)
    for side in ("query", "gallery"):
        assert not any(module.training for module in run.encoder(CPU, side).modules())


def test_what_was_embedded_is_read_again(old_run, mapped_run, monkeypatch):
    def run_model(*_, **__):
        raise AssertionError("embedded again")

    monkeypatch.setattr("nobackfill.training.embed.embed_rows", run_model)
    result = evaluate_run(Run.open(mapped_run), make_collection(DATA), device=CPU)
    assert result.summary() == json.loads((mapped_run / "evaluation.json").read_text())


def test_a_query_without_a_map_is_the_gallery_vector(old_run):
    query, gallery = (
        embed_collection(old_run, old_run, split="validation", side=side, device=CPU)
        for side in ("query", "gallery")
    )
    assert torch.equal(query.vectors, gallery.vectors)
    assert query.space == gallery.space


def test_mapped_queries_are_a_space_of_their_own_even_in_the_same_dimension(old_run, tmp_path):
    list(train_run(new_recipe(old_run, "rm"), tmp_path / "rm", device=CPU))
    gallery, query = (
        nb.load_vectors(tmp_path / "rm" / name)
        for name in ("validation.parquet", "validation_query.parquet")
    )
    assert (gallery.dim, query.dim) == (8, 8)
    assert not torch.equal(gallery.vectors, query.vectors)
    assert gallery.space.fingerprint != query.space.fingerprint


@pytest.mark.parametrize("side", ["query", "gallery"])
@pytest.mark.parametrize("name", ["ndpp", "rm"])
def test_what_was_measured_of_a_run_goes_with_all_that_it_embeds(old_run, tmp_path, name, side):
    run, measured = tmp_path / "new", CompatibleWith("0123456789abcdef", "mAP", 0.5)
    list(train_run(new_recipe(old_run, name), run, device=CPU))
    before = space_of(run)
    declare_space(run, before.with_measured(measured))
    later = embed_collection(run, run, split="train", side=side, device=CPU).space
    is_of_it = name == "ndpp" or side == "query"  # what RM stores is of another space
    assert (later.fingerprint == before.fingerprint) is is_of_it
    assert later.compatible_with == ((measured,) if is_of_it else ())


@pytest.mark.parametrize("name", ["ndpp", "rm", "bt2", "independent"])
def test_a_finished_run_needs_its_old_run_no_more(old_run, tmp_path, name):
    copied = tmp_path / "old"
    shutil.copytree(old_run, copied)
    list(train_run(new_recipe(copied, name), tmp_path / "new", device=CPU))
    shutil.rmtree(copied)
    for side, file in (("gallery", "validation"), ("query", "validation_query")):
        again = embed_collection(
            tmp_path / "new", tmp_path / "new", split="validation", side=side, device=CPU
        )
        path = tmp_path / "new" / f"{file}.parquet"
        if path.exists():
            kept = nb.load_vectors(path)
            torch.testing.assert_close(again.vectors, kept.vectors)
            assert again.space == kept.space
            assert again.compatible_dim == kept.compatible_dim


def test_the_classifier_of_bt2_is_not_one_of_its_gallery(old_run, tmp_path):
    list(train_run(new_recipe(old_run, "bt2"), tmp_path / "bt2", device=CPU))
    recipe = replace(
        new_recipe(tmp_path / "bt2", "bct"),
        model=Choice("small", {"width": 4, "embedding_dim": 40}),
    )
    with pytest.raises(DataError, match="before it maps the embeddings"):
        next(train_run(recipe, tmp_path / "new", device=CPU))


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"independent": "nowhere"}, "nowhere, which does not exist"),
        ({"known_classes": 3}, "a run contains its number"),
    ],
)
def test_what_cannot_be_meant_is_refused(old_run, tmp_path, wrong, says):
    recipe = new_recipe(old_run, "mimic")
    with pytest.raises(ConfigError, match=says):
        next(
            train_run(
                replace(recipe, old=replace(recipe.old, **wrong)), tmp_path / "new", device=CPU
            )
        )


def test_vectors_stand_beside_the_items_they_were_made_of():
    collection = make_collection(DATA)
    rows = torch.tensor([70, 3, 61, 0])
    vectors = to_vectors(torch.arange(8.0).reshape(4, 2), collection, rows, compatible_dim=1)
    assert vectors.ids.tolist() == [collection.ids[row] for row in rows]
    assert vectors.labels.tolist() == collection.labels[rows].tolist()
    assert vectors.columns["split"].tolist() == ["validation", "train", "validation", "train"]
    assert vectors.compatible_dim == 1


def test_of_a_vector_as_long_as_the_old_nothing_is_cut_off(old_run, tmp_path):
    list(train_run(new_recipe(old_run), tmp_path / "new", device=CPU))
    assert nb.load_vectors(tmp_path / "new" / "validation.parquet").compatible_dim is None


def test_a_run_is_compared_with_an_independent_model_if_there_is_one(old_run, tmp_path):
    alone = replace(new_recipe(old_run, "independent"), train=replace(OLD.train, seed=9))
    list(train_run(alone, tmp_path / "alone", device=CPU))
    recipe = new_recipe(old_run, "bt2")
    recipe = replace(recipe, old=replace(recipe.old, independent=str(tmp_path / "alone")))
    list(train_run(recipe, tmp_path / "new", device=CPU))
    result = json.loads((tmp_path / "new" / "evaluation.json").read_text())
    vectors = nb.load_vectors(tmp_path / "alone" / "validation.parquet")
    assert result["independent"] == nb.evaluate(vectors, vectors).summary()["old_old"]
    assert result["independent"] not in (result["old_old"], result["new_new"])


def test_first_dimensions_meet_the_gallery_of_a_file_too(old_run, tmp_path):
    recipe, _ = with_vectors(old_run, tmp_path)
    old = replace(recipe.old, independent=str(old_run))
    longer = replace(recipe, model=longer_model(16), method=Choice("bt2"), old=old)
    list(train_run(longer, tmp_path / "new", device=CPU))
    vectors = nb.load_vectors(tmp_path / "new" / "validation.parquet")
    assert (vectors.dim, vectors.compatible_dim) == (40, 8)
