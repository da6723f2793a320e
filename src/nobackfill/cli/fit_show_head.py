"""What `nobackfill fit` prints."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nobackfill.cli.output import console, emit

if TYPE_CHECKING:
    from nobackfill.head import CompatibleHead


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
