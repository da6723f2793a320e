"""`nobackfill fit` and its output."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from nobackfill.cli.options import Device, Json, Modality, NewFile, OldFile, Pairs, Seed
from nobackfill.cli.output import console, emit

if TYPE_CHECKING:
    from nobackfill.head import CompatibleHead


def fit(
    old: OldFile,
    new: NewFile,
    output: Annotated[Path, typer.Option("-o", "--output", help="The folder of the head.")],
    label: Annotated[
        str, typer.Option(help="The column that says what belongs together.")
    ] = "label",
    pairs: Pairs = None,
    group: Annotated[
        str | None,
        typer.Option(help="A column of what each item is a part of, in place of labels."),
    ] = None,
    modality: Modality = "modality",
    method: Annotated[str, typer.Option(help="What to fit by.")] = "cross_supcon",
    epochs: Annotated[int, typer.Option(help="At most.")] = 30,
    hidden: Annotated[int, typer.Option(help="Width of the correction to the linear map.")] = 1024,
    together: Annotated[
        int, typer.Option(help="Items of a class that come together; try 4 with many classes.")
    ] = 1,
    extra: Annotated[
        int,
        typer.Option(
            help="Dimensions behind those of the old space, for items that are embedded again."
        ),
    ] = 0,
    seconds: Annotated[
        float | None, typer.Option(help="What it may take; what comes out then depends on it.")
    ] = None,
    onnx: Annotated[
        Path | None,
        typer.Option(
            help="Write the head as an ONNX file, too; of several modalities one each, such as "
            "NAME.text.onnx."
        ),
    ] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Put the head in the place of one that is there.")
    ] = False,
    device: Device = "auto",
    seed: Seed = 0,
    json: Json = False,
) -> None:
    """Fit a head that maps new vectors into the old space, from vectors alone."""
    from nobackfill.cli.progress import fitting_progress
    from nobackfill.core.device import choose_device
    from nobackfill.head import CompatibleHead
    from nobackfill.head.export import onnx_files, optional_packages
    from nobackfill.head.read_files import read_for_fit
    from nobackfill.head.storage import check_place

    check_place(output, overwrite=overwrite)  # before the work, not after it
    if onnx is not None:
        optional_packages()
    head = CompatibleHead(
        method,
        epochs=epochs,
        hidden=hidden,
        together=together,
        extra=extra,
        seconds=seconds,
        seed=seed,
        device=str(choose_device(device)),
    )
    given = read_for_fit(old, new, label=label, pairs=pairs, group=group, modality=modality)
    with fitting_progress() as watch:
        head.fit(
            given.new,
            given.old,
            given.labels,
            pairs=given.pairs,
            groups=given.groups,
            modality=given.modality,
            watch=watch,
        )
    head.notes_ = (*given.notes, *head.notes_)
    head.save_pretrained(output)
    files = {} if onnx is None else onnx_files(head, onnx)
    for path, one in files.items():
        one.to_onnx(path)
    print_head(head, output, onnx=list(files), as_json=json)


def print_head(
    head: "CompatibleHead", folder: Path, *, onnx: Sequence[Path] = (), as_json: bool
) -> None:
    """Prints how a fit went, and what to do next."""
    progress = head.progress_
    closed = {name: _known(value) for name, value in progress.closed.items()}
    kept = progress.history[progress.best - 1] if progress.best else closed[progress.start]
    if as_json:
        written = [str(path) for path in onnx]
        several: dict[str, Any] = {"modalities": list(head.modalities_)} if head.modalities_ else {}
        files: Any = written if several else next(iter(written), None)
        emit(
            {
                "head": str(folder),
                "onnx": files or None,
                **several,
                "supervision": head.supervision_,
                "method": head.method,
                "closed_forms": closed,
                "start": progress.start,
                "round_kept": progress.best,
                "held_out_new_old": kept,
                "held_out_new_new": progress.stored,
                "stores": head.stores,
                "notes": list(head.notes_),
            }
        )
        return
    if head.modalities_:
        console.print(
            f"A map each for {' and '.join(head.modalities_)}. What follows are means over who "
            f"searches whom.",
            markup=False,
            soft_wrap=True,
        )
    if kept is not None:
        start = closed[progress.start]
        assert start is not None
        after = f"no better after {len(progress.history)} rounds of {head.method}"
        if progress.best:
            after = f"{100 * kept:.2f} after {progress.best} rounds of {head.method}"
        console.print(
            f"new/old on held-out classes: {100 * start:.2f} mAP in closed form "
            f"({progress.start}), {after}.",
            soft_wrap=True,
        )
    if progress.stored:
        mapped, as_they_are = (100 * progress.stored[key] for key in ("mapped", "as they are"))
        console.print(
            f"new/new there: {mapped:.2f} mAP mapped, {as_they_are:.2f} as they are: store items "
            f"that are embedded again {head.stores}.",
            soft_wrap=True,
        )
    for note in head.notes_:
        console.print(f"Note: {note}.", style="yellow", markup=False, soft_wrap=True)
    console.print(
        f"The head is in {folder}. Make vectors by `nobackfill embed {folder} NEW -o COMPATIBLE`, "
        f"then see by `nobackfill evaluate` whether they beat the old ones.",
        markup=False,
        soft_wrap=True,
    )


def _known(value: float) -> float | None:
    return None if value != value else value
