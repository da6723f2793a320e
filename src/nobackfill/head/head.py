"""CompatibleHead: fitted on two files of vectors, used like any transformer of scikit-learn."""

import inspect
from collections.abc import Callable, Sequence
from pathlib import Path
from time import monotonic
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from nobackfill.core.config import resolve_options, suggest
from nobackfill.core.seeding import seeded
from nobackfill.errors import ConfigError, DataError, SpaceMismatch
from nobackfill.head.fitting import fit_network
from nobackfill.head.initial_map import choose_closed_form
from nobackfill.head.inputs import Rows, check_lengths, matched, partner_notes
from nobackfill.head.multimodal import (
    Modality,
    ModalityNetwork,
    Network,
    asked_modalities,
    check_fitted,
    check_padding,
    make_network,
    told_modalities,
    widths_of,
)
from nobackfill.head.network import HeadNetwork
from nobackfill.head.schedule_progress import Progress
from nobackfill.head.schedule_settings import FitConfig, check_config, check_method
from nobackfill.head.seen_items import Marks, marks_of_maps, with_fitted
from nobackfill.head.split import Parts, check_kind, divide, told_classes
from nobackfill.head.storage import fingerprint
from nobackfill.head.stored_side import add_extra, compare_stored
from nobackfill.head.supervision import Pairs
from nobackfill.head.validation import mapped
from nobackfill.methods import METHODS
from nobackfill.vectors import Vectors
from nobackfill.vectors.matrix import as_matrix
from nobackfill.vectors.space import Space

BLOCK = 65_536  # rows that are mapped in one go


