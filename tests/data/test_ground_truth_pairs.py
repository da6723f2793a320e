"""Tables of pairs: the same from every format, or an error that says what is wrong."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from nobackfill.data.ground_truth import read_ground_truth, read_pairs
from nobackfill.errors import ConfigError, DataError

SEPARATORS = {".csv": ",", ".tsv": "\t"}
ROWS = [("q", "b"), ("007", "b"), ("q", "a, or A"), ("q", "b"), ("b", "q")]

every_format = pytest.mark.parametrize("suffix", [".csv", ".tsv", ".parquet"])


def write(folder, suffix, rows, names=("query", "relevant")):
    """A table of texts; what is None is missing."""
    path = folder / f"pairs{suffix}"
    if suffix == ".parquet":
        columns = zip(*rows, strict=True) if rows else [[] for _ in names]
        pq.write_table(pa.table([pa.array(one, pa.string()) for one in columns], names), path)
        return path
    cells = [[f'"{cell}"' if cell and " " in cell else cell or "" for cell in row] for row in rows]
    lines = [SEPARATORS[suffix].join(row) for row in [names, *cells]]
    path.write_text("\n".join(lines) + "\n")
    return path


@every_format
def test_rows_of_a_query_are_put_together(tmp_path, suffix):
    found = read_pairs(write(tmp_path, suffix, ROWS))
    assert found == {"q": ["b", "a, or A"], "007": ["b"], "b": ["q"]}
    assert list(found) == ["q", "007", "b"]


@every_format
def test_the_order_of_the_columns_is_free(tmp_path, suffix):
    path = write(tmp_path, suffix, [("b", "q")], names=("relevant", "query"))
    assert read_pairs(path) == {"q": ["b"]}


@every_format
def test_what_queries_shall_find_may_be_pairs(tmp_path, suffix):
    path = write(tmp_path, suffix, ROWS)
    truth = read_ground_truth(path)
    assert truth.relevant == read_pairs(path)
    assert not truth.ignored
    assert read_ground_truth(path.rename(tmp_path / f"P{suffix.upper()}")).relevant
    with pytest.raises(ConfigError, match="`hard` applies only .*one way to count"):
        read_ground_truth(path, level="hard")


def test_ids_that_are_numbers_are_written_out(tmp_path):
    pq.write_table(pa.table({"query": [7, 7], "relevant": [10, 2]}), tmp_path / "pairs.parquet")
    assert read_pairs(tmp_path / "pairs.parquet") == {"7": ["10", "2"]}


@every_format
def test_ids_that_look_like_numbers_stay_as_they_are(tmp_path, suffix):
    path = write(tmp_path, suffix, [("007", "1e3"), ("007", "2")])
    assert read_pairs(path) == {"007": ["1e3", "2"]}


@every_format
@pytest.mark.parametrize(
    ("rows", "names", "told"),
    [
        (
            [("q", "b")],
            ("query", "item"),
            "no column `relevant`; the columns are query, item. Rename",
        ),
        ([("q", "b")], ("a", "b"), "no column `query` and no `relevant`"),
        ([], ("query", "relevant"), "it has no rows"),
        (
            [("q", "b"), ("", "c"), ("r", "d"), (None, "e")],
            ("query", "relevant"),
            "`query` is empty in 2 rows; the first is row 2",
        ),
        ([("q", "b"), ("q", "c"), ("q", None)], ("query", "relevant"), "`relevant` .*row 3"),
        (
            [("q", "b", "0")],
            ("query", "relevant", "score"),
            "other than `query` and `relevant`: 'score'. Drop",
        ),
        ([("q", "b", "c")], ("query", "relevant", "query"), "several columns query"),
    ],
)
def test_tables_that_cannot_be_used(tmp_path, suffix, rows, names, told):
    with pytest.raises(DataError, match=told):
        read_pairs(write(tmp_path, suffix, rows, names))


@pytest.mark.parametrize(
    ("suffix", "wrong", "right"), [(".csv", "\t", "commas"), (".tsv", ",", "tabs")]
)
def test_a_wrong_separator_is_told_with_the_right_one(tmp_path, suffix, wrong, right):
    path = tmp_path / f"pairs{suffix}"
    path.write_text(f"query{wrong}relevant\nq{wrong}b\n")
    with pytest.raises(DataError, match=f"columns are query.relevant.*by {right}"):
        read_pairs(path)


@pytest.mark.parametrize(
    ("relevant", "told"), [([1.0, None], "not double"), ([["a"], ["b", "c"]], "not list")]
)
def test_what_is_neither_text_nor_a_whole_number(tmp_path, relevant, told):
    pq.write_table(pa.table({"query": ["q", "r"], "relevant": relevant}), tmp_path / "p.parquet")
    with pytest.raises(DataError, match=f"`relevant` must be text or whole numbers, {told}"):
        read_pairs(tmp_path / "p.parquet")


@every_format
def test_files_that_are_no_tables(tmp_path, suffix):
    with pytest.raises(DataError, match=rf"pairs at .*gone{suffix}: the file does not exist") as e:
        read_pairs(tmp_path / f"gone{suffix}")
    assert str(e.value).endswith("Correct the path.")
    (tmp_path / f"empty{suffix}").write_bytes(b"")
    advice = "Write it again, as Parquet" if suffix == ".parquet" else "by commas"
    with pytest.raises(DataError, match=rf"it cannot be read .*[^.]\. .*{advice}"):
        read_pairs(tmp_path / f"empty{suffix}")
    (tmp_path / f"noise{suffix}").write_bytes(b"no table, no columns\n1\n")
    with pytest.raises(DataError) as e:
        read_pairs(tmp_path / f"noise{suffix}")
    assert ".. " not in str(e.value)
    (tmp_path / f"folder{suffix}").mkdir()
    with pytest.raises(DataError, match="it cannot be read"):
        read_pairs(tmp_path / f"folder{suffix}")
