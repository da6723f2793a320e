"""`nobackfill matrix` and its output."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape
from rich.table import Table

from nobackfill.cli.options import Device, GroundTruth, Json, Level, Protocol, read_truth
from nobackfill.cli.output import console, emit
from nobackfill.errors import ConfigError

if TYPE_CHECKING:
    from nobackfill.evaluation.matrix import CompatibilityMatrix, Upgrade, UpgradeScores


def matrix(
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="OLDEST … NEWEST",
            help="Vectors of the same items by each model (.parquet, .safetensors, .npz, .npy).",
        ),
    ],
    names: Annotated[
        str | None,
        typer.Option(help="Names of the models, separated by commas. Default: file names."),
    ] = None,
    independent: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=FILE",
            help="Vectors of a model trained without constraint in place of NAME: for P-scores.",
        ),
    ] = None,
    protocol: Protocol = None,
    ground_truth: GroundTruth = None,
    level: Level = None,
    intersect: Annotated[
        bool, typer.Option("--intersect", help="Leave out items that are not in every file.")
    ] = False,
    device: Device = "auto",
    json: Json = False,
) -> None:
    """Search every model's gallery with every model's queries: mAP, AC, AM and P-scores."""
    from nobackfill.core.device import choose_device
    from nobackfill.evaluation.matrix import check_names, compatibility_matrix
    from nobackfill.vectors import load_vectors

    truth = read_truth(ground_truth, level)
    called = split_names(names, len(files)) if names is not None else name_files(files)
    alone = split_independent(independent or [])
    check_names(called, alone)  # before anything is read
    result = compatibility_matrix(
        {name: load_vectors(file) for name, file in zip(called, files, strict=True)},
        protocol=protocol,
        ground_truth=truth,
        intersect=intersect,
        independent={name: load_vectors(file) for name, file in alone.items()},
        device=choose_device(device),
    )
    print_matrix(result, as_json=json)


def split_names(text: str, count: int) -> list[str]:
    """The names in a list with commas, if they are as many as there are files."""
    names = [name.strip() for name in text.split(",")]
    if len(names) != count:
        raise ConfigError(
            f"--names has {len(names)} names for {count} files: {text}. Separate the names by "
            f"commas."
        )
    return names


def name_files(files: Sequence[Path]) -> list[str]:
    """The stem of each file, with as many of its folders, or a number, as tell them apart.

    Example:
        >>> name_files([Path("old.npz"), Path("new.npz")])
        ['old', 'new']
        >>> name_files([Path("runs/1/validation.parquet"), Path("runs/2/validation.parquet")])
        ['1/validation', '2/validation']
        >>> name_files([Path("a.npz"), Path("a.parquet"), Path("a-2.npz")])
        ['a', 'a-3', 'a-2']
    """
    parts = [file.with_suffix("").parts for file in files]
    for depth in range(1, max(map(len, parts)) + 1):
        names = ["/".join(one[-depth:]) for one in parts]
        if len(set(names)) == len(names):
            return names
    stems = [file.stem for file in files]
    names = []
    for place, stem in enumerate(stems):
        name, number = stem, 1
        while name in names or (number > 1 and name in stems[place + 1 :]):
            number += 1
            name = f"{stem}-{number}"
        names.append(name)
    return names


def split_independent(texts: Sequence[str]) -> dict[str, Path]:
    """The files in arguments such as `new=free.parquet`, by the names before them."""
    found: dict[str, Path] = {}
    for text in texts:
        name, is_there, file = text.partition("=")
        if not (name and is_there and file):
            raise ConfigError(f"--independent must be NAME=FILE, not `{text}`.")
        if name in found:
            raise ConfigError(
                f"--independent has two files for `{name}`: {found[name]} and {file}. Leave one "
                f"out."
            )
        found[name] = Path(file)
    return found


def print_matrix(matrix: "CompatibilityMatrix", *, as_json: bool) -> None:
    """Prints the table, AC and AM, and what each upgrade came to."""
    if as_json:
        emit(matrix.summary())
        return
    _print_table(matrix)
    console.print(
        f"mAP in percent, {matrix.num_queries:,} queries, {matrix.num_gallery:,} gallery items. "
        f"● a model on its own gallery, ▲ above and ▼ below that; above the diagonal older models "
        f"ask newer galleries.",
        style="dim",
        soft_wrap=True,
    )
    upgrades = matrix.upgrades
    if matrix.ac is not None:
        console.print(
            f"\nAC {matrix.ac:.2f}: {round(matrix.ac * len(upgrades))} of {len(upgrades)} upgrades "
            f"find more in the old gallery than the old model did.\n"
            f"AM {matrix.am:.3f}: the mean mAP, own galleries and older ones.",
            soft_wrap=True,
        )
    console.print("\nnew/old against old/old:")
    for upgrade in upgrades:
        first, *more = (_tell_scores(one) for one in upgrade.p_scores)
        told = f"; {first}" if matrix.independent else ""
        console.print(f"{_tell_upgrade(upgrade)}{told}", soft_wrap=True)
        for other in more:
            console.print(f"    or {other}", soft_wrap=True)
    if not matrix.independent:
        console.print(
            "No P-scores: they need a model trained without constraint in place of a newer one "
            "(--independent NAME=FILE).",
            style="dim",
            soft_wrap=True,
        )
    console.print(
        "By the means alone: `nobackfill evaluate` tells of two models how sure that is.",
        style="dim",
        soft_wrap=True,
    )
    for note in matrix.notes:
        console.print(f"Note: {note}.", style="yellow", markup=False, soft_wrap=True)


def _print_table(matrix: "CompatibilityMatrix") -> None:
    """Prints the matrix; models are numbered where their names are too wide for the columns."""
    for heads, rows in (
        (matrix.names, matrix.names),
        (
            [str(number) for number in range(1, len(matrix.names) + 1)],
            [f"{number} {name}" for number, name in enumerate(matrix.names, start=1)],
        ),
    ):
        table = Table(box=None, padding=(0, 2), header_style="dim")
        table.add_column("query by ↓  gallery by →", no_wrap=True)
        for head in heads:
            table.add_column(escape(head), justify="right", no_wrap=True)
        for i, name in enumerate(rows):
            table.add_row(escape(name), *(_cell(matrix, i, j) for j in range(len(rows))))
        wanted = console.measure(table, options=console.options.update(max_width=10_000)).maximum
        if wanted <= console.width:
            break
        table.width = wanted  # beyond the terminal rather than without digits
    console.print(table, crop=False)


def _cell(matrix: "CompatibilityMatrix", i: int, j: int) -> str:
    """An entry against the gallery's own model: dimmed where nobody upgrades in this direction."""
    value, own = matrix.map[i][j], matrix.map[j][j]
    if value is None or own is None:
        return "–  "
    text = f"{100 * value:.2f}"
    if i == j:
        return f"[bold]{text} ●[/]"
    faint = "dim " if i < j else ""
    if value == own:
        return f"{text} ="
    return f"[{faint}green]{text} ▲[/]" if value > own else f"[{faint}red]{text} ▼[/]"


def _tell_upgrade(upgrade: "Upgrade") -> str:
    """What a step changes on the day it is taken."""
    name = f"[bold]{escape(upgrade.old)} → {escape(upgrade.new)}[/]"
    if upgrade.new_old is None:
        return f"{name} not comparable"
    gain = 100 * (upgrade.new_old - upgrade.old_old)
    return f"{name} [{'green' if gain > 0 else 'red'}]{gain:+.2f}[/]"


def _tell_scores(one: "UpgradeScores") -> str:
    """P-scores and what entered them, or why there are none."""
    if one.independent is None:
        return escape(f"no P-scores: {one.reason}")
    entered = (
        f"M(o,o) {one.old_old_of} {100 * one.old_old:.2f}, "
        f"M* {one.independent_of} {100 * one.independent:.2f}"
    )
    if one.scores is None:
        return escape(f"no P-scores with {entered}: {one.reason}")
    scores = f"P_up {one.scores.up:.2f}  P_comp {one.scores.comp:.2f}  P_1 {one.scores.one:.2f}"
    return escape(f"{scores}  ({entered})")
