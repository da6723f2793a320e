"""--id, --vector, --label and --drop-invalid in the commands that read vectors."""

import json

import numpy as np
import pandas as pd
import pytest

import nobackfill as nb
from nobackfill.errors import DataError

COUNT, DIM = 120, 6
LABELS = np.arange(COUNT) % 24


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Files with two columns of ids and of vectors, and one row of zeros in the new file."""
    folder = tmp_path_factory.mktemp("files")
    random = np.random.default_rng(0)
    centres = random.normal(size=(24, DIM))[LABELS]
    for name, noise in (("old", 1.0), ("new", 0.3)):
        matrix = (centres + noise * random.normal(size=(COUNT, DIM))).astype(np.float32)
        matrix[7] *= name == "old"
        wide = {f"clip_{number}": matrix[:, number] for number in range(DIM)}
        other = {f"emb_{number}": 0.0 for number in range(2)}
        columns = {"item_id": np.arange(COUNT), "doc_id": "same", "kind": LABELS, **wide, **other}
        pd.DataFrame(columns).to_csv(folder / f"{name}.csv", index=False)
    return folder


def options(files, *more):
    named = ("--id", "item_id", "--vector", "clip_", "--drop-invalid")
    return "--old", files / "old.csv", "--new", files / "new.csv", *named, *more


def test_evaluate_leaves_the_item_out_of_both_files(command, files):
    code, out, err = command("evaluate", *options(files, "--label", "kind", "--json"))
    assert code == 0, err
    assert json.loads(out)["num_gallery"] == COUNT - 1
    assert (
        "1 of 120 vectors are left out, as they are missing, zero, infinite, NaN or out of range: 7"
        in err
    )
    kept = np.arange(COUNT) != 7
    sides = [
        pd.read_csv(files / f"{name}.csv").loc[kept, [f"clip_{n}" for n in range(DIM)]].to_numpy()
        for name in ("old", "new")
    ]
    expected = nb.evaluate(*(side.astype(np.float32) for side in sides), labels=LABELS[kept])
    assert json.loads(out)["new_old"] == pytest.approx(expected.summary()["new_old"], abs=1e-6)


def test_every_command_names_the_option_that_is_missing(command, files):
    pair = ("--old", files / "old.csv", "--new", files / "new.csv")
    for arguments in (
        ("evaluate", *pair),
        ("assess", *pair),
        ("fit", *pair, "-o", files / "head"),
        ("matrix", files / "old.csv", files / "new.csv"),
        ("gallery", "plan", f"flat://{files / 'old.csv'}", *pair, "-o", files / "plan.parquet"),
    ):
        code, out, err = command(*arguments)
        assert (code, out) == (2, "")
        assert "`item_id` and `doc_id` may both be the id" in err
        assert "--id item_id or --id doc_id" in err


def test_without_the_option_an_invalid_row_is_an_error_that_names_it(command, files):
    arguments = [part for part in options(files, "--label", "kind") if part != "--drop-invalid"]
    code, out, err = command("evaluate", *arguments)
    assert (code, out) == (2, "")
    assert "new.csv: The vector of id 7 (row 7) contains only zeros" in err
    assert "--drop-invalid leaves them out" in err


def test_heads_are_fitted_and_applied_with_the_options(command, files, tmp_path):
    head = tmp_path / "head"
    fit = ("fit", *options(files, "--label", "kind"), "-o", head, "--epochs", "0")
    code, _, err = command(*fit)
    assert code == 0, err
    columns = ("--id", "item_id", "--vector", "clip_", "--drop-invalid")
    made = tmp_path / "made.parquet"
    code, _, err = command("embed", head, files / "new.csv", "-o", made, *columns)
    assert code == 0, err
    assert "1 of 120 vectors are left out" in err
    assert len(nb.load_vectors(made)) == COUNT - 1
    old = ("--old", files / "old.csv", "--new", made)  # which has `id` and `vector`
    again = ("evaluate", *old, *columns, "--label", "kind", "--intersect", "--json")
    code, out, err = command(*again)
    assert code == 0, err
    code, out, err = command("matrix", files / "old.csv", files / "new.csv", *columns,
                             "--label", "kind", "--json")  # fmt: skip
    assert code == 0, err


def test_a_label_that_no_file_has_gets_a_suggestion(command, files):
    for name in ("evaluate", "assess", "fit"):
        more = ("-o", files / "head") if name == "fit" else ()
        code, out, err = command(name, *options(files, "--label", "kinds", *more))
        assert (code, out) == (2, "")
        assert "Did you mean `kind`?" in err


@pytest.fixture(scope="module")
def two_labels(tmp_path_factory):
    """Files of which two columns may be the labels by their names."""
    folder = tmp_path_factory.mktemp("two_labels")
    for name in ("old", "new"):
        matrix = np.random.default_rng(len(name)).normal(size=(COUNT, DIM)).astype(np.float32)
        columns = {"id": np.arange(COUNT), "vec": list(matrix), "price": 1.5}
        pd.DataFrame({**columns, "category": LABELS, "product": LABELS // 2}).to_parquet(
            folder / f"{name}.parquet"
        )
    return "--old", folder / "old.parquet", "--new", folder / "new.parquet"


@pytest.mark.parametrize("name", ["evaluate", "assess"])
def test_two_columns_that_may_be_labels_are_an_error_that_names_both(command, two_labels, name):
    code, out, err = command(name, *two_labels)
    assert (code, out) == (2, "")
    assert "`category` and `product` may both be the label" in err
    assert "--label category or --label product" in err
    pair = [two_labels[1], two_labels[3]]
    with pytest.raises(DataError, match="`category` and `product` may both be the label"):
        getattr(nb, name)(*pair)


def test_without_labels_the_columns_that_may_be_labels_are_named(command, files):
    for name in ("evaluate", "assess"):
        code, out, err = command(name, *options(files))
        assert code == 3, err
        assert "name a column of labels (--label may name doc_id, kind) or" in out
        vectors = nb.load_vectors(files / "old.csv", id="item_id", vector="clip_")
        with pytest.raises(DataError, match="--label may name doc_id, kind."):
            getattr(nb, name)(vectors, vectors)
