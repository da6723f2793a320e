"""A map for each modality: fitted together, kept apart."""

import json
import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import nobackfill as nb
from nobackfill.errors import ConfigError, DataError, SpaceMismatch
from nobackfill.head import fitting, stack_modalities
from nobackfill.head import validation as heldout
from nobackfill.head.apply import load
from nobackfill.head.closed_form import procrustes, ridge
from nobackfill.head.examples import Examples
from nobackfill.head.export import onnx_files
from nobackfill.head.fitting import choose_closed_form, forms_by_modality
from nobackfill.head.inputs import modality_of, read_for_fit
from nobackfill.head.network import ModalityNetwork, make_network
from nobackfill.head.split import split_items
from nobackfill.head.validation import (
    choose_queries,
    compare_stored,
    embed_rows,
    new_old_map,
    retrieval_map,
)
from nobackfill.vectors.space import Space

NAMES = np.array(["image", "text"])


@pytest.fixture(scope="session")
def pictures():
    """Makes classes of images and texts, which lie apart; new ones are turned in two ways."""

    def make(*, classes=15, per_class=6, width=8, old_dim=6, gap=1.0, seed=0):
        generator = torch.Generator().manual_seed(seed)

        def normal(*shape):
            return torch.randn(*shape, generator=generator)

        labels = torch.arange(classes * per_class) % classes
        codes = (torch.arange(len(labels)) // classes) % 3 // 2  # two images, then a text
        centre = normal(classes, width)[labels]
        new, old = torch.zeros(len(labels), width), torch.zeros(len(labels), old_dim)
        into_old = normal(width, old_dim)
        for code in (0, 1):
            rows = codes == code
            turn, shift = normal(width, width), gap * normal(width)
            new[rows] = (centre[rows] + 0.4 * normal(int(rows.sum()), width)) @ turn + shift
            bent = torch.tanh(2 * centre[rows] @ into_old)
            old[rows] = bent + normal(*bent.shape) + 0.5 * gap * normal(old_dim)
        ids = np.array([f"item {i}" for i in range(len(labels))])
        return SimpleNamespace(
            new=new, old=old, labels=labels, codes=codes, ids=ids, names=NAMES[codes.numpy()]
        )

    return make


@pytest.fixture
def both_parts(pictures):
    """Two thirds of the classes to fit on, one third held out."""
    data = pictures()
    away = data.labels >= 10
    return tuple(
        Examples(
            data.new[rows],
            data.old[rows],
            data.labels[rows].unique(return_inverse=True)[1],
            modality=data.codes[rows],
        )
        for rows in (~away, away)
    )


def network_of(examples, *, dropout=0.3):
    torch.manual_seed(0)
    widths = [examples.new.shape[1]] * 2
    return make_network(widths, examples.old.shape[1], hidden=8, dropout=dropout)


def as_files(data, columns=("new", "old"), **more):
    """Both sides as Vectors; the named ones have the column `modality`."""
    return tuple(
        nb.Vectors(
            data.ids,
            getattr(data, side),
            data.labels.numpy(),
            columns={"modality": data.names} if side in columns else {},
            **more,
        )
        for side in ("new", "old")
    )


@pytest.fixture(scope="session")
def joint_once(pictures, head):
    data = pictures()
    done = head().fit(data.new, data.old, data.labels, modality=data.names)
    assert done.progress_.best > 0
    return done


@pytest.fixture
def joint(joint_once, tmp_path):
    """One with corrections that do something."""
    joint_once.save_pretrained(tmp_path / "kept")
    return nb.CompatibleHead.from_pretrained(tmp_path / "kept")


def precision_by_hand(query, gallery, hits):
    """The average precision of a query on a gallery; None where nothing is to be found."""
    score = F.cosine_similarity(query[None], gallery).tolist()
    order = sorted(range(len(gallery)), key=lambda place: -score[place])
    found, right = [], 0
    for rank, place in enumerate(order, start=1):
        if hits[place]:
            right += 1
            found.append(right / rank)
    return sum(found) / len(found) if found else None


def mean_over_directions(query, gallery, places, classes, codes):
    """The formula of `searched`, one direction, one query and one rank at a time."""
    directions = []
    for one in (0, 1):
        for other in (0, 1):
            values = []
            for vector, row in zip(query, places.tolist(), strict=True):
                rows = [i for i in range(len(codes)) if codes[i] == other and i != row]
                if codes[row] == one and rows:
                    hits = [bool(classes[i] == classes[row]) for i in rows]
                    values.append(precision_by_hand(vector, gallery[rows], hits))
            values = [value for value in values if value is not None]
            if values:
                directions.append(sum(values) / len(values))
    return sum(directions) / len(directions), len(directions)


def test_held_out_classes_are_asked_for_the_mean_over_directions(both_parts):
    examples, held_out = both_parts
    network = network_of(examples)
    choose_closed_form(network, *both_parts)
    query = embed_rows(network, held_out.new, held_out.modality)
    everywhere = torch.arange(len(held_out))
    expected, directions = mean_over_directions(
        query, held_out.old, everywhere, held_out.classes, held_out.modality
    )
    assert directions == 4
    assert new_old_map(network, held_out) == pytest.approx(expected, abs=1e-6)
    mixed = Examples(held_out.new, held_out.old, held_out.classes)
    assert retrieval_map(query, held_out.old, everywhere, mixed) != pytest.approx(
        expected, abs=0.01
    )


@pytest.mark.parametrize("what", ["a text in each class", "no class across", "no text"])
def test_directions_without_anything_to_find_are_left_out(both_parts, what):
    held_out = both_parts[1]
    classes, codes = held_out.classes, held_out.modality
    rows = torch.ones(len(codes), dtype=torch.bool)
    if what == "a text in each class":  # of which none finds another
        first = {int(classes[i]): i for i in (codes == 1).nonzero().flatten().tolist()}
        rows = codes == 0
        rows[list(first.values())] = True
    if what == "no class across":
        classes = classes + 5 * codes
    if what == "no text":
        rows = codes == 0
    some = Examples(held_out.new[rows], held_out.old[rows], classes[rows], modality=codes[rows])
    places = choose_queries(some)
    query = some.old.flip(0)
    expected, directions = mean_over_directions(query, some.old, places, some.classes, codes[rows])
    assert directions == {"a text in each class": 3, "no class across": 2, "no text": 1}[what]
    assert retrieval_map(query, some.old, places, some) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("number", [1, 4, 9, 10, 11, 19, 20])
def test_of_each_modality_some_ask_evenly(both_parts, monkeypatch, number):
    held_out = both_parts[1]
    monkeypatch.setattr(heldout, "QUERIES", number)
    expected = []
    for code in (0, 1):
        rows = [i for i in range(30) if held_out.modality[i] == code]
        asks = min(number, len(rows))
        expected += [rows[i * len(rows) // asks] for i in range(asks)]
    assert choose_queries(held_out).tolist() == sorted(expected)
    network = network_of(held_out)
    query = embed_rows(network, *held_out.network_inputs(choose_queries(held_out)))
    value, _ = mean_over_directions(
        query, held_out.old, choose_queries(held_out), held_out.classes, held_out.modality
    )
    assert new_old_map(network, held_out) == pytest.approx(value, abs=1e-6)


def test_what_is_stored_is_compared_by_the_mean_over_directions(both_parts):
    held_out = both_parts[1]
    network = network_of(both_parts[0])
    choose_closed_form(network, *both_parts)
    found = compare_stored(network, held_out)
    vectors = {
        "mapped": embed_rows(network, held_out.new, held_out.modality),
        "as they are": held_out.new,
    }
    for name, stored in vectors.items():
        expected, _ = mean_over_directions(
            stored, stored, torch.arange(30), held_out.classes, held_out.modality
        )
        assert found[name] == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("codes", [[0, 1, 1, 0, 1], [1, 1, 0, 0, 0], [1, 1, 1, 1, 1]])
def test_each_row_goes_through_the_map_of_its_own(both_parts, codes):
    network = network_of(both_parts[0]).eval()
    for part in network.parts:  # with corrections, too
        torch.nn.init.normal_(part.outer.weight)
    new, codes = torch.randn(5, 8), torch.tensor(codes)  # the seed is that of the network
    for made, name in ((network(new, codes), "forward"), (network.embed(new, codes), "embed")):
        for row, code in enumerate(codes.tolist()):
            alone = getattr(network.parts[code], name)(new[row : row + 1])
            torch.testing.assert_close(made[row : row + 1], alone)
    assert not torch.allclose(network.parts[0](new), network.parts[1](new))


def test_each_row_moves_its_own_map_only(both_parts):
    network = network_of(both_parts[0])
    network(torch.randn(4, 8), torch.tensor([1, 1, 1, 1])).sum().backward()
    assert all(one.grad is None for one in network.parts[0].parameters())
    assert network.parts[1].affine.weight.grad.any()


def test_a_head_maps_each_row_as_the_head_of_its_modality(joint, pictures):
    data = pictures()
    made = joint.transform(data.new, modality=data.names)
    for code, name in enumerate(NAMES):
        rows = data.codes == code
        alone = joint.for_modality(name).transform(data.new[rows])
        torch.testing.assert_close(made[rows], alone)
        other = joint.for_modality(NAMES[1 - code]).transform(data.new[rows])
        assert not torch.allclose(made[rows], other, atol=0.1)
        assert torch.equal(joint.transform(data.new[rows], modality=str(name)), alone)


def test_many_rows_are_mapped_in_blocks(joint, pictures, monkeypatch):
    data = pictures()
    expected = joint.transform(data.new, modality=data.names)
    monkeypatch.setattr("nobackfill.head.validation.BLOCK", 7)
    torch.testing.assert_close(joint.transform(data.new, modality=data.names), expected)
    torch.testing.assert_close(
        embed_rows(joint.network_, data.new, data.codes), expected, atol=1e-6, rtol=0
    )


def test_closed_forms_are_fitted_to_each_modality_alone(both_parts):
    examples = both_parts[0]
    network = network_of(examples)
    found = forms_by_modality(network, examples)
    for code in (0, 1):
        rows = examples.modality == code
        own = examples.new[rows], examples.old[rows]
        torch.testing.assert_close(found["procrustes"][code].weight, procrustes(*own).weight)
        torch.testing.assert_close(found["ridge 0.01"][code].bias, ridge(*own, strength=0.01).bias)
    progress = choose_closed_form(network, *both_parts)
    assert progress.start == max(progress.closed, key=progress.closed.get)
    assert new_old_map(network, both_parts[1]) == progress.closed[progress.start]
    for part, form in zip(network.parts, found[progress.start], strict=True):
        assert torch.equal(part.affine.weight, form.weight)


def test_the_method_sees_all_modalities_together(both_parts, recording):
    examples, _ = both_parts
    network, fresh = network_of(examples, dropout=0.0), network_of(examples, dropout=0.0)
    config = fitting.FitConfig(epochs=1, batch_size=20)
    learner = fitting.Learner(network, examples, replace(config, method="recording"), begun=0.0)
    for one in fitting.rounds(examples, config):
        learner.train(one, 0)
    (method,) = recording
    assert torch.equal(method.old_space.embeddings, examples.old)
    assert len(method.seen) == 3
    for items, labels, new in method.seen:
        assert set(examples.modality[items].tolist()) == {0, 1}
        assert torch.equal(labels, examples.classes[items])
        assert new.shape == (len(items), 6)
    expected = embed_rows(fresh, examples.new, examples.modality)
    torch.testing.assert_close(method.asked[0][1], expected)
    items, _, new = method.seen[0]  # before the first step
    torch.testing.assert_close(F.normalize(new, dim=1), expected[items])
    for part, begun in zip(network.parts, fresh.parts, strict=True):
        assert not torch.equal(part.affine.weight, begun.affine.weight)


def test_items_keep_their_modalities_when_some_are_held_out(pictures):
    data = pictures()
    places = torch.randperm(90, generator=torch.Generator().manual_seed(0))
    new = torch.cat([data.new[places], torch.arange(90)[:, None].float()], dim=1)
    labels, codes = data.labels[places], data.codes[places]
    parts = split_items(new, data.old[places], labels, "labels", share=0.3, seed=0, modality=codes)
    for part in (parts.fitted, parts.held_out):
        rows = part.new_of(torch.arange(len(part)))[:, -1].long()
        assert torch.equal(part.modality, codes[rows])
        assert set(part.modality.tolist()) == {0, 1}


def test_on_held_out_classes_it_is_no_worse_than_any_closed_form(joint):
    progress = joint.progress_
    assert progress.history[progress.best - 1] > max(progress.closed.values())
    assert (joint.supervision_, joint.modalities_) == ("labels", ("image", "text"))


@pytest.mark.parametrize("seed", range(3))
def test_a_map_for_each_beats_one_for_all_where_they_differ(pictures, head, seed):
    data = pictures(seed=seed)
    joint = head(seed=seed).fit(data.new, data.old, data.labels, modality=data.names)
    one = head(seed=seed).fit(data.new, data.old, data.labels)
    values = []
    fresh = torch.arange(90)
    searched_in = Examples(data.new, data.old, data.labels, modality=data.codes)
    for out in (joint.transform(data.new, modality=data.names), one.transform(data.new)):
        values.append(retrieval_map(out, data.old, fresh, searched_in))
    assert values[0] > values[1]


def test_fit_transform_is_told_once(joint_once, pictures, head):
    data = pictures()
    made = head().fit_transform(data.new, data.old, data.labels, modality=data.names)
    assert torch.equal(made, joint_once.transform(data.new, modality=data.names))
    single = head(epochs=0).fit_transform(data.new, data.old, data.labels, modality="image")
    plain = head(epochs=0).fit(data.new, data.old, data.labels)
    assert torch.equal(single, plain.transform(data.new))


def test_one_modality_is_none(pictures, head):
    data = pictures()
    plain = head().fit(data.new, data.old, data.labels)
    same = head().fit(data.new, data.old, data.labels, modality=["image"] * 90)
    assert same.modalities_ == ()
    assert same.progress_ == plain.progress_
    assert same.space_ == plain.space_
    assert torch.equal(same.transform(data.new), plain.transform(data.new))
    data.names = np.full(90, "image")
    files = head().fit(*as_files(data))
    assert files.progress_ == plain.progress_
    assert torch.equal(files.transform(as_files(data)[0]).vectors, plain.transform(data.new))


@pytest.mark.parametrize("columns", [("new", "old"), ("new",), ("old",)])
def test_the_column_of_either_file_will_do(joint_once, pictures, head, columns):
    data = pictures()
    new, old = as_files(data, columns)
    order = np.random.default_rng(0).permutation(90)
    done = head().fit(new.select(order), old)
    assert done.progress_ == joint_once.progress_
    out = done.transform(as_files(data)[0])
    assert out.space == done.space_
    assert out.columns["modality"].tolist() == data.names.tolist()
    assert torch.equal(out.vectors, joint_once.transform(data.new, modality=data.names))


def test_what_is_passed_counts_more_than_the_column(joint_once, pictures, head):
    data = pictures()
    right = data.names.copy()
    data.names = NAMES[1 - data.codes.numpy()]
    done = head().fit(*as_files(data), modality=right)
    assert done.progress_ == joint_once.progress_
    out = done.transform(as_files(data)[0], modality=right).vectors
    assert torch.equal(out, joint_once.transform(data.new, modality=right))


@pytest.mark.parametrize("kind", ["list", "array", "tensor", "numbers"])
def test_modalities_may_be_of_any_kind(joint_once, pictures, head, kind):
    data = pictures()
    given = {
        "list": data.names.tolist(),
        "array": data.names,
        "tensor": data.codes,
        "numbers": data.codes.tolist(),
    }[kind]
    done = head().fit(data.new, data.old, data.labels, modality=given)
    assert done.progress_ == joint_once.progress_
    one = 0 if kind in ("tensor", "numbers") else "image"
    out = done.transform(data.new[:5], modality=one)
    assert torch.equal(out, joint_once.transform(data.new[:5], modality="image"))


def test_without_supervision_each_gets_a_closed_form(pictures, head):
    data = pictures()
    done = head().fit(data.new, data.old, modality=data.names)
    assert done.supervision_ == "none"
    for code, name in enumerate(NAMES):
        rows = data.codes == code
        form = ridge(data.new[rows], data.old[rows], strength=1e-3)
        out = done.transform(data.new[rows], modality=str(name))
        torch.testing.assert_close(out, form(data.new[rows]))


def test_pairs_and_groups_go_across_modalities(joint_once, pictures, head):
    data = pictures()
    groups = head().fit(data.new, data.old, groups=data.labels, modality=data.names)
    assert groups.progress_ == joint_once.progress_
    chain = {row: [row + 15] for row in range(75)}
    pairs = head().fit(data.new, data.old, pairs=chain, modality=data.names)
    assert pairs.progress_.closed == joint_once.progress_.closed


def test_what_was_saved_does_the_same_to_the_bit(joint_once, pictures, tmp_path):
    data = pictures()
    joint_once.save_pretrained(tmp_path / "head")
    config = json.loads((tmp_path / "head" / "config.json").read_text())
    assert (config["schema"], config["modalities"]) == (1, ["image", "text"])
    assert sorted(path.name for path in (tmp_path / "head").iterdir()) == [
        "config.json", "image", "text",
    ]  # fmt: skip
    read = nb.CompatibleHead.from_pretrained(tmp_path / "head")
    expected = joint_once.transform(data.new, modality=data.names)
    assert torch.equal(read.transform(data.new, modality=data.names), expected)
    assert read.progress_ == joint_once.progress_
    assert read.get_params() == joint_once.get_params()
    assert (read.space_, read.source_) == (joint_once.space_, joint_once.source_)
    assert (read.supervision_, read.notes_) == (joint_once.supervision_, joint_once.notes_)
    assert read.modalities_ == ("image", "text")
    assert not read.network_.training


def test_below_is_a_plain_head_for_each(joint_once, pictures, tmp_path):
    data = pictures()
    joint_once.save_pretrained(tmp_path)
    for code, name in enumerate(NAMES):
        rows = data.codes == code
        expected = joint_once.transform(data.new[rows], modality=str(name))
        read = nb.CompatibleHead.from_pretrained(tmp_path / name)
        assert torch.equal(read.transform(data.new[rows]), expected)
        assert read.modalities_ == (name,)
        assert read.space_ == joint_once.for_modality(name).space_
        with_numpy = load(tmp_path / name)(data.new[rows].numpy())
        np.testing.assert_allclose(with_numpy, expected, atol=1e-6)
    with pytest.raises(DataError, match=r"holds one for each of several.*\['image', 'text'\]"):
        load(tmp_path)


def test_a_head_of_one_modality_refuses_others(joint, pictures, tmp_path):
    data = pictures()
    joint.for_modality("text").save_pretrained(tmp_path)
    for text in (joint.for_modality("text"), nb.CompatibleHead.from_pretrained(tmp_path)):
        assert text.for_modality("text").transform(data.new).equal(text.transform(data.new))
        with pytest.raises(ConfigError, match="maps vectors of text, .* vectors of 'image'"):
            text.transform(as_files(data)[0])
        with pytest.raises(ConfigError, match="there are vectors of 'image'"):
            text.transform(data.new, modality="image")
        with pytest.raises(ConfigError, match="unknown modality `image` of this head"):
            text.for_modality("image")


def mix_two(folder, other):
    other.for_modality("text").save_pretrained(folder / "text")


def set_config(folder, **more):
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, **more}))


