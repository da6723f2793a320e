"""Fitting: where it begins, where it stops, and what it never sees."""

import threading
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

import nobackfill as nb
from nobackfill.core.seeding import seeded
from nobackfill.errors import ConfigError
from nobackfill.head import fitting
from nobackfill.head import schedule as settings
from nobackfill.head import validation as heldout
from nobackfill.head.closed_form import STRENGTHS, closed_forms, procrustes, ridge
from nobackfill.head.examples import Examples
from nobackfill.head.fitting import DEFAULT_FORM, Learner, choose_closed_form, make_method
from nobackfill.head.schedule import FitConfig
from nobackfill.head.validation import choose_queries, embed_rows, new_old_map, retrieval_map
from nobackfill.methods import METHODS

CONFIG = FitConfig(method="cross_supcon", epochs=3, batch_size=16, learning_rate=1e-2)
USABLE = """
    independent independent_contrastive prototype_alignment ndpp_old ndpp odpp_old odpp unibct
    unibct_spr ract advbct sspl sspl_ce rbcl mimic prototype_mimic cross_supcon
""".split()


def cross_map_by_hand(query, places, held_out):
    precisions = []
    for vector, row in zip(query, places.tolist(), strict=True):
        others = [i for i in range(len(held_out)) if i != row]
        score = F.cosine_similarity(vector[None], held_out.old[others]).tolist()
        order = sorted(range(len(others)), key=lambda place: -score[place])
        hits = [held_out.classes[others[place]] == held_out.classes[row] for place in order]
        found = [sum(hits[: i + 1]) / (i + 1) for i, hit in enumerate(hits) if hit]
        precisions.append(float(sum(found)) / len(found))
    return sum(precisions) / len(precisions)


def test_the_measure_is_map_of_the_others(parts):
    examples, held_out = parts
    query, all_of_them = procrustes(examples.new, examples.old)(held_out.new), torch.arange(30)
    expected = cross_map_by_hand(query, all_of_them, held_out)
    assert retrieval_map(query, held_out.old.float(), all_of_them, held_out) == pytest.approx(
        expected
    )
    assert torch.equal(choose_queries(held_out), all_of_them)


