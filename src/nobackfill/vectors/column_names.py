"""Decides which columns of a table are the id, the vector and the label."""

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from nobackfill.core.numbers import listed
from nobackfill.core.suggest import suggest
from nobackfill.errors import ConfigError, DataError
from nobackfill.vectors.wide_columns import families_of, is_usual_stem, plain

# Usual names by role, in lower case. A later line counts if there is no name of an earlier one.
USUAL: dict[str, tuple[frozenset[str], ...]] = {
    "id": tuple(
        frozenset(names.split())
        for names in (
            "id",
            "ids item_id doc_id document_id product_id image_id chunk_id point_id node_id "
            "custom_id sku uuid guid _id key pk",
            "index __index_level_0__",
        )
    ),
    "vector": tuple(
        frozenset(names.split())
        for names in (
            "vector",
            "embedding embeddings vectors vec vecs emb embs features feature feature_vector "
            "dense_vector values",
        )
    ),
    "label": tuple(
        frozenset(names.split())
        for names in (
            "label",
            "labels category category_id class class_id class_name product group group_id target y",
        )
    ),
}
UNNAMED = re.compile(r"(unnamed: ?\d+)?", re.IGNORECASE)  # the index that pandas writes


class Columns(NamedTuple):
    """Names of the columns of tables and files, where they are known."""

    id: str | None = None
    vector: str | None = None
    label: str | None = None


ANY = Columns()  # columns that are found by name


@dataclass(frozen=True)
class ColumnChoice:
    """The columns of a table that are read as id, vector and label.

    Attributes:
        vector: Name of the column of vectors, or the names of one column per dimension, in order.
        id: Name of the column of ids; None if row numbers are the ids.
        label: Name of the column of labels; None without labels.
        notes: A sentence for what was guessed; empty if all names were passed or are ours.
        unused: Columns without a name, and those with a reserved name that another column takes.
    """

    vector: tuple[str, ...]
    id: str | None = None
    label: str | None = None
    notes: tuple[str, ...] = ()
    unused: frozenset[str] = field(default_factory=frozenset)

    @property
    def is_wide(self) -> bool:
        """Whether each dimension has a column of its own."""
        return len(self.vector) > 1


def choose_columns(
    names: Iterable[str],
    *,
    id: str | None = None,
    vector: str | None = None,
    label: str | None = None,
    lists: Collection[str] = (),
) -> ColumnChoice:
    """Chooses the columns of ids, vectors and labels by their names.

    Our own names (`id`, `vector`, `label`) come first, then usual names, in any case. Columns with
    the same stem and consecutive numbers (`dim_0`, `dim_1`, …) are one vector. Two candidates for
    the id or the vector are an error. Two candidates for the label leave the labels out, as not
    every use requires them; see `require_label`.

    Args:
        names: Names of all columns, in order.
        id: Column of ids, if it is known.
        vector: Column of vectors, or the stem of wide columns, if it is known.
        label: Column of labels, if it is known.
        lists: Columns that contain a list of numbers in each row, if types are known. If no name
            is a usual one, a single such column is the vector.

    Example:
        >>> choose_columns(["doc_id", "Embedding", "text"])  # doctest: +NORMALIZE_WHITESPACE
        ColumnChoice(vector=('Embedding',), id='doc_id', label=None,
            notes=('`doc_id` is read as the id and `Embedding` as the vector',),
            unused=frozenset())
        >>> choose_columns(["id", "v2", "v1", "v3"]).vector
        ('v1', 'v2', 'v3')
    """
    names = list(names)
    if repeated := [name for name in dict.fromkeys(names) if name and names.count(name) > 1]:
        raise DataError(f"Two columns have the same name: {_listed(repeated)}. Rename one of them.")
    guessed: list[str] = []
    notes: list[str] = []
    # Choose the vector: by option, by name, by type, or as wide columns.
    vectors = _named_vector(names, vector) if vector is not None else _vector(names, lists)
    if vector is None and vectors != ("vector",):
        guessed.append(f"{_span(vectors)} as the vector")
    # Choose id and label among the other columns.
    others = [name for name in names if name not in vectors]
    if id is None:
        id = _single("id", _candidates(others, "id") or _index_of_pandas(others))
        if id is None:
            notes.append(_without_id(others))
        elif id != "id":
            guessed.insert(0, f"{_span([id])} as the id")
    elif id not in names:
        raise _unknown("id", id, names)
    if label is None:
        candidates = label_candidates(name for name in others if name != id)
        if len(candidates) == 1:
            label = candidates[0]
            if label != "label":
                guessed.append(f"`{label}` as the label")
        elif candidates:
            notes.append(f"no labels are read: {_ambiguity('label', candidates)}")
    elif label not in names:
        raise _unknown("label", label, names)
    if guessed:
        notes.insert(0, _sentence(guessed))
    reserved = {"id", "vector", "label", ""} - {id, label, *vectors}
    return ColumnChoice(vectors, id, label, tuple(notes), frozenset(reserved & set(names)))


def choose_by(
    names: Sequence[str], columns: Columns, *, lists: Collection[str] = ()
) -> ColumnChoice:
    """Chooses columns by name. A label that is passed may be missing: then there is none.

    Example:
        >>> choose_by(["id", "vector", "category"], Columns(label="kind")).label is None
        True
        >>> choose_by(["id", "vector", "label"], Columns(label="kind")).unused
        frozenset({'label'})
    """
    label, hidden = columns.label, list[str]()
    if label is not None and label not in names:
        label, hidden = None, label_candidates(names)
    known = [name for name in names if name not in hidden]
    choice = choose_columns(known, id=columns.id, vector=columns.vector, label=label, lists=lists)
    return replace(choice, unused=choice.unused | ({"label"} & set(hidden)))


