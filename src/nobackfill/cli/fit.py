"""`nobackfill fit`."""

from pathlib import Path
from typing import Annotated

import typer

from nobackfill.cli.options import Device, Json, Modality, NewFile, OldFile, Pairs, Seed


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
    from nobackfill.cli.fit_show_head import print_head
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
