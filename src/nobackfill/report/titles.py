"""Titles of reports, their paths, and the legend of pairs."""

from pathlib import Path

from nobackfill.errors import ConfigError

MADE_BY = b'<meta name="generator" content="nobackfill'  # in the head of every page
START = 2**18  # bytes that contain the head of a page
PAIRS = (
    "Pairs are written query/gallery: old/old is the service as it is today, new/old the day of "
    "the upgrade, new/new after every gallery item has been embedded again."
)


def check_page(path: Path) -> None:
    """Raises unless a report may be written to a path: it ends in .html.

    The files next to it must not exist either, unless they are of an earlier report.
    """
    if path.suffix != ".html":
        raise ConfigError(f"A report is an HTML file, but the path is {path}. End it in .html.")
    if _is_report(path):
        return
    for file in files_of_page(path)[1:]:
        if file.exists():
            raise ConfigError(
                f"The report {path} would replace {file}, which is not part of a report. Choose "
                f"another name."
            )


def files_of_page(path: Path) -> list[Path]:
    """Returns the page and all files that may be written next to it.

    Example:
        >>> [file.name for file in files_of_page(Path("report.html"))]
        ['report.html', 'report.json', 'report.md', 'report.queries.parquet']
    """
    return [path, *(path.with_suffix(suffix) for suffix in (".json", ".md", ".queries.parquet"))]


def _is_report(path: Path) -> bool:
    """Whether a file is a page that nobackfill wrote."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return MADE_BY in file.read(START)


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
