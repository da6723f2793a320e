"""What made an artefact, be it a run, a head or a file of vectors, and where that is written."""

from pathlib import Path

from nobackfill.errors import DataError
from nobackfill.vectors import load_vectors
from nobackfill.vectors.space import CompatibleWith, Space, path_beside, read_record, read_space

VECTORS = ("validation_query.parquet", "validation.parquet")  # of a run; what asks comes first


def record_of(path: Path) -> Path:
    """Where it is written what made an artefact, or would be.

    Args:
        path: A run, a head, a file of vectors, or a space record itself.
    """
    if path.is_dir():
        known = (path / "space.json", *(path_beside(path / name) for name in VECTORS))
        return next((record for record in known if record.exists()), known[0])
    return path if path.name.endswith("space.json") else path_beside(path)


def space_of(path: Path) -> Space:
    """What made an artefact: a run, a head, a file of vectors, or a space record itself."""
    record = record_of(path)
    space = read_record(record) if record.exists() else None
    if (space is None or space.dim is None) and path.is_file() and path != record:
        space = load_vectors(path).space  # some formats tell it themselves; all have dimensions
    if space is None:
        raise DataError(
            f"wanted to know what made {path}, but there is no space.json in or beside it. Pass a "
            f"run, a head, or a file of vectors that nobackfill wrote."
        )
    return space


def measured_in(run: Path, fingerprint: str) -> tuple[CompatibleWith, ...]:
    """What the records of a run tell that was measured of one of the spaces that its model makes.

    Args:
        run: Its folder.
        fingerprint: Of the space: queries may be of another than what is stored.
    """
    spaces = (read_space(run / name) for name in VECTORS)
    found = (space for space in spaces if space is not None and space.fingerprint == fingerprint)
    return next((space.compatible_with for space in found), ())
