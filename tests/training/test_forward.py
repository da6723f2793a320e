from dataclasses import replace

import pytest
import torch

from nobackfill.core.config import Choice, PairsConfig, TrainConfig
from nobackfill.data.captions import collect_captions
from nobackfill.data.loader import Batch
from nobackfill.data.registry import make_collection
from nobackfill.errors import DataError
from nobackfill.methods import METHODS
from nobackfill.methods.losses import pair_contrast
from nobackfill.methods.old_space import OldSpace
from nobackfill.methods.prototypes import class_means
from nobackfill.models import make_dual, make_model
from nobackfill.models.embed import embed
from nobackfill.training.forward import ForwardPass, ImageTextForwardPass
from nobackfill.training.loop import train
from nobackfill.training.new_prototypes import RunningMeans

DATA = Choice(
    "glyphs",
    {"train_classes": 8, "test_classes": 4, "images_per_class": 4, "side": 16, "captions": 4},
)
MODEL = Choice("small", {"width": 2, "embedding_dim": 8})
TEXT = Choice("words", {"buckets": 256, "width": 8})
ROWS = torch.tensor([9, 3, 20, 31, 4, 0, 27])  # in no order
BATCH = [5, 0, 2, 2, 6]  # places among them
each_side = pytest.mark.parametrize("compatible", ["image", "text", "both"])


@pytest.fixture(scope="module")
def collection():
    """Glyphs of which one has one text, the next has two, then three, then four."""
    drawn = make_collection(DATA)
    texts = [drawn.captions_of(torch.tensor([row])).texts for row in range(len(drawn.ids))]
    uneven = [some[: 1 + row % 4] for row, some in enumerate(texts)]
    return replace(drawn, captions=collect_captions(uneven, drawn.ids))


def dual():
    return make_dual(MODEL, TEXT, seed=0)


def both(collection, compatible="both", model=None, **settings):
    config = PairsConfig(compatible=compatible, **settings)
    return ImageTextForwardPass.of(collection, ROWS, model or dual(), config)


def batch_of(collection):
    items = torch.tensor(BATCH)
    return Batch(collection.view(ROWS[items]), collection.labels[ROWS[items]], items)


def chance(seed=5):
    return torch.Generator().manual_seed(seed)


def all_ids(collection, compatible):
    """The ids of all items, in the order of the old vectors."""
    return [
        one
        for modality in PairsConfig(compatible=compatible).modalities
        for one in collection.ids_of(ROWS, modality)
    ]


def embedded_by_hand(model, collection, item):
    """The embedding of one item, image or text, whose id is given."""
    image, _, number = item.partition("#")
    row = collection.ids.index(image)
    with torch.no_grad():
        if number == "":
            return model.image(collection.view(torch.tensor([row])))[0]
        text = collection.captions_of(torch.tensor([row])).texts[int(number)]
        return model.text(model.prepare([text], [item]))[0]


def label_of(collection, item):
    return int(collection.labels[collection.ids.index(item.split("#")[0])])


# Images alone


def test_of_images_alone_a_method_is_shown_what_the_model_makes_of_the_batch(collection):
    model, forward_pass = make_model(MODEL, seed=0).eval(), ForwardPass(collection, ROWS)
    batch = batch_of(collection)
    seen = forward_pass.run(model, batch, chance())
    assert torch.equal(seen.new, model(batch.images))
    assert torch.equal(seen.labels, batch.labels)
    assert torch.equal(seen.items, batch.items)
    assert seen.terms == {}


def test_of_images_alone_items_are_the_images(collection):
    model, forward_pass = make_model(MODEL, seed=0), ForwardPass(collection, ROWS)
    assert torch.equal(forward_pass.labels(), collection.labels[ROWS])
    assert torch.equal(forward_pass.embed(model), embed(model, collection, ROWS))
    parts = [
        (forward_pass.labels((part, 3)), forward_pass.embed(model, part=(part, 3)))
        for part in range(3)
    ]
    assert torch.equal(torch.cat([labels for labels, _ in parts]), forward_pass.labels())
    torch.testing.assert_close(torch.cat([new for _, new in parts]), forward_pass.embed(model))


