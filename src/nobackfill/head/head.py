"""CompatibleHead, a scikit-learn transformer that is fitted on vectors of two models."""

import inspect
from collections.abc import Callable, Sequence
from pathlib import Path
from time import monotonic
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from nobackfill.core.config import suggest
from nobackfill.core.seeding import seeded
from nobackfill.errors import ConfigError, DataError
from nobackfill.head.export import to_onnx, to_sentence_transformers
from nobackfill.head.fitting import learn
from nobackfill.head.inputs import (
    Rows,
    check_lengths,
    match_items,
    partner_notes,
    space_fingerprint,
)
from nobackfill.head.multimodal import (
    Modality,
    check_fitted,
    check_padding,
    modalities_of_items,
    modalities_of_rows,
    widths_of,
)
from nobackfill.head.network import Network, make_network
from nobackfill.head.save_load import extract_modality, read_head, save_head
from nobackfill.head.schedule import FitConfig, Progress, check_config
from nobackfill.head.seen_items import Marks, columns_with_fitted, fit_marks
from nobackfill.head.source import check_source
from nobackfill.head.split import split_items
from nobackfill.head.storage import fingerprint
from nobackfill.head.supervision import Pairs, check_supervision, resolve_classes
from nobackfill.head.training_items import (
    FitArguments,
    evaluation_note,
    keep_for_evaluation,
    only_training_items,
)
from nobackfill.head.validation import embed_rows
from nobackfill.vectors import Vectors
from nobackfill.vectors.matrix import as_matrix
from nobackfill.vectors.space import Space


