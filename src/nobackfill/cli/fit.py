"""`nobackfill fit` and its output."""

from collections.abc import Iterator, Sequence
from math import isnan
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from nobackfill.cli.options import (
    Device,
    DropInvalid,
    IdColumn,
    Json,
    Modality,
    NewFile,
    OldFile,
    Pairs,
    Seed,
    VectorColumn,
    names_in,
)
from nobackfill.cli.output import emit, print_line, print_notes
from nobackfill.cli.outputs import claim
from nobackfill.core.config.defaults import DEFAULT_HEAD_METHOD

if TYPE_CHECKING:
    from nobackfill.head import CompatibleHead
    from nobackfill.head.schedule import Progress


def fit(
    old: OldFile,
    new: NewFile,
    output: Annotated[Path, typer.Option("-o", "--output", help="Folder for the head.")],
    id: IdColumn = None,
    vector: VectorColumn = None,
    label: Annotated[str, typer.Option(help="Column of the classes.")] = "label",
    drop_invalid: DropInvalid = False,
    pairs: Pairs = None,
    group: Annotated[
        str | None,
        typer.Option(help="Column of the group of each item, in place of --label.", hidden=True),
    ] = None,
    modality: Modality = "modality",
    method: Annotated[
        str,
        typer.Option(
            help="Training objective; `auto` tries several and chooses on held-out classes.",
            autocompletion=names_in("methods:METHODS"),
        ),
    ] = DEFAULT_HEAD_METHOD,
    with_old_query: Annotated[
        bool | None,
        typer.Option(
            "--with-old-query/--without-old-query",
            help="Let both models embed queries: held-out classes weigh the old vector of a query "
            "against its mapped new vector. Default: only if the head alone is worse than the old "
            "model there, beyond chance.",
        ),
    ] = None,
    epochs: Annotated[int, typer.Option(help="Largest number of epochs.")] = 30,
    hidden: Annotated[
        int, typer.Option(help="Hidden width of the correction to the linear map.")
    ] = 1024,
    together: Annotated[
        int,
        typer.Option(help="Items of a class batched together; try 4 with many classes."),
    ] = 1,
    extra: Annotated[
        int,
        typer.Option(
            help="Number of dimensions appended to the old ones, for items that are embedded again."
        ),
    ] = 0,
    test_share: Annotated[
        float,
        typer.Option(
            help="Share of the classes that files without a column `split` keep for `evaluate`; 0 "
            "fits on all."
        ),
    ] = 0.2,
    seconds: Annotated[
        float | None,
        typer.Option(
            help="Time limit in seconds. The result then depends on the speed of the machine."
        ),
    ] = None,
    onnx: Annotated[
        Path | None,
        typer.Option(
            help="Also write the head as an ONNX file; with several modalities one file each, such "
            "as NAME.text.onnx."
        ),
    ] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace an existing head.")
    ] = False,
    device: Device = "auto",
    seed: Seed = 0,
    json: Json = False,
) -> None:
    """Fit a head that maps new vectors into the old space; requires only vectors."""
    from nobackfill.cli.progress import fitting_progress
    from nobackfill.core.device import choose_device
    from nobackfill.head import CompatibleHead
    from nobackfill.head.export import onnx_files, optional_packages
    from nobackfill.head.inputs import read_for_fit
    from nobackfill.head.source import swap_notes_of_head
    from nobackfill.head.storage import check_place

    claim(onnx, folder=output, inputs=(old, new, pairs))
    check_place(output, overwrite=overwrite)  # before the fit
    if onnx is not None:
        optional_packages()
    head = CompatibleHead(
        method,
        epochs=epochs,
        hidden=hidden,
        together=together,
        extra=extra,
        old_query=with_old_query,
        test_share=test_share,
        seconds=seconds,
        seed=seed,
        device=str(choose_device(device)),
    )
    data = read_for_fit(
        old,
        new,
        label=label,
        pairs=pairs,
        group=group,
        modality=modality,
        id=id,
        vector=vector,
        drop_invalid=drop_invalid,
    )
    notes = (*swap_notes_of_head(output, data.old, data.new), *data.notes, *data.remarks)
    with fitting_progress() as watch:
        head.fit(
            data.new,
            data.old,
            data.labels,
            pairs=data.pairs,
            groups=data.groups,
            modality=data.modality,
            watch=watch,
        )
    head.notes_ = (*notes, *head.notes_)
    head.save_pretrained(output)
    files = {} if onnx is None else onnx_files(head, onnx)
    for path, part in files.items():
        part.to_onnx(path)
    print_head(head, output, onnx=list(files), as_json=json)


