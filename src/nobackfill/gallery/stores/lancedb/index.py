"""Vector indexes of LanceDB: reads the index of a table and builds the same on another."""

from typing import Any, NamedTuple

from lancedb import index as kinds

from nobackfill.errors import GalleryError

CONFIGS = {  # configuration class in LanceDB of each kind of index
    "IVF_FLAT": "IvfFlat",
    "IVF_SQ": "IvfSq",
    "IVF_PQ": "IvfPq",
    "IVF_RQ": "IvfRq",
    "IVF_HNSW_FLAT": "HnswFlat",
    "IVF_HNSW_SQ": "HnswSq",
    "IVF_HNSW_PQ": "HnswPq",
}
# details of an index in LanceDB, and the parameters that build it so
DETAILS = {
    "hnsw": {"max_connections": "m", "construction_ef": "ef_construction"},
    "compression": {"num_sub_vectors": "num_sub_vectors", "num_bits": "num_bits"},
}


class SearchInfo(NamedTuple):
    """Properties of a table that a search requires."""

    dim: int  # 0 if the vectors were removed
    metric: str | None  # of an index that gives cosines; None if there is none


class LanceIndex(NamedTuple):
    """A vector index."""

    name: str
    kind: str  # such as `IVF_PQ`
    metric: str  # distance type
    parameters: tuple[tuple[str, int], ...]  # as LanceDB reports them, without the partitions
    lacks: int  # number of rows that are not in the index

    def like(self, other: "LanceIndex") -> bool:
        """Whether it has the kind, the metric and the reported parameters of another index."""
        same = (self.kind, self.metric) == (other.kind, other.metric)
        return same and set(other.parameters) <= set(self.parameters)

    def config(self) -> Any:
        """Returns the configuration with which LanceDB builds the index."""
        config = getattr(kinds, CONFIGS.get(self.kind, ""), None)
        if config is None:
            raise GalleryError(
                f"Cannot build an index of the kind {self.kind} with this release of LanceDB. "
                f"Supported kinds: {', '.join(CONFIGS)}."
            )
        return config(distance_type=self.metric, **dict(self.parameters))

    def __str__(self) -> str:
        parameters = (f"{name}={value}" for name, value in self.parameters)
        return f"{self.kind} ({', '.join((self.metric, *parameters))})"


def read_index(table: Any, column: str) -> LanceIndex | None:
    """Returns the index of a column of vectors; None if it has none."""
    for index in table.list_indices():
        stats = table.index_stats(index.name) if list(index.columns) == [column] else None
        if stats is not None:
            return LanceIndex(
                index.name,
                stats.index_type,
                str(stats.distance_type),
                # older releases of LanceDB report no details
                parameters_of(stats.index_type, getattr(index, "index_details", None) or {}),
                stats.num_unindexed_rows,
            )
    return None


def of_dimensions(index: LanceIndex, dim: int) -> LanceIndex:
    """Returns the same index for other dimensions, without a number of sub-vectors that misfits."""
    parameters = tuple(
        (name, value)
        for name, value in index.parameters
        if name != "num_sub_vectors" or dim % value == 0
    )
    return index._replace(parameters=parameters)


def parameters_of(kind: str, details: dict[str, Any]) -> tuple[tuple[str, int], ...]:
    """Returns the build parameters of an index, named as in its configuration class.

    Example:
        >>> details = {"compression": {"type": "pq", "num_bits": 8, "num_sub_vectors": 4}}
        >>> parameters_of("IVF_PQ", details)
        (('num_sub_vectors', 4), ('num_bits', 8))
    """
    config = getattr(kinds, CONFIGS.get(kind, ""), None)
    fields = getattr(config, "__dataclass_fields__", {})
    return tuple(
        (name, int(details[part][detail]))
        for part, names in DETAILS.items()
        for detail, name in names.items()
        if name in fields and detail in (details.get(part) or {})
    )
