"""What made a vector: the contract that lies beside every artefact as `NAME.space.json`."""

import hashlib
import json
import math
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from types import NoneType
from typing import Any

from nobackfill.core.atomic_files import write_text
from nobackfill.errors import DataError

SCHEMA = 1

IDENTITY = ("weights", "preprocessing", "dim", "normalized")

Kinds = tuple[type, ...]  # what a value read from JSON may be

SPACE_KEYS: dict[str, Kinds] = {
    "schema": (int,),
    "weights": (str, NoneType),
    "preprocessing": (str, NoneType),
    "dim": (int, NoneType),
    "normalized": (bool, NoneType),
    "dtype": (str, NoneType),
    "parent": (str, NoneType),
    "method": (str, NoneType),
    "compatible_with": (list,),
}

MAY_LACK = "not_compatible_with"  # a list, too: written where there is something to tell

COMPATIBLE_KEYS: dict[str, Kinds] = {"fingerprint": (str,), "metric": (str,), "value": (int, float)}

UNKNOWN: dict[str, Any] = {**dict.fromkeys(SPACE_KEYS), "schema": SCHEMA, "compatible_with": []}

SAMPLE = '{"name": "resnet50, March 2024", "dim": 512}'  # the least that a record must tell


@dataclass(frozen=True)
class CompatibleWith:
    """A measurement: how well these vectors, as queries, search a gallery of another space.

    Attributes:
        fingerprint: Of the gallery's space.
        metric: What was measured, e.g. `mAP`.
        value: What came out, as a fraction.
    """

    fingerprint: str
    metric: str
    value: float

    def __post_init__(self) -> None:
        if not math.isfinite(self.value):
            raise DataError(
                f"a measured `{self.metric}` wants a number, but is {self.value}. Leave out what "
                f"was not measured."
            )


@dataclass(frozen=True)
class Space:
    """What made a collection of vectors, and what they were found to be compatible with.

    None is for what is not known; it is not the same as anything that is.

    Attributes:
        dim: How many dimensions a vector has.
        weights: SHA-256 of the weights that made the vectors, or a name that no other model has.
        preprocessing: How the inputs were prepared, in words or as a setting.
        normalized: Whether the vectors were stored at unit length.
        dtype: In which precision they were stored.
        parent: Fingerprint of the space they were made compatible with, if any.
        method: By which method they were made compatible, if any.
        compatible_with: Other spaces on which they were measured to be compatible.
        not_compatible_with: Other spaces on which they were measured not to be.
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
        if self.dim is not None and self.dim < 1:
            raise DataError(
                f"a space wants at least 1 dimension, but `dim` is {self.dim}. "
                f"Give the length of one vector."
            )

    @property
    def fingerprint(self) -> str:
        """Sixteen hexadecimal digits, the same for vectors that may be compared with each other.

        It covers weights, preprocessing, dim and normalisation: not the stored precision (float16
        is the same space as float32), nor lineage and measurements, which change no vector. Where
        weights and preprocessing are unknown it can tell little apart.

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
        """Returns the same space with one more measurement, in place of an older one there.

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
            tuple(one for one in told if one.fingerprint != measured.fingerprint)
            for told in (self.compatible_with, self.not_compatible_with)
        )
        if compatible:
            return replace(self, compatible_with=(*yes, measured), not_compatible_with=no)
        return replace(self, compatible_with=yes, not_compatible_with=(*no, measured))

    def to_json(self) -> str:
        """Returns the record as JSON text, every key written out but an empty `MAY_LACK`."""
        record = asdict(self)
        if not record[MAY_LACK]:
            del record[MAY_LACK]
        return json.dumps(record, indent=2, allow_nan=False)

    @classmethod
    def from_json(cls, text: str, *, where: str = "a space record") -> "Space":
        """Reads what `to_json` wrote, or a short record; `where` names the source in errors.

        A short record tells `weights`, or `name` in place of it, and what else is known.

        Example:
            >>> Space.from_json('{"name": "resnet50"}') == Space(
            ...     dim=None, weights="resnet50", normalized=None, dtype=None
            ... )
            True
        """
        record = completed(parse(text, where), where)
        check_schema(record, where)
        check_keys(record, {**SPACE_KEYS, MAY_LACK: (list,)}, where)
        del record["schema"]
        for key in ("compatible_with", MAY_LACK):
            place = f"`{key}` of {where}"
            record[key] = tuple(read_measured(entry, place) for entry in record[key])
        return cls(**record)


def path_beside(path: Path | str) -> Path:
    """Returns where the space of an artefact is described: `old.parquet` has `old.space.json`."""
    return Path(path).with_suffix(".space.json")


def read_space(path: Path | str, *, dim: int | None = None) -> Space | None:
    """Reads the space of the artefact at `path` from the file beside it; None if there is none.

    Args:
        path: Of vectors.
        dim: How many dimensions they have, for a record that does not tell it.
    """
    beside = path_beside(path)
    if not beside.exists():
        return None
    space = with_dim(read_record(beside), dim)
    if space.dim is None:
        raise DataError(
            f"{beside} does not tell `dim`, how many dimensions a vector has. Add it, as in "
            f"{SAMPLE}."
        )
    return space


def with_dim(space: Space, dim: int | None) -> Space:
    """The same space with the dimensions that its vectors were seen to have, where it tells none.

    Example:
        >>> with_dim(Space(dim=None), 8).dim, with_dim(Space(dim=4), 8).dim
        (8, 4)
    """
    return replace(space, dim=dim) if space.dim is None else space


def names_a_model(space: Space) -> bool:
    """Whether a record tells vectors from those of other models, of the same dimensions.

    Example:
        >>> names_a_model(Space(dim=8)), names_a_model(Space(dim=8, weights="5e8f"))
        (False, True)
    """
    return bool(space.weights or space.preprocessing)


def read_record(record: Path) -> Space:
    """Reads the file that describes a space."""
    try:
        text = record.read_text(encoding="utf-8")
    except (OSError, UnicodeError) as error:
        raise unreadable(str(record), error) from error
    return Space.from_json(text, where=str(record))


def write_space(path: Path | str, space: Space) -> Path:
    """Describes the artefact at `path` in a file beside it, and returns that file's path."""
    beside = path_beside(path)
    write_record(beside, space)
    return beside


