"""What a head would have stored when items are embedded again."""

import json

import numpy as np
import pytest
import torch

import nobackfill as nb
from nobackfill.errors import ConfigError, DataError, SpaceMismatch
from nobackfill.head.examples import Examples
from nobackfill.head.fitting import choose_closed_form
from nobackfill.head.validation import compare_stored
from nobackfill.vectors.space import Space


def own_map(vectors, labels):
    """What vectors find among themselves, one query at a time."""
    unit = torch.nn.functional.normalize(vectors.double(), dim=1)
    total = []
    for i in range(len(unit)):
        order = [j for j in (unit @ unit[i]).argsort(descending=True).tolist() if j != i]
        hits, found = 0, []
        for rank, j in enumerate(order, start=1):
            if labels[j] == labels[i]:
                hits += 1
                found.append(hits / rank)
        total.append(sum(found) / len(found))
    return sum(total) / len(total)


@pytest.fixture
def mapping(parts, network_for):
    """A network that begins with a closed form."""
    network = network_for(parts[0])
    choose_closed_form(network, *parts)
    return network


def test_both_are_searched_among_their_own_kind(parts, mapping):
    held_out = parts[1]
    found = compare_stored(mapping, held_out)
    with torch.no_grad():
        mapped = mapping.eval().embed(held_out.new)
    assert found == {
        "mapped": pytest.approx(own_map(mapped, held_out.classes), abs=1e-6),
        "as they are": pytest.approx(own_map(held_out.new, held_out.classes), abs=1e-6),
    }
    assert found["mapped"] != found["as they are"]


def test_rows_of_a_larger_file_are_the_held_out_ones(parts, mapping):
    held_out = parts[1]
    filled = torch.cat([torch.randn(7, held_out.new.shape[1]), held_out.new])
    rows = torch.arange(7, 7 + len(held_out))
    inside = Examples(filled, held_out.old, held_out.classes, rows=rows)
    assert compare_stored(mapping, inside) == compare_stored(mapping, held_out)


def test_length_plays_no_part(parts, mapping):
    held_out = parts[1]
    scale = torch.linspace(0.1, 9, len(held_out))[:, None]
    longer = Examples(held_out.new * scale, held_out.old, held_out.classes)
    stored = compare_stored(mapping, longer)["as they are"]
    assert stored == pytest.approx(compare_stored(mapping, held_out)["as they are"])


@pytest.mark.parametrize("better", ["mapped", "as they are"])
def test_the_better_of_the_two_is_stored(fitted, items, better):
    data = items()
    fitted.progress_.stored = {"mapped": 0.5, "as they are": 0.5, better: 0.6}
    assert fitted.stores == better
    stored = fitted.transform(data.new, side="gallery")
    assert torch.equal(stored, data.new if better == "as they are" else fitted.transform(data.new))
    assert stored.shape[1] == (8 if better == "as they are" else 6)


def test_equal_ones_are_mapped_as_old_ones_may_stay_beside_them(fitted):
    fitted.progress_.stored = {"mapped": 0.5, "as they are": 0.5}
    assert fitted.stores == "mapped"


def test_a_fit_compares_what_it_held_out(items, head):
    data = items()
    noise = 6 * torch.randn(data.new.shape, generator=torch.Generator().manual_seed(5))
    for new, old, stores in (
        (data.new, data.old, "as they are"),  # good new vectors, an old space with noise
        (torch.cat([data.new, noise], dim=1), data.new, "mapped"),  # good ones beside noise
    ):
        done = head().fit(new, old, data.labels)
        assert done.stores == stores
        assert set(done.progress_.stored) == {"mapped", "as they are"}
        assert done.progress_.stored[stores] == max(done.progress_.stored.values())


def test_queries_are_mapped_whatever_is_stored(fitted, items):
    data = items()
    fitted.progress_.stored = {"mapped": 0.9, "as they are": 0.1}
    mapped = fitted.transform(data.new)
    assert mapped.shape == (90, 6)
    fitted.progress_.stored = {"mapped": 0.1, "as they are": 0.9}
    assert torch.equal(fitted.transform(data.new), mapped)
    assert torch.equal(fitted.transform(data.new, side="query"), mapped)


@pytest.mark.parametrize("stores", ["mapped", "as they are"])
def test_what_is_stored_is_of_the_kind_that_came_in(fitted, items, stores):
    data = items()
    fitted.progress_.stored = {stores: 0.9}
    vectors = nb.Vectors(data.ids, data.new, data.labels.numpy())
    stored = fitted.transform(vectors, side="gallery")
    assert isinstance(stored, nb.Vectors)
    assert stored.ids.tolist() == data.ids.tolist()
    assert stored.space == (None if stores == "as they are" else fitted.space_)
    assert isinstance(fitted.transform(data.new.numpy(), side="gallery"), np.ndarray)


def test_without_held_out_classes_vectors_are_mapped(items, head):
    data = items()
    done = head().fit(data.new, data.old)  # in closed form
    assert done.progress_.stored == {}
    assert done.stores == "mapped"
    assert done.transform(data.new, side="gallery").shape == (90, 6)


def test_a_saved_head_stores_the_same(fitted, tmp_path):
    fitted.progress_.stored = {"mapped": 0.25, "as they are": 0.75}
    fitted.save_pretrained(tmp_path / "head")
    read = nb.CompatibleHead.from_pretrained(tmp_path / "head")
    assert read.progress_.stored == fitted.progress_.stored
    assert read.stores == "as they are"


def test_a_head_of_an_older_file_maps(fitted, tmp_path):
    fitted.save_pretrained(tmp_path / "head")
    path = tmp_path / "head" / "config.json"
    config = json.loads(path.read_text())
    del config["progress"]["stored"]
    path.write_text(json.dumps(config))
    assert nb.CompatibleHead.from_pretrained(tmp_path / "head").stores == "mapped"


def test_what_cannot_be_mapped_cannot_be_stored_as_it_is_either(fitted, items):
    data = items()
    fitted.progress_.stored = {"as they are": 0.9}
    with pytest.raises(SpaceMismatch, match="8 dimensions"):
        fitted.transform(data.new[:, :7], side="gallery")
    fitted.source_ = "some space"
    space = Space(dim=8, weights="w", preprocessing="p")
    vectors = nb.Vectors(data.ids, data.new, data.labels.numpy(), space=space)
    with pytest.raises(SpaceMismatch, match="another|these are of"):
        fitted.transform(vectors, side="gallery")


def test_wrong_sides_and_heads_that_are_not_fitted_are_told(fitted, items):
    with pytest.raises(ConfigError, match="unknown side `galery`. Did you mean `gallery`"):
        fitted.transform(items().new, side="galery")
    with pytest.raises(DataError, match="Call `fit` first"):
        _ = nb.CompatibleHead().stores


def test_extra_dimensions_count_for_what_is_mapped(items, head):
    data = items()
    plain = head(seed=0).fit(data.new, data.old, data.labels)
    longer = head(seed=0, extra=4).fit(data.new, data.old, data.labels)
    assert longer.progress_.stored["mapped"] != plain.progress_.stored["mapped"]
    assert longer.progress_.stored["as they are"] == plain.progress_.stored["as they are"]
