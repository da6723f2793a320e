"""Dimensions behind those of the old space: new vectors gain, old ones notice nothing."""

import json
from dataclasses import replace
from math import sqrt

import numpy as np
import pytest
import torch
from torch import nn

import nobackfill as nb
from nobackfill.errors import ConfigError, DataError, SpaceMismatch
from nobackfill.head import validation as heldout
from nobackfill.head.apply import load
from nobackfill.head.closed_form import moments
from nobackfill.head.examples import Examples
from nobackfill.head.fitting import choose_closed_form
from nobackfill.head.learn import SCALES, add_extra
from nobackfill.head.network import ExtraDims
from nobackfill.head.split import class_folds, tightness_of


def by_hand(extra, vector):
    """The formula, one number at a time."""
    length = sqrt(sum(x * x for x in vector))
    unit = [x / length for x in vector]
    rows, bias = extra.linear.weight.tolist(), extra.linear.bias.tolist()
    turned = [
        sum(w * x for w, x in zip(row, unit, strict=True)) + b
        for row, b in zip(rows, bias, strict=True)
    ]
    length = sqrt(sum(x * x for x in turned))
    return [extra.scale.item() * x / length for x in turned]


def test_it_is_its_formula():
    torch.manual_seed(0)
    extra, new = ExtraDims(5, 3).double(), torch.randn(6, 5).double()
    for parameter in (*extra.parameters(), extra.scale):
        nn.init.normal_(parameter)
    expected = [by_hand(extra, row) for row in new.tolist()]
    torch.testing.assert_close(extra(new), torch.tensor(expected, dtype=torch.float64))
    torch.testing.assert_close(extra(1000 * new), extra(new))


def test_its_directions_are_those_in_which_new_vectors_vary_most():
    new = torch.randn(60, 5, generator=torch.Generator().manual_seed(0)).double()
    new *= torch.tensor([1.0, 5.0, 0.1, 3.0, 2.0])
    new[:, 0] += 4
    extra = ExtraDims(5, 3).double()
    extra.start_from(moments([(new, new)]))
    unit = new / new.norm(dim=1, keepdim=True)
    left = (unit - unit.mean(dim=0)).numpy()
    _, size, right = np.linalg.svd(left)
    weight = extra.linear.weight.detach().numpy()
    np.testing.assert_allclose(np.abs(weight @ right[:3].T), np.eye(3), atol=1e-9)  # but for signs
    turned = extra.linear(unit).detach().numpy()
    np.testing.assert_allclose(turned, left @ weight.T, atol=1e-9)  # of what the mean leaves
    np.testing.assert_allclose((turned**2).sum(axis=0), size[:3] ** 2, atol=1e-9)


@pytest.fixture
def both(items, head):
    """A head without and one with extra dimensions, fitted on the same."""

    def make(*, extra=3, labels=True, hidden=16):
        data = items()
        told = data.labels if labels else None
        return data, *(
            head(extra=number, hidden=hidden).fit(data.new, data.old, told) for number in (0, extra)
        )

    return make


@pytest.mark.parametrize("hidden", [0, 16])
@pytest.mark.parametrize("extra", [1, 3, 8])
def test_against_old_vectors_nothing_changes(both, hidden, extra):
    data, plain, longer = both(extra=extra, hidden=hidden)
    out, expected = longer.transform(data.new), plain.transform(data.new)
    assert out.shape == (90, 6 + extra)
    assert torch.equal(out[:, :6], expected)
    assert replace(longer.progress_, stored={}) == replace(plain.progress_, stored={})
    for query, same, old in zip(out, expected, data.old, strict=True):
        stored = [*old.tolist(), *[0.0] * extra]  # as a gallery of that many dimensions has it
        dots = [
            sum(a * b for a, b in zip(one.tolist(), stored, strict=False)) for one in (query, same)
        ]
        assert dots[0] == dots[1]


def test_nothing_changes_either_where_the_method_is_chosen(items, head):
    data = items()
    plain, longer = (
        head("auto", extra=extra, old_query=False).fit(data.new, data.old, data.labels)
        for extra in (0, 3)
    )
    assert torch.equal(longer.transform(data.new)[:, :6], plain.transform(data.new))
    assert replace(longer.progress_, stored={}) == replace(plain.progress_, stored={})


