"""Reads files of pairs to train on: a query and a document that answers it, one pair per line."""

from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nobackfill.core.numbers import count
from nobackfill.data.records import Record, read_records
from nobackfill.data.texts import TextPair
from nobackfill.errors import DataError

# Usual names of each column, in lower case; the first one is the name in errors.
QUERY = ("query", "anchor", "question")
DOCUMENT = ("document", "positive", "passage", "answer")
NEGATIVES = ("negatives", "negative")  # and `negative_1`, `negative_2` …
QUERY_ID = ("query_id", "query-id", "qid")
DOCUMENT_ID = ("document_id", "document-id", "corpus_id", "corpus-id", "doc_id", "positive_id")
GROUP = ("group",)
ID = ("id", "_id")
TEXT = ("text", "document", "query")
SHOWN = 10  # faults that an error names


def read_pair_file(
    path: Path, *, texts: Path | None = None, known: Container[str] | None = None
) -> list[TextPair]:
    """Reads a `.jsonl`, `.csv`, `.tsv` or `.parquet` file of pairs.

    It has the columns `query` and `document`, optionally `negatives` (a text or a list),
    `query_id`, `document_id` and `group`; or, with `texts`, `query_id` and `document_id` alone.
    Without ids, equal texts get the same one. The file is read line by line.

    Args:
        path: Path of the file.
        texts: File of the columns `id` and `text`, in which texts are looked up.
        known: Ids of the documents that have an old vector; None if all can get one.

    Raises:
        DataError: If the file cannot be read, or has bad pairs; the first ten are named by line.
    """
    table = None if texts is None else read_text_table(texts)
    reader = PairReader(table=table, known=known)
    pairs = [pair for record in read_records(path, "pairs") for pair in reader.read(record)]
    reader.faults.check(path, "pair")
    if not pairs:
        raise DataError(f"{path} has no pairs. Write one on each line.")
    return pairs


def read_text_table(path: Path) -> dict[str, str]:
    """Reads a file of the columns `id` and `text`; returns the text of each id."""
    table: dict[str, str] = {}
    faults = Faults()
    for record in read_records(path, "texts"):
        names = {name.lower(): name for name in record.values}
        id_name, text_name = find(names, ID), find(names, TEXT)
        if id_name is None or text_name is None:
            raise missing_column(path, "`id`" if id_name is None else "`text`", record)
        item, text = as_id(record.values[id_name]), record.values[text_name]
        if not isinstance(text, str) or not text.strip():
            faults.add(record, "the text is empty")
        elif item in table:
            faults.add(record, f"the id {item!r} is there twice")
        else:
            table[item] = text
    faults.check(path, "text")
    return table


@dataclass
class Faults:
    """Bad lines of a file: the first ten, and their number."""

    shown: list[str] = field(default_factory=list)
    number: int = 0

    def add(self, record: Record, reason: str) -> None:
        """Notes a bad line."""
        self.number += 1
        if len(self.shown) < SHOWN:
            self.shown.append(f"{record.where}: {reason}")

    def check(self, path: Path, noun: str) -> None:
        """Raises if any line is bad."""
        if not self.number:
            return
        more = self.number - len(self.shown)
        rest = f"; and {more:,} more" if more else ""
        raise DataError(
            f"{path} has {count(self.number, f'bad {noun}', f'bad {noun}s')}. "
            f"{'; '.join(self.shown)}{rest}. Correct or remove them."
        )