class CompatibleHead:
    """Maps vectors of a new model into the old space, to search vectors of the old model.

    A fit needs vectors of both models for the same items. For more than a closed-form map it also
    needs labels, pairs or groups. It holds out a part of the classes, starts from the closed form
    that is best on them, and keeps nothing that is worse there.

    Args:
        method: Name of a method of `nobackfill.METHODS` that needs only old vectors.
        options: Options of the method.
        hidden: Width of the correction to the linear map; 0 for none.
        dropout: Dropout of the correction in training.
        epochs: Largest number of epochs; training stops when the held-out classes gain no more.
        batch_size: Number of items per step.
        learning_rate: Learning rate of AdamW.
        weight_decay: Weight decay of AdamW.
        classification: Weight of the method's classification term, which costs new/old mAP.
        held_out: Share of the fitted classes to hold out, which decide when to stop.
        test_share: Share of the classes to keep out of the fit if `Vectors` have no column `split`,
            so that `evaluate` can test the head on them; 0 fits on all.
        together: Number of items of a class that come together into a batch. More than 1 may help
            with many thousand classes.
        extra: Number of extra dimensions behind those of the old space, for re-embedded items. Old
            vectors have zeros there, so scores against them do not change.
        seconds: Time limit of a fit; None for none. With a limit, the result depends on the speed
            of the machine.
        seed: Random seed.
        device: Device to fit on.

    Attributes:
        network_: Fitted network.
        progress_: Record of the fit.
        supervision_: Kind of supervision: "labels", "pairs", "groups" or "none".
        space_: Space of the mapped vectors.
        source_: Fingerprint of the space of the new vectors, if known.
        notes_: Notes on the fit.
        modalities_: Names of the modalities with a map each; empty if one map serves all.
        fitted_: Marks of the items that each map was fitted on; empty if unknown.

    Example:
        >>> import torch
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
        method: str = FitConfig.method,
        *,
        options: dict[str, Any] | None = None,
        hidden: int = FitConfig.hidden,
        dropout: float = FitConfig.dropout,
        epochs: int = FitConfig.epochs,
        batch_size: int = FitConfig.batch_size,
        learning_rate: float = FitConfig.learning_rate,
        weight_decay: float = FitConfig.weight_decay,
        classification: float = FitConfig.classification,
        held_out: float = FitConfig.held_out,
        test_share: float = FitConfig.test_share,
        together: int = FitConfig.together,
        extra: int = FitConfig.extra,
        seconds: float | None = FitConfig.seconds,
        seed: int = FitConfig.seed,
        device: str = "cpu",
    ):
        self.method, self.options = method, options
        self.hidden, self.dropout, self.epochs = hidden, dropout, epochs
        self.batch_size, self.learning_rate = batch_size, learning_rate
        self.weight_decay, self.classification = weight_decay, classification
        self.held_out, self.test_share = held_out, test_share
        self.together, self.extra = together, extra
        self.seconds, self.seed, self.device = seconds, seed, device

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Returns the settings by name, as scikit-learn requires."""
        return {name: getattr(self, name) for name in PARAMETERS}

    def set_params(self, **params: Any) -> "CompatibleHead":
        """Changes settings; raises ConfigError for an unknown name."""
        for name, value in params.items():
            if name not in PARAMETERS:
                raise ConfigError(f"unknown parameter `{name}`. {suggest(name, PARAMETERS)}")
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
        """Fits the map and returns the head itself.

        If the vectors have a column `split`, only its training items are used. Without it, vectors
        with ids keep a share of the classes, `test_share`, for an evaluation; `notes_` names them.

        Args:
            new: New vectors. Those with ids (`Vectors`) are matched with the old ones by id.
            old: Old vectors of the same items, in the same order if they have no ids.
            labels: Class of each item; None for the labels of the files, if they have any.
            pairs: Relevant items of each query by id (or row number), in place of labels.
            groups: Group of each item, in place of labels.
            modality: Modality of each item, such as "image" or "text"; None for the column of the
                files, if they have it. Each of several modalities gets a map of its own.
            watch: Callback that receives the progress after each round.
        """
        begun, config = monotonic(), self._config()
        check_config(config)
        kind = check_supervision(new, old, labels=labels, pairs=pairs, groups=groups)
        notes = partner_notes(old, new)
        # Match the items and resolve their classes and modalities.
        arguments = FitArguments(new, old, labels, pairs, groups, modality)
        training = only_training_items(arguments)
        given = training or arguments
        ids, new_rows, old_rows, file_labels = match_items(
            given.new, given.old, use_labels=kind is None
        )
        classes, source = resolve_classes(
            ids, file_labels, labels=given.labels, pairs=given.pairs, groups=given.groups
        )
        names, numbers = modalities_of_items(given.new, given.old, ids, given.modality)
        if self.extra > new_rows.shape[1]:
            raise ConfigError(
                f"`extra` must be at most {new_rows.shape[1]}, the dimension of the new vectors, "
                f"but it is {self.extra}."
            )
        # Keep classes for an evaluation.
        if training is None and isinstance(new, Vectors):
            is_kept = keep_for_evaluation(classes, len(ids), self.test_share, seed=self.seed)
            values = (labels, groups, file_labels)
            class_names = next((value for value in values if value is not None), ids)
            notes += (evaluation_note(is_kept, classes, np.asarray(class_names)),)
            classes = None if classes is None else classes.where(~is_kept, -1)
        # Hold out a part of the classes.
        stored = new_rows
        new_rows, old_rows = new_rows.to(self.device), old_rows.to(self.device)
        share, seed = self.held_out, self.seed
        parts = split_items(
            new_rows, old_rows, classes, source, share=share, seed=seed, modality=numbers
        )
        check_fitted(names, parts.fitted.modality, extra=self.extra)
        # Fit the network.
        widths, old_dim = widths_of(new_rows, numbers, len(names)), old_rows.shape[1]
        with seeded(self.seed):
            network = make_network(widths, old_dim, hidden=self.hidden, dropout=self.dropout)
        self.progress_, fit_notes = learn(
            network.to(self.device), parts.fitted, parts.held_out, config, begun=begun, watch=watch
        )
        self.network_, self.modalities_ = network.eval(), names
        # Record what was fitted on what.
        self.supervision_ = parts.supervision
        self.notes_ = (*notes, *parts.notes, *fit_notes)
        self.fitted_ = fit_marks(new, ids, stored, parts.rows, numbers)
        self.source_ = space_fingerprint(new)
        self.space_ = self._space(old_dim, parent=space_fingerprint(old))
        return self

    @property
    def stores(self) -> str:
        """What to store for re-embedded items, by new/new mAP on the held-out classes.

        It is "mapped", which old vectors may be mixed with, or "as they are" for new vectors.
        """
        self._fitted()
        values = self.progress_.stored
        return max(values, key=lambda name: values[name]) if values else "mapped"

    def transform(self, new: Rows, *, side: str = "query", modality: Modality | None = None) -> Any:
        """Maps new vectors into the old space; the result has the type of the input.

        Mapped vectors have unit length in the old space; `extra` dimensions follow. Vectors get a
        column `fitted` if it is known which items the head was fitted on.

        Args:
            new: Vectors of the new model.
            side: "query", or "gallery" for vectors to store for re-embedded items: the new vectors
                themselves if `stores` is "as they are".
            modality: Modality of all vectors, or of each, for a head with several; None for the
                column of the vectors, if they have it.
        """
        if side not in ("query", "gallery"):
            raise ConfigError(f"unknown side `{side}`. {suggest(side, ['query', 'gallery'])}")
        network = self._fitted()
        rows = new.vectors if isinstance(new, Vectors) else as_matrix(new)
        check_source(
            new if isinstance(new, Vectors) else None,
            rows.shape[1],
            new_dim=network.new_dim,
            old_dim=network.old_dim,
            source=self.source_,
            space=self.space_,
        )
        numbers = modalities_of_rows(new, self.modalities_, len(rows), modality)
        if numbers is not None:
            check_padding(rows, numbers, network)
        if side == "gallery" and self.stores == "as they are":
            return new
        ids = new.ids if isinstance(new, Vectors) else np.arange(len(rows))
        check_lengths(rows, ids)
        out = embed_rows(network, rows, numbers)
        if isinstance(new, Vectors):
            return Vectors(
                new.ids,
                out,
                new.labels,
                columns=columns_with_fitted(new, self.fitted_),
                space=self.space_,
                compatible_dim=network.old_dim if network.extra else None,
            )
        return out if isinstance(new, Tensor) else out.numpy()

    def fit_transform(self, new: Rows, old: Rows, labels: Any = None, **options: Any) -> Any:
        """Fits, then maps the same new vectors."""
        self.fit(new, old, labels, **options)
        return self.transform(new, modality=options.get("modality") if self.modalities_ else None)

    def for_modality(self, name: str) -> "CompatibleHead":
        """Returns the head of a single modality.

        It takes vectors of that modality's own dimension, without zeros at the end.
        """
        self._fitted()
        return extract_modality(self, name)

    def save_pretrained(self, folder: Path | str) -> None:
        """Writes config.json, model.safetensors, space.json and, if known, fitted.npy to a folder.

        Several modalities get a subfolder each; see `nobackfill.head.save_load`. A head in the
        folder is replaced; a trained run is never touched.
        """
        self._fitted()
        save_head(self, Path(folder))

    @classmethod
    def from_pretrained(cls, folder: Path | str, *, device: str = "cpu") -> "CompatibleHead":
        """Reads a head that `save_pretrained` wrote."""
        return read_head(Path(folder), cls, device=device)

    def to_onnx(self, path: Path | str) -> None:
        """Writes the head as an ONNX file; see `nobackfill.head.export.to_onnx`."""
        to_onnx(self, path)

    def to_sentence_transformers(self, folder: Path | str) -> None:
        """Writes the head as modules; see `nobackfill.head.export.to_sentence_transformers`."""
        to_sentence_transformers(self, folder)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Returns the weights by name, as arrays."""
        state = self._fitted().state_dict()
        return {name: t.detach().cpu().contiguous().numpy() for name, t in state.items()}

    def _fitted(self) -> Network:
        if not hasattr(self, "network_"):
            raise DataError("This head is not fitted. Call `fit` first.")
        return self.network_

    def _space(self, old_dim: int, *, parent: str | None) -> Space:
        """Returns the space of the mapped vectors."""
        return Space(
            dim=old_dim + self.extra,
            weights=fingerprint(self.arrays()),
            preprocessing=f"head on {self.source_}" if self.source_ else "head",
            normalized=self.extra == 0,
            parent=parent,
            method=self.method if self.progress_.best else self.progress_.start,
        )

    def _config(self) -> FitConfig:
        settings = self.get_params()
        settings.pop("device")
        return FitConfig(**settings)


PARAMETERS = tuple(inspect.signature(CompatibleHead).parameters)