def test_both_are_a_sight(collection):
    for one in (ForwardPass(collection, ROWS), both(collection)):
        assert isinstance(one, ForwardPass)


# What a method is shown of images and texts


@each_side
def test_a_method_is_shown_embeddings_labels_and_items_that_belong_together(collection, compatible):
    """Of each item its id tells which image or text it is; the rest is made of that by hand."""
    model = dual().eval()
    seen = both(collection, compatible, model).run(model, batch_of(collection), chance())
    ids = all_ids(collection, compatible)
    shown = [ids[item] for item in seen.items.tolist()]
    for new, label, item in zip(seen.new, seen.labels.tolist(), shown, strict=True):
        torch.testing.assert_close(new, embedded_by_hand(model, collection, item))
        assert label == label_of(collection, item)


@each_side
def test_a_method_is_shown_the_images_of_the_batch_then_one_text_of_each(collection, compatible):
    model = dual().eval()
    seen = both(collection, compatible, model).run(model, batch_of(collection), chance())
    ids = all_ids(collection, compatible)
    shown = [ids[item] for item in seen.items.tolist()]
    images = [collection.ids[row] for row in ROWS[BATCH].tolist()]
    drawn = torch.rand(len(BATCH), generator=chance()).tolist()
    texts = [
        f"{image}#{int(lot * len(collection.captions_of(torch.tensor([row])).texts))}"
        for image, row, lot in zip(images, ROWS[BATCH].tolist(), drawn, strict=True)
    ]
    assert shown == {"image": images, "text": texts, "both": images + texts}[compatible]


@each_side
def test_an_epoch_shows_each_image_once_or_once_with_each_of_its_texts(collection, compatible):
    model = dual().eval()
    one, each = (both(collection, compatible, model, texts=texts) for texts in ("one", "each"))
    assert torch.equal(one.shown, ROWS)
    texts = collection.ids_of(ROWS, "text")
    assert [collection.ids[row] for row in each.shown.tolist()] == [
        text.partition("#")[0] for text in texts
    ]

    places = torch.tensor([4, 0, 9, 3])  # among the texts
    rows = each.shown[places]
    batch = Batch(collection.view(rows), collection.labels[rows], places)
    seen, ids = each.run(model, batch, chance()), all_ids(collection, compatible)
    wanted = [texts[place] for place in places.tolist()]
    images = [text.partition("#")[0] for text in wanted]
    items = {"image": images, "text": wanted, "both": images + wanted}[compatible]
    assert [ids[item] for item in seen.items.tolist()] == items
    for new, label, item in zip(seen.new, seen.labels.tolist(), items, strict=True):
        torch.testing.assert_close(new, embedded_by_hand(model, collection, item))
        assert label == label_of(collection, item)


@pytest.mark.parametrize("texts", ["one", "each"])
def test_the_loop_shows_what_the_forward_pass_names(collection, texts, monkeypatch):
    model, shown = dual(), []
    forward_pass = both(collection, "image", model, texts=texts)
    run = ImageTextForwardPass.run

    def remember(self, model, batch, generator):
        shown.extend(batch.items.tolist())
        return run(self, model, batch, generator)

    monkeypatch.setattr(ImageTextForwardPass, "run", remember)
    method = METHODS["independent"](OldSpace(), 8, dim=8)
    config = TrainConfig(epochs=2, batch_size=4, learning_rate=0.01)
    list(train(model, method, collection, ROWS, config, forward_pass=forward_pass))
    items = len(ROWS) if texts == "one" else len(collection.captions_of(ROWS).texts)
    assert sorted(shown) == sorted([*range(items), *range(items)])


