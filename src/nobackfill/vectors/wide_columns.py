"""Vectors with a column for each dimension: `dim_0`, `dim_1`, …."""

import re
from collections.abc import Sequence

from nobackfill.errors import DataError

MOST_DIGITS = 9  # of the number of a dimension
NUMBERED = re.compile(r"(.*?)(\d+)", re.DOTALL)
USUAL_STEMS = re.compile(r"(d|dim|v|vec|vector|embs?|embeddings?|f|feat|feature|x|e)?")


def families_of(names: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Returns columns with the same stem and consecutive numbers, by stem, in order.

    Example:
        >>> families_of(["id", "e_1", "e_0", "box1"])
        {'e_': ('e_0', 'e_1')}
    """
    by_stem: dict[str, dict[int, str]] = {}
    for name in names:
        if (match := NUMBERED.fullmatch(name)) and len(match[2]) <= MOST_DIGITS:
            by_stem.setdefault(match[1], {})[int(match[2])] = name
    families = {}
    for stem, numbered in by_stem.items():
        first, last = min(numbered), max(numbered)
        if first > 1 or len(numbered) < 2:
            continue
        missing = next((n for n in range(first, last + 1) if n not in numbered), None)
        if missing is not None:
            if not is_usual_stem(stem):
                continue
            raise DataError(
                f"The columns `{numbered[first]}` … `{numbered[last]}` lack number {missing}. "
                f"Write one column for each dimension."
            )
        families[stem] = tuple(numbered[n] for n in sorted(numbered))
    return families


def is_usual_stem(stem: str) -> bool:
    """Whether numbered columns of this stem are usually a vector: `dim_0` or `0`."""
    return USUAL_STEMS.fullmatch(plain(stem).rstrip("_")) is not None


def plain(name: str) -> str:
    """Returns a name in lower case with underscores.

    Example:
        >>> plain("docId"), plain("Item ID"), plain("_id")
        ('doc_id', 'item_id', '_id')
    """
    name = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name.strip())
    return re.sub(r"[\s.-]+", "_", name).lower()
