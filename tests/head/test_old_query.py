"""Queries of both models: what is added, how the weight is chosen, and where it must be passed."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import nobackfill as nb
from nobackfill.errors import ConfigError, DataError, SpaceMismatch
from nobackfill.head import apply
from nobackfill.head.examples import Examples
from nobackfill.head.old_query import WEIGHTS, add_old, best_weight, weigh_old
from nobackfill.head.split import class_folds, tightness_of


@pytest.fixture
def both(items, head):
    data = items()
    return data, head(old_query=True).fit(data.new, data.old, data.labels)


def by_loops(mapped, old, weight):
    rows = []
    for m, o in zip(mapped.double().tolist(), old.double().tolist(), strict=True):
        m = [x / sum(y * y for y in m) ** 0.5 for x in m]
        o = [x / sum(y * y for y in o) ** 0.5 for x in o]
        sums = [weight * x + (1 - weight) * y for x, y in zip(o, m, strict=True)]
        rows.append([x / sum(y * y for y in sums) ** 0.5 for x in sums])
    return torch.tensor(rows, dtype=torch.float64)


@pytest.mark.parametrize("weight", [0.0, 0.3, 1.0])
def test_the_sum_is_that_of_loops(weight):
    torch.manual_seed(0)
    mapped, old = 3 * torch.randn(7, 5), 100 * torch.randn(7, 5)
    summed = add_old(mapped, old, weight)
    torch.testing.assert_close(summed.double(), by_loops(mapped, old, weight), atol=1e-6, rtol=0)


def test_the_weight_is_the_best_on_the_held_out_classes(both):
    data, head = both
    tightness = tightness_of(data.old, data.labels)
    (chosen,) = class_folds(data.labels, 0.2, seed=0, tightness=tightness)
    rows = torch.isin(data.labels, chosen).nonzero().flatten()
    held_out = Examples(data.new[rows], data.old[rows], data.labels[rows])
    values = weigh_old(head.network_, held_out)
    assert tuple(values) == WEIGHTS
    assert values[head.old_weight] == max(values.values())
    assert head.progress_.both == {f"{weight:g}": value for weight, value in values.items()}
    assert head.progress_.old_old == values[1.0]
    assert values[0.0] == pytest.approx(head.progress_.kept)


def test_of_equal_weights_the_old_model_has_the_most():
    assert best_weight({0.0: 0.5, 0.4: 0.5, 0.6: 0.2}) == 0.4
    assert best_weight({0.0: float("nan"), 1.0: 0.1}) == 1.0


def test_new_vectors_of_noise_leave_the_old_query_as_it_is(items, head):
    data = items()
    noise = torch.randn(90, 8, generator=torch.Generator().manual_seed(1))
    done = head(old_query=True).fit(noise, data.old, data.labels)
    progress = done.progress_
    assert progress.both[f"{done.old_weight:g}"] >= progress.old_old
    if done.old_weight == 1:
        assert any("returns the old vector" in note for note in done.notes_)
        out = done.transform(noise, old=data.old)
        torch.testing.assert_close(out, F.normalize(data.old, dim=1))


def test_without_enough_classes_the_head_returns_the_old_vector(items, head):
    data = items()
    done = head(old_query=True).fit(data.new, data.old)
    assert done.old_weight == 1
    assert any("returns the old vector" in note for note in done.notes_)


def test_queries_need_both_vectors_and_stored_ones_do_not(both, items, head):
    data, done = both
    with pytest.raises(ConfigError, match="needs both"):
        done.transform(data.new)
    stored = done.transform(data.new, side="gallery")
    assert stored.shape[0] == 90
    with pytest.raises(ConfigError, match="side `query`"):
        done.transform(data.new, old=data.old, side="gallery")
    with pytest.raises(ConfigError, match="Leave out the old"):
        head().fit(data.new, data.old, data.labels).transform(data.new, old=data.old)
    with pytest.raises(SpaceMismatch, match="old vectors of 6 dimensions"):
        done.transform(data.new, old=data.new)
    with pytest.raises(ConfigError, match="exclude each other"):
        head(old_query=True, extra=2).fit(data.new, data.old, data.labels)


def test_old_vectors_are_matched_by_id(both):
    data, done = both
    new = nb.Vectors(data.ids, data.new, data.labels.numpy())
    order = np.random.default_rng(0).permutation(90)
    old = nb.Vectors(data.ids, data.old, data.labels.numpy()).select(order)
    mapped = done.transform(new, old=old)
    torch.testing.assert_close(mapped.vectors, done.transform(data.new, old=data.old))
    with pytest.raises(DataError):
        done.transform(new, old=old.select(np.arange(40)))


def test_a_saved_head_adds_the_same(both, tmp_path):
    data, done = both
    done.save_pretrained(tmp_path / "head")
    again = nb.CompatibleHead.from_pretrained(tmp_path / "head")
    expected = done.transform(data.new, old=data.old)
    assert again.old_weight == done.old_weight
    torch.testing.assert_close(again.transform(data.new, old=data.old), expected)
    in_numpy = apply.load(tmp_path / "head")
    out = in_numpy(data.new.numpy(), data.old.numpy())
    np.testing.assert_allclose(out, expected.numpy(), atol=2e-6)
    with pytest.raises(ConfigError, match="new and old vectors"):
        in_numpy(data.new.numpy())
    with pytest.raises(DataError, match="90 new and 3 old"):
        in_numpy(data.new.numpy(), data.old.numpy()[:3])


def test_an_onnx_file_has_both_inputs(both, tmp_path):
    pytest.importorskip("onnx")
    runtime = pytest.importorskip("onnxruntime")
    data, done = both
    done.progress_.old_weight = 0.3
    done.to_onnx(tmp_path / "head.onnx")
    session = runtime.InferenceSession(tmp_path / "head.onnx")
    inputs = {"new": data.new.numpy(), "old": 9 * data.old.numpy()}
    (out,) = session.run(["compatible"], inputs)
    np.testing.assert_allclose(out, done.transform(data.new, old=data.old).numpy(), atol=1e-5)


def test_the_space_of_the_queries_is_that_of_the_weight(both):
    _, done = both
    fingerprint = done._space(6, parent=None).fingerprint
    done.progress_.old_weight = 0.05
    assert done._space(6, parent=None).fingerprint != fingerprint


def test_it_cannot_be_modules_of_sentence_transformers(both, tmp_path):
    with pytest.raises(ConfigError, match="one text, not two vectors"):
        both[1].to_sentence_transformers(tmp_path / "modules")
