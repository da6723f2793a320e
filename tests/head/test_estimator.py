"""CompatibleHead among the estimators of scikit-learn."""

import subprocess
import sys

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.decomposition import PCA
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import ParameterGrid
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils import get_tags
from sklearn.utils.validation import check_is_fitted

import nobackfill as nb
from nobackfill.errors import ConfigError, DataError, NotFitted


@pytest.fixture
def arrays(items):
    data = items()
    return data.new.numpy(), data.old.numpy(), data.labels.numpy()


def test_the_constructor_stores_its_arguments_unchanged():
    options, changed = {"temperature": 0.2}, {"method": "mimic", "hidden": -5, "seconds": -1.0}
    head = nb.CompatibleHead(**changed, options=options)
    assert head.options is options
    assert {name: getattr(head, name) for name in changed} == changed  # a fit checks them
    assert set(vars(head)) == set(head.get_params())
    with pytest.raises(ConfigError, match="`hidden` must be 0 or more"):
        nb.CompatibleHead(hidden=-5).fit(torch.randn(9, 3), torch.randn(9, 3))


def test_settings_are_read_and_changed_by_name(head):
    made = head(seed=4)
    copy = clone(made)
    assert copy is not made
    assert copy.get_params() == made.get_params()
    assert copy.set_params(epochs=7, hidden=0) is copy
    assert (copy.epochs, copy.hidden, made.epochs) == (7, 0, 3)
    with pytest.raises(ConfigError, match="unknown parameter `epoch`. Did you mean `epochs`"):
        copy.set_params(epoch=3)
    grid = [clone(made).set_params(**p).seed for p in ParameterGrid({"seed": [1, 2]})]
    assert grid == [1, 2]


def test_a_copy_is_not_fitted(fitted):
    copy = clone(fitted)
    assert not hasattr(copy, "network_")
    assert repr(copy) in repr(fitted)


def test_what_a_fit_sets_ends_with_an_underscore(arrays, head):
    made = head()
    assert made.fit(*arrays) is made
    found = set(vars(made)) - set(made.get_params())
    assert found
    assert all(name.endswith("_") for name in found)
    assert made.n_features_in_ == 8
    made.fit(arrays[0][:, :5], arrays[1])
    assert made.n_features_in_ == 5


def test_before_a_fit_the_error_is_that_of_scikit_learn(arrays, head):
    made = head()
    assert not hasattr(made, "n_features_in_")
    for error in (NotFitted, DataError, ValueError, AttributeError):
        with pytest.raises(error, match="This head is not fitted. Call `fit` first."):
            made.transform(arrays[0])
    with pytest.raises(NotFittedError, match="CompatibleHead instance is not fitted yet"):
        check_is_fitted(made)
    check_is_fitted(made.fit(*arrays))


def test_a_head_that_was_read_is_fitted(arrays, head, tmp_path):
    head().fit(*arrays).save_pretrained(tmp_path)
    read = nb.CompatibleHead.from_pretrained(tmp_path)
    check_is_fitted(read)
    assert read.n_features_in_ == 8


def test_tags_describe_it(head):
    tags = get_tags(head())
    assert tags.estimator_type is None
    assert tags.target_tags.required
    assert tags.transformer_tags is not None


def test_it_is_the_last_step_of_a_pipeline(arrays, head):
    new, old, labels = arrays
    pipeline = Pipeline([("scale", StandardScaler()), ("head", head())])
    with pytest.raises(NotFittedError):
        pipeline.transform(new)
    assert pipeline.fit(new, old, head__labels=labels) is pipeline
    check_is_fitted(pipeline)
    scaled = StandardScaler().fit_transform(new)
    by_hand = head().fit(scaled, old, labels)
    mapped = pipeline.transform(new)
    assert isinstance(mapped, np.ndarray)
    assert mapped.dtype == np.float32
    assert np.array_equal(mapped, by_hand.transform(scaled))
    assert pipeline[-1].supervision_ == "labels"
    again = clone(pipeline).fit_transform(new, old, head__labels=labels)
    assert np.array_equal(again, mapped)
    assert nb.evaluate(old, mapped, labels=labels).new_old.mean_average_precision > 0


def test_groups_and_pairs_reach_it_through_a_pipeline(arrays, head):
    new, old, labels = arrays
    for kind, value in {"groups": labels, "pairs": {row: [row + 15] for row in range(75)}}.items():
        pipeline = Pipeline([("turn", PCA(8)), ("head", head())])
        pipeline.fit(new, old, **{f"head__{kind}": value})
        assert pipeline[-1].supervision_ == kind


def test_steps_may_follow_it(arrays, head):
    new, old, labels = arrays
    pipeline = Pipeline([("head", head(epochs=0)), ("scale", StandardScaler())])
    mapped = pipeline.fit(new, old, head__labels=labels).transform(new)
    assert pipeline[0].supervision_ == "labels"
    assert mapped.std(axis=0) == pytest.approx(np.ones(6), rel=1e-4)


def test_a_pipeline_prints_it(arrays, head):
    pipeline = make_pipeline(StandardScaler(), head(seed=4))
    assert "CompatibleHead(" in repr(pipeline)
    assert "seed=4" in repr(pipeline)
    pipeline.fit(arrays[0], arrays[1])
    assert "CompatibleHead" in pipeline._repr_html_()


def test_scikit_learn_is_not_needed():
    code = """
import sys
sys.modules["sklearn"] = None
import numpy as np, nobackfill as nb
random = np.random.default_rng(0)
head = nb.CompatibleHead(epochs=0).fit(random.normal(size=(40, 4)), random.normal(size=(40, 3)))
assert head.n_features_in_ == 4
assert "epochs=0" in repr(head)
assert head._repr_html_().startswith("<p>CompatibleHead(")
assert nb.CompatibleHead(**head.get_params()).get_params() == head.get_params()
"""
    subprocess.run([sys.executable, "-c", code], check=True)