def write_record(record: Path, space: Space) -> None:
    """Writes the file that describes a space, whole or not at all."""
    write_text(record, space.to_json() + "\n")


def parse(text: str, where: str) -> dict[str, Any]:
    """Returns the JSON object that `text` holds."""
    try:
        record = json.loads(text)
    except ValueError as error:
        raise unreadable(where, error) from error
    if not isinstance(record, dict):
        raise unreadable(where, f"it holds a {type(record).__name__}")
    return record


def completed(record: dict[str, Any], where: str) -> dict[str, Any]:
    """A record with all its keys, if it tells at least which model made the vectors.

    Example:
        >>> completed({"name": "resnet50", "dim": 8}, "here")["weights"]
        'resnet50'
    """
    told = {**record}
    if "name" in told:
        if told.get("weights") is not None:
            raise DataError(
                f"{where} tells `weights` and `name`, but each says which model made the vectors. "
                f"Keep one of them."
            )
        told["weights"] = told.pop("name")
    told.setdefault(MAY_LACK, [])
    if missing := [key for key in SPACE_KEYS if key not in told]:
        if not told.get("weights"):
            raise DataError(
                f"{where} lacks {', '.join(missing)}, and does not name the model. Write at least "
                f"its name, or the SHA-256 of its weights as `weights`: {SAMPLE}. Or remove the "
                f"record: the vectors then count as undeclared."
            )
        told = {**UNKNOWN, **told}
    return told


def read_measured(entry: Any, where: str) -> CompatibleWith:
    """A measurement, as it stands in a record."""
    check_keys(entry, COMPATIBLE_KEYS, where)
    return CompatibleWith(entry["fingerprint"], entry["metric"], float(entry["value"]))


def unreadable(where: str, reason: object) -> DataError:
    """Returns the error for a record that is no JSON object."""
    return DataError(
        f"{where} should hold a JSON object that describes a space, but cannot be read: {reason}. "
        f"Write it again, or remove it: the vectors then count as undeclared."
    )


def check_schema(record: dict[str, Any], where: str) -> None:
    """Refuses a record of another version than ours."""
    schema = record["schema"]
    if schema != SCHEMA:
        raise DataError(
            f"{where} has schema version {schema!r}, but this nobackfill reads version {SCHEMA}. "
            f"Upgrade nobackfill, or write the record again with this version."
        )


def check_keys(record: Any, wanted: dict[str, Kinds], where: str) -> None:
    """Refuses a record with a missing key, an unknown key, or a value of the wrong kind."""
    if not isinstance(record, dict):
        raise DataError(
            f"{where} should hold objects with the keys {', '.join(wanted)}, but one is "
            f"{record!r}. Write the record again."
        )
    if missing := [key for key in wanted if key not in record]:
        raise DataError(
            f"{where} lacks {', '.join(missing)}. Add what is missing (null where it is not "
            f"known), or remove the record: the vectors then count as undeclared."
        )
    if unknown := [key for key in record if key not in wanted]:
        raise DataError(
            f"{where} has unknown keys: {', '.join(unknown)}. Remove them; the known ones are "
            f"{', '.join(wanted)}."
        )
    for key, kinds in wanted.items():
        if type(record[key]) not in kinds:  # not isinstance: `true` is no number here
            names = " or ".join(kind.__name__ for kind in kinds).replace("NoneType", "null")
            raise DataError(
                f"{where}: `{key}` should be {names}, but is {record[key]!r}. Correct it, or write "
                f"the record again."
            )
