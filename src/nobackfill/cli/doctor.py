"""`nobackfill doctor` and its output."""

from typing import TYPE_CHECKING

from nobackfill.cli.options import Json
from nobackfill.cli.output import emit, print_line, print_table
from nobackfill.core.page import Table

if TYPE_CHECKING:
    from nobackfill.core.environment import Environment, Package


def doctor(json: Json = False) -> None:
    """Print the installed packages and the devices, and whether they work."""
    from nobackfill.cli.progress import doing
    from nobackfill.core.environment import check_environment

    with doing("importing packages"):
        environment = check_environment()
    if json:
        emit(environment.summary())
    else:
        print_environment(environment)


def print_environment(env: "Environment") -> None:
    """Prints versions, devices and packages, and how to install what is missing."""
    print_line(f"nobackfill {env.nobackfill}, Python {env.python}, {env.system}")
    print_line(f"torch {env.torch}, {env.threads} threads; on {', '.join(env.devices)}")
    if env.data is not None:
        folder, exists = env.data
        print_line(f"NOBACKFILL_DATA is {folder}{'' if exists else ', which does not exist'}")
    rows = [
        [package.name, _sign(package), package.version or "", package.gives, remedy(package)]
        for package in env.packages
    ]
    print_table(Table(["package", "", "version", "for", "remedy"], rows))


def remedy(package: "Package") -> str:
    """Returns what to do about a package that does not work."""
    from nobackfill.core.environment import UNKNOWN_OPERATOR

    if UNKNOWN_OPERATOR in package.problem:
        return (
            f"cannot be imported: {package.problem}. Install a torchvision of the same build as "
            f"torch, or uninstall torchvision and timm. Training by nobackfill works."
        )
    if package.problem:
        return f"cannot be imported: {package.problem}"
    return "" if package.works else f"pip install 'nobackfill[{package.extra}]'"


def _sign(package: "Package") -> str:
    """Whether a package works, cannot be imported, or is not installed."""
    return "✓" if package.works else "✗" if package.problem else "–"