def test_new_against_old_is_evaluated_alike(both):
    data, plain, longer = both()
    old = nb.Vectors(data.ids, data.old, data.labels.numpy())
    new = nb.Vectors(data.ids, data.new, data.labels.numpy())
    shorter, out = plain.transform(new), longer.transform(new)
    assert (shorter.compatible_dim, out.compatible_dim) == (None, 6)
    assert (out.dim, out.space) == (9, longer.space_)
    one, other = nb.evaluate(old, shorter), nb.evaluate(old, out)
    assert torch.equal(one.new_old.average_precision, other.new_old.average_precision)
    assert torch.equal(one.old_old.average_precision, other.old_old.average_precision)
    assert other.new_new.mean_average_precision > one.new_new.mean_average_precision


def test_likeness_in_the_new_space_is_added(both):
    data, plain, longer = both()
    out, short = longer.transform(data.new).double(), plain.transform(data.new).double()
    scale, behind = longer.network_.extra.scale.item(), out[:, 6:]
    torch.testing.assert_close(behind.norm(dim=1), torch.full((90,), scale).double())
    unit = behind / scale
    torch.testing.assert_close(out @ out.T, short @ short.T + scale**2 * unit @ unit.T)


def test_the_space_tells_of_them(both):
    _, plain, longer = both()
    assert (plain.space_.dim, plain.space_.normalized) == (6, True)
    assert (longer.space_.dim, longer.space_.normalized) == (9, False)
    assert longer.space_.fingerprint != plain.space_.fingerprint
    assert longer.space_.method == plain.space_.method


def new_new_by_hand(stored, classes):
    precisions = []
    for row, vector in enumerate(stored):
        others = [i for i in range(len(stored)) if i != row]
        score = nn.functional.cosine_similarity(vector[None], stored[others]).tolist()
        order = sorted(range(len(others)), key=lambda place: -score[place])
        hits = [bool(classes[others[place]] == classes[row]) for place in order]
        found = [sum(hits[: i + 1]) / (i + 1) for i, hit in enumerate(hits) if hit]
        precisions.append(sum(found) / len(found))
    return sum(precisions) / len(precisions)


def test_the_scale_is_the_best_on_held_out_classes(parts, network_for):
    examples, held_out = parts
    network = network_for(examples)
    choose_closed_form(network, *parts)
    mapped = heldout.embed_rows(network, held_out.new)
    found = add_extra(network, examples, held_out, extra=4)
    behind = network.extra(held_out.new).detach() / network.extra.scale
    expected = {
        scale: new_new_by_hand(torch.cat([mapped, scale * behind], dim=1), held_out.classes)
        for scale in SCALES
    }
    assert found == pytest.approx(expected, abs=1e-6)
    assert len(set(found.values())) > 1
    assert network.extra.scale.item() == pytest.approx(max(found, key=found.get))


@pytest.mark.parametrize("wanted", SCALES)
def test_the_best_scale_may_be_any_of_them(parts, network_for, in_place, wanted):
    told = iter([0.9 if scale == wanted else 0.1 for scale in SCALES])
    in_place("retrieval_map", lambda *given: next(told))
    network = network_for(parts[0])
    found = add_extra(network, *parts, extra=2)
    assert list(found) == list(SCALES)
    assert network.extra.scale.item() == pytest.approx(wanted)


def test_items_are_looked_at_some_at_a_time(parts, network_for, monkeypatch):
    networks = [network_for(parts[0]) for _ in range(2)]
    whole = add_extra(networks[0], *parts, extra=4)
    monkeypatch.setattr("nobackfill.head.examples.BLOCK", 7)
    assert add_extra(networks[1], *parts, extra=4) == pytest.approx(whole, abs=1e-6)
    one, other = (network.embed(parts[1].new).detach() for network in networks)
    torch.testing.assert_close(one @ one.T, other @ other.T)  # directions may turn round


