"""What is printed of a page that was written."""

from pathlib import Path

from nobackfill.cli.output import console


def print_page(path: Path | None, *, as_json: bool) -> None:
    """Prints where a page lies, for people, if there is one."""
    if path is not None and not as_json:
        console.print(f"Report: {path}", markup=False, soft_wrap=True)
