"""No fit returns queries that are surely below the old model's without being asked for."""

import pytest
import torch

import nobackfill as nb
from nobackfill.errors import ConfigError


@pytest.fixture(scope="module")
def noise(items):
    """New vectors that know nothing, and an old model that knows the classes."""
    data = items(classes=24)
    generator = torch.Generator().manual_seed(1)
    data.new = torch.randn(data.new.shape, generator=generator)
    return data


@pytest.fixture(scope="module")
def worse(noise, head):
    return head("auto").fit(noise.new, noise.old, noise.labels)


def test_a_head_that_surely_loses_asks_with_both(noise, worse):
    progress = worse.progress_
    assert progress.new_alone == "worse"
    assert progress.gain["high"] < 0
    assert progress.gain["mean"] == pytest.approx(progress.kept - progress.old_old, abs=0.02)
    assert progress.both[f"{worse.old_weight:g}"] >= progress.old_old - 1e-9
    with pytest.raises(ConfigError, match="needs both"):
        worse.transform(noise.new)
    assert worse.transform(noise.new, old=noise.old).shape == noise.old.shape
    told = "queries need their old vectors" if worse.old_weight < 1 else "returns the old vector"
    assert any(told in note for note in worse.notes_)


def test_new_vectors_alone_must_be_asked_for(noise, head):
    alone = head("auto", old_query=False).fit(noise.new, noise.old, noise.labels)
    assert alone.old_weight is None
    assert alone.progress_.new_alone == "worse"
    assert alone.transform(noise.new).shape == noise.old.shape
    assert any("below the old model" in note and "do not serve" in note for note in alone.notes_)


def test_a_head_that_surely_gains_asks_alone(items, head):
    data = items(classes=60)
    done = head("auto").fit(data.new, data.old, data.labels)
    assert done.progress_.new_alone == "better"
    assert done.progress_.gain["low"] > 0
    assert done.old_weight is None
    assert "beyond chance" in str(done)


def test_too_few_classes_decide_nothing(noise, head):
    few = noise.labels < 12
    done = head().fit(noise.new[few], noise.old[few], noise.labels[few])
    assert done.progress_.new_alone == "unknown"
    assert done.progress_.gain["low"] is None
    assert done.old_weight is None
    assert any("below the old model" in note for note in done.notes_)
    assert "Too few classes" in str(done)


def test_the_comparison_is_stored(worse, noise, tmp_path):
    worse.save_pretrained(tmp_path / "head")
    again = nb.CompatibleHead.from_pretrained(tmp_path / "head")
    assert again.progress_.gain == worse.progress_.gain
    assert (again.progress_.new_alone, again.old_weight) == ("worse", worse.old_weight)
    assert "worse than the old model's, beyond chance" in str(again)


def test_extra_dimensions_exclude_old_queries(noise, head):
    done = head("auto", extra=2).fit(noise.new, noise.old, noise.labels)
    assert done.progress_.new_alone == "worse"
    assert done.old_weight is None
    assert done.transform(noise.new).shape == (len(noise.new), 8)
