"""Ways to fool the commands around a head: fit, embed, evaluate, declare and assess."""

import numpy as np
import pytest
import torch

import nobackfill as nb
from nobackfill.errors import DataError, SpaceMismatch
from nobackfill.evaluation.declare import declare_compatible
from nobackfill.vectors.records import space_of
from nobackfill.vectors.space import Space

QUICK = ("--epochs", "2", "--hidden", "16", "--device", "cpu")
OLD, NEW = Space(dim=16, weights="old"), Space(dim=16, weights="new")


@pytest.fixture
def save(tmp_path):
    """Writes both files of an upgrade, which declare their models."""

    def write(upgrade):
        for name, space in (("old", OLD), ("new", NEW)):
            file = getattr(upgrade, name)
            object.__setattr__(file, "space", space)
            file.save(tmp_path / f"{name}.parquet")
        return upgrade

    return write


@pytest.fixture
def fit_and_evaluate(nobackfill, tmp_path):
    """Runs the three commands of the README; returns the exit code and the text of `evaluate`."""
    old, new, mapped = (tmp_path / f"{name}.parquet" for name in ("old", "new", "mapped"))

    def run(*of_fit, declare=False):
        head = tmp_path / "head"
        code, _, err = nobackfill(
            "fit", "--old", old, "--new", new, "-o", head, *QUICK, "--without-old-query", *of_fit
        )
        assert code == 0, err
        assert nobackfill("embed", head, new, "-o", mapped, "--device", "cpu")[0] == 0
        last = ("--declare", head) if declare else ("--require-compatible",)
        code, out, err = nobackfill(
            "evaluate", "--old", old, "--new", mapped, "--device", "cpu", *last
        )
        return code, " ".join(f"{out} {err}".split())

    return run


def by_python(upgrade, **settings):
    """The verdict on a head that was fitted on the files, and the notes."""
    head = nb.CompatibleHead(epochs=2, hidden=16, old_query=False, **settings).fit(
        upgrade.new, upgrade.old
    )
    result = nb.evaluate(upgrade.old, head.transform(upgrade.new))
    return result.verdict, " ".join(result.notes)


@pytest.fixture
def noise(world, save):
    """New vectors that know nothing: a head can learn the fitted items by heart, and no others."""
    w = world(classes=40, items=6)
    return save(w.upgrade(w.view(), w.random(w.size)))


def test_noise_is_tested_on_classes_that_fit_kept(noise, fit_and_evaluate):
    verdict, notes = by_python(noise)
    assert verdict in ("not compatible", "undecided")
    assert "queries are left out" in notes
    code, text = fit_and_evaluate()
    assert code in (1, 3)
    assert "queries are left out" in text


def test_noise_is_not_mapped_without_old_queries(noise, nobackfill, tmp_path):
    """Without an option, `fit` lets both models ask; the next command of the README stops."""
    head, new = tmp_path / "head", tmp_path / "new.parquet"
    code, out, _ = nobackfill(
        "fit",
        "--old",
        tmp_path / "old.parquet",
        "--new",
        new,
        "-o",
        head,
        *QUICK,
        "--method",
        "auto",
    )
    assert code == 0
    assert f"embed {head} NEW --old OLD" in " ".join(out.split())
    code, _, err = nobackfill("embed", head, new, "-o", tmp_path / "mapped.parquet")
    assert code == 2
    assert "needs both" in err


def test_noise_that_was_fitted_on_all_items(noise, fit_and_evaluate):
    verdict, notes = by_python(noise, test_share=0.0)
    assert verdict == "undecided"
    assert "fitted on all 240 queries" in notes
    code, text = fit_and_evaluate("--test-share", "0")
    assert code == 3
    assert "fitted on all 240 queries" in text


def test_few_classes_leave_nothing_to_test(world, save, fit_and_evaluate):
    w = world(classes=12, items=10)
    upgrade = save(w.upgrade(w.view(), w.view(spread=0.3)))
    verdict, notes = by_python(upgrade)
    assert verdict == "undecided"
    assert "fitted on all 120 queries" in notes
    code, text = fit_and_evaluate()
    assert code == 3
    assert "fitted on all 120 queries" in text


def test_noise_that_was_fitted_on_arrays(world, tmp_path, nobackfill):
    """Rows without ids are known by their vectors."""
    w = world(classes=40, items=6)
    upgrade = w.upgrade(w.view(), w.random(w.size))
    head = nb.CompatibleHead(epochs=2, hidden=16, old_query=False)
    head.fit(upgrade.new.vectors, upgrade.old.vectors, w.labels)
    mapped = head.transform(upgrade.new)
    result = nb.evaluate(upgrade.old, mapped)
    assert result.verdict == "undecided"
    assert "fitted on all 240 queries" in " ".join(result.notes)
    upgrade.old.save(tmp_path / "old.parquet")
    mapped.save(tmp_path / "mapped.parquet")
    files = ("--old", tmp_path / "old.parquet", "--new", tmp_path / "mapped.parquet")
    code, out, _ = nobackfill("evaluate", *files, "--device", "cpu", "--require-compatible")
    assert code == 3
    assert "fitted on all 240 queries" in " ".join(out.split())