DAMAGE = {
    "another head": (mix_two, "files of two heads were mixed"),
    "a later schema": (lambda f, _: set_config(f, schema=2), "has schema version 2; .*Upgrade"),
    "odd names": (lambda f, _: set_config(f, modalities="image"), "must be a list of names"),
    "fewer names": (lambda f, _: set_config(f, modalities=["image"]), "two heads were mixed"),
    "no space": (lambda f, _: set_config(f, space=None), "config.json"),
    "no folder": (lambda f, _: (f / "text").rename(f / "gone"), "config.json cannot be read"),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_folder_is_told(joint, pictures, head, tmp_path, damage):
    data = pictures(seed=1)
    joint.save_pretrained(tmp_path / "head")
    other = head(epochs=0).fit(data.new, data.old, data.labels, modality=data.names)
    spoil, says = DAMAGE[damage]
    spoil(tmp_path / "head", other)
    with pytest.raises(DataError, match=says):
        nb.CompatibleHead.from_pretrained(tmp_path / "head")


def test_a_joint_head_takes_the_place_of_a_plain_one_and_the_reverse(
    joint, fitted, pictures, tmp_path
):
    new = pictures().new
    for made in (fitted, joint, fitted):
        made.save_pretrained(tmp_path)
        read = nb.CompatibleHead.from_pretrained(tmp_path)
        told = "text" if made is joint else None
        assert read.modalities_ == made.modalities_
        assert torch.equal(read.transform(new, modality=told), made.transform(new, modality=told))


def test_other_formats_have_one_modality(joint, tmp_path):
    for export in (joint.to_onnx, joint.to_sentence_transformers):
        with pytest.raises(ConfigError, match=r"for image, text.*head.for_modality\('image'\)"):
            export(tmp_path / "head")
    assert not (tmp_path / "head").exists()
    joint.for_modality("text").to_sentence_transformers(tmp_path / "text")
    assert (tmp_path / "text" / "modules.json").exists()
    files = onnx_files(joint, tmp_path / "head.onnx")
    assert [path.name for path in files] == ["head.image.onnx", "head.text.onnx"]
    assert [one.modalities_ for one in files.values()] == [("image",), ("text",)]
    text = joint.for_modality("text")
    assert onnx_files(text, tmp_path / "head.onnx") == {tmp_path / "head.onnx": text}


def test_an_onnx_file_for_each(joint, pictures, tmp_path):
    runtime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnx")
    new = pictures().new[:4]
    for path, one in onnx_files(joint, tmp_path / "head.onnx").items():
        one.to_onnx(path)
        (out,) = runtime.InferenceSession(path).run(None, {"new": new.numpy()})
        expected = joint.transform(new, modality=one.modalities_[0])
        np.testing.assert_allclose(out, expected, atol=1e-5)


def test_modalities_that_disagree_are_refused(pictures, head):
    data = pictures()
    new, _ = as_files(data)
    data.names = data.names.copy()
    data.names[7] = "sound"
    _, old = as_files(data)
    with pytest.raises(DataError, match="the same `modality` .*1 items differ: 'item 7'"):
        head().fit(new, old)


WRONG = {
    "too few": (lambda names: names[:80], "80 modalities for 90 items"),
    "one missing": (lambda names: [None, *names[1:].tolist()], "1 of 90 items are missing"),
    "NaN": (lambda names: [*names[1:].tolist(), float("nan")], "in row 89"),
    "a path": (lambda names: np.where(names == "text", "../text", names), "'../text'"),
    "alike": (lambda names: np.where(np.arange(90) < 9, "Text", names), "consistent upper"),
    "a single text": (lambda names: ["text"] + ["image"] * 89, "of 'text'. Add items"),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_modalities_that_cannot_be_are_told(pictures, head, wrong):
    data = pictures()
    change, says = WRONG[wrong]
    with pytest.raises(DataError, match=says):
        head().fit(data.new, data.old, data.labels, modality=change(data.names))


def test_a_list_beside_files_in_another_order_is_refused(pictures, head):
    data = pictures()
    new, old = as_files(data, ())
    with pytest.raises(DataError, match="The order of modality is ambiguous"):
        head().fit(new.select(np.arange(90)[::-1]), old, modality=data.names)


def test_extra_dimensions_are_for_one_modality(pictures, head):
    data = pictures()
    with pytest.raises(ConfigError, match="`extra` must be 0 with several modalities"):
        head(extra=2).fit(data.new, data.old, data.labels, modality=data.names)
    head(extra=2, epochs=0).fit(data.new, data.old, data.labels, modality=["image"] * 90)


def test_what_the_head_is_not_told_or_never_saw_is_an_error(joint, fitted, pictures):
    data = pictures()
    for new in (data.new, as_files(data, ())[0]):
        with pytest.raises(
            ConfigError,
            match="a map for each of image, text, .* is unknown",
        ):
            joint.transform(new)
    with pytest.raises(ConfigError, match="vectors of image or text, .* vectors of 'sound'"):
        joint.transform(data.new, modality="sound")
    with pytest.raises(DataError, match="3 modalities for 90 items"):
        joint.transform(data.new, modality=["text"] * 3)
    with pytest.raises(ConfigError, match="Did you mean `text`"):
        joint.for_modality("txt")
    with pytest.raises(ConfigError, match="unknown modality `text` of this head. It has one map"):
        fitted.for_modality("text")
    with pytest.raises(ConfigError, match="has one map for all vectors"):
        fitted.transform(data.new, modality="text")
    fitted.transform(as_files(data)[0])  # a column that nobody asked for
    with pytest.raises(DataError, match="Call `fit` first"):
        nb.CompatibleHead().for_modality("text")


def stacked(width=5, **more):
    """Images of 8 dimensions and texts of fewer, old vectors of 6, ids `image 3` and `text 3`."""
    generator = torch.Generator().manual_seed(0)
    labels = np.arange(45) % 15
    centre = torch.randn(15, 8, generator=generator)[labels]
    sides = {"new": {}, "old": {}}
    for name, dim in (("image", 8), ("text", width)):
        ids = [f"{name} {i}" for i in range(45)]
        vectors = (centre + torch.randn(45, 8, generator=generator))[:, :dim]
        sides["new"][name] = nb.Vectors(ids, vectors, labels, **more)
        noise = torch.randn(45, 6, generator=generator)
        sides["old"][name] = nb.Vectors(ids, centre[:, :6] + noise, labels)
    return sides


def test_modalities_are_stacked_with_zeros_behind():
    parts = stacked()["new"]
    made = stack_modalities(parts)
    assert (len(made), made.dim) == (90, 8)
    assert torch.equal(made.vectors[:45], parts["image"].vectors)
    assert torch.equal(made.vectors[45:, :5], parts["text"].vectors)
    assert not made.vectors[45:, 5:].any()
    assert made.ids.tolist() == [*parts["image"].ids, *parts["text"].ids]
    assert made.labels.tolist() == [*parts["image"].labels, *parts["text"].labels]
    assert made.columns["modality"].tolist() == ["image"] * 45 + ["text"] * 45


def test_what_all_parts_tell_is_kept():
    space, vectors = Space(dim=2, weights="clip"), torch.ones(1, 2)
    image = nb.Vectors([1], vectors, [7], columns={"split": ["a"], "size": [3]}, space=space)
    text = nb.Vectors([2], vectors, columns={"split": ["b"], "modality": ["x"]}, space=space)
    made = stack_modalities({"image": image, "text": text})
    assert made.labels is None
    assert {name: values.tolist() for name, values in made.columns.items()} == {
        "split": ["a", "b"],
        "modality": ["image", "text"],
    }
    assert made.space == space
    other = nb.Vectors([2], torch.ones(1, 3), space=Space(dim=3))
    assert stack_modalities({"image": image, "text": other}).space is None
    assert stack_modalities({"image": image}).columns["modality"].tolist() == ["image"]


def test_what_cannot_be_stacked_is_told():
    vectors = torch.ones(1, 2)
    image = nb.Vectors(["7"], vectors, [1], columns={"split": ["a"]})
    with pytest.raises(DataError, match="1 ids occur in two .* first is '7'.*`text 7`"):
        stack_modalities({"image": image, "text": image})
    with pytest.raises(DataError, match="`id` has different types in 'image' and 'text'"):
        stack_modalities({"image": image, "text": nb.Vectors([7], vectors)})
    with pytest.raises(DataError, match="`label` has different types"):
        stack_modalities({"image": image, "text": nb.Vectors(["8"], vectors, ["1"])})
    with pytest.raises(DataError, match="`split` has different types"):
        stack_modalities(
            {"image": image, "text": nb.Vectors(["8"], vectors, columns={"split": [1]})}
        )
    with pytest.raises(ConfigError, match="no vectors to stack"):
        stack_modalities({})


def test_each_modality_has_its_own_width(head, tmp_path):
    sides = stacked()
    new, old = (stack_modalities(sides[side]) for side in ("new", "old"))
    done = head().fit(new, old)
    assert done.network_.widths == [8, 5]
    out = done.transform(new).vectors
    for name, rows in (("image", slice(0, 45)), ("text", slice(45, 90))):
        alone = done.for_modality(name)
        torch.testing.assert_close(alone.transform(sides["new"][name]).vectors, out[rows])
    done.save_pretrained(tmp_path)
    read = nb.CompatibleHead.from_pretrained(tmp_path)
    assert torch.equal(read.transform(new).vectors, out)
    short = nb.CompatibleHead.from_pretrained(tmp_path / "text")
    texts = sides["new"]["text"].vectors
    torch.testing.assert_close(short.transform(texts), out[45:])
    with pytest.raises(SpaceMismatch, match=r"of 8 dimensions, but these have 5"):
        done.transform(texts, modality="text")
    longer = new.vectors.clone()
    longer[50, 7] = 1e-3
    with pytest.raises(SpaceMismatch, match="Row 50 must be zero behind the 5 dimensions"):
        done.transform(longer, modality=new.columns["modality"])


def test_zeros_behind_change_nothing(head):
    """Texts of 5 dimensions as they are, and with three zeros behind, beside images of 8."""
    sides = stacked()
    new, old = (stack_modalities(sides[side]) for side in ("new", "old"))
    rows = slice(45, 90)
    found = forms_by_modality(
        make_network([8, 5], 6, hidden=0, dropout=0.0),
        Examples(new.vectors, old.vectors, None, modality=(torch.arange(90) >= 45).long()),
    )
    texts = sides["new"]["text"].vectors
    expected = ridge(texts, old.vectors[rows], strength=0.01)
    torch.testing.assert_close(found["ridge 0.01"][1].weight, expected.weight)
    done = head().fit(new, old)
    assert done.transform(new).dim == 6


def test_dimensions_that_nobody_uses_are_those_of_the_longest(head):
    sides = stacked()
    new, old = (stack_modalities(sides[side]) for side in ("new", "old"))
    wider = nb.Vectors(new.ids, F.pad(new.vectors, (0, 4)), new.labels, columns=new.columns)
    done = head(epochs=0).fit(wider, old)
    assert done.network_.widths == [12, 5]
    assert done.transform(wider).dim == 6


def test_vectors_of_another_space_are_refused(pictures, head, tmp_path):
    data = pictures()
    own = Space(dim=8, weights="new")
    new = nb.Vectors(
        data.ids, data.new, data.labels.numpy(), columns={"modality": data.names}, space=own
    )
    done = head(epochs=0).fit(new, as_files(data)[1])
    done.save_pretrained(tmp_path)
    read = nb.CompatibleHead.from_pretrained(tmp_path)
    other = nb.Vectors(data.ids, data.new, space=Space(dim=8, weights="newer"))
    for one in (done, read, read.for_modality("text")):
        assert one.source_ == own.fingerprint
        with pytest.raises(SpaceMismatch):
            one.transform(other, modality="text")


def test_files_tell_modalities_where_they_are_asked(pictures, tmp_path):
    data = pictures()
    new, old = as_files(data)
    kinds = nb.Vectors(new.ids, new.vectors, columns={"kind": np.flip(data.names)})
    for name, file in {"new": new, "old": old, "kinds": kinds}.items():
        file.save(tmp_path / f"{name}.parquet")
    paths = tmp_path / "old.parquet", tmp_path / "new.parquet"
    assert read_for_fit(*paths).modality is None
    assert read_for_fit(*paths, modality="modality").modality.tolist() == data.names.tolist()
    found = read_for_fit(paths[0], tmp_path / "kinds.parquet", modality="kind")
    assert found.modality.tolist() == np.flip(data.names).tolist()
    with pytest.raises(ConfigError, match="no column `kin` in either file. Did you mean `kind`"):
        read_for_fit(paths[0], tmp_path / "kinds.parquet", modality="kin")
    assert modality_of(new, "modality") is None
    assert modality_of(kinds, "kind").tolist() == np.flip(data.names).tolist()
    with pytest.raises(ConfigError, match="no column `kind` in the file"):
        modality_of(new, "kind")


def test_the_example_of_the_docs_runs(tmp_path, monkeypatch):
    page = (Path(__file__).parents[2] / "docs" / "heads.md").read_text(encoding="utf-8")
    section = page.split("## Images and texts\n")[1].split("\n## ")[0]
    (code,) = re.findall(r"```python\n(.*?)```", section, re.DOTALL)
    monkeypatch.chdir(tmp_path)
    for side, parts in stacked().items():
        for name, vectors in parts.items():
            vectors.save(f"{side}_{name}s.parquet")
    told = {}
    exec(compile(code, "docs/heads.md", "exec"), told)
    assert told["compatible"].dim == 6
    assert isinstance(told["head"].network_, ModalityNetwork)
