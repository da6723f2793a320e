"""CompatibleHead, a scikit-learn transformer that is fitted on vectors of two models."""

from collections.abc import Callable
from pathlib import Path
from time import monotonic
from typing import Any

from numpy.typing import NDArray

from nobackfill.core.page import Page, Readable
from nobackfill.core.seeding import seeded
from nobackfill.errors import ConfigError, NotFitted
from nobackfill.head.arguments import read_arguments
from nobackfill.head.estimator import Estimator
from nobackfill.head.export import to_onnx, to_sentence_transformers
from nobackfill.head.inputs import match_items, partner_notes, space_fingerprint
from nobackfill.head.learn import learn
from nobackfill.head.mapping import map_vectors
from nobackfill.head.multimodal import Modality, check_fitted, modalities_of_items, widths_of
from nobackfill.head.network import Network, make_network
from nobackfill.head.overview import head_line, head_page
from nobackfill.head.save_load import extract_modality, read_head, save_head
from nobackfill.head.schedule import AUTO, FitConfig, Progress, check_config
from nobackfill.head.seen_items import Marks, fit_marks
from nobackfill.head.split import split_items
from nobackfill.head.storage import fingerprint
from nobackfill.head.supervision import resolve_classes
from nobackfill.head.training_items import (
    evaluation_note,
    keep_for_evaluation,
    only_training_items,
)
from nobackfill.vectors.column_names import Columns
from nobackfill.vectors.matrix import Data
from nobackfill.vectors.space import Space


