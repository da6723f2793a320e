"""Space records of runs, heads and files of vectors: where they are stored, and reading them."""

from pathlib import Path

from nobackfill.errors import DataError
from nobackfill.vectors import load_vectors
from nobackfill.vectors.space import CompatibleWith, Space, path_beside, read_record, read_space

VECTORS = ("validation_query.parquet", "validation.parquet")  # files of a run, queries first


def record_of(path: Path) -> Path:
    """Returns the path of the space record of a run, a head, a file of vectors or a record.

    The record may not exist yet.
    """
    if path.is_dir():
        records = (path / "space.json", *(path_beside(path / name) for name in VECTORS))
        return next((record for record in records if record.exists()), records[0])
    return path if path.name.endswith("space.json") else path_beside(path)


def space_of(path: Path) -> Space:
    """Reads the space of a run, a head, a file of vectors or a space record."""
    record = record_of(path)
    space = read_record(record) if record.exists() else None
    if (space is None or space.dim is None) and path.is_file() and path != record:
        space = load_vectors(path).space  # from the file's metadata; adds the dimensions
    if space is None:
        raise DataError(
            f"Unknown space of {path}: there is no space.json in or beside it. Pass a "
            f"run, a head, or a file of vectors that nobackfill wrote."
        )
    return space


def measured_in(run: Path, fingerprint: str) -> tuple[CompatibleWith, ...]:
    """Returns the measured compatibility of one of the spaces of a run's model.

    Args:
        run: Run folder.
        fingerprint: Fingerprint of the space; queries may have another one than the gallery.
    """
    spaces = (read_space(run / name) for name in VECTORS)
    own = (space for space in spaces if space is not None and space.fingerprint == fingerprint)
    return next((space.compatible_with for space in own), ())