@each_side
def test_the_contrast_is_of_images_and_texts_whatever_the_method_is_shown(collection, compatible):
    model = dual().eval()
    settings = {"temperature": 0.3, "weight": 2.5}
    batch = batch_of(collection)
    seen = both(collection, compatible, model, **settings).run(model, batch, chance())
    assert list(seen.terms) == ["image_text"]
    shown = both(collection, "both", model).run(model, batch, chance())
    image, text = shown.new.tensor_split(2)
    by_hand = 2.5 * pair_contrast(image, text, batch.labels, temperature=0.3)
    torch.testing.assert_close(seen.terms["image_text"], by_hand)
    model.zero_grad()
    seen.terms["image_text"].backward()
    for side in (model.image, model.text):
        assert all(one.grad is not None and one.grad.any() for one in side.parameters())


def test_without_weight_the_contrast_moves_nothing(collection):
    model = dual()
    seen = both(collection, "both", model, weight=0.0).run(model, batch_of(collection), chance())
    seen.terms["image_text"].backward()
    assert not any(one.grad.any() for one in model.parameters())


def test_the_same_generator_draws_the_same_texts_and_another_does_not(collection):
    model, batch = dual().eval(), batch_of(collection)
    forward_pass = both(collection, "text", model)
    first, again, other = (forward_pass.run(model, batch, chance(seed)) for seed in (5, 5, 6))
    assert torch.equal(first.items, again.items)
    assert torch.equal(first.new, again.new)
    assert not torch.equal(first.items, other.items)
    going_on = chance(5)
    items = [forward_pass.run(model, batch, going_on).items for _ in range(200)]
    assert torch.equal(items[0], first.items)
    by_image = torch.stack(items).unbind(dim=1)
    counts = [int(forward_pass.captions.count[place]) for place in BATCH]
    assert [len(drawn.unique()) for drawn in by_image] == counts  # each of its texts comes up


# Which items there are


@each_side
def test_labels_are_those_of_the_old_vectors_in_their_order(collection, compatible):
    ids = all_ids(collection, compatible)
    expected = [label_of(collection, item) for item in ids]
    assert both(collection, compatible).labels().tolist() == expected


@each_side
def test_embeddings_are_those_of_each_item_by_itself_in_their_order(collection, compatible):
    model = dual()
    model(collection.view(ROWS), model.prepare(["a line", "a mark"], ["x", "y"]))  # statistics
    found = both(collection, compatible, model).embed(model)
    assert model.training  # as it was
    assert all(one.training for one in model.modules())
    model.eval()
    by_hand = [embedded_by_hand(model, collection, one) for one in all_ids(collection, compatible)]
    torch.testing.assert_close(found, torch.stack(by_hand))
    assert not found.requires_grad


@each_side
@pytest.mark.parametrize("processes", [2, 3, 5])
def test_the_parts_of_all_processes_are_all_items_with_their_labels(
    collection, compatible, processes
):
    """Their order is another where there are images and texts: each part has some of both."""
    model = dual().eval()
    forward_pass = both(collection, compatible, model)
    parts = [(part, processes) for part in range(processes)]
    pairs = [
        (label, tuple(new.mul(1e4).round().tolist()))
        for part in parts
        for label, new in zip(
            forward_pass.labels(part).tolist(), forward_pass.embed(model, part=part), strict=True
        )
    ]
    whole = [
        (label, tuple(new.mul(1e4).round().tolist()))
        for label, new in zip(
            forward_pass.labels().tolist(), forward_pass.embed(model), strict=True
        )
    ]
    assert sorted(pairs) == sorted(whole)
    sizes = [len(forward_pass.labels(part)) for part in parts]
    assert max(sizes) - min(sizes) <= len(PairsConfig(compatible=compatible).modalities)


def test_an_image_without_a_text_is_refused_before_training(collection):
    told = [[] if row == 3 else ["a line"] for row in range(len(collection.ids))]
    silent = replace(collection, captions=collect_captions(told, collection.ids))
    with pytest.raises(DataError, match=f"1 of 7 have none; the first is '{collection.ids[3]}'"):
        both(silent)


# In the loop

CONFIG = TrainConfig(epochs=2, batch_size=4, learning_rate=0.05)