class CompatibleHead(Estimator, Readable):
    """Maps vectors of a new model into the old space, to search vectors of the old model.

    A fit needs vectors of both models for the same items. For more than a closed-form map it also
    needs labels, pairs or groups. It holds out a part of the classes, starts from the closed form
    that is best on them, and keeps nothing that is worse there.

    Args:
        method: Name of a method of `nobackfill.METHODS` that needs only old vectors, or "auto",
            which tries several and chooses on the held-out classes.
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
        old_query: Whether the old model embeds queries, too: a query is then a weighted sum of its
            old and its mapped new vector. None: only if held-out classes show that it must.
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
        old_query: bool | None = FitConfig.old_query,
        seconds: float | None = FitConfig.seconds,
        seed: int = FitConfig.seed,
        device: str = "cpu",
    ):
        self.method, self.options = method, options
        self.hidden, self.dropout, self.epochs = hidden, dropout, epochs
        self.batch_size, self.learning_rate = batch_size, learning_rate
        self.weight_decay, self.classification = weight_decay, classification
        self.held_out, self.test_share = held_out, test_share
        self.together, self.extra, self.old_query = together, extra, old_query
        self.seconds, self.seed, self.device = seconds, seed, device

    def page(self) -> Page:
        """What the head maps, and its results on the held-out classes."""
        return head_page(self)

    def __repr__(self) -> str:
        return head_line(self)

    def fit(
        self,
        new: Data,
        old: Data,
        labels: Any = None,
        *,
        pairs: Any = None,
        groups: Any = None,
        ids: Any = None,
        modality: Modality | None = None,
        id: str | None = None,
        vector: str | None = None,
        label: str | None = None,
        watch: Callable[[Progress], None] = lambda progress: None,
    ) -> "CompatibleHead":
        """Fits the map and returns the head itself.

        Vectors may be NumPy arrays, torch tensors, lists, tables (pandas, polars, pyarrow), paths
        or `Vectors`; see `nobackfill.as_vectors`. Rows with ids are matched by id, others by
        position. If the vectors have a column `split`, only its training items are used. Without
        it, vectors with ids keep a share of the classes, `test_share`, for an evaluation; `notes_`
        names them.

        Args:
            new: New vectors.
            old: Old vectors of the same items.
            labels: Class of each item; None for the labels of the data, if it has any.
            pairs: Relevant items of each query by id (or row number), in place of labels: a
                mapping, (query, relevant) tuples, a table of both columns, or a path.
            groups: Group of each item, in place of labels.
            ids: Id of each row of the sides that have none.
            modality: Modality of each item, such as "image" or "text"; None for the column of the
                data, if it has it. Each of several modalities gets a map of its own.
            id: Column of ids, where it is not found by name.
            vector: Column of vectors, likewise.
            label: Column of labels, likewise.
            watch: Callback that receives the progress after each round.
        """
        begun, config = monotonic(), self._config()
        check_config(config)
        arguments = read_arguments(
            new,
            old,
            ids=ids,
            labels=labels,
            pairs=pairs,
            groups=groups,
            modality=modality,
            columns=Columns(id, vector, label),
        )
        notes = (*arguments.notes, *partner_notes(arguments.old, arguments.new))
        if arguments.has_ids:  # otherwise all rows are matched by position, as documented
            notes = (*arguments.matching, *notes)
        # Match the items and resolve their classes and modalities.
        training = only_training_items(arguments)
        items = training or arguments
        item_ids, new_rows, old_rows, names = match_items(
            items.new, items.old, use_labels=items.pairs is None
        )
        classes = resolve_classes(item_ids, names, items.pairs)
        source = items.kind or ("none" if classes is None else "labels")
        modalities, numbers = modalities_of_items(items.new, items.old, item_ids)
        if self.extra > new_rows.shape[1]:
            raise ConfigError(
                f"`extra` must be at most {new_rows.shape[1]}, the dimension of the new vectors, "
                f"but it is {self.extra}."
            )
        # Keep classes for an evaluation.
        if training is None and items.has_ids:
            is_kept = keep_for_evaluation(classes, len(item_ids), self.test_share, seed=self.seed)
            notes += (evaluation_note(is_kept, classes, item_ids if names is None else names),)
            classes = None if classes is None else classes.where(~is_kept, -1)
        # Hold out a part of the classes.
        stored = new_rows
        new_rows, old_rows = new_rows.to(self.device), old_rows.to(self.device)
        parts = split_items(
            new_rows, old_rows, classes, source, share=self.held_out, seed=self.seed,
            modality=numbers, several=self.method == AUTO,
        )  # fmt: skip
        check_fitted(modalities, parts.fitted.modality, extra=self.extra)
        # Fit the network.
        widths, old_dim = widths_of(new_rows, numbers, len(modalities)), old_rows.shape[1]
        with seeded(self.seed):
            network = make_network(widths, old_dim, hidden=self.hidden, dropout=self.dropout)
        self.progress_, fit_notes = learn(
            network.to(self.device), parts, config, begun=begun, watch=watch
        )
        self.network_, self.modalities_ = network.eval(), modalities
        # Record what was fitted on what.
        self.supervision_ = parts.supervision
        self.notes_ = (*notes, *parts.notes, *fit_notes)
        marked_ids = item_ids if items.has_ids else None
        self.fitted_ = fit_marks(marked_ids, stored, parts.rows, numbers)
        self.source_ = space_fingerprint(arguments.new)
        self.space_ = self._space(old_dim, parent=space_fingerprint(arguments.old))
        return self

    @property
    def n_features_in_(self) -> int:
        """Number of dimensions of the new vectors."""
        return self.fitted_network().new_dim

    @property
    def stores(self) -> str:
        """What to store for re-embedded items, by new/new mAP on the held-out classes.

        It is "mapped", which old vectors may be mixed with, or "as they are" for new vectors.
        """
        self.fitted_network()
        values = self.progress_.stored
        return max(values, key=lambda name: values[name]) if values else "mapped"

    @property
    def old_weight(self) -> float | None:
        """Weight of the old vector in a query; None if only the new model embeds queries."""
        self.fitted_network()
        return self.progress_.old_weight

    def transform(
        self,
        new: Data,
        *,
        old: Data | None = None,
        side: str = "query",
        modality: Modality | None = None,
        id: str | None = None,
        vector: str | None = None,
    ) -> Any:
        """Maps new vectors into the old space; the result has the form of the input.

        A tensor gives a tensor on its device, an array or lists an array. `Vectors`, tables and
        paths give `Vectors`, with their ids, labels and columns, and a column `fitted` if it is
        known which items the head was fitted on. Mapped vectors are of float32 and have unit length
        in the old space; `extra` dimensions follow.

        Args:
            new: Vectors of the new model.
            old: Vectors of the old model of the same items, for queries of a head with `old_query`:
                matched by id, or by position.
            side: "query", or "gallery" for vectors to store for re-embedded items: the new vectors
                themselves if `stores` is "as they are".
            modality: Modality of all vectors, or of each, for a head with several; None for the
                column of the vectors, if they have it.
            id: Column of ids, where it is not found by name.
            vector: Column of vectors, likewise.
        """
        columns = Columns(id, vector)
        return map_vectors(self, new, old, side=side, modality=modality, columns=columns)

    def fit_transform(self, new: Data, old: Data, labels: Any = None, **options: Any) -> Any:
        """Fits, then maps the same new vectors; takes the arguments of `fit`."""
        self.fit(new, old, labels, **options)
        modality = options.get("modality") if self.modalities_ else None
        columns = {name: options[name] for name in ("id", "vector") if name in options}
        both = {} if self.old_weight is None else {"old": old}
        return self.transform(new, modality=modality, **both, **columns)

    def for_modality(self, name: str) -> "CompatibleHead":
        """Returns the head of a single modality.

        It takes vectors of that modality's own dimension, without zeros at the end.
        """
        self.fitted_network()
        return extract_modality(self, name)

    def save_pretrained(self, folder: Path | str) -> None:
        """Writes config.json, model.safetensors, space.json and, if known, fitted.npy to a folder.

        Several modalities get a subfolder each; see `nobackfill.head.save_load`. A head in the
        folder is replaced; a trained run is never touched.
        """
        self.fitted_network()
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
        state = self.fitted_network().state_dict()
        return {name: t.detach().cpu().contiguous().numpy() for name, t in state.items()}

    def fitted_network(self) -> Network:
        """Returns the network; raises NotFitted before a fit."""
        if not hasattr(self, "network_"):
            raise NotFitted("This head is not fitted. Call `fit` first.")
        return self.network_

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "network_")

    def _space(self, old_dim: int, *, parent: str | None) -> Space:
        """Returns the space of the mapped vectors."""
        both = "" if self.old_weight is None else f", {self.old_weight:g} of the old vector"
        return Space(
            dim=old_dim + self.extra,
            weights=fingerprint(self.arrays()),
            preprocessing=(f"head on {self.source_}" if self.source_ else "head") + both,
            normalized=self.extra == 0,
            parent=parent,
            method=self.progress_.made_by,
        )

    def _config(self) -> FitConfig:
        settings = self.get_params()
        settings.pop("device")
        return FitConfig(**settings)
