"""Indexes of vectors in LanceDB: what a table has, and how to build the same."""

from typing import Any, NamedTuple

from lancedb import index as kinds

from nobackfill.errors import GalleryError

BUILT_BY = {  # kinds of index, and by which class LanceDB builds them
    "IVF_FLAT": "IvfFlat",
    "IVF_SQ": "IvfSq",
    "IVF_PQ": "IvfPq",
    "IVF_RQ": "IvfRq",
    "IVF_HNSW_FLAT": "HnswFlat",
    "IVF_HNSW_SQ": "HnswSq",
    "IVF_HNSW_PQ": "HnswPq",
}
# what LanceDB tells of an index, and by which parameters it is built so
TOLD = {
    "hnsw": {"max_connections": "m", "construction_ef": "ef_construction"},
    "compression": {"num_sub_vectors": "num_sub_vectors", "num_bits": "num_bits"},
}


class LanceIndex(NamedTuple):
    """An index of vectors.

    Attributes:
        name: As LanceDB knows it.
        kind: Such as `IVF_PQ`.
        metric: What it measures.
        parameters: With which it is built, as far as LanceDB tells: it keeps to itself how many
            parts there are.
        lacks: How many rows it does not have.
    """

    name: str
    kind: str
    metric: str
    parameters: tuple[tuple[str, int], ...]
    lacks: int

    def like(self, other: "LanceIndex") -> bool:
        """Whether it is of the kind of another one, as far as that one tells."""
        alike = (self.kind, self.metric) == (other.kind, other.metric)
        return alike and set(other.parameters) <= set(self.parameters)

    def config(self) -> Any:
        """By which LanceDB builds such a one."""
        how = getattr(kinds, BUILT_BY.get(self.kind, ""), None)
        if how is None:
            raise GalleryError(
                f"wanted to build an index of the kind {self.kind}, but this release of LanceDB "
                f"builds, as far as we know, only {', '.join(BUILT_BY)}."
            )
        return how(distance_type=self.metric, **dict(self.parameters))

    def __str__(self) -> str:
        told = ", ".join((self.metric, *(f"{name}={value}" for name, value in self.parameters)))
        return f"{self.kind} ({told})"


def read_index(table: Any, column: str) -> LanceIndex | None:
    """The index of a column of vectors; None where there is none."""
    for index in table.list_indices():
        stats = table.index_stats(index.name) if list(index.columns) == [column] else None
        if stats is not None:
            return LanceIndex(
                index.name,
                stats.index_type,
                str(stats.distance_type),
                parameters_of(stats.index_type, getattr(index, "index_details", None) or {}),
                stats.num_unindexed_rows,
            )
    return None


def of_dimensions(index: LanceIndex, dim: int) -> LanceIndex:
    """The same index for vectors of other dimensions, which may not be so many sub-vectors."""
    parameters = tuple(
        (name, value)
        for name, value in index.parameters
        if name != "num_sub_vectors" or dim % value == 0
    )
    return index._replace(parameters=parameters)


def parameters_of(kind: str, details: dict[str, Any]) -> tuple[tuple[str, int], ...]:
    """How an index was built, in the words of the class that builds it.

    Args:
        kind: Of the index.
        details: As LanceDB tells them; older releases tell none.

    Example:
        >>> told = {"compression": {"type": "pq", "num_bits": 8, "num_sub_vectors": 4}}
        >>> parameters_of("IVF_PQ", told)
        (('num_sub_vectors', 4), ('num_bits', 8))
    """
    how = getattr(kinds, BUILT_BY.get(kind, ""), None)
    known = getattr(how, "__dataclass_fields__", {})
    return tuple(
        (name, int(details[part][told]))
        for part, names in TOLD.items()
        for told, name in names.items()
        if name in known and told in (details.get(part) or {})
    )
