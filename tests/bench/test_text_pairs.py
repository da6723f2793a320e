"""The benchmark of fine-tuning on pairs, on a tiny mirror and a tiny model; and its table."""

import importlib.util
import json
import random
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

if find_spec("sentence_transformers") is None:
    pytest.skip("sentence-transformers is not installed", allow_module_level=True)
BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
sys.path[:0] = [str(Path(__file__).parents[1] / "integrations"), str(BENCHMARKS)]

from tiny_models import WORDS, tiny_model


def load(name):
    spec = importlib.util.spec_from_file_location(name, BENCHMARKS / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


bench = load("text_pairs")
page = load("text_pairs_table")


@pytest.fixture
def small(tmp_path, monkeypatch):
    """A mirror of 200 packages, captions of 60 photographs, and sizes that they allow."""
    sizes = {"TRAIN": 64, "VALIDATION": 8, "QUERIES": 20, "DOCUMENTS": 40, "TRIAL": 32}
    for name, size in sizes.items():
        monkeypatch.setattr(bench, name, size)
    monkeypatch.setattr(bench, "load_model", lambda: tiny_model(tmp_path / str(random.random())))
    draw = random.Random(0)
    paragraphs, captions = [], []
    for number in range(200):
        words = draw.sample(WORDS, 24)
        text = " ".join(words)
        synopsis = " ".join(words[:5])
        paragraphs.append(f"Package: p{number}\nDescription-en: {synopsis}\n {text}\n")
    for number in range(60):
        words = draw.sample(WORDS, 8)
        captions += [
            f"{number}.jpg#{place}\t{' '.join(draw.sample(words, 6))}" for place in range(5)
        ]
    (tmp_path / "x_Translation-en").write_text("\n".join(paragraphs))
    (tmp_path / "Flickr8k.token.txt").write_text("\n".join(captions) + "\n")
    for place, name in enumerate(("train", "dev", "test")):
        (tmp_path / f"Flickr_8k.{name}Images.txt").write_text(f"{place}.jpg\n")
    return tmp_path


@pytest.mark.parametrize("name", ["debian", "flickr8k_captions"])
def test_no_text_of_the_test_is_trained_on_or_chosen_by(small, name):
    parts = bench.COLLECTIONS[name](small)
    groups = [{pair.group for pair in parts.train}]
    for part in ("validation", "test"):
        search = parts.searches[part]
        asked = {group for _, group in search["queries"]}
        found = {group for _, group in search["documents"]}
        assert asked <= found
        groups.append(found)
    assert len(parts.train) == 64
    assert len(parts.searches["test"]["documents"]) == 40
    assert len(parts.searches["test"]["queries"]) == (20 if name == "debian" else 10)
    assert sum(map(len, groups)) == len(set().union(*groups))


def test_runs_are_made_once_and_options_chosen_by_trials(small, monkeypatch, capsys):
    def start(*more):
        words = ["text_pairs.py", "--work", small / "work", "--debian", small, "--seeds", "2",
                 "--methods", "plain", "adapter", "odpp", "frozen_documents",
                 "-o", small / "lines.jsonl", *more]  # fmt: skip
        monkeypatch.setattr(sys, "argv", [str(word) for word in words])
        bench.main()

    start()
    lines = [json.loads(line) for line in (small / "lines.jsonl").read_text().splitlines()]
    assert len(lines) == 1 + 4 * 3 + 4 * 2
    assert not list((small / "work" / "debian").glob("state*"))
    for line in lines:
        for pair, measured in line["results"].items():
            assert 0 <= measured["map"] <= 1, pair
    by_method = {
        line["method"]: line["results"]
        for line in lines
        if (line["stage"], line["seed"]) == ("test", 0)
    }
    assert set(by_method["adapter"]) == {"new/old", "both/old"}
    assert {"new/old", "new/new", "both/old"} <= set(by_method["odpp"])
    # a second start finds every line; a removed one is made again, with the same numbers
    start()
    assert len((small / "lines.jsonl").read_text().splitlines()) == len(lines)
    kept = [line for line in lines if line["method"] != "frozen_documents"]
    (small / "lines.jsonl").write_text("".join(json.dumps(line) + "\n" for line in kept))
    start()
    again = bench.read_lines(small / "lines.jsonl", key=bench.key)
    assert {bench.key(line): line["results"] for line in again} == {
        bench.key(line): line["results"] for line in lines
    }


def line(stage, method, option, seed=0, *, new_old, new_new=None):
    results = {"new/old": new_old} | ({} if new_new is None else {"new/new": new_new})
    measured = {
        pair: {"map": value, "ndcg_at_10": value, "recall_at_1": value / 2,
               "negative_flips": 0.01, "positive_flips": 0.02}
        for pair, value in {**results, "both/old": new_old}.items()
    }  # fmt: skip
    return {"stage": stage, "collection": "debian", "method": method, "seed": seed,
            "option": option, "results": measured}  # fmt: skip


def test_the_option_with_the_best_mean_of_both_searches_is_chosen():
    lines = [
        line("trial", "contrast", 1.0, new_old=0.7, new_new=0.7),
        line("trial", "contrast", 0.5, new_old=0.6, new_new=0.9),
        line("trial", "contrast", 2.0, new_old=0.8, new_new=0.6),
        line("trial", "plain", 8e-5, new_old=0.9, new_new=0.9),
        line("test", "contrast", 2.0, new_old=0.9, new_new=0.9),
    ]
    assert bench.choose(lines, "debian", "contrast") == 0.5
    assert bench.choose(lines, "flickr8k_captions", "contrast") == 1.0  # the usual one


def test_the_table_has_means_over_seeds_of_the_chosen_option():
    lines = [
        *(
            line("trial", "contrast", option, new_old=option / 10, new_new=0.5)
            for option in (1.0, 0.5, 2.0)
        ),
        *(line("test", "contrast", 2.0, seed, new_old=0.50 + seed / 100, new_new=0.8)
          for seed in range(3)),
        line("test", "contrast", 1.0, new_old=0.1, new_new=0.1),
        line("test", "plain", 4e-5, new_old=0.4, new_new=0.9),
        line("test", "adapter", 1e-3, new_old=0.3),
    ]  # fmt: skip
    rows = [row for row in page.render(lines).splitlines() if row.startswith("| plain +")]
    assert rows == [
        "| plain + `contrast` (default), weight 2 | 3 | 51.0 ± 2.5 / 51.0 / 25.5 | 1.0, 2.0 | "
        "80.0 ± 0.0 / 80.0 / 40.0 | 51.0 ± 2.5 / 51.0 / 25.5 |"
    ]
    text = page.render(lines)
    assert "| plain fine-tuning, learning_rate 4e-05 (usual) | 1 | 40.0 / 40.0 / 20.0 |" in text
    assert "| linear adapter on old queries, learning_rate 0.001 (usual) | 1 |" in text
    assert text.count("–") == 1
    assert page.render([]) == "Nothing was measured yet.\n"


def test_the_table_is_put_between_its_marks():
    before = f"# Title\n{page.BEGIN}\nold\n{page.END}\nend"
    assert page.between(before, "new") == f"# Title\n{page.BEGIN}\n\nnew\n{page.END}\nend"


def test_the_page_has_the_tables_of_the_lines():
    lines = bench.read_lines(BENCHMARKS / "text_pairs.jsonl", key=bench.key)
    text = page.PAGE.read_text(encoding="utf-8")
    assert page.between(text, page.render(lines)) == text


def test_the_adapter_finds_a_rotation(monkeypatch):
    generator = torch.Generator().manual_seed(0)
    documents = torch.nn.functional.normalize(torch.randn(200, 8, generator=generator))
    rotation = torch.linalg.qr(torch.randn(8, 8, generator=generator))[0]
    pairs = [bench.TextPair("", "", "", str(row), group=str(row)) for row in range(200)]
    old = {
        "rows": {str(row): row for row in range(200)},
        "groups": {str(row): row for row in range(200)},
        "train/queries": documents @ rotation,
        "train/documents": documents,
    }
    ask = bench.adapter(pairs, old, 0, 1e-2, epochs=60)
    found = (ask(old["train/queries"]) @ documents.T).argmax(dim=1)
    assert (found == torch.arange(200)).double().mean() > 0.95
    before = (old["train/queries"] @ documents.T).argmax(dim=1)
    assert (before == torch.arange(200)).double().mean() < 0.2
