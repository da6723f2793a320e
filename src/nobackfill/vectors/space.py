"""The space of vectors: the model that made them. Stored as `NAME.space.json` or in the file."""

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from nobackfill.core.atomic_files import write_text
from nobackfill.core.json_files import as_kind, parse_object, read_json_text
from nobackfill.errors import DataError

SCHEMA = 1
MOST_DIM = 2**24  # dimensions of a vector
CONTENTS = "contents"  # key of a record beside a file: digest of the file's contents
REMEDY = "Write it again, or remove it: the vectors then count as undeclared."

IDENTITY = ("weights", "preprocessing", "dim", "normalized")

KEYS = (  # of a complete record
    "schema", "weights", "preprocessing", "dim", "normalized", "dtype", "parent", "method",
    "compatible_with",
)  # fmt: skip
OPTIONAL_KEY = "not_compatible_with"  # a list, written if it is not empty

UNKNOWN: dict[str, Any] = {**dict.fromkeys(KEYS), "schema": SCHEMA, "compatible_with": []}

SAMPLE = '{"name": "resnet50, March 2024", "dim": 512}'  # the smallest record


@dataclass(frozen=True)
class CompatibleWith:
    """A measurement of how well these vectors, as queries, search a gallery of another space.

    Attributes:
        fingerprint: Fingerprint of the gallery's space.
        metric: Name of the metric, e.g. `mAP`.
        value: Value of the metric, as a fraction.
    """

    fingerprint: str
    metric: str
    value: float

    def __post_init__(self) -> None:
        if not math.isfinite(self.value):
            raise DataError(
                f"The measured `{self.metric}` must be finite, not {self.value}. Leave it out if "
                f"it was not measured."
            )