class Spy(METHODS["independent"]):
    """Remembers what it is given."""

    def __init__(self):
        super().__init__(OldSpace(), 8, dim=8)
        self.given, self.batches = [], []

    def start_epoch(self, epoch, epochs, *, new_prototypes, new_embeddings):
        self.given.append((new_prototypes(), new_embeddings()))
        self.batches.append([])

    def forward(self, new, labels, *, items=None, old=None):
        self.batches[-1].append((new.detach(), labels, items))
        return super().forward(new, labels, items=items)


def spied(collection, compatible="both", **options):
    rows, model, method = collection.training_rows(-1), dual(), Spy()
    forward_pass = ImageTextForwardPass.of(
        collection, rows, model, PairsConfig(compatible=compatible)
    )
    epochs = list(
        train(model, method, collection, rows, CONFIG, forward_pass=forward_pass, **options)
    )
    return method, epochs, rows


@each_side
def test_new_prototypes_and_embeddings_are_those_of_all_items(collection, compatible):
    method, _, rows = spied(collection, compatible)
    prototypes, embeddings = method.given[0]
    fresh = dual()
    forward_pass = ImageTextForwardPass.of(
        collection, rows, fresh, PairsConfig(compatible=compatible)
    )
    torch.testing.assert_close(embeddings, forward_pass.embed(fresh))
    torch.testing.assert_close(prototypes, class_means(embeddings, forward_pass.labels(), 8))


def test_running_prototypes_are_of_the_images_and_texts_that_were_shown(collection):
    method, _, _ = spied(collection, running_means=RunningMeans(8, 8))
    new, labels, _ = (torch.cat(parts) for parts in zip(*method.batches[0], strict=True))
    assert len(new) == 2 * 32
    torch.testing.assert_close(method.given[1][0], class_means(new, labels, 8))


def test_each_epoch_shows_every_image_with_one_of_its_texts_and_draws_anew(collection):
    method, epochs, rows = spied(collection)
    owner = torch.cat([torch.arange(32), collection.captions_of(rows).images])
    drawn = []
    for batches in method.batches:
        for _, labels, items in batches:
            pairs = items.tensor_split(2)
            assert torch.equal(owner[pairs[1]], pairs[0])
            assert torch.equal(labels, collection.labels[rows][owner[items]])
        items = torch.cat([items for _, _, items in batches])
        assert torch.equal(items[items < 32].sort().values, torch.arange(32))
        drawn.append(items[items >= 32].sort().values)
    assert not torch.equal(*drawn)
    assert [list(epoch.terms) for epoch in epochs] == [["image_text", "classification"]] * 2


def test_chances_are_those_of_the_epoch_and_not_those_of_the_order(collection):
    """A run that is resumed draws as one that was never stopped, and no epoch as another."""

    class Watched(ImageTextForwardPass):
        def run(self, model, batch, generator):
            seeds.append(generator.initial_seed())
            return super().run(model, batch, generator)

    def drawn(start, config=CONFIG):
        seeds.clear()
        rows, model = collection.training_rows(-1), dual()
        forward_pass = Watched.of(collection, rows, model, PairsConfig())
        list(train(model, Spy(), collection, rows, config, forward_pass=forward_pass, start=start))
        return list(dict.fromkeys(seeds))

    seeds = []
    whole = drawn(0)
    assert len(whole) == 2
    assert drawn(1) == whole[1:]
    others = drawn(0, replace(CONFIG, seed=1))
    orders = [seed * 100_003 + epoch for seed in (0, 1) for epoch in (0, 1)]
    assert len({*whole, *others, *orders}) == 8


def test_which_text_is_drawn_does_not_change_the_order_or_the_views_of_the_images(collection):
    def watch(batches):
        for batch in batches:
            seen.append(batch.images)
            yield batch

    seen = []
    spied(collection, "image", watch=watch)
    with_texts, rows = seen, collection.training_rows(-1)
    seen = []
    list(train(make_model(MODEL, seed=0), Spy(), collection, rows, CONFIG, watch=watch))
    assert len(seen) == len(with_texts)
    assert all(torch.equal(*pair) for pair in zip(seen, with_texts, strict=True))