class CompatibleHead:
    """Maps a new model's vectors so that they search the vectors an old model has stored.

    Nothing is needed but both models' vectors of some items and, for more than a map in closed
    form, what belongs together: labels, pairs, or groups. A part of the classes is held out; the
    head begins with the closed form that is best on them and is never worse than that there.

    Args:
        method: What to train by, a name of `nobackfill.METHODS`; not all will do.
        options: Of the method.
        hidden: Width of the correction to the linear map; 0 for none.
        dropout: Of the correction, in training.
        epochs: At most; it stops when the held-out classes gain no more.
        batch_size: How many items make a step.
        learning_rate: Of AdamW.
        weight_decay: Of AdamW.
        classification: Weight of the method's classification term, which costs new/old.
        held_out: The share of classes that is held out.
        together: How many items of a class come together into a batch. More may pay where there
            are many thousand classes.
        extra: How many dimensions to put behind those of the old space, for items that are embedded
            again: old vectors have zeros there, so that nothing changes against them.
        seconds: What a fit may take; None for no limit. With one, what comes out depends on how
            fast the machine is.
        seed: Of all that is random.
        device: What to fit on.

    Attributes:
        network_: The map.
        progress_: How the fit went.
        supervision_: What it used: "labels", "pairs", "groups" or "none".
        space_: Of the vectors that it makes.
        source_: Fingerprint of the space of the vectors that it maps, if known.
        notes_: What a reader should know.
        modalities_: Names of those that have a map each; none where one map is for all.
        fitted_: Marks of the items that each map was fitted on; none where that is not known.

    Example:
        >>> new, old = torch.randn(60, 8), torch.randn(60, 4)
        >>> head = CompatibleHead(epochs=1).fit(new, old, labels=torch.arange(60) % 12)
        >>> head.transform(new).shape
        torch.Size([60, 4])
    """

    network_: Network
    progress_: Progress
    supervision_: str
    space_: Space
    source_: str | None
    notes_: tuple[str, ...]
    modalities_: tuple[str, ...] = ()
    fitted_: tuple[Marks, ...] = ()

    def __init__(
        self,
        method: str = "cross_supcon",
        *,
        options: dict[str, Any] | None = None,
        hidden: int = 1024,
        dropout: float = 0.3,
        epochs: int = 30,
        batch_size: int = 512,
        learning_rate: float = 3e-4,
        weight_decay: float = 1e-2,
        classification: float = 0.0,
        held_out: float = 0.2,
        together: int = 1,
        extra: int = 0,
        seconds: float | None = None,
        seed: int = 0,
        device: str = "cpu",
    ):
        self.method, self.options = method, options
        self.hidden, self.dropout, self.epochs = hidden, dropout, epochs
        self.batch_size, self.learning_rate = batch_size, learning_rate
        self.weight_decay, self.classification = weight_decay, classification
        self.held_out, self.together, self.extra = held_out, together, extra
        self.seconds, self.seed, self.device = seconds, seed, device

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """What it was made with, as scikit-learn asks for it."""
        return {name: getattr(self, name) for name in _parameters()}

    def set_params(self, **params: Any) -> "CompatibleHead":
        """Changes what it was made with; raises at a name that it does not know."""
        for name, value in params.items():
            if name not in _parameters():
                raise ConfigError(f"unknown parameter `{name}`. {suggest(name, _parameters())}")
            setattr(self, name, value)
        return self

    def fit(
        self,
        new: Rows,
        old: Rows,
        labels: Sequence[Any] | Tensor | NDArray[Any] | None = None,
        *,
        pairs: Pairs | None = None,
        groups: Sequence[Any] | Tensor | NDArray[Any] | None = None,
        modality: Modality | None = None,
        watch: Callable[[Progress], None] = lambda progress: None,
    ) -> "CompatibleHead":
        """Fits the map; returns the head itself.

        Args:
            new: New vectors. With ids (`Vectors`), they are matched with the old ones by id.
            old: Old vectors of the same items, in the same order where they have no ids.
            labels: The class of each item; those of the files where they have any.
            pairs: In place of labels: of each query what is relevant to it, by id (or row number).
            groups: In place of labels: what each item is a part of.
            modality: Of each item, such as "image" or "text"; the column of the files where they
                have it. Of several, each gets a map of its own.
            watch: Is told after each epoch how far it is.
        """
        begun = monotonic()
        self._check()
        kind = check_kind(new, old, labels=labels, pairs=pairs, groups=groups)
        ids, new_rows, old_rows, told = matched(new, old, use_labels=kind is None)
        classes, where = told_classes(ids, told, labels=labels, pairs=pairs, groups=groups)
        names, numbers = told_modalities(new, old, ids, modality)
        self._check_extra(new_rows.shape[1])
        stored = new_rows
        new_rows, old_rows = new_rows.to(self.device), old_rows.to(self.device)
        parts = divide(
            new_rows,
            old_rows,
            classes,
            where,
            share=self.held_out,
            seed=self.seed,
            modality=numbers,
        )
        check_fitted(names, parts.fitted.modality, extra=self.extra)
        self.supervision_, self.notes_ = parts.supervision, (*_alone(new, old, ids), *parts.notes)
        widths, old_dim = widths_of(new_rows, numbers, len(names)), old_rows.shape[1]
        with seeded(self.seed):
            network = make_network(widths, old_dim, hidden=self.hidden, dropout=self.dropout)
        self._learn(network.to(self.device), parts, begun, watch)
        self.network_, self.modalities_ = network.eval(), names
        self.fitted_ = marks_of_maps(new, ids, stored, parts.rows, numbers)
        self.source_ = _fingerprint(new)
        self.space_ = self._space(old_dim, parent=_fingerprint(old))
        return self

    @property
    def stores(self) -> str:
        """What held-out classes would rather have stored when items are embedded again.

        "mapped" vectors, which old ones may stay beside, or new ones "as they are".
        """
        self._fitted()
        found = self.progress_.stored
        return max(found, key=lambda name: found[name]) if found else "mapped"

    def transform(self, new: Rows, *, side: str = "query", modality: Modality | None = None) -> Any:
        """New vectors as they search the old gallery; of the kind that came in.

        They are of unit length there; `extra` dimensions come behind it. A file of them gets a
        column `fitted`, where it is known which items the head was fitted on.

        Args:
            new: Vectors of the new model.
            side: "query", or "gallery" for what to store when items are embedded again: where
                `stores` says so, the new vectors as they are.
            modality: For a head with several, that of all vectors, or of each; the column of the
                file where it has one.
        """
        if side not in ("query", "gallery"):
            raise ConfigError(f"unknown side `{side}`. {suggest(side, ['query', 'gallery'])}")
        network = self._fitted()
        rows = new.vectors if isinstance(new, Vectors) else as_matrix(new)
        if rows.shape[1] != network.new_dim:
            raise SpaceMismatch(
                f"wanted new vectors of {network.new_dim} dimensions, as the head was fitted on, "
                f"but got {tuple(rows.shape)}. Pass vectors of the same new model."
            )
        if isinstance(new, Vectors):
            self._check_source(new)
        numbers = asked_modalities(new, self.modalities_, len(rows), modality)
        if isinstance(network, ModalityNetwork) and numbers is not None:
            check_padding(rows, numbers, network)
        if side == "gallery" and self.stores == "as they are":
            return new
        ids = new.ids if isinstance(new, Vectors) else np.arange(len(rows))
        device = next(network.parameters()).device
        check_lengths(rows, ids)
        assert self.space_.dim is not None  # as of all that is made here
        out = torch.empty(len(rows), self.space_.dim, device=rows.device)
        for first in range(0, len(rows), BLOCK):
            block = rows[first : first + BLOCK].to(device, torch.float32)
            kinds = None if numbers is None else numbers[first : first + BLOCK].to(device)
            out[first : first + BLOCK] = mapped(network, block, kinds)
        if isinstance(new, Vectors):
            return Vectors(
                new.ids,
                out,
                new.labels,
                columns=with_fitted(new, self.fitted_),
                space=self.space_,
                compatible_dim=network.old_dim if network.extra else None,
            )
        return out if isinstance(new, Tensor) else out.numpy()

    def fit_transform(self, new: Rows, old: Rows, labels: Any = None, **options: Any) -> Any:
        """Fits, then maps the same new vectors."""
        self.fit(new, old, labels, **options)
        return self.transform(new, modality=options.get("modality") if self.modalities_ else None)

    def for_modality(self, name: str) -> "CompatibleHead":
        """The head of one of several modalities alone, as if it had never had others.

        It takes vectors of that modality's own length, without zeros behind.
        """
        from nobackfill.head.save_load import one_modality

        self._fitted()
        return one_modality(self, name)

    def save_pretrained(self, folder: Path | str) -> None:
        """Writes config.json, model.safetensors, space.json and maybe fitted.npy into a folder.

        Of several modalities, into a folder below for each; see `nobackfill.head.save_load`. A head
        that was there goes away; a trained run is not touched.
        """
        from nobackfill.head.save_load import save_head

        self._fitted()
        save_head(self, Path(folder))

    @classmethod
    def from_pretrained(cls, folder: Path | str, *, device: str = "cpu") -> "CompatibleHead":
        """Reads what `save_pretrained` wrote."""
        from nobackfill.head.save_load import read_head

        return read_head(Path(folder), cls, device=device)

    def to_onnx(self, path: Path | str) -> None:
        """Writes an ONNX file that does the same; see `nobackfill.head.export.to_onnx`."""
        from nobackfill.head.export import to_onnx

        to_onnx(self, path)

    def to_sentence_transformers(self, folder: Path | str) -> None:
        """Writes modules; see `nobackfill.head.export.to_sentence_transformers`."""
        from nobackfill.head.export import to_sentence_transformers

        to_sentence_transformers(self, folder)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """The weights by name, as arrays."""
        state = self._fitted().state_dict()
        return {name: t.detach().cpu().contiguous().numpy() for name, t in state.items()}

    def _fitted(self) -> Network:
        if not hasattr(self, "network_"):
            raise DataError("wanted a fitted head, but this one is not. Call `fit` first.")
        return self.network_

    def _check_source(self, new: Vectors) -> None:
        """Refuses vectors of another model than the head was fitted on."""
        if self.source_ and new.space and new.space.fingerprint != self.source_:
            raise SpaceMismatch(
                f"wanted vectors of the space {self.source_}, as the head was fitted on, but these "
                f"are of {new.space.fingerprint}. Embed with the same new model, or fit a head for "
                f"this one."
            )

    def _check(self) -> None:
        """Refuses settings that make no sense."""
        check_method(self.method)
        resolve_options(METHODS[self.method], self.options or {}, where="options")
        check_config(self._config())
        if self.hidden < 0 or not 0 <= self.dropout < 1 or not 0 < self.held_out < 1:
            raise ConfigError(
                f"wanted `hidden` of 0 or more, `dropout` from 0 to below 1 and `held_out` between "
                f"0 and 1, but got {self.hidden}, {self.dropout} and {self.held_out}."
            )
        if self.extra < 0:
            raise ConfigError(f"wanted `extra` of 0 or more, but got {self.extra}.")

    def _check_extra(self, new_dim: int) -> None:
        """Refuses more dimensions behind the old ones than the new vectors have."""
        if self.extra > new_dim:
            raise ConfigError(
                f"wanted at most as many `extra` dimensions as the new vectors have, "
                f"{new_dim}, but got {self.extra}."
            )

    def _learn(
        self, network: Network, parts: Parts, begun: float, watch: Callable[[Progress], None]
    ) -> None:
        """Begins with a closed form, goes on by the method, then sees what is best stored."""
        examples, held_out = parts.fitted, parts.held_out
        self.progress_ = choose_closed_form(network, examples, held_out)
        if held_out is not None:
            steps = fit_network(
                network,
                examples,
                held_out,
                method=self.method,
                options=self.options or {},
                config=self._config(),
                progress=self.progress_,
                begun=begun,
                watch=watch,
            )
            self.notes_ += self._how_it_ended(steps)
        if self.extra and isinstance(network, HeadNetwork):
            add_extra(network, examples, held_out, extra=self.extra)
        if held_out is not None:
            self.progress_.stored = compare_stored(network, held_out)

    def _space(self, old_dim: int, *, parent: str | None) -> Space:
        """The space of the vectors that the fitted head makes."""
        return Space(
            dim=old_dim + self.extra,
            weights=fingerprint(self.arrays()),
            preprocessing=f"head on {self.source_}" if self.source_ else "head",
            normalized=self.extra == 0,
            parent=parent,
            method=self.method if self.progress_.best else self.progress_.start,
        )

    def _how_it_ended(self, steps: int) -> tuple[str, ...]:
        """What is worth a note after training."""
        progress = self.progress_
        if any(value != value for value in progress.history):
            return (
                f"training diverged at a learning rate of {self.learning_rate:g} and was stopped",
            )
        if progress.late:
            return (
                f"its {self.seconds:g} seconds were up after {progress.seen:,} of "
                f"{progress.planned:,} steps; the learning rate fell in that time",
            )
        if steps == 0 and progress.history:
            return (
                f"`{self.method}` had nothing to learn by, so this is a map in closed form: give "
                f"`classification` a weight, or choose another method",
            )
        return ()

    def _config(self) -> FitConfig:
        return FitConfig(
            epochs=self.epochs,
            batch_size=self.batch_size,
            learning_rate=self.learning_rate,
            weight_decay=self.weight_decay,
            classification=self.classification,
            together=self.together,
            seconds=self.seconds,
            seed=self.seed,
        )


def _fingerprint(rows: Rows) -> str | None:
    """Of the space of some vectors, if known."""
    space = rows.space if isinstance(rows, Vectors) else None
    return space.fingerprint if space else None


def _alone(new: Rows, old: Rows, ids: NDArray[Any]) -> tuple[str, ...]:
    """Notes on items that only one of two files has."""
    if isinstance(new, Vectors) and isinstance(old, Vectors):
        return partner_notes(old, new, ids)
    return ()


def _parameters() -> list[str]:
    return [name for name in inspect.signature(CompatibleHead).parameters if name != "self"]


__all__ = ["CompatibleHead", "check_method", "matched"]
