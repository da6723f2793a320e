"""A model that was measured to be compatible says so in its record, where a gallery looks."""

from pathlib import Path

from nobackfill.errors import DataError, SpaceMismatch
from nobackfill.evaluation.bootstrap import in_points
from nobackfill.evaluation.notes import check_new_queries
from nobackfill.evaluation.protocols import protocol_named
from nobackfill.evaluation.result import Evaluation
from nobackfill.vectors.records import record_of, space_of
from nobackfill.vectors.space import CompatibleWith, Space, write_record

WHAT_TO_DO = {
    "not compatible": "Train or fit a model against these vectors (`nobackfill train`, `nobackfill "
    "fit`), or embed the gallery again",
    "undecided": "Evaluate with more queries, of more classes",
}


def declare_compatible(model: Path | str, evaluation: Evaluation) -> CompatibleWith:
    """Writes into the record of a model that its queries may search the old gallery.

    Only where the verdict is "compatible"; an older measurement on the same space is replaced. No
    vector changes by that, nor does any fingerprint.

    Args:
        model: A run, a head, or a file of vectors: what made the queries of new/old.
        evaluation: Of files that say what made them.

    Returns:
        What was written: mAP of new/old on the space of the old gallery.

    Raises:
        SpaceMismatch: Where it was not measured to be compatible, or the queries were made by
            another model.
        DataError: Where the files do not say what made them, a head was fitted on all that asked,
            or the record cannot be written.
    """
    model = Path(model)
    space = check_declarable(model, evaluation.old_space, evaluation.query_space)
    if (reason := why_not(evaluation)) is not None:
        raise SpaceMismatch(reason)
    check_new_queries(evaluation.fitted)
    measured = measurement(evaluation)
    write_record(record_of(model), space.with_measured(measured))
    return measured


def declare_measured(model: Path | str, evaluation: Evaluation) -> CompatibleWith | None:
    """Writes into the record of a model what was measured on the old gallery, be it yes or no.

    Where the verdict is undecided nothing is written. See `declare_compatible`.

    Returns:
        What was measured, where the verdict is "compatible".
    """
    if evaluation.verdict == "compatible":
        return declare_compatible(model, evaluation)
    model = Path(model)
    space = check_declarable(model, evaluation.old_space, evaluation.query_space)
    if evaluation.verdict == "not compatible":
        told_no = space.with_measured(measurement(evaluation), compatible=False)
        write_record(record_of(model), told_no)
    return None


def measurement(evaluation: Evaluation) -> CompatibleWith:
    """What came of new/old, as it stands in a record."""
    return CompatibleWith(
        fingerprint=told(evaluation.old_space, "old vectors").fingerprint,
        metric=metric_of(evaluation),
        value=evaluation.new_old.mean_average_precision,
    )


def metric_of(evaluation: Evaluation) -> str:
    """What was measured: mAP, to which depth, and where only some ask, who asks whom."""
    at = protocol_named(evaluation.protocol)[1].at
    metric = "mAP" if at is None else f"mAP@{at}"
    return f"{metric} {'_to_'.join(evaluation.modalities)}" if evaluation.modalities else metric


def why_not(evaluation: Evaluation, *, written: bool = False) -> str | None:
    """Why a model cannot be declared compatible by what was measured; None where it can.

    Args:
        evaluation: What was measured.
        written: Whether a verdict of no went into the record of the model (`declare_measured`).
    """
    if evaluation.verdict == "compatible":
        return None
    metric = metric_of(evaluation)
    old, new = (pair.mean_average_precision for pair in (evaluation.old_old, evaluation.new_old))
    gain = in_points(evaluation.differences["new_old - old_old"].summary())
    no = written and evaluation.verdict == "not compatible"
    kept = "Its record says so now" if no else "Nothing was written"
    return (
        f"wanted to declare a model that was measured to be compatible, but the verdict is "
        f"{evaluation.verdict}: new/old has {metric} {new:.4f} and old/old {old:.4f}, a difference "
        f"of {gain} points. {kept}. {WHAT_TO_DO[evaluation.verdict]}."
    )


def check_declarable(model: Path, old: Space | None, query: Space | None) -> Space:
    """Refuses what cannot be declared whatever the verdict; returns what the model's record says.

    Args:
        model: A run, a head, or a file of vectors.
        old: What made the old gallery.
        query: What made the queries that ask it.
    """
    told(old, "old vectors")
    asks, space = told(query, "new queries"), space_of(model)
    if space.fingerprint != asks.fingerprint:
        raise SpaceMismatch(
            f"wanted to declare the model that made the new queries, which are of the space "
            f"{asks.fingerprint}, but {model} is of {space.fingerprint}. Pass the run, the head or "
            f"the file that they come from; where a model maps its queries for the old gallery, "
            f"evaluate with --query-for-old."
        )
    return space


def told(space: Space | None, whose: str) -> Space:
    """A space that tells vectors from those of other models, or an error."""
    if space is None:
        raise DataError(
            f"wanted to know what made the {whose}, but they declare no space. Embed them by "
            f"nobackfill, or write NAME.space.json beside their file."
        )
    if space.weights is None and space.preprocessing is None:
        raise DataError(
            f"wanted to know what made the {whose}, but their space.json tells neither `weights` "
            f"nor `preprocessing`: any vectors of {space.dim} dimensions could be meant. Add the "
            f"SHA-256 of the weights, or a name of the model."
        )
    return space
