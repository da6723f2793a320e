"""Whole runs on images and texts."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file

import nobackfill as nb
from nobackfill.core.config import Choice, OldConfig, PairsConfig, Recipe, TrainConfig
from nobackfill.core.seeding import seeded
from nobackfill.data.captions import collect_captions
from nobackfill.data.registry import make_collection
from nobackfill.errors import ConfigError, DataError, OldSpaceError
from nobackfill.methods import METHODS
from nobackfill.methods.old_space import OldSpace
from nobackfill.models.embed import to_vectors
from nobackfill.training.embed import embed_collection
from nobackfill.training.old_model import check_old_model, initial_seed, prepare_old_space
from nobackfill.training.pipeline import train_run
from nobackfill.training.resolve import resolve
from nobackfill.training.run import Run
from nobackfill.vectors import Vectors

CPU = torch.device("cpu")
DATA = Choice(
    "glyphs",
    {"train_classes": 8, "test_classes": 4, "images_per_class": 4, "side": 16, "captions": 3},
)
MODEL = Choice("small", {"width": 2, "embedding_dim": 8})
OLD = Recipe(
    data=DATA,
    model=MODEL,
    text=Choice("words", {"buckets": 4096, "width": 8}),
    train=TrainConfig(step=0, epochs=1, batch_size=8, learning_rate=0.05, seed=7),
)
BOTH = PairsConfig(compatible="both")


def trained(folder, recipe):
    list(train_run(recipe, folder, device=CPU))
    return folder


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    return tmp_path_factory.mktemp("runs")


@pytest.fixture(scope="module")
def old_run(runs):
    return trained(runs / "old", OLD)


@pytest.fixture(scope="module")
def old_with_classifier(runs):
    return trained(runs / "classifier", replace(OLD, pairs=PairsConfig(classification=True)))


@pytest.fixture(scope="module")
def old_of_images(runs):
    return trained(runs / "images", replace(OLD, text=None))


def long_model(dim):
    return replace(MODEL, options={**MODEL.options, "embedding_dim": dim})


def new_recipe(old_run, name="ndpp", pairs=BOTH, **changes):
    return replace(
        OLD,
        method=Choice(name),
        pairs=pairs,
        old=OldConfig(run=str(old_run)),
        train=replace(OLD.train, step=-1, seed=1),
        **changes,
    )


def read(folder, name="evaluation.json"):
    return json.loads((folder / name).read_text())


@pytest.fixture(scope="module")
def new_run(old_run, runs):
    return trained(runs / "new", new_recipe(old_run))


# What a method is given of the old model


@pytest.fixture(scope="module")
def uneven():
    """The glyphs, of which one has one text, the next has two, then three."""
    drawn = make_collection(DATA)
    texts = [drawn.captions_of(torch.tensor([row])).texts for row in range(len(drawn.ids))]
    told = [some[: 1 + row % 3] for row, some in enumerate(texts)]
    return replace(drawn, captions=collect_captions(told, drawn.ids))


def old_vectors_by_hand(old_run, collection, rows):
    """The old vector of each image and of each text, by id, one at a time."""
    model, found = Run.open(old_run).model(CPU), {}
    with torch.no_grad():
        for row in rows.tolist():
            image = collection.ids[row]
            found[image] = model.image(collection.view(torch.tensor([row])))[0]
            for number, text in enumerate(collection.captions_of(torch.tensor([row])).texts):
                name = f"{image}#{number}"
                found[name] = model.text(model.prepare([text], [name]))[0]
    return found


def wanted_by_hand(old, compatible, towards):
    """For each item, images first, the old vector that the settings speak of."""

    def mean_of_texts(image):
        own = [v.double() for name, v in old.items() if name.startswith(f"{image}#")]
        mean = sum(v / v.norm() for v in own)
        return (mean / mean.norm()).float()

    images = [name for name in old if "#" not in name]
    texts = [name for name in old if "#" in name]
    found = {}
    for name in {"image": images, "text": texts, "both": images + texts}[compatible]:
        image, is_text = name.partition("#")[0], "#" in name
        if towards == "own":
            found[name] = old[name]
        elif towards == "image" or is_text:
            found[name] = old[image]
        else:
            found[name] = mean_of_texts(image)
    return found


def same_direction(one, other):
    """Embeddings are raw, and a mean of directions has none: cosines are what counts."""
    torch.testing.assert_close(
        F.normalize(one, dim=1), F.normalize(other, dim=1), atol=1e-5, rtol=0
    )


@pytest.mark.parametrize("source", ["run", "file"])
@pytest.mark.parametrize("towards", ["own", "image", "other"])
@pytest.mark.parametrize("compatible", ["image", "text", "both"])
def test_each_item_is_given_the_old_vector_that_the_settings_speak_of(
    old_run, uneven, tmp_path, compatible, towards, source
):
    pairs = PairsConfig(compatible=compatible, towards=towards)
    recipe = new_recipe(old_run, "prototype_mimic", pairs)
    if source == "file":
        vectors = embed_collection(old_run, old_run, split="train", device=CPU)
        vectors.select(np.arange(len(vectors))[::-1].copy()).save(tmp_path / "old.parquet")
        recipe = replace(recipe, old=OldConfig(vectors=str(tmp_path / "old.parquet")))
    known = prepare_old_space(resolve(recipe), uneven, device=CPU)
    rows = uneven.training_rows(-1)
    wanted = wanted_by_hand(old_vectors_by_hand(old_run, uneven, rows), compatible, towards)
    same_direction(known.embeddings, torch.stack(list(wanted.values())))
    label_of = dict(zip(uneven.ids, uneven.labels.tolist(), strict=True))
    labels = [label_of[name.partition("#")[0]] for name in wanted]
    assert known.labels.tolist() == labels
    for label in range(8):
        own = [
            F.normalize(v, dim=0)
            for v, y in zip(wanted.values(), labels, strict=True)
            if y == label
        ]
        prototype = F.normalize(sum(own), dim=0)
        torch.testing.assert_close(known.prototypes[label], prototype, atol=1e-5, rtol=0)


def test_a_file_that_lacks_a_text_says_which(old_run, tmp_path):
    vectors = embed_collection(old_run, old_run, split="train", device=CPU)
    vectors.select(np.arange(len(vectors) - 1)).save(tmp_path / "old.parquet")
    recipe = new_recipe(old_run, "mimic")
    recipe = replace(recipe, old=OldConfig(vectors=str(tmp_path / "old.parquet")))
    with pytest.raises(DataError, match=f"vectors of 1 of .* such as '{vectors.ids[-1]}'"):
        prepare_old_space(resolve(recipe), make_collection(DATA), device=CPU)


def test_the_independent_model_is_asked_for_the_same_items(old_run, new_run, uneven):
    recipe = new_recipe(old_run, "bt2", model=long_model(16))
    recipe = replace(recipe, old=replace(recipe.old, independent=str(new_run)))
    known = prepare_old_space(resolve(recipe), uneven, device=CPU)
    alone = old_vectors_by_hand(new_run, uneven, uneven.training_rows(-1))
    expected = list(wanted_by_hand(alone, "both", "own").values())
    torch.testing.assert_close(known.independent, torch.stack(expected), atol=1e-4, rtol=1e-4)


def test_an_old_model_that_reads_no_texts_is_refused_where_its_texts_are_wanted(
    old_of_images, tmp_path
):
    for pairs in (BOTH, PairsConfig("text"), PairsConfig("image", "other")):
        with pytest.raises(ConfigError, match="reads only images, not texts"):
            next(train_run(new_recipe(old_of_images, "ndpp", pairs), tmp_path / "new", device=CPU))


@pytest.mark.parametrize(
    "pairs", [PairsConfig("image"), PairsConfig("both", "image"), PairsConfig("text", "image")]
)
def test_an_old_model_that_reads_no_texts_is_known_by_its_images(old_of_images, uneven, pairs):
    known = prepare_old_space(
        resolve(new_recipe(old_of_images, "mimic", pairs)), uneven, device=CPU
    )
    rows = uneven.training_rows(-1)
    with torch.no_grad():
        images = Run.open(old_of_images).model(CPU)(uneven.view(rows))
    owner = torch.cat(
        [
            torch.arange(32) if one == "image" else uneven.captions_of(rows).images
            for one in pairs.modalities
        ]
    )
    torch.testing.assert_close(known.embeddings, images[owner])


NEED_A_CLASSIFIER = [name for name, method in METHODS.items() if "classifier" in method.needs]


@pytest.mark.parametrize("name", NEED_A_CLASSIFIER)
def test_a_classifier_that_learned_nothing_is_refused(old_run, old_with_classifier, name, tmp_path):
    assert NEED_A_CLASSIFIER
    with pytest.raises(OldSpaceError, match="without one. Train it with `classification = true`"):
        next(train_run(new_recipe(old_run, name), tmp_path / "new", device=CPU))
    known = prepare_old_space(
        resolve(new_recipe(old_with_classifier, name)), make_collection(DATA), device=CPU
    )
    kept = load_file(old_with_classifier / "model.safetensors")["method.classifier.weight"]
    assert torch.equal(known.classifier, kept)


def test_the_classifier_of_a_model_of_images_alone_is_taken(old_of_images):
    check_old_model(resolve(new_recipe(old_of_images, "bct", PairsConfig())))


@pytest.mark.parametrize("name", ["mimic", "ndpp"])
def test_texts_have_no_augmented_view_that_the_old_model_could_see(old_run, tmp_path, name):
    recipe = new_recipe(old_run, name)
    recipe = replace(recipe, train=replace(recipe.train, old_view="same"))
    with pytest.raises(ConfigError, match='`old_view = "same"` .* does not work with .text.'):
        next(train_run(recipe, tmp_path / "new", device=CPU))
    assert not (tmp_path / "new").exists()


# Training


def test_a_collection_without_texts_cannot_be_trained_on(tmp_path):
    plain = replace(DATA, options={**DATA.options, "captions": 0})
    with pytest.raises(DataError, match="the collection has none"):
        next(train_run(replace(OLD, data=plain), tmp_path / "run", device=CPU))


def weights(folder):
    return load_file(folder / "model.safetensors")


def same(one, other):
    return one.keys() == other.keys() and all(torch.equal(one[key], other[key]) for key in one)


@pytest.mark.parametrize("name", ["independent", "ndpp", "odpp", "janus"])
def test_a_resumed_run_equals_one_that_was_never_stopped(old_run, tmp_path, name):
    recipe = new_recipe(old_run, name)
    recipe = replace(recipe, train=replace(recipe.train, epochs=3))
    trained(tmp_path / "whole", recipe)
    epochs = train_run(recipe, tmp_path / "stopped", device=CPU)
    next(epochs)
    epochs.close()
    assert not (tmp_path / "stopped" / "model.safetensors").exists()
    rest = list(train_run(recipe, tmp_path / "stopped", device=CPU, resume=True))
    assert len(rest) == 2
    assert same(weights(tmp_path / "whole"), weights(tmp_path / "stopped"))
    for name in ("metrics.jsonl", "evaluation.json"):
        assert (tmp_path / "whole" / name).read_text() == (tmp_path / "stopped" / name).read_text()
    one, other = (
        nb.load_vectors(tmp_path / run / "validation.parquet") for run in ("whole", "stopped")
    )
    assert torch.equal(one.vectors, other.vectors)


def test_what_images_and_texts_have_in_common_is_learned(tmp_path):
    recipe = replace(OLD, train=replace(OLD.train, step=-1, epochs=8, optimizer="adam"))
    recipe = replace(recipe, train=replace(recipe.train, learning_rate=0.01))
    epochs = list(train_run(recipe, tmp_path / "run", device=CPU))
    terms = [epoch.terms["image_text"] for epoch in epochs]
    assert terms[-1] < 0.8 * terms[0]


@pytest.mark.parametrize("name", METHODS)
def test_every_method_trains_on_images_and_texts(
    old_run, old_with_classifier, new_run, tmp_path, name
):
    """To BT2 another run is the independent one; CoReS has an old model of its own."""
    method, old, model = METHODS[name], old_run, MODEL
    if "classifier" in method.needs:
        old = old_with_classifier
    if method.same_kind:
        model = long_model(7)  # one less than there are classes
        alone = replace(OLD, model=model, method=Choice(name), pairs=BOTH)
        old = trained(tmp_path / "old", alone)
    if "independent" in method.needs:
        model = long_model(16)
    recipe = new_recipe(old, name, model=model)
    if "independent" in method.needs:
        recipe = replace(recipe, old=replace(recipe.old, independent=str(new_run)))
    (epoch,) = train_run(recipe, tmp_path / "new", device=CPU)
    assert {"image_text"} < epoch.terms.keys()
    assert all(np.isfinite(value) for value in epoch.terms.values())
    assert epoch.terms["image_text"] > 0
    assert epoch.terms.get("classification", 0.0) == 0 or method.same_kind
    assert 0 < read(tmp_path / "new")["new_old"] <= 1


def test_whose_embeddings_are_compatible_and_with_what_makes_a_difference(old_run, tmp_path):
    settings = [
        PairsConfig(one, two) for one in ("image", "text", "both") for two in ("own", "other")
    ]
    found = []
    for number, pairs in enumerate(settings):
        folder = trained(tmp_path / str(number), new_recipe(old_run, "mimic", pairs))
        found.append(weights(folder)["model.image.projection.weight"])
    for number, one in enumerate(found):
        assert not any(torch.equal(one, other) for other in found[:number])


def test_without_classification_the_classifier_stays_as_it_began(old_run, old_with_classifier):
    num_classes = make_collection(DATA).class_counts[0]
    with seeded(initial_seed(OLD, None) + 1):
        first = METHODS["independent"](OldSpace(), num_classes, dim=8).classifier.weight
    assert torch.equal(Run.open(old_run).classifier(), first)
    assert not torch.equal(Run.open(old_with_classifier).classifier(), first)
    for folder, learns in ((old_run, False), (old_with_classifier, True)):
        terms = read(folder, "metrics.jsonl")["terms"]
        assert (terms["classification"] > 0) == learns
        assert Run.open(folder).has_classifier == learns


def test_the_temperature_and_the_weight_of_the_recipe_are_those_of_the_contrast(tmp_path):
    def first_batch(**settings):
        recipe = replace(OLD, pairs=PairsConfig(**settings))
        still = replace(recipe, train=replace(recipe.train, learning_rate=0.0))
        name = "-".join(map(str, settings.values())) or "plain"
        (epoch,) = train_run(still, tmp_path / name, device=CPU)
        return epoch.terms["image_text"]

    assert first_batch(weight=3.0) == pytest.approx(3 * first_batch(), rel=1e-5)
    assert first_batch(temperature=10.0) == pytest.approx(np.log(8), abs=0.2)  # of a batch of 8


# What a run leaves


def test_vectors_are_those_of_images_then_of_texts_and_say_which(new_run):
    vectors, collection = nb.load_vectors(new_run / "validation.parquet"), make_collection(DATA)
    rows = collection.validation_rows()
    by_hand = old_vectors_by_hand(new_run, collection, rows)
    names = sorted(by_hand, key=lambda name: "#" in name)  # stable: images, then texts
    assert vectors.ids.tolist() == names
    same_direction(vectors.vectors, torch.stack([by_hand[name] for name in names]))
    kinds = ["text" if "#" in name else "image" for name in names]
    assert vectors.columns["modality"].tolist() == kinds
    row_of = {name: row for row, name in enumerate(collection.ids)}
    own = [row_of[name.partition("#")[0]] for name in names]
    assert vectors.labels.tolist() == collection.labels[own].tolist()
    assert vectors.columns["family"].tolist() == collection.columns["family"][own].tolist()
    assert set(vectors.columns) == {"split", "family", "modality"}  # who asks is not told


def test_vectors_of_images_alone_are_told_of_as_before(old_of_images):
    vectors = nb.load_vectors(old_of_images / "validation.parquet")
    assert set(vectors.columns) == {"split", "family", "is_query", "is_gallery"}


def test_texts_alone_can_be_put_beside_their_ids(uneven):
    rows = torch.tensor([2, 0])
    vectors = to_vectors(torch.eye(4), uneven, rows, modalities=("text",))
    images = [uneven.ids[2]] * 3 + [uneven.ids[0]]
    assert vectors.ids.tolist() == [
        f"{one}#{n}" for one, n in zip(images, [0, 1, 2, 0], strict=True)
    ]
    assert vectors.columns["modality"].tolist() == ["text"] * 4
    assert vectors.labels.tolist() == uneven.labels[[2, 2, 2, 0]].tolist()


def test_the_space_of_the_old_texts_and_images_is_the_parent(old_run, new_run, old_of_images):
    old, new, of_images = (
        nb.load_vectors(run / "validation.parquet").space
        for run in (old_run, new_run, old_of_images)
    )
    assert new.parent == old.fingerprint
    assert "texts: words" in old.preprocessing
    assert "texts" not in of_images.preprocessing


def mean_average_precision_by_hand(queries, gallery, query_labels, gallery_labels):
    """One query and one rank at a time; of two that are nearly alike, either may come first."""
    total = 0.0
    for q, label in zip(queries.double(), query_labels, strict=True):
        cosines = [float(q @ g / (q.norm() * g.norm())) for g in gallery.double()]
        order = sorted(range(len(cosines)), key=lambda j: -cosines[j])
        hits, precision = 0, 0.0
        for rank, j in enumerate(order, start=1):
            if gallery_labels[j] == label:
                hits += 1
                precision += hits / rank
        total += precision / hits
    return total / len(queries)


def test_from_texts_to_images_stands_at_the_top_and_other_directions_below(old_run, new_run):
    found = read(new_run)
    assert set(found["tests"]) == {"image_to_text", "image_to_image", "text_to_text"}
    vectors = {
        name: nb.load_vectors(run / "validation.parquet")
        for name, run in (("old", old_run), ("new", new_run))
    }

    def side(name, modality):
        is_one = vectors[name].columns["modality"] == modality
        return vectors[name].vectors[is_one], vectors[name].labels[is_one].tolist()

    for summary, asks, searched in (
        (found, "text", "image"),
        (found["tests"]["image_to_text"], "image", "text"),
    ):
        for query in ("old", "new"):
            for gallery in ("old", "new"):
                (q, q_labels), (g, g_labels) = side(query, asks), side(gallery, searched)
                by_hand = mean_average_precision_by_hand(q, g, q_labels, g_labels)
                assert summary[f"{query}_{gallery}"] == pytest.approx(by_hand, abs=5e-4)
        assert summary["num_queries"] == len(side("new", asks)[0])
        assert summary["num_gallery"] == len(side("new", searched)[0])
    assert {"verdict", "compatible", "metrics", "recall_at_1"} <= found.keys()


def test_the_gap_between_images_and_texts_is_told(old_run, new_run):
    def centroid(run, modality):
        vectors = nb.load_vectors(run / "validation.parquet")
        own = vectors.vectors[vectors.columns["modality"] == modality].double()
        return sum(v / v.norm() for v in own) / len(own)

    gaps = {
        "old": centroid(old_run, "image") - centroid(old_run, "text"),
        "new": centroid(new_run, "image") - centroid(new_run, "text"),
        "new_text_old_image": centroid(new_run, "text") - centroid(old_run, "image"),
        "new_image_old_text": centroid(new_run, "image") - centroid(old_run, "text"),
    }
    found = read(new_run)["modality_gap"]
    assert found == pytest.approx({name: gap.norm().item() for name, gap in gaps.items()})


def test_queries_that_are_mapped_are_mapped_in_both_modalities(old_run, tmp_path):
    """The new embedding is longer; mapped, texts and images are in the old dimension."""
    run = trained(tmp_path / "janus", new_recipe(old_run, "janus", model=long_model(12)))
    query, gallery = (
        nb.load_vectors(run / f"{name}.parquet") for name in ("validation_query", "validation")
    )
    assert (query.dim, gallery.dim) == (8, 12)
    for column in ("ids", "labels"):
        assert getattr(query, column).tolist() == getattr(gallery, column).tolist()
    for kind in (query, gallery):
        assert kind.columns["modality"].tolist() == ["image"] * 32 + ["text"] * 96
    with torch.no_grad():
        mapped = Run.open(run).sides().query.eval()(gallery.vectors.float())
    torch.testing.assert_close(query.vectors, mapped, atol=1e-5, rtol=1e-4)
    old = nb.load_vectors(old_run / "validation.parquet")
    texts, images = query.vectors[32:], old.vectors[:32]
    by_hand = mean_average_precision_by_hand(
        texts, images, query.labels[32:].tolist(), old.labels[:32].tolist()
    )
    found = read(run)
    assert found["new_old"] == pytest.approx(by_hand, abs=5e-4)
    assert found["old_new"] is None  # of other dimensions


def test_other_tests_have_their_directions_too_and_those_without_texts_none(old_run, tmp_path):
    more = replace(DATA, options={**DATA.options, "seed": 5})
    plain = replace(DATA, options={**DATA.options, "captions": 0})
    recipe = replace(new_recipe(old_run), tests={"more": more, "plain": plain})
    run = trained(tmp_path / "new", recipe)
    assert {path.name for path in run.glob("*.parquet")} == {
        "validation.parquet",
        "test_more.parquet",
    }
    found = read(run)
    kinds = ("text_to_image", "image_to_text", "image_to_image", "text_to_text")
    assert set(found["tests"]) == {*kinds[1:], *(f"more_{kind}" for kind in kinds)}
    assert set(found["modality_gap"]) == {"data", "more"}


def test_a_finished_run_is_opened_again_and_embeds_as_it_did(new_run):
    again = embed_collection(new_run, new_run, split="validation", device=CPU)
    kept = nb.load_vectors(new_run / "validation.parquet")
    assert again.ids.tolist() == kept.ids.tolist()
    torch.testing.assert_close(again.vectors, kept.vectors)
    assert again.space == kept.space
    assert Run.open(new_run).modalities == ("image", "text")


def test_texts_that_another_model_has_embedded_are_projected(tmp_path):
    """Once trained, its images are embedded without the file of the texts' vectors."""
    collection = make_collection(DATA)
    features = torch.randn(
        len(collection.captions.ids), 5, generator=torch.Generator().manual_seed(0)
    )
    path = tmp_path / "texts.safetensors"
    Vectors(collection.captions.ids, features).save(path)
    recipe = replace(OLD, text=Choice("vectors", {"path": str(path)}))
    run = Run.open(trained(tmp_path / "run", recipe))
    kept = nb.load_vectors(tmp_path / "run" / "validation.parquet")
    rows = collection.validation_rows()
    places = [collection.captions.ids.index(one) for one in collection.ids_of(rows, "text")]
    with torch.no_grad():
        texts = run.model(CPU).text(features[places])
    torch.testing.assert_close(kept.vectors[kept.columns["modality"] == "text"], texts)
    path.unlink()
    images = Run.open(tmp_path / "run").embed(collection, rows, device=CPU)
    torch.testing.assert_close(kept.vectors[kept.columns["modality"] == "image"], images)