@dataclass(frozen=True)
class Space:
    """Which model made a collection of vectors, and their measured compatibility.

    None means unknown, which differs from every known value.

    Attributes:
        dim: Number of dimensions of a vector.
        weights: SHA-256 of the model's weights, or a unique name of the model.
        preprocessing: Description of the preprocessing, in words or as a setting.
        normalized: Whether the vectors are stored at unit length.
        dtype: Precision in which they are stored.
        parent: Fingerprint of the space they were made compatible with, if any.
        method: Method by which they were made compatible, if any.
        compatible_with: Spaces measured to be compatible with this one.
        not_compatible_with: Spaces measured not to be compatible with this one.
        schema: Version of this record.
    """

    dim: int | None
    weights: str | None = None
    preprocessing: str | None = None
    normalized: bool | None = False
    dtype: str | None = "float32"
    parent: str | None = None
    method: str | None = None
    compatible_with: tuple[CompatibleWith, ...] = ()
    not_compatible_with: tuple[CompatibleWith, ...] = ()
    schema: int = field(default=SCHEMA, init=False)

    def __post_init__(self) -> None:
        if self.dim is not None and not 1 <= self.dim <= MOST_DIM:
            raise DataError(
                f"`dim` of a space is {self.dim:.6g}, but must be from 1 to {MOST_DIM:,}. Pass the "
                f"length of a vector."
            )

    @property
    def fingerprint(self) -> str:
        """Sixteen hexadecimal digits, equal for vectors that may be compared with each other.

        It covers weights, preprocessing, dim and normalisation, but not the stored precision
        (float16 is the same space as float32), nor parent, method and measurements. Without
        weights and preprocessing, it distinguishes few models.

        Example:
            >>> Space(dim=2).fingerprint == Space(dim=2, dtype="float16").fingerprint
            True
            >>> Space(dim=2).fingerprint == Space(dim=2, normalized=True).fingerprint
            False
        """
        identity = {name: getattr(self, name) for name in IDENTITY}
        canonical = json.dumps(identity, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(canonical.encode()).hexdigest()[:16]

    def with_measured(self, measured: CompatibleWith, *, compatible: bool = True) -> "Space":
        """Returns the space with a new measurement, which replaces an older one of that gallery.

        Example:
            >>> space = Space(dim=2).with_measured(CompatibleWith("ab", "mAP", 0.5))
            >>> space.with_measured(CompatibleWith("ab", "mAP", 0.6)).compatible_with
            (CompatibleWith(fingerprint='ab', metric='mAP', value=0.6),)
            >>> space.with_measured(CompatibleWith("ab", "mAP", 0.1), compatible=False) == Space(
            ...     dim=2, not_compatible_with=(CompatibleWith("ab", "mAP", 0.1),)
            ... )
            True
        """
        yes, no = (
            tuple(entry for entry in entries if entry.fingerprint != measured.fingerprint)
            for entries in (self.compatible_with, self.not_compatible_with)
        )
        if compatible:
            return replace(self, compatible_with=(*yes, measured), not_compatible_with=no)
        return replace(self, compatible_with=yes, not_compatible_with=(*no, measured))

    def to_json(self) -> str:
        """Returns the record as JSON text, with all keys but an empty `not_compatible_with`."""
        return json.dumps(self.to_record(), indent=2, allow_nan=False)

    def to_record(self) -> dict[str, Any]:
        """Returns the content of `to_json`."""
        record = asdict(self)
        if not record[OPTIONAL_KEY]:
            del record[OPTIONAL_KEY]
        return record

    @classmethod
    def from_json(cls, text: str, *, where: str = "a space record") -> "Space":
        """Reads the text of `to_json`, or a short record; `where` names the source in errors.

        A short record has `weights`, or `name` instead, and any other keys that are known.

        Example:
            >>> Space.from_json('{"name": "resnet50"}') == Space(
            ...     dim=None, weights="resnet50", normalized=None, dtype=None
            ... )
            True
        """
        return cls.from_record(parse_object(text, where, REMEDY), where=where)

    @classmethod
    def from_record(cls, record: Mapping[str, Any], *, where: str = "a space record") -> "Space":
        """Reads the content of a record; see `from_json`."""
        record = _complete({k: v for k, v in record.items() if k != CONTENTS}, where)
        if record["schema"] != SCHEMA:
            raise DataError(
                f"{where} has schema version {record['schema']!r}, but this nobackfill reads "
                f"version {SCHEMA}. Upgrade nobackfill, or write the record again."
            )
        del record["schema"]
        return as_kind(cls, record, where, REMEDY)


def with_dim(space: Space, dim: int | None) -> Space:
    """Returns the space with the dimensions of its vectors, if it has no `dim`.

    Example:
        >>> with_dim(Space(dim=None), 8).dim, with_dim(Space(dim=4), 8).dim
        (8, 4)
    """
    return replace(space, dim=dim) if space.dim is None else space


def names_a_model(space: Space) -> bool:
    """Whether a space differs from those of other models of the same dimensions.

    Example:
        >>> names_a_model(Space(dim=8)), names_a_model(Space(dim=8, weights="5e8f"))
        (False, True)
    """
    return bool(space.weights or space.preprocessing)


def read_record(record: Path) -> Space:
    """Reads a space record."""
    return Space.from_json(read_json_text(record), where=str(record))


def write_record(record: Path, space: Space) -> None:
    """Writes a space record atomically; it remains that of the same contents."""
    facts = space.to_record()
    if record.exists():
        earlier = parse_object(read_json_text(record), str(record), REMEDY)
        facts |= {CONTENTS: earlier[CONTENTS]} if CONTENTS in earlier else {}
    write_text(record, json.dumps(facts, indent=2, allow_nan=False) + "\n")


def _complete(record: dict[str, Any], where: str) -> dict[str, Any]:
    """Returns a record with all keys, if it names at least the model.

    Example:
        >>> _complete({"name": "resnet50", "dim": 8}, "here")["weights"]
        'resnet50'
    """
    record = {OPTIONAL_KEY: [], **record}
    if "name" in record:
        if record.get("weights") is not None:
            raise DataError(
                f"{where} has `weights` and `name`, but both name the model. Keep one of them."
            )
        record["weights"] = record.pop("name")
    missing = [key for key in KEYS if key not in record]
    if missing and not record.get("weights"):
        raise DataError(
            f"{where} lacks {', '.join(missing)}, and does not name the model. Add at least its "
            f"name, or the SHA-256 of its weights as `weights`: {SAMPLE}. Or remove the record: "
            f"the vectors then count as undeclared."
        )
    return {**UNKNOWN, **record} if missing else record
