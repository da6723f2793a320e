"""Titles of reports, their paths, and the legend of pairs."""

from pathlib import Path

from nobackfill.errors import ConfigError

PAIRS = (
    "Pairs are written query/gallery: old/old is the service as it is today, new/old the day of "
    "the upgrade, new/new after every gallery item has been embedded again."
)


def check_page(path: Path) -> None:
    """Raises `ConfigError` unless the path of a report ends in .html."""
    if path.suffix != ".html":
        raise ConfigError(f"A report is an HTML file, but the path is {path}. End it in .html.")


def names_apart(old: Path, new: Path) -> tuple[str, str]:
    """Names of two files: their stems, with as many parent folders as it takes to differ.

    Example:
        >>> names_apart(Path("runs/old/validation.parquet"), Path("runs/ndpp/validation.parquet"))
        ('old/validation', 'ndpp/validation')
        >>> names_apart(Path("a/old.parquet"), Path("b/new.parquet"))
        ('old', 'new')
    """
    parts = [path.absolute().with_suffix("").parts[1:] for path in (old, new)]
    for number in range(1, max(map(len, parts)) + 1):
        before, after = ("/".join(part[-number:]) for part in parts)
        if before != after:
            return before, after
    return old.name, new.name


def upgrade_title(old: Path, new: Path) -> str:
    """Title of the report on two files of vectors.

    Example:
        >>> upgrade_title(Path("old.parquet"), Path("new.parquet"))
        'May new go live on the vectors of old?'
    """
    before, after = names_apart(old, new)
    return f"May {after} go live on the vectors of {before}?"