def print_head(
    head: "CompatibleHead", folder: Path, *, onnx: Sequence[Path] = (), as_json: bool
) -> None:
    """Prints the results of a fit, and what to do next."""
    if as_json:
        emit(head_facts(head, folder, onnx))
        return
    for line in head_lines(head):
        print_line(line)
    print_notes(head.notes_)
    old = " --old OLD" if head.progress_.old_weight is not None else ""
    print_line(
        f"The head is in {folder}. Map vectors with `nobackfill embed {folder} NEW{old} -o "
        f"COMPATIBLE`, then compare them with the old ones: `nobackfill evaluate`."
    )


def head_facts(head: "CompatibleHead", folder: Path, onnx: Sequence[Path]) -> dict[str, Any]:
    """The results of a fit as a JSON object."""
    progress = head.progress_
    written = [str(path) for path in onnx]
    several: dict[str, Any] = {"modalities": list(head.modalities_)} if head.modalities_ else {}
    files: Any = written if several else next(iter(written), None)
    return {
        "head": str(folder),
        "onnx": files or None,
        **several,
        "supervision": head.supervision_,
        "method": progress.method or head.method,
        "tried": progress.tried,
        "blend": progress.blend,
        "closed_forms": {
            name: None if isnan(value) else value for name, value in progress.closed.items()
        },
        "start": progress.start,
        "round_kept": progress.best,
        "held_out_new_old": None if isnan(progress.kept) else progress.kept,
        "held_out_old_old": progress.old_old,
        "gain": progress.gain or None,
        "old_weight": progress.old_weight,
        "held_out_by_old_weight": progress.both,
        "held_out_new_new": progress.stored,
        "stores": head.stores,
        "notes": list(head.notes_),
    }


def head_lines(head: "CompatibleHead") -> Iterator[str]:
    """Yields a line for each result of a fit that was measured."""
    from nobackfill.evaluation.bootstrap import in_points

    progress = head.progress_
    if head.modalities_:
        yield (
            f"One map each for {' and '.join(head.modalities_)}. The following numbers are means "
            f"over the directions of search."
        )
    if not isnan(progress.kept):
        yield result_sentence(progress, head.method)
    if progress.old_old is not None:
        gains = f"; over all queries, the head gains {in_points(progress.gain)}"
        gain = gains if progress.gain else ""
        yield f"old/old on held-out classes: {100 * progress.old_old:.2f} mAP{gain}."
    if progress.tried:
        tried = ", ".join(f"{name} {100 * value:.2f}" for name, value in progress.tried.items())
        yield f"Tried on all held-out classes, in their best blends: {tried}."
    if (weight := progress.old_weight) is not None:
        yield (
            f"Both models embed queries: {weight:g} of the old vector, {1 - weight:g} of the "
            f"mapped one, {100 * progress.both[f'{weight:g}']:.2f} mAP."
        )
    if progress.stored:
        mapped, as_they_are = (100 * progress.stored[key] for key in ("mapped", "as they are"))
        yield (
            f"new/new on held-out classes: {mapped:.2f} mAP mapped, {as_they_are:.2f} as they are. "
            f"Store items that are embedded again {head.stores}."
        )


def result_sentence(progress: "Progress", method: str) -> str:
    """The closed form that training started from, and what came of it."""
    start = progress.closed[progress.start]
    after = f"no improvement after {len(progress.history)} rounds of {progress.method or method}"
    if progress.tried:
        rotation = f", {1 - progress.blend:.0%} of procrustes added" if progress.blend < 1 else ""
        after = f"{100 * progress.kept:.2f} by {progress.method}{rotation}"
    elif progress.kept > start:
        after = f"{100 * progress.kept:.2f} after {progress.best} rounds of {progress.method}"
    return (
        f"new/old on held-out classes: {100 * start:.2f} mAP in closed form ({progress.start}), "
        f"{after}."
    )
