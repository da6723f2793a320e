import json
import re
from threading import Event
from time import sleep

import pytest
import torch
from safetensors.torch import load_file

from nobackfill.report.pages.demo import write_report
from nobackfill.training.demo import SHOWN, advise, demo_recipe, one_thread, run_demo
from nobackfill.training.pipeline import train_run
from nobackfill.training.run import Run

TINY = [
    "data.train_classes=20", "data.test_classes=10", "data.images_per_class=6", "data.side=16",
    "model.width=4", "model.embedding_dim=8", "train.epochs=2", "train.batch_size=32",
]  # fmt: skip


class Silent:
    def __init__(self, name, epochs):
        self.name = name

    def watch(self, batches):
        return iter(batches)

    def follow(self, epochs):
        trained.append((self.name, len(list(epochs))))


trained = []


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    trained.clear()
    folder = tmp_path_factory.mktemp("demo")
    result = run_demo(folder, device=torch.device("cpu"), show=Silent, changes=TINY)
    write_report(result, device=torch.device("cpu"))
    return result


def test_trains_six_models_and_shows_them_again_without_training(demo):
    assert trained[0] == ("old", 2)
    assert sorted(trained[1:6]) == sorted((name, 2) for name in SHOWN)
    again = run_demo(demo.folder, device=torch.device("cpu"), show=Silent, changes=TINY)
    assert sorted(trained[6:]) == sorted((name, 0) for name in ("old", *SHOWN))
    assert again.summary() == demo.summary()


def test_its_numbers_hang_together(demo):
    models = list(demo.runs)
    for name, one in demo.evaluations.items():
        row = demo.matrix[models.index(name)]
        assert one.old_old.mean_average_precision == demo.matrix[0][0]
        assert one.new_old.mean_average_precision == row[0]
        assert one.new_new.mean_average_precision == row[models.index(name)]
        assert one.independent.mean_average_precision == demo.matrix[1][1]
    assert json.loads((demo.folder / "demo.json").read_text())["methods"].keys() == set(SHOWN)


def test_the_report_shows_all_it_should(demo):
    page = demo.report.read_text()
    for what in ("NDPP", "ODPP", "BCT", "old/old", "gain today", "gallery by", "crowded families"):
        assert what in page
    assert page.count("<svg") == 5
    assert "prototype alignment" in page
    assert "Baseline" not in page  # one name for one model
    assert "NaN" not in page


def test_the_figures_of_the_report_are_told_in_words_with_their_numbers(demo):
    words = re.findall(r'<svg role="img" aria-label="([^"]*)"', demo.report.read_text())
    assert len(words) == 5
    assert all(f"{100 * value:.1f} on" in words[0] for row in demo.matrix for value in row)
    assert all(re.search(r"\d", said) for said in words)


def test_the_verdict_of_the_report_is_of_the_model_it_advises(demo):
    best = max(
        (one for name, one in demo.evaluations.items() if name != "independent"),
        key=lambda one: one.new_old.mean_average_precision,
    )
    assert f'<span class="word">{best.verdict}</span>' in demo.report.read_text()


@pytest.mark.parametrize(
    ("values", "first", "second"),
    [
        (
            (0.56, 0.3, 0.562, 0.555),
            "Switch the queries to the model trained with ndpp.*50.0 to 56.2 today, 31 %",
            "ndpp .0.2, odpp -0.5.*noise",
        ),
        ((0.56, 0.3, 0.60, 0.5), "trained with ndpp", r"ndpp \+4.0, odpp -6.0.*train more"),
        (
            (0.45, 0.3, 0.44, 0.43),
            "Keep the old model.*prototype_alignment.*45.0",
            "noise|more",
        ),
    ],
)
def test_says_in_two_sentences_what_to_conclude(values, first, second):
    sentences = advise(0.5, 0.7, dict(zip(SHOWN[1:], values, strict=True)))
    assert len(sentences) == 2
    assert re.search(first, sentences[0])
    assert re.search(second, sentences[1])


def test_the_old_model_starts_from_other_weights_than_the_new(demo):
    seeds = {name: Run.open(demo.folder / name).lineage().weights_seed for name in ("old", "odpp")}
    assert len(set(seeds.values()) - {None}) == 2
    assert demo_recipe("old", demo.folder).data == demo_recipe("odpp", demo.folder).data


def test_training_side_by_side_changes_nothing(demo, tmp_path):
    one = demo_recipe("odpp", demo.folder / "old", changes=TINY)
    list(train_run(one, tmp_path / "alone", device=torch.device("cpu")))
    alone, beside = (
        load_file(f / "model.safetensors") for f in (tmp_path / "alone", demo.folder / "odpp")
    )
    assert all(torch.equal(alone[key], beside[key]) for key in alone)


def test_a_failure_stops_the_others_and_is_told(tmp_path):
    class Fails(Silent):
        def follow(self, epochs):
            if self.name == "bct":
                raise RuntimeError("out of ink")
            super().follow(epochs)

    with pytest.raises(RuntimeError, match="out of ink"):
        run_demo(tmp_path, device=torch.device("cpu"), show=Fails, changes=TINY)
    trained.clear()
    run_demo(tmp_path, device=torch.device("cpu"), show=Silent, changes=TINY)  # and goes on
    assert ("bct", 2) in trained


def test_a_tie_is_no_reason_to_switch():
    assert advise(0.5, 0.7, dict.fromkeys(SHOWN[1:], 0.5))[0].startswith("Keep the old model")


@pytest.mark.parametrize("ceiling", [0.7, 0.5, 0.4])
def test_embedding_again_is_advised_only_where_a_new_model_is_better(ceiling):
    first, _ = advise(0.5, ceiling, dict.fromkeys(SHOWN[1:], 0.45))
    assert ("or embed the gallery again" in first) is (ceiling > 0.5)


def test_one_thread_for_a_while():
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    with one_thread():
        assert torch.get_num_threads() == 1
    assert torch.get_num_threads() == 2
    torch.set_num_threads(threads)


def test_every_recipe_gets_the_seed(tmp_path, monkeypatch):
    def stop(data):
        raise RuntimeError(f"seed {data.options['seed']}")

    monkeypatch.setattr("nobackfill.training.demo.make_collection", stop)
    with pytest.raises(RuntimeError, match="seed 5"):
        run_demo(tmp_path, device=torch.device("cpu"), show=Silent, seed=5, changes=TINY)


def test_the_others_end_with_their_epoch_when_one_fails(tmp_path):
    class Fails(Silent):
        def follow(self, epochs):
            if self.name == "independent":
                assert training.wait(60)
                raise RuntimeError("out of ink")
            for epoch in epochs:
                seen.append((self.name, epoch.epoch))
                if self.name == "prototype_alignment":
                    training.set()
                    sleep(0.1)

    training, seen, threads = Event(), [], torch.get_num_threads()
    torch.set_num_threads(2)  # two trainings at a time
    try:
        with pytest.raises(RuntimeError, match="out of ink"):
            run_demo(
                tmp_path,
                device=torch.device("cpu"),
                show=Fails,
                changes=[*TINY, "train.epochs=20"],
            )
    finally:
        torch.set_num_threads(threads)
    assert ("prototype_alignment", 19) not in seen
