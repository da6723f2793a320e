"""The report on a run on pairs of texts."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from nobackfill.core.steps import Watch, unwatched
from nobackfill.errors import ConfigError
from nobackfill.integrations.text_folder import read_settings, require_finished
from nobackfill.integrations.text_results import evaluation_of
from nobackfill.report.build import Report, report_vectors


def report_text_run(
    folders: Sequence[Path], *, title: str | None = None, watch: Watch = unwatched
) -> Report:
    """Makes the report on one run on pairs.

    Args:
        folders: Folder of the run; several are an error.
        title: Title of the page.
        watch: Receives the name of each step.
    """
    if len(folders) > 1:
        raise ConfigError(
            "A report on pairs of texts shows one run, but there are several folders. Write one "
            "report for each."
        )
    (folder,) = folders
    require_finished(folder)
    settings = read_settings(folder)
    watch("report: searching")
    result, files = evaluation_of(folder)
    title = title or f"May {folder.name} go live on the stored vectors?"
    report = report_vectors(result, files, title=title, watch=watch)
    trained = {
        "method": settings.method,
        "old model": settings.old_model,
        "new model": settings.new_model or settings.old_model,
        "pairs": settings.pairs,
    }
    return replace(report, facts={**report.facts, "trained": trained})
