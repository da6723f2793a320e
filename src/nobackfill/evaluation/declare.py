"""Writes a measured compatibility into the record of a model, which galleries read."""

from pathlib import Path

from nobackfill.errors import DataError, SpaceMismatch
from nobackfill.evaluation.bootstrap import in_points
from nobackfill.evaluation.protocols import protocol_named
from nobackfill.evaluation.result import Evaluation
from nobackfill.evaluation.verdict import advice_on, again_gains, as_sentence
from nobackfill.vectors.records import declare_space, space_of
from nobackfill.vectors.space import CompatibleWith, Space


def declare_compatible(model: Path | str, evaluation: Evaluation) -> CompatibleWith:
    """Writes into the record of a model that its queries may search the old gallery.

    A previous measurement on the same space is replaced. Vectors and fingerprints do not change.

    Args:
        model: Run, head or file of vectors that made the queries of new/old.
        evaluation: Evaluation of files that declare their spaces.

    Returns:
        The written measurement: mAP of new/old on the space of the old gallery.

    Raises:
        SpaceMismatch: If the verdict is not "compatible", or another model made the queries.
        DataError: If the files declare no space, or the record cannot be written.
    """
    model = Path(model)
    space = check_declarable(model, evaluation.old_space, evaluation.query_space)
    if (reason := why_not(evaluation)) is not None:
        raise SpaceMismatch(reason)
    measured = measurement(evaluation)
    declare_space(model, space.with_measured(measured))
    return measured


def declare_measured(model: Path | str, evaluation: Evaluation) -> CompatibleWith | None:
    """Writes the verdict, yes or no, into the record of a model; nothing if it is undecided.

    See `declare_compatible`.

    Returns:
        The measurement if the verdict is "compatible".
    """
    if evaluation.verdict == "compatible":
        return declare_compatible(model, evaluation)
    model = Path(model)
    space = check_declarable(model, evaluation.old_space, evaluation.query_space)
    if evaluation.verdict == "not compatible":
        declare_space(model, space.with_measured(measurement(evaluation), compatible=False))
    return None


def measurement(evaluation: Evaluation) -> CompatibleWith:
    """Returns the result of new/old in the form of a record."""
    return CompatibleWith(
        fingerprint=_declared(evaluation.old_space, "old vectors").fingerprint,
        metric=metric_of(evaluation),
        value=evaluation.new_old.mean_average_precision,
    )


def metric_of(evaluation: Evaluation) -> str:
    """Returns the name of the metric: mAP, its cut-off, and the direction if there is one."""
    at = protocol_named(evaluation.protocol)[1].at
    metric = "mAP" if at is None else f"mAP@{at}"
    return f"{metric} {'_to_'.join(evaluation.modalities)}" if evaluation.modalities else metric


def why_not(evaluation: Evaluation, *, written: bool = False) -> str | None:
    """Returns the reason why a model cannot be declared compatible; None if it can.

    With `written`, a negative verdict was written into its record.
    """
    if evaluation.verdict == "compatible":
        return None
    metric = metric_of(evaluation)
    old, new = (pair.mean_average_precision for pair in (evaluation.old_old, evaluation.new_old))
    if evaluation.doubts:
        return (
            f"the model cannot be declared compatible: {'; '.join(evaluation.doubts)}. Nothing was "
            f"written"
        )
    gain = in_points(evaluation.differences["new_old - old_old"].summary())
    is_written = written and evaluation.verdict == "not compatible"
    record = "Its record says so now" if is_written else "Nothing was written"
    advice = advice_on(evaluation.verdict, gains_again=again_gains([evaluation.summary()]))
    return (
        f"the model cannot be declared compatible, as the verdict is {evaluation.verdict}: new/old "
        f"has {metric} {new:.4f} and old/old {old:.4f}, a difference of {gain} points. {record}. "
        f"{as_sentence(advice)}"
    )


def check_declarable(model: Path, old: Space | None, query: Space | None) -> Space:
    """Returns the space of a model's record; raises if no verdict could be declared for it."""
    _declared(old, "old vectors")
    queries, space = _declared(query, "new queries"), space_of(model)
    if space.fingerprint != queries.fingerprint:
        raise SpaceMismatch(
            f"only the model that made the new queries can be declared: they are of the space "
            f"{queries.fingerprint}, but {model} is of {space.fingerprint}. Pass the run, the head "
            f"or the file that they come from; if a model maps its queries for the old gallery, "
            f"evaluate with --query-for-old."
        )
    return space


def _declared(space: Space | None, whose: str) -> Space:
    """Returns the space; raises unless it identifies the model of its vectors."""
    if space is None:
        raise DataError(
            f"a declaration needs the model of the {whose}, but they declare no space. Embed them "
            f"by nobackfill, or write NAME.space.json next to their file."
        )
    if space.weights is None and space.preprocessing is None:
        raise DataError(
            f"a declaration needs the model of the {whose}, but their space.json has neither "
            f"`weights` nor `preprocessing`, so any vectors of {space.dim} dimensions match. Add "
            f"the SHA-256 of the weights, or a name of the model."
        )
    return space