def test_of_many_items_some_ask_all(parts, network_for, monkeypatch, in_place):
    monkeypatch.setattr(heldout, "QUERIES", 7)
    seen, kept = [], heldout.retrieval_map
    in_place("retrieval_map", lambda *given: seen.append(given) or kept(*given))
    add_extra(network_for(parts[0]), *parts, extra=2)
    assert len(seen) == len(SCALES)
    for query, gallery, places, _ in seen:
        assert len(gallery) == 30
        assert torch.equal(query, gallery[[i * 30 // 7 for i in range(7)]])
        assert places.tolist() == [i * 30 // 7 for i in range(7)]


def test_directions_come_from_what_is_fitted_on_alone(items, head):
    data = items()
    one = head(extra=3, epochs=0).fit(data.new, data.old, data.labels)
    tightness = tightness_of(data.old, data.labels)
    (chosen,) = class_folds(data.labels, 0.2, seed=0, tightness=tightness)
    rows = (~torch.isin(data.labels, chosen)).nonzero().flatten()
    known = moments(Examples(data.new, data.old[rows], None, rows=rows).blocks())
    expected = ExtraDims(8, 3)
    expected.start_from(known)
    assert torch.equal(one.network_.extra.linear.weight, expected.linear.weight)
    assert torch.equal(one.network_.extra.linear.bias, expected.linear.bias)


def test_without_held_out_classes_both_parts_count_alike(both):
    data, plain, longer = both(labels=False)
    assert longer.network_.extra.scale.item() == 1.0
    out = longer.transform(data.new)
    torch.testing.assert_close(out[:, 6:].norm(dim=1), torch.ones(90))
    assert torch.equal(out[:, :6], plain.transform(data.new))


@pytest.fixture(params=[0, 16], ids=["linear", "with a correction"])
def longer(request, both):
    data, _, made = both(hidden=request.param)
    return data, made


def test_what_was_saved_does_the_same(longer, tmp_path):
    data, made = longer
    made.save_pretrained(tmp_path)
    read = nb.CompatibleHead.from_pretrained(tmp_path)
    assert torch.equal(read.transform(data.new), made.transform(data.new))
    assert (read.space_, read.extra) == (made.space_, 3)
    known = nb.Vectors(data.ids, data.new)
    assert read.transform(known).compatible_dim == 6


def test_numpy_alone_does_the_same(longer, tmp_path, monkeypatch):
    data, made = longer
    made.save_pretrained(tmp_path)
    expected = made.transform(data.new).numpy()
    monkeypatch.setattr("nobackfill.head.apply.ROWS", 7)
    out = load(tmp_path)(1000 * data.new.numpy().astype(np.float64))
    assert out.dtype == np.float32
    np.testing.assert_allclose(out, expected, atol=1e-6)


def test_a_folder_whose_extra_dimensions_are_others_is_told(longer, tmp_path):
    _, made = longer
    made.save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, "extra": 2}))
    for read in (nb.CompatibleHead.from_pretrained, load):
        with pytest.raises(DataError, match="are of another head"):
            read(tmp_path)


def test_an_onnx_file_does_the_same(longer, tmp_path):
    pytest.importorskip("onnx")
    runtime = pytest.importorskip("onnxruntime")
    data, made = longer
    made.to_onnx(tmp_path / "head.onnx")
    session = runtime.InferenceSession(tmp_path / "head.onnx")
    assert session.get_outputs()[0].shape == ["rows", 9]
    for rows in (1, 90):
        new = data.new[:rows].numpy()
        (out,) = session.run(["compatible"], {"new": 100 * new})
        np.testing.assert_allclose(out, made.transform(new), atol=1e-5)


def test_sentence_transformers_cannot_make_them(longer, tmp_path):
    with pytest.raises(ConfigError, match="without extra dimensions.*extra=0.*to_onnx"):
        longer[1].to_sentence_transformers(tmp_path / "modules")
    assert not list(tmp_path.iterdir())


def test_there_are_at_most_as_many_as_new_dimensions(items, head):
    data = items()
    with pytest.raises(ConfigError, match="at most 8, .* but it is 9"):
        head(extra=9).fit(data.new, data.old, data.labels)
    with pytest.raises(ConfigError, match="`extra` must be 0 or more, but it is -1"):
        head(extra=-1).fit(data.new, data.old, data.labels)
    assert head(extra=8, epochs=0).fit(data.new, data.old, data.labels).space_.dim == 14


def test_another_fit_begins_anew(items, head):
    data = items()
    made = head(extra=3, epochs=1).fit(data.new, data.old, data.labels)
    first = made.transform(data.new)
    assert torch.equal(made.fit(data.new, data.old, data.labels).transform(data.new), first)
    made.set_params(extra=0)
    assert torch.equal(made.transform(data.new), first)  # until it is fitted again
    assert made.fit(data.new, data.old, data.labels).transform(data.new).shape == (90, 6)


def test_vectors_with_them_are_no_new_vectors(both):
    data, _, longer = both()
    with pytest.raises(SpaceMismatch, match="of 8 dimensions"):
        longer.transform(longer.transform(data.new))
