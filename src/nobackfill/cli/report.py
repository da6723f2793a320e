"""`nobackfill report`."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from nobackfill.cli.options import Device, Json


class Classes(StrEnum):
    """Classes whose means a report compares."""

    training = "training"
    searched = "searched"


def report(
    runs: Annotated[list[Path], typer.Argument(help="Folders of finished runs.", metavar="RUN…")],
    output: Annotated[
        Path,
        typer.Option(
            "-o", "--output", help="Path of the report (.html); .md and .json go next to it."
        ),
    ] = Path("report.html"),
    title: Annotated[str | None, typer.Option(help="Title of the page.")] = None,
    classes: Annotated[
        Classes,
        typer.Option(
            help="Classes whose means are compared: training embeds the training set once more."
        ),
    ] = Classes.training,
    device: Device = "auto",
    json: Json = False,
) -> None:
    """Write a report on an upgrade, or a comparison of several."""
    from dataclasses import replace

    from nobackfill.cli.output import print_page
    from nobackfill.cli.outputs import claim
    from nobackfill.cli.progress import doing
    from nobackfill.core.device import choose_device
    from nobackfill.integrations.text_folder import is_text_run
    from nobackfill.integrations.text_report import report_text_run
    from nobackfill.report.from_runs import report_runs
    from nobackfill.report.pages.expected import TITLE
    from nobackfill.training.decoding import choose_decoding

    claim(pages=(output,))  # before anything is done
    with doing() as show_step:
        if any(is_text_run(run) for run in runs):
            made = report_text_run(runs, title=title, watch=show_step)
        else:
            made = report_runs(
                runs,
                title=title,
                device=choose_device(device),
                classes=classes.value,
                decoding=choose_decoding(workers=0),
                watch=show_step,
            )
        written = made.save(output)
    facts = {"report": str(output), "files": [str(path) for path in written], **made.facts}
    published = [section for section in made.page.sections if section.title == TITLE]
    conclusion = replace(made.page, sections=published, notes=[])
    print_page(conclusion, facts, as_json=json, report=output)