def label_candidates(names: Iterable[str]) -> list[str]:
    """Returns the columns that may be the labels by their names.

    Example:
        >>> label_candidates(["text", "Category", "product"])
        ['Category', 'product']
    """
    return _candidates(list(names), "label")


def require_label(names: Iterable[str]) -> None:
    """Raises if several columns may be the labels, for a use that requires labels."""
    if len(candidates := label_candidates(names)) > 1:
        raise DataError(f"{_ambiguity('label', candidates)}.")


def _candidates(names: Sequence[str], role: str) -> list[str]:
    """Returns the columns with one of the best names for a role."""
    if role in names:
        return [role]
    for usual in USUAL[role]:
        if matches := [name for name in names if plain(name) in usual]:
            return matches
    return []


def _index_of_pandas(names: Sequence[str]) -> list[str]:
    """Returns the first column if it has no name, as pandas writes an index."""
    return list(names[:1]) if names and UNNAMED.fullmatch(names[0]) else []


def _single(role: str, candidates: Sequence[str]) -> str | None:
    """Returns the only candidate or None; two are an error."""
    if len(candidates) > 1:
        raise DataError(f"{_ambiguity(role, candidates)}.")
    return candidates[0] if candidates else None


def _without_id(names: Sequence[str]) -> str:
    """Returns the note for a table without a column of ids.

    Example:
        >>> _without_id(["title", "price"])
        'row numbers are the ids, as no column is named `id`; --id may name title, price'
    """
    note = "row numbers are the ids, as no column is named `id`"
    others = [name for name in names if name and name not in ("label", "split")]
    return f"{note}; --id may name {', '.join(_short(others, 10))}" if others else note


def _vector(names: Sequence[str], lists: Collection[str]) -> tuple[str, ...]:
    """Returns the column of vectors, or the columns of its dimensions."""
    if candidates := _candidates(names, "vector"):
        typed = [name for name in candidates if name in lists]  # a list rather than a text
        name = _single("vector", typed or candidates)
        return (name,) if name else ()
    if lists:
        name = _single("vector", [name for name in names if name in lists])
        return (name,) if name else ()
    families = families_of(names)
    usual = {stem: family for stem, family in families.items() if is_usual_stem(stem)}
    chosen = list((usual or families).values())
    if len(chosen) > 1:
        spans = [_span(family) for family in chosen]
        stems = list(usual or families)
        raise DataError(
            f"{listed(spans)} may both be the vector. Pass what their names start with: "
            f"{_options('vector', stems)}."
        )
    if chosen:
        return chosen[0]
    ends = [name for name in names if re.search(r"(embeddings?|vectors?|_emb)$", plain(name))]
    if name := _single("vector", ends):
        return (name,)
    raise DataError(
        f"No column is known to be the vector. Pass its name: --vector NAME (in Python "
        f"vector=NAME). {_columns(names)}"
    )


def _named_vector(names: Sequence[str], vector: str) -> tuple[str, ...]:
    """Returns the column `vector`, or the wide columns whose names start with it."""
    if vector in names:
        return (vector,)
    families = families_of(names)
    for stem in (vector, vector.rstrip("*"), vector + "_"):
        if stem in families:
            return families[stem]
    raise _unknown("vector", vector, [*names, *families])


def _ambiguity(role: str, candidates: Sequence[str]) -> str:
    """Returns the sentences on several candidates for a role, without the last full stop."""
    both = "both" if len(candidates) == 2 else "all"
    return (
        f"the columns {_listed(candidates)} may {both} be the {role}. Pass which: "
        f"{_options(role, candidates)}"
    )


def _options(role: str, values: Sequence[str]) -> str:
    """Returns the options that settle a choice, for the command line and for Python.

    Example:
        >>> _options("id", ["uuid", "key"])
        "--id uuid or --id key (in Python id='uuid')"
    """
    texts = [f'"{value}"' if " " in value or not value else value for value in values]
    return f"{' or '.join(f'--{role} {text}' for text in texts)} (in Python {role}={values[0]!r})"


def _unknown(role: str, name: str, names: Sequence[str]) -> ConfigError:
    """Returns the error for an option that names no column."""
    return ConfigError(f"There is no column `{name}` for --{role}. {suggest(name, _short(names))}")


def _columns(names: Sequence[str]) -> str:
    """Returns a sentence with the columns of a table."""
    return f"The columns are {', '.join(_short(names))}." if names else "It has no columns."


def _short(names: Sequence[str], most: int = 40) -> list[str]:
    """Returns names for a message."""
    return [*names[:most], *(["…"] if len(names) > most else [])]


def _listed(names: Sequence[str]) -> str:
    """Returns names in a sentence."""
    return listed([f"`{name}`" for name in names])


def _span(names: Sequence[str]) -> str:
    """Returns a name, or the first and the last of many."""
    if names == [""]:
        return "the first column, which has no name,"
    return f"`{names[0]}`" if len(names) == 1 else f"`{names[0]}` … `{names[-1]}`"


def _sentence(parts: Sequence[str]) -> str:
    """Returns what was guessed as one sentence.

    Example:
        >>> _sentence(["`a` as the id", "`b` as the vector"])
        '`a` is read as the id and `b` as the vector'
    """
    first, *rest = parts
    text = first.replace(" as ", " are read as " if "…" in first else " is read as ", 1)
    return listed([text, *rest])
