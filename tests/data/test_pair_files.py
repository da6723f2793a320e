"""Files of pairs: every format, and what is said of bad lines."""

import json
import tracemalloc

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from nobackfill.data.pair_files import read_pair_file, read_text_table
from nobackfill.data.records import read_records
from nobackfill.data.texts import TextPair
from nobackfill.errors import DataError

ROWS = [
    {"query": "a, b", "document": 'say "x"\ntwice'},
    {"query": "ü", "document": "007"},
]


def write(path, rows):
    """Writes rows in the format of the suffix."""
    if path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    elif path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(rows), path)
    else:
        import csv

        with path.open("w", encoding="utf-8", newline="") as file:
            table = csv.DictWriter(file, rows[0], delimiter="\t" if path.suffix == ".tsv" else ",")
            table.writeheader()
            table.writerows(rows)
    return path


def problem(path, **options):
    with pytest.raises(DataError) as error:
        read_pair_file(path, **options)
    message = str(error.value)
    assert message.startswith(str(path)) or str(path) in message
    return message


@pytest.mark.parametrize("suffix", [".jsonl", ".csv", ".tsv", ".parquet"])
def test_every_format_gives_the_same_pairs(tmp_path, suffix):
    assert read_pair_file(write(tmp_path / f"pairs{suffix}", ROWS)) == [
        TextPair("a, b", 'say "x"\ntwice', "query-0", "document-1"),
        TextPair("ü", "007", "query-2", "document-3"),
    ]


@pytest.mark.parametrize("names", [("anchor", "positive"), ("Question", "Answer")])
def test_usual_names_of_columns_are_known(tmp_path, names):
    path = write(tmp_path / "p.csv", [dict(zip(names, ("a", "b"), strict=True))])
    assert read_pair_file(path)[0][:2] == ("a", "b")


def test_ids_and_groups_are_kept(tmp_path):
    row = {"query": "a", "document": "b", "query_id": 7, "document_id": "D", "group": 3}
    assert read_pair_file(write(tmp_path / "p.jsonl", [row])) == [
        TextPair("a", "b", "7", "D", (), "3")
    ]


def test_equal_texts_without_ids_are_one(tmp_path):
    rows = [{"query": "a", "document": "x"}, {"query": "b", "document": "x"}]
    first, second = read_pair_file(write(tmp_path / "p.jsonl", rows))
    assert first.document_id == second.document_id
    assert first.query_id != second.query_id


@pytest.mark.parametrize(
    "row",
    [
        {"negatives": ["c", "d"]},
        {"negative": "c", "negative_2": "d"},
        {"negative_1": "c", "negative_2": "d"},
    ],
)
def test_negatives_are_a_list_or_columns(tmp_path, row):
    path = write(tmp_path / "p.jsonl", [{"query": "a", "document": "b", **row}])
    assert read_pair_file(path)[0].negatives == ("c", "d")


def test_texts_are_looked_up_in_a_table(tmp_path):
    pairs = write(tmp_path / "p.csv", [{"query_id": "1", "corpus-id": "d2"}])
    texts = write(tmp_path / "t.jsonl", [{"_id": 1, "text": "ask"}, {"_id": "d2", "text": "doc"}])
    assert read_pair_file(pairs, texts=texts) == [TextPair("ask", "doc", "1", "d2")]


def test_bad_pairs_are_named_by_line(tmp_path):
    path = tmp_path / "pairs.jsonl"
    lines = [
        '{"query": "a", "document": "b"}',
        '{"query": " ", "document": "b"}',
        "",
        '{"query": "x", "document": "x "}',
        '{"query": "a", "document": "b"}',
        '{"query": "a"}',
        '{"document": "a"}',
        "[1]",
        "{",
        '{"query": 1, "document": "b"}',
        '{"query": "c", "document": null}',
    ]
    path.write_text("\n".join(lines))
    assert problem(path) == (
        f"{path} has 9 bad pairs. line 2: the query is empty; line 4: query and document are the "
        f"same text; line 5: it repeats line 1; line 6: there is no document; line 7: there is no "
        f"query; line 8: it is no JSON object; line 9: it is no JSON object; line 10: the query is "
        f"no text; line 11: the document is empty. Correct or remove them."
    )


def test_a_line_that_is_nested_too_deeply_is_bad(tmp_path):
    path = tmp_path / "p.jsonl"
    path.write_text('{"query": "a", "document": "b"}\n' + '{"a":' * 10**5)
    assert "line 2: it is no JSON object" in problem(path)