@pytest.mark.parametrize("names", [("Train", "TEST"), ("training", "val"), ("fit", "dev")])
def test_noise_with_a_split_of_other_names(world, save, fit_and_evaluate, names):
    w = world(classes=40, items=6)
    split = np.where(w.labels < 20, *names)
    upgrade = save(w.upgrade(w.view(), w.random(w.size), split=split))
    verdict, _ = by_python(upgrade)
    assert verdict in ("not compatible", "undecided")
    code, text = fit_and_evaluate()
    assert code in (1, 3)
    assert "120 queries, 120 gallery items" in text


def test_a_split_by_items_leaks_the_classes(world, save, fit_and_evaluate):
    w = world(classes=20, items=12)
    split = np.where(np.arange(w.size) % 2, "train", "validation")
    upgrade = save(w.upgrade(w.view(), w.view(spread=0.3), split=split))
    verdict, notes = by_python(upgrade)
    assert verdict == "undecided"
    assert "fitted on all 120 queries" in notes
    code, text = fit_and_evaluate()
    assert code == 3
    assert "fitted on all 120 queries" in text


def test_a_split_of_unknown_names_is_refused_by_name(world, save, nobackfill, tmp_path):
    w = world()
    split = np.where(w.labels < 12, "trian", "test")
    upgrade = save(w.upgrade(w.view(), w.view(spread=0.3), split=split))
    with pytest.raises(DataError, match="'trian'"):
        by_python(upgrade)
    with pytest.raises(DataError, match="'trian'"):
        nb.assess(upgrade.old, upgrade.new)
    files = ("--old", tmp_path / "old.parquet", "--new", tmp_path / "new.parquet")
    for command in (("fit", "-o", tmp_path / "head", *QUICK), ("assess", "--device", "cpu")):
        code, _, err = nobackfill(*command, *files)
        assert code == 2
        assert "'trian'" in err


def test_a_head_that_maps_shifted_rows(world, save, tmp_path, nobackfill):
    """The head is good; the file that it maps has all rows one too low."""
    w = world(classes=40, items=6)
    turn = torch.linalg.qr(w.random(w.dim)).Q
    split = np.where(w.labels < 20, "train", "validation")
    upgrade = save(w.upgrade(w.view(), w.view(noise=0.3) @ turn, split=split))
    head = nb.CompatibleHead(epochs=2, hidden=16, old_query=False).fit(upgrade.new, upgrade.old)
    shifted = nb.Vectors(upgrade.new.ids, upgrade.new.vectors.roll(1, 0))
    mapped = head.transform(shifted)
    result = nb.evaluate(upgrade.old, mapped)
    assert result.verdict == "undecided"
    assert "1 row above their own" in " ".join(result.notes)
    mapped.save(tmp_path / "mapped.parquet")
    code, out, _ = nobackfill(
        "evaluate", "--old", tmp_path / "old.parquet", "--new", tmp_path / "mapped.parquet",
        "--require-compatible", "--device", "cpu",
    )  # fmt: skip
    assert code == 3
    assert "1 row above their own" in " ".join(out.split())


def test_a_head_is_not_declared_by_the_items_it_was_fitted_on(noise, fit_and_evaluate, tmp_path):
    code, text = fit_and_evaluate("--test-share", "0", declare=True)
    assert code == 3
    assert "cannot be declared compatible" in text
    assert "fitted on all 240 queries" in text
    assert not space_of(tmp_path / "head").compatible_with


def test_a_head_is_not_declared_by_nearly_only_fitted_items(world, save, tmp_path, nobackfill):
    """One of 1,000 queries was not fitted on."""
    w = world(classes=200, items=5)
    upgrade = save(w.upgrade(w.view(), w.random(w.size)))
    rows = slice(0, w.size - 1)
    fitted = [nb.Vectors(file.ids[rows], file.vectors[rows], w.labels[rows], space=file.space)
              for file in (upgrade.new, upgrade.old)]  # fmt: skip
    head = nb.CompatibleHead(epochs=1, hidden=0, test_share=0.0, old_query=False).fit(*fitted)
    mapped = head.transform(upgrade.new)
    head.save_pretrained(tmp_path / "head")
    with pytest.raises(SpaceMismatch, match="fitted on all 1,000 queries"):
        declare_compatible(tmp_path / "head", nb.evaluate(upgrade.old, mapped))
    mapped.save(tmp_path / "mapped.parquet")
    code, _, err = nobackfill(
        "evaluate", "--old", tmp_path / "old.parquet", "--new", tmp_path / "mapped.parquet",
        "--declare", tmp_path / "head", "--device", "cpu",
    )  # fmt: skip
    assert code == 3
    assert "fitted on all 1,000 queries" in err
    assert not space_of(tmp_path / "head").compatible_with


