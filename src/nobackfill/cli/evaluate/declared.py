"""`nobackfill evaluate --declare`: what was written into the record of a model."""

from pathlib import Path

from nobackfill.cli.output import print_line, print_warning
from nobackfill.evaluation.declare import why_not
from nobackfill.evaluation.result import Evaluation
from nobackfill.vectors.records import record_of
from nobackfill.vectors.space import CompatibleWith


def print_declared(
    model: Path, evaluation: Evaluation, measured: CompatibleWith | None, *, as_json: bool
) -> None:
    """Prints the verdict written into a model's record, or on stderr why none was written."""
    if measured is None:
        print_warning(why_not(evaluation, written=True) or "nothing was written")
    elif not as_json:
        print_line(
            f"Declared in {record_of(model)}: may search the space {measured.fingerprint}, "
            f"{measured.metric} {measured.value:.4f}."
        )