@dataclass
class PairReader:
    """Turns records into pairs, and notes those that cannot be used.

    Attributes:
        table: Text of each id; None if the file contains the texts.
        known: Ids of documents that have an old vector; None for no check.
        faults: Bad pairs so far.
        numbers: Id of each text that came without one, by role.
        places: Place of each pair in the file, to find repeated ones.
        negatives: Number of negatives of the first pair.
    """

    table: Mapping[str, str] | None = None
    known: Container[str] | None = None
    faults: Faults = field(default_factory=Faults)
    numbers: dict[tuple[str, str], str] = field(default_factory=dict)
    places: dict[tuple[str, str], str] = field(default_factory=dict)
    negatives: int | None = None

    def read(self, record: Record) -> Iterator[TextPair]:
        """Yields the pair of a record, or nothing if it is bad."""
        if record.fault:
            self.faults.add(record, record.fault)
            return
        names = {name.lower(): name for name in record.values}
        try:
            query, query_id = self._side(record, names, QUERY, QUERY_ID)
            document, document_id = self._side(record, names, DOCUMENT, DOCUMENT_ID)
            negatives = self._negatives(record, names)
            self._check(record, query, document, document_id, negatives)
        except ValueError as error:
            self.faults.add(record, str(error))
            return
        group = find(names, GROUP)
        group_of = "" if group is None else as_id(record.values[group])
        yield TextPair(query, document, query_id, document_id, negatives, group_of)

    def _side(
        self,
        record: Record,
        names: Mapping[str, str],
        text_names: Sequence[str],
        id_names: Sequence[str],
    ) -> tuple[str, str]:
        """Returns the text and the id of the query or of the document."""
        role = text_names[0]
        text_name, id_name = find(names, text_names), find(names, id_names)
        item = "" if id_name is None else as_id(record.values[id_name])
        if text_name is not None:
            text = record.values[text_name]
        elif id_name is None:
            if record.is_sparse:  # other lines may have it
                raise ValueError(f"there is no {role}")
            column = f"`{role}`" if self.table is None else f"`{id_names[0]}`"
            raise missing_column(record.path, column, record)
        elif self.table is None:
            raise DataError(
                f"{record.path} has ids of the {role}, but no texts. Pass a file of texts with the "
                f"columns `id` and `text` (--texts)."
            )
        elif item not in self.table:
            raise ValueError(f"no text has the id {item[:40]!r} of the {role}")
        else:
            text = self.table[item]
        if text is not None and not isinstance(text, str):
            raise ValueError(f"the {role} is no text")
        if text is None or not text.strip():
            raise ValueError(f"the {role} is empty")
        return text, item or self._numbered(role, text)

    def _numbered(self, role: str, text: str) -> str:
        """Returns the id of a text that came without one: its number among the different ones."""
        return self.numbers.setdefault((role, text), f"{role}-{len(self.numbers)}")

    def _negatives(self, record: Record, names: Mapping[str, str]) -> tuple[str, ...]:
        """Returns the texts that do not answer the query."""
        columns = [name for name in NEGATIVES if name in names]
        columns += sorted(name for name in names if name.startswith("negative_"))
        texts: list[str] = []
        for name in columns:
            value = record.values[names[name]]
            values = value if isinstance(value, list | tuple) else [] if value is None else [value]
            if not all(isinstance(text, str) and text.strip() for text in values):
                raise ValueError("a negative is empty")
            texts += values
        return tuple(texts)

    def _check(
        self,
        record: Record,
        query: str,
        document: str,
        document_id: str,
        negatives: tuple[str, ...],
    ) -> None:
        """Raises if a pair cannot be learned from."""
        if query.strip() == document.strip():
            raise ValueError("query and document are the same text")
        if document in negatives:
            raise ValueError("the document is among its negatives")
        if (first := self.places.setdefault((query, document), record.where)) != record.where:
            raise ValueError(f"it repeats {first}")
        if self.negatives is None:
            self.negatives = len(negatives)
        if len(negatives) != self.negatives:
            raise ValueError(f"it has {len(negatives)} negatives, the first has {self.negatives}")
        if self.known is not None and document_id not in self.known:
            raise ValueError(f"no old vector has the id {document_id[:40]!r}")


def find(names: Mapping[str, str], usual: Sequence[str]) -> str | None:
    """Returns the name of the first usual column that a record has.

    Example:
        >>> find({"anchor": "Anchor"}, QUERY)
        'Anchor'
    """
    return next((names[name] for name in usual if name in names), None)


def as_id(value: Any) -> str:
    """Returns an id as text; "" if there is none."""
    return "" if value is None else str(value).strip()


def missing_column(path: Path, column: str, record: Record) -> DataError:
    """Returns the error for a file that lacks a column."""
    columns = ", ".join(f"`{name}`" for name in record.values) or "none"
    return DataError(f"{path} has no column {column}; its columns are {columns}. Rename or add it.")