def assessed(upgrade, nobackfill, tmp_path):
    """The verdict of `assess` in Python, and the exit code and the text of the command."""
    verdict = nb.assess(upgrade.old, upgrade.new, epochs=1)
    files = ("--old", tmp_path / "old.parquet", "--new", tmp_path / "new.parquet")
    code, out, err = nobackfill("assess", *files, "--epochs", "1", "--device", "cpu")
    return verdict.verdict, code, " ".join(f"{out} {err}".split())


GO = ("upgrade with head", "two-stage")


def test_assess_counts_copied_classes_once(world, save, nobackfill, tmp_path):
    w = world(classes=4, items=6, seed=3)
    new = w.view()
    new[:18] += 0.6 * w.means[w.labels[:18]]
    labels = np.concatenate([w.labels + 4 * copy for copy in range(12)])
    w.ids = [f"item {row}" for row in range(len(labels))]
    upgrade = save(w.upgrade(w.view().repeat(12, 1), new.repeat(12, 1), labels=labels))
    verdict, code, _ = assessed(upgrade, nobackfill, tmp_path)
    assert verdict not in GO
    assert code in (1, 3)


def test_assess_is_not_fooled_by_shuffled_labels(world, save, nobackfill, tmp_path):
    w = world(classes=40, items=4)
    upgrade = save(w.upgrade(w.view(), w.view(spread=0.3), labels=w.shuffled(w.labels)))
    verdict, code, _ = assessed(upgrade, nobackfill, tmp_path)
    assert verdict not in GO
    assert code in (1, 3)


def test_assess_is_not_fooled_by_a_rotation(world, save, nobackfill, tmp_path):
    w = world(classes=40, items=4)
    turn = torch.linalg.qr(w.random(w.dim)).Q
    upgrade = save(w.upgrade(w.view(), w.view() @ turn))
    verdict, code, text = assessed(upgrade, nobackfill, tmp_path)
    assert (verdict, code) == ("keep the old model", 1)
    assert "only rotated" in text


def test_assess_searches_queries_and_gallery_of_the_columns(world, save, nobackfill, tmp_path):
    """The new model is better for items that nobody searches, and useless for the others."""
    w = world(classes=40, items=10)
    is_searched = np.arange(w.size) % 10 < 4
    is_query = np.arange(w.size) % 10 == 0
    new = w.view(spread=0.3)
    new[torch.from_numpy(is_searched)] = w.random(int(is_searched.sum()))
    upgrade = save(w.upgrade(w.view(), new, is_query=is_query, is_gallery=is_searched & ~is_query))
    verdict, code, _ = assessed(upgrade, nobackfill, tmp_path)
    assert verdict not in GO
    assert code in (1, 3)


def test_assess_refuses_few_classes(world, save, nobackfill, tmp_path):
    w = world(classes=20)
    upgrade = save(w.upgrade(w.view(), w.view(spread=0.3)))
    with pytest.raises(DataError, match="at least 30 classes"):
        nb.assess(upgrade.old, upgrade.new, epochs=1)
    files = ("--old", tmp_path / "old.parquet", "--new", tmp_path / "new.parquet")
    code, _, err = nobackfill("assess", *files, "--device", "cpu")
    assert code == 2
    assert "at least 30 classes" in err


@pytest.mark.parametrize(
    ("flaw", "says"),
    [("nan", "NaN"), ("infinity", "infinit"), ("zero", "zero"), ("twice", "Ids must be unique")],
)
def test_flawed_files_are_refused(world, nobackfill, tmp_path, flaw, says):
    """A failed download is a row of zeros or NaN, which might find anything."""
    w = world()
    old, new, ids = w.view(), w.view(spread=0.3), list(w.ids)
    if flaw == "twice":
        ids[5] = ids[4]
    else:
        new[5] = {"nan": torch.nan, "infinity": torch.inf, "zero": 0.0}[flaw]
    np.savez(tmp_path / "old.npz", id=np.array(w.ids), vector=old.numpy(), label=w.labels)
    np.savez(tmp_path / "new.npz", id=np.array(ids), vector=new.numpy())
    with pytest.raises(DataError, match=says):
        nb.load_vectors(tmp_path / "new.npz")
    for command in (
        ("evaluate", "--require-compatible"),
        ("fit", "-o", tmp_path / "head"),
        ("assess",),
    ):
        files = ("--old", tmp_path / "old.npz", "--new", tmp_path / "new.npz")
        code, _, err = nobackfill(*command, *files, "--device", "cpu")
        assert code == 2
        assert says in err