def test_after_ten_bad_pairs_the_others_are_counted(tmp_path):
    rows = [{"query": "", "document": str(number)} for number in range(1234)]
    message = problem(write(tmp_path / "p.jsonl", rows))
    assert "1,234 bad pairs" in message
    assert "line 10: the query is empty; and 1,224 more." in message
    assert "line 11" not in message


def test_lines_of_a_csv_are_counted_as_in_an_editor(tmp_path):
    path = tmp_path / "p.csv"
    path.write_text('query,document\n"two\nlines",\n\ny\n"",z\n')
    message = problem(path)
    assert "line 2: the document is empty" in message
    assert "line 5: it has 1 cells, the header has 2" in message
    assert "line 6: the query is empty" in message


def test_rows_of_parquet_are_counted(tmp_path):
    rows = [{"query": "a" * (number % 3), "document": str(number)} for number in range(1, 2000)]
    message = problem(write(tmp_path / "p.parquet", rows))
    assert "row 3: the query is empty" in message
    assert "666 bad pairs" in message


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_a_file_of_one_side_names_its_columns(tmp_path, suffix):
    path = write(tmp_path / f"p{suffix}", [{"query": "a", "text": "b"}])
    assert problem(path) == (
        f"{path} has no column `document`; its columns are `query`, `text`. Rename or add it."
    )


def test_ids_need_a_file_of_texts(tmp_path):
    path = write(tmp_path / "p.csv", [{"query_id": "1", "document_id": "2"}])
    assert "Pass a file of texts" in problem(path)
    texts = write(tmp_path / "t.csv", [{"id": "1", "text": "a"}])
    assert "line 2: no text has the id '2' of the document" in problem(path, texts=texts)


def test_documents_without_an_old_vector_are_named(tmp_path):
    rows = [{"query": str(n), "document": f"doc {n}", "document_id": n} for n in range(5)]
    path = write(tmp_path / "p.jsonl", rows)
    assert len(read_pair_file(path, known={"0", "1", "2", "3", "4"})) == 5
    message = problem(path, known={"0", "1", "3"})
    assert "line 3: no old vector has the id '2'; line 5: no old vector has the id '4'" in message


def test_every_pair_has_as_many_negatives(tmp_path):
    rows = [
        {"query": "a", "document": "b", "negatives": ["c"]},
        {"query": "d", "document": "e"},
        {"query": "f", "document": "g", "negatives": ["g"]},
        {"query": "h", "document": "i", "negatives": [""]},
    ]
    message = problem(write(tmp_path / "p.jsonl", rows))
    assert "line 2: it has 0 negatives, the first has 1" in message
    assert "line 3: the document is among its negatives" in message
    assert "line 4: a negative is empty" in message


def test_a_table_of_texts_is_checked(tmp_path):
    path = write(tmp_path / "t.jsonl", [{"id": 1, "text": "a"}, {"id": 1, "text": "b"}])
    with pytest.raises(DataError, match="line 2: the id '1' is there twice"):
        read_text_table(path)
    path = write(tmp_path / "t.csv", [{"id": 1, "title": "a"}])
    with pytest.raises(DataError, match="no column `text`"):
        read_text_table(path)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("p.txt", b"", "must end with"),
        ("p.jsonl", b"", "has no pairs"),
        ("p.csv", b"", "has no pairs"),
        ("p.csv", b"query,query\na,b\n", "same name"),
        ("p.csv", b"query,document\n\xff,b\n", "not UTF-8"),
        ("p.csv", b'query,document\n"a"b,c\n', "cannot be read"),
        ("p.parquet", b"no parquet", "cannot be read"),
    ],
)
def test_files_that_cannot_be_read_are_named(tmp_path, name, content, message):
    path = tmp_path / name
    path.write_bytes(content)
    assert message in problem(path)


def test_a_missing_file_is_named_with_one_like_it(tmp_path):
    write(tmp_path / "pairs.jsonl", ROWS)
    assert "Did you mean" in problem(tmp_path / "pair.jsonl")


def test_lines_are_read_one_at_a_time(tmp_path):
    path = tmp_path / "p.jsonl"
    with path.open("w") as file:
        for number in range(20_000):
            file.write(json.dumps({"query": str(number), "document": f"{number} {'x' * 1000}"}))
            file.write("\n")
    tracemalloc.start()
    number = sum(1 for record in read_records(path, "pairs") for _ in [record.values])
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert number == 20_000
    assert peak < 2_000_000  # the file has 20 MB