@pytest.mark.parametrize("number", [1, 7, 29, 30, 31])
def test_of_many_items_some_ask_evenly_and_do_not_find_themselves(
    parts, network_for, monkeypatch, number
):
    examples, held_out = parts
    monkeypatch.setattr(heldout, "QUERIES", number)
    places = choose_queries(held_out)
    assert places.tolist() == [i * 30 // min(number, 30) for i in range(min(number, 30))]
    network = network_for(examples)
    form = procrustes(examples.new, examples.old)
    network.start_from(form)
    expected = cross_map_by_hand(form(held_out.new[places]), places, held_out)
    assert new_old_map(network, held_out) == pytest.approx(expected)


def test_where_training_diverged_nothing_is_measured(parts, network_for):
    network = network_for(parts[0])
    torch.nn.init.constant_(network.affine.bias, torch.nan)
    assert new_old_map(network, parts[1]) != new_old_map(network, parts[1])


def test_all_closed_forms_are_tried(parts):
    examples = parts[0]
    found = closed_forms(examples)
    assert list(found) == ["procrustes", *(f"ridge {strength:g}" for strength in STRENGTHS)]
    assert DEFAULT_FORM in found
    assert torch.equal(found["procrustes"].weight, procrustes(examples.new, examples.old).weight)
    for strength in STRENGTHS:
        expected = ridge(examples.new, examples.old, strength=strength).weight
        assert torch.equal(found[f"ridge {strength:g}"].weight, expected)


def test_it_begins_with_the_best_closed_form_exactly(parts, network_for):
    examples, held_out = parts
    network = network_for(examples)
    progress = choose_closed_form(network, examples, held_out)
    forms = closed_forms(examples)
    values = {
        name: retrieval_map(
            form(held_out.new), held_out.old.float(), choose_queries(held_out), held_out
        )
        for name, form in forms.items()
    }
    assert progress.closed == pytest.approx(values, abs=1e-6)
    assert progress.closed[progress.start] == max(progress.closed.values())
    assert torch.equal(network.affine.weight, forms[progress.start].weight)
    assert torch.equal(network.affine.bias, forms[progress.start].bias)
    assert new_old_map(network, held_out) == progress.closed[progress.start]
    assert (progress.best, progress.history) == (0, [])


def test_the_best_may_be_any_of_them(parts, network_for, in_place):
    examples, held_out = parts
    for wanted, name in enumerate(closed_forms(examples)):
        told = iter([0.9 if place == wanted else 0.1 for place in range(5)])
        in_place("new_old_map", lambda *given, told=told: next(told))
        network = network_for(examples)
        assert choose_closed_form(network, examples, held_out).start == name
        form = closed_forms(examples)[name]
        assert torch.equal(network.affine.weight, form.weight)


def test_without_held_out_classes_it_begins_in_the_middle(parts, network_for):
    network = network_for(parts[0])
    progress = choose_closed_form(network, parts[0], None)
    assert progress.start == DEFAULT_FORM
    assert all(value != value for value in progress.closed.values())
    assert torch.equal(network.affine.weight, closed_forms(parts[0])[DEFAULT_FORM].weight)


@pytest.mark.parametrize("method", USABLE)
@pytest.mark.parametrize("classification", [0.0, 0.5])
def test_every_usable_method_fits_and_is_no_worse_than_the_closed_form(
    fit, parts, method, classification
):
    config = replace(CONFIG, classification=classification)
    network, progress, steps = fit(parts, method, config)
    best = max([progress.closed[progress.start], *progress.history])
    assert new_old_map(network, parts[1]) == best >= max(progress.closed.values())
    assert len(progress.history) == 3
    learns = method != "independent" or classification > 0
    assert (steps > 0) == learns


def test_usable_methods_are_these():
    settings.check_method("auto")
    usable = ", ".join(["auto", *USABLE])
    for name in METHODS:
        if name in USABLE:
            settings.check_method(name)
        else:
            with pytest.raises(ConfigError, match=f"fitted by `{name}`.*Choose one of {usable}"):
                settings.check_method(name)
    with pytest.raises(ConfigError, match="unknown method `cros_supcon`. Did you mean `cross_s"):
        settings.check_method("cros_supcon")


@pytest.mark.parametrize("rate", [1e3, 1e30])
@pytest.mark.parametrize("method", ["cross_supcon", "odpp", "rbcl"])
def test_a_huge_learning_rate_leaves_the_closed_form(fit, parts, method, rate):
    network, progress, _ = fit(
        parts, method, FitConfig(epochs=3, batch_size=16, learning_rate=rate)
    )
    assert progress.best == 0
    assert torch.equal(network.affine.weight, closed_forms(parts[0])[progress.start].weight)
    assert not network.outer.weight.any()
    assert not network.training
    if rate == 1e30:  # nothing but NaN: no reason to go on
        assert len(progress.history) == 1
        assert progress.history[0] != progress.history[0]


def test_a_method_sees_all_examples_once_an_epoch_and_nothing_else(fit, parts, recording):
    examples, held_out = parts
    _, progress, steps = fit(parts, "recording", FitConfig(epochs=2, batch_size=16))
    (method,) = recording
    assert torch.equal(method.old_space.embeddings, examples.old)
    assert torch.equal(method.old_space.labels, examples.classes)
    assert method.num_classes == 10
    assert method.epochs == [(0, 2), (1, 2)]
    assert steps == len(method.seen) == 2 * 4
    for epoch in (method.seen[:4], method.seen[4:]):
        rows = torch.cat([items for items, _, _ in epoch])
        assert sorted(rows.tolist()) == list(range(len(examples.new)))
        for items, labels, new in epoch:
            assert torch.equal(labels, examples.classes[items])
            assert new.shape == (len(items), 6)
    assert not torch.equal(method.seen[0][0], method.seen[4][0])  # another order
    prototypes, embeddings = method.asked[0]
    assert (prototypes.shape, embeddings.shape) == ((10, 6), (60, 6))
    first = closed_forms(examples)[progress.start]
    torch.testing.assert_close(embeddings, first(examples.new))
    torch.testing.assert_close(prototypes, nb.class_means(embeddings, examples.classes, 10))
    assert len(held_out.new) == 30  # of which no row was in any batch, as all are below 60


def test_dropout_acts_in_every_step(fit, parts, recording, monkeypatch):
    modes, step = [], Learner.step

    def remember(learner, places):
        modes.append(learner.network.training)
        return step(learner, places)

    monkeypatch.setattr(Learner, "step", remember)
    network, _, _ = fit(parts, "recording", FitConfig(epochs=2, batch_size=16))
    assert modes == [True] * 8
    assert not network.training


def test_every_round_draws_by_chance_of_its_own(fit, parts, recording, monkeypatch):
    def draws(seed):
        found, step = [], Learner.step

        def remember(learner, places):
            found.append(torch.rand(1).item())
            return step(learner, places)

        with monkeypatch.context() as patch:
            patch.setattr(Learner, "step", remember)
            fit(parts, "recording", FitConfig(epochs=2, batch_size=16, seed=seed))
        return found

    assert len(set(draws(0))) == 8
    assert draws(0) == draws(0)
    assert not set(draws(0)) & set(draws(5))


def test_network_and_method_are_trained_as_they_were_told(parts, network_for):
    config = replace(CONFIG, learning_rate=0.5, weight_decay=0.25, classification=1.0)
    network = network_for(parts[0])
    learner = Learner(network, parts[0], config, begun=0.0)
    (group,) = learner.optimizer.param_groups
    assert (group["lr"], group["weight_decay"]) == (0.5, 0.25)
    trained = {id(parameter) for parameter in group["params"]}
    assert trained == {id(one) for one in (*network.parameters(), *learner.method.parameters())}
    assert len(trained) > len(list(network.parameters()))


def test_terms_are_weighed(parts, network_for, recording):
    def moved(classification, term):
        network = network_for(parts[0])
        config = FitConfig(classification=classification)
        learner = Learner(network, parts[0], replace(config, method="recording"), begun=0.0)
        both = learner.method.forward
        learner.method.forward = lambda *given, **more: {term: both(*given, **more)[term]}
        learner.optimizer = torch.optim.SGD(network.parameters(), lr=1.0)
        before = network.affine.weight.clone()
        assert learner.step(torch.arange(8))
        return network.affine.weight - before

    torch.testing.assert_close(
        moved(0.25, "classification"), 0.25 * moved(1.0, "classification"), atol=1e-5, rtol=1e-4
    )
    assert torch.equal(moved(0.25, "compatibility"), moved(1.0, "compatibility"))


def test_classification_is_learned_only_with_a_weight(parts):
    for weight, classifies in ((0.0, False), (0.5, True)):
        method = make_method(parts[0], replace(CONFIG, classification=weight))
        assert method.classifies == classifies


def test_prototypes_are_those_of_the_examples_and_only_where_needed(parts, monkeypatch):
    examples = parts[0]
    method = make_method(examples, replace(CONFIG, method="prototype_alignment"))
    expected = nb.class_means(examples.old, examples.classes, 10)
    assert any(torch.equal(buffer, expected) for buffer in method.buffers())
    cancel = torch.cat([examples.old[:1], -examples.old[:1], examples.old[2:]])
    classes = torch.cat([torch.tensor([10, 10]), examples.classes[2:]])
    make_method(Examples(examples.new, cancel, classes), CONFIG)


def test_options_reach_the_method_and_misspelt_ones_do_not(parts):
    method = make_method(parts[0], replace(CONFIG, options={"temperature": 0.5}))
    assert method.temperature == 0.5
    with pytest.raises(ConfigError, match="Did you mean `temperature`"):
        make_method(parts[0], replace(CONFIG, options={"temperatur": 0.5}))


def scripted(in_place, values):
    """Lets the held-out classes say what a test wants, after the five closed forms."""
    told = iter([0.5] * 5 + values)
    in_place("new_old_map", lambda *given: next(told))


def test_the_best_round_is_kept(fit, parts, monkeypatch, in_place):
    scripted(in_place, [0.6, 0.8, 0.7])
    states, shown = [], []
    train = Learner.train

    def remember(learner, *given):
        made = train(learner, *given)
        states.append(fitting.weights_of(learner.network))
        return made

    monkeypatch.setattr(Learner, "train", remember)
    network, progress, _ = fit(
        parts, watch=lambda progress: shown.append((progress.best, list(progress.history)))
    )
    assert progress.best == 2
    assert all(torch.equal(network.state_dict()[name], value) for name, value in states[1].items())
    assert not torch.equal(states[1]["affine.weight"], states[2]["affine.weight"])
    assert shown == [(1, [0.6]), (2, [0.6, 0.8]), (2, [0.6, 0.8, 0.7])]
    assert not network.training


def test_as_good_is_no_better(fit, parts, in_place):
    scripted(in_place, [0.5, 0.5, 0.5])
    assert fit(parts)[1].best == 0


def test_it_stops_when_nothing_is_gained(fit, parts, in_place):
    scripted(in_place, [0.4, 0.6, 0.5, 0.6, 0.5, 0.9])
    _, progress, _ = fit(parts, config=FitConfig(epochs=6, batch_size=16, patience=3))
    assert progress.history == [0.4, 0.6, 0.5, 0.6, 0.5]
    assert progress.best == 2


def test_rounds_without_a_step_do_not_count_as_waiting(fit, parts):
    config = FitConfig(epochs=8, batch_size=16, patience=1)
    _, progress, _ = fit(parts, "unibct_spr", config)  # learns from epoch 3 on, of these 8
    assert len(progress.history) >= 3


def test_without_epochs_it_is_the_closed_form(fit, parts):
    network, progress, steps = fit(parts, config=FitConfig(epochs=0))
    assert (progress.history, progress.best, steps) == ([], 0, 0)
    assert torch.equal(network.affine.weight, closed_forms(parts[0])[progress.start].weight)


def test_the_seed_decides_and_the_callers_randomness_is_left_alone(fit, parts):
    torch.manual_seed(7)
    one = fit(parts)[0].state_dict()
    torch.manual_seed(8)
    drawn = torch.rand(1)
    torch.manual_seed(8)
    method = make_method(parts[0], CONFIG)
    assert torch.equal(torch.rand(1), drawn)
    again = make_method(parts[0], CONFIG)
    assert torch.equal(method.classifier.weight, again.classifier.weight)
    other = fit(parts)[0].state_dict()
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_whoever_watches_may_draw_from_a_seed_too(fit, parts):
    def watch(progress):
        with seeded(3):
            torch.rand(1)

    worker = threading.Thread(
        target=lambda: fit(parts, watch=watch, config=FitConfig(epochs=1)), daemon=True
    )
    worker.start()
    worker.join(20)
    assert not worker.is_alive()


def test_mapping_in_blocks_is_the_same_and_without_dropout(parts, network_for, monkeypatch):
    network = network_for(parts[0])
    torch.nn.init.normal_(network.outer.weight)
    network.train()
    new = parts[0].new
    whole = embed_rows(network, new)
    monkeypatch.setattr("nobackfill.head.validation.BLOCK", 7)
    torch.testing.assert_close(embed_rows(network, new), whole)
    assert network.training
    torch.testing.assert_close(whole, F.normalize(network.eval()(new), dim=1))
    assert not whole.requires_grad


@pytest.mark.parametrize(
    "wrong",
    [
        {"epochs": -1},
        {"batch_size": 0},
        {"learning_rate": -1.0},
        {"learning_rate": float("nan")},
        {"weight_decay": -0.1},
        {"classification": float("inf")},
        {"seconds": -1.0},
        {"together": 0},
    ],
)
def test_settings_that_make_no_sense_are_told(wrong):
    with pytest.raises(ConfigError, match=f"`{next(iter(wrong))}` must be"):
        settings.check_config(FitConfig(**wrong))
