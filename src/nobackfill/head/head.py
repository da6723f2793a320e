"""CompatibleHead: fitted on two files of vectors, used like any transformer of scikit-learn."""

import hashlib
import inspect
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from safetensors.torch import load_file, save_file
from torch import Tensor

from nobackfill.config import suggest
from nobackfill.errors import ConfigError, DataError, SpaceMismatch
from nobackfill.files import replacing, write_text
from nobackfill.head.fitting import (
    Examples,
    FitConfig,
    Progress,
    choose_closed_form,
    fit_network,
    mapped,
)
from nobackfill.head.network import HeadNetwork
from nobackfill.head.supervision import Pairs, classes_of, classes_of_pairs, hold_out
from nobackfill.matching import rows_of
from nobackfill.methods import METHODS
from nobackfill.randomness import seeded
from nobackfill.space import Space
from nobackfill.vectors import Vectors

Rows = Vectors | Tensor | NDArray[Any]
FEWEST_CLASSES = 10  # with fewer, none can be held out
SCHEMA = 1


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
        seconds: After which no epoch is begun; None for no limit.
        seed: Of all that is random.
        device: What to fit on.

    Example:
        >>> new, old = torch.randn(60, 8), torch.randn(60, 4)
        >>> head = CompatibleHead(epochs=1).fit(new, old, labels=torch.arange(60) % 12)
        >>> head.transform(new).shape
        torch.Size([60, 4])
    """

    network_: HeadNetwork
    progress_: Progress
    supervision_: str
    space_: Space
    notes_: tuple[str, ...]

    def __init__(
        self,
        method: str = "cross_supcon",
        *,
        options: dict[str, Any] | None = None,
        hidden: int = 1024,
        dropout: float = 0.3,
        epochs: int = 30,
        batch_size: int = 512,
        learning_rate: float = 1e-3,
        weight_decay: float = 1e-2,
        classification: float = 0.0,
        held_out: float = 0.2,
        seconds: float | None = None,
        seed: int = 0,
        device: str = "cpu",
    ):
        self.method, self.options = method, options
        self.hidden, self.dropout, self.epochs = hidden, dropout, epochs
        self.batch_size, self.learning_rate = batch_size, learning_rate
        self.weight_decay, self.classification = weight_decay, classification
        self.held_out, self.seconds, self.seed, self.device = held_out, seconds, seed, device

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """What it was made with, as scikit-learn asks for it."""
        return {name: getattr(self, name) for name in _parameters()}

    def set_params(self, **params: Any) -> Self:
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
        watch: Callable[[Progress], None] = lambda progress: None,
    ) -> Self:
        """Fits the map; returns the head itself.

        Args:
            new: New vectors. With ids (`Vectors`), they are matched with the old ones by id.
            old: Old vectors of the same items, in the same order where they have no ids.
            labels: The class of each item; those of the files where they have any.
            pairs: In place of labels: of each query what is relevant to it, by id (or row number).
            groups: In place of labels: what each item is a part of.
            watch: Is told after each epoch how far it is.
        """
        check_method(self.method)
        given = [
            name
            for name, one in (("labels", labels), ("pairs", pairs), ("groups", groups))
            if one is not None
        ]
        if len(given) > 1:
            raise ConfigError(f"wanted one kind of supervision, but got {' and '.join(given)}.")
        ids, new_rows, old_rows, told = matched(new, old)
        classes, self.supervision_ = self._supervision(ids, told, labels, pairs, groups)
        self.notes_ = ()
        examples, held_out = self._parts(new_rows.float(), old_rows.float(), classes)
        with seeded(self.seed):
            network = HeadNetwork(
                new_rows.shape[1], old_rows.shape[1], hidden=self.hidden, dropout=self.dropout
            ).to(self.device)
        self.progress_ = choose_closed_form(network, examples, held_out)
        if held_out is not None:
            fit_network(
                network,
                examples,
                held_out,
                method=self.method,
                options=self.options or {},
                config=self._config(),
                progress=self.progress_,
                watch=watch,
            )
        self.network_ = network.eval()
        parent = old.space if isinstance(old, Vectors) else None
        source = new.space if isinstance(new, Vectors) else None
        self.space_ = Space(
            dim=old_rows.shape[1],
            weights=_digest(network),
            preprocessing=f"head on {source.fingerprint}" if source else "head",
            normalized=True,
            parent=parent.fingerprint if parent else None,
            method=self.method if self.progress_.best else self.progress_.start,
        )
        return self

    def transform(self, new: Rows) -> Any:
        """New vectors as they search the old gallery, of unit length; of the kind that came in."""
        network = self._fitted()
        rows = new.vectors if isinstance(new, Vectors) else torch.as_tensor(new)
        wanted = network.affine.in_features
        if rows.ndim != 2 or rows.shape[1] != wanted:
            raise SpaceMismatch(
                f"wanted new vectors of {wanted} dimensions, as the head was fitted on, but got "
                f"{tuple(rows.shape)}. Pass vectors of the same new model."
            )
        device = network.affine.weight.device
        out = torch.cat(
            [mapped(network, part.float().to(device)).cpu() for part in rows.split(65_536)]
        )
        if isinstance(new, Vectors):
            return Vectors(new.ids, out, new.labels, columns=new.columns, space=self.space_)
        return out if isinstance(new, Tensor) else out.numpy()

    def fit_transform(self, new: Rows, old: Rows, labels: Any = None, **options: Any) -> Any:
        """Fits, then maps the same new vectors."""
        return self.fit(new, old, labels, **options).transform(new)

    def save_pretrained(self, folder: Path | str) -> None:
        """Writes config.json, model.safetensors and space.json into a folder."""
        network, folder = self._fitted(), Path(folder)
        config = {
            "schema": SCHEMA,
            "parameters": self.get_params(),
            "new_dim": network.affine.in_features,
            "old_dim": network.affine.out_features,
            "supervision": self.supervision_,
            "notes": list(self.notes_),
            "progress": _plain(asdict(self.progress_)),
        }
        text = json.dumps(config, indent=2, allow_nan=False) + "\n"
        tensors = {name: t.detach().cpu().contiguous() for name, t in network.state_dict().items()}
        with replacing(folder / "model.safetensors") as unfinished:
            save_file(tensors, unfinished)
        write_text(folder / "space.json", self.space_.to_json() + "\n")
        write_text(folder / "config.json", text)

    @classmethod
    def from_pretrained(cls, folder: Path | str, *, device: str = "cpu") -> "CompatibleHead":
        """Reads what `save_pretrained` wrote."""
        folder = Path(folder)
        config = _read_config(folder)
        head = cls(**{**config["parameters"], "device": device})
        network = HeadNetwork(
            config["new_dim"], config["old_dim"], hidden=head.hidden, dropout=head.dropout
        )
        try:
            network.load_state_dict(load_file(folder / "model.safetensors"))
        except Exception as error:
            raise DataError(
                f"wanted the weights of a head in {folder / 'model.safetensors'}, but they cannot "
                f"be read: {error}. Fit it again."
            ) from None
        head.network_ = network.to(device).eval()
        known = config["progress"]
        closed = {name: _number(value) for name, value in known["closed"].items()}
        history = [_number(value) for value in known["history"]]
        head.progress_ = Progress(closed, known["start"], history, known["best"])
        head.supervision_, head.notes_ = config["supervision"], tuple(config["notes"])
        head.space_ = _read_space(folder / "space.json")
        return head

    def _fitted(self) -> HeadNetwork:
        if not hasattr(self, "network_"):
            raise DataError("wanted a fitted head, but this one is not. Call `fit` first.")
        return self.network_

    def _config(self) -> FitConfig:
        return FitConfig(
            epochs=self.epochs,
            batch_size=self.batch_size,
            learning_rate=self.learning_rate,
            weight_decay=self.weight_decay,
            classification=self.classification,
            seconds=self.seconds,
            seed=self.seed,
        )

    def _supervision(
        self,
        ids: NDArray[Any],
        told: NDArray[Any] | None,
        labels: Any,
        pairs: Pairs | None,
        groups: Any,
    ) -> tuple[Int[Tensor, " items"] | None, str]:
        """The class of each item, and where that comes from."""
        if pairs is not None:
            return classes_of_pairs(ids, pairs), "pairs"
        values, kind = (groups, "groups") if groups is not None else (labels, "labels")
        values = told if values is None else values
        if values is None:
            return None, "none"
        if len(values) != len(ids):
            raise DataError(
                f"wanted one of the {kind} for each of {len(ids)} items, but got {len(values)}."
            )
        return classes_of(np.asarray(values).tolist()), kind

    def _parts(
        self,
        new: Float[Tensor, "items new_dim"],
        old: Float[Tensor, "items old_dim"],
        classes: Int[Tensor, " items"] | None,
    ) -> tuple[Examples, Examples | None]:
        """What to fit on, and what is held out; where no class can be, closed forms alone."""
        new, old = new.to(self.device), old.to(self.device)
        if classes is None:
            self.notes_ = ("no supervision was used: this is a map in closed form",)
            return Examples(new, old, None), None
        fitted, looked_at = hold_out(classes, self.held_out, seed=self.seed)
        number = len(classes[classes >= 0].unique())
        if number < FEWEST_CLASSES or len(looked_at) == 0:
            self.notes_ = (
                f"no supervision was used: {number} classes are too few to hold some out, so this "
                f"is a map in closed form",
            )
            return Examples(new, old, None), None
        parts = []
        for rows in (fitted, looked_at):
            renumbered = classes[rows].unique(return_inverse=True)[1].to(self.device)
            parts.append(Examples(new[rows.to(new.device)], old[rows.to(old.device)], renumbered))
        return parts[0], parts[1]


def check_method(name: str) -> None:
    """Refuses a method that needs more of the old model than its vectors, or fixes a dimension."""
    usable = [
        known
        for known, kind in METHODS.items()
        if kind.needs <= {"prototypes", "embeddings"}
        and not kind.same_kind
        and not kind.maps_queries
    ]
    if name not in METHODS:
        raise ConfigError(f"unknown method `{name}`. {suggest(name, usable)}")
    if name not in usable:
        raise ConfigError(
            f"wanted a method that needs nothing but old vectors, but `{name}` needs more, or "
            f"another dimension. Choose one of {', '.join(usable)}."
        )


def matched(
    new: Rows, old: Rows
) -> tuple[NDArray[Any], Float[Tensor, "items new_dim"], Float[Tensor, "items old_dim"], Any]:
    """Ids, new and old vectors of the items that both have, and the labels that a file tells."""
    if isinstance(new, Vectors) and isinstance(old, Vectors):
        ids = old.ids[np.isin(old.ids, new.ids)]
        if len(ids) == 0:
            raise DataError(
                f"wanted items that both files have, but none of {len(old)} old and {len(new)} new "
                f"ones is in both. Check that they name their items alike."
            )
        told = next((file for file in (old, new) if file.labels is not None), None)
        labels = None
        if told is not None and told.labels is not None:
            row = {item: place for place, item in enumerate(told.ids.tolist())}
            labels = told.labels[[row[item] for item in ids.tolist()]]
        return ids, rows_of(new, ids), rows_of(old, ids), labels
    if isinstance(new, Vectors) or isinstance(old, Vectors):
        raise DataError("wanted both sides with ids, or both without. Pass two Vectors, or arrays.")
    rows = [torch.as_tensor(side) for side in (new, old)]
    if any(side.ndim != 2 for side in rows) or len(rows[0]) != len(rows[1]):
        raise DataError(
            f"wanted a new and an old vector of each item, but got {tuple(rows[0].shape)} and "
            f"{tuple(rows[1].shape)}."
        )
    return np.arange(len(rows[0])), rows[0], rows[1], None


def _parameters() -> list[str]:
    return [name for name in inspect.signature(CompatibleHead).parameters if name != "self"]


def _plain(value: Any) -> Any:
    """The same for JSON, which knows no NaN."""
    if isinstance(value, dict):
        return {key: _plain(part) for key, part in value.items()}
    if isinstance(value, list):
        return [_plain(part) for part in value]
    return None if isinstance(value, float) and value != value else value


def _number(value: float | None) -> float:
    return float("nan") if value is None else value


def _digest(network: HeadNetwork) -> str:
    """The fingerprint of weights."""
    digest = hashlib.sha256()
    for name, tensor in sorted(network.state_dict().items()):
        digest.update(name.encode() + tensor.detach().cpu().numpy().tobytes())
    return digest.hexdigest()


def _read_space(path: Path) -> Space:
    try:
        return Space.from_json(path.read_text(encoding="utf-8"), where=str(path))
    except OSError as error:
        raise DataError(
            f"wanted to know what made a head, but {path} cannot be read ({error}). Fit it again."
        ) from None


def _read_config(folder: Path) -> dict[str, Any]:
    path = folder / "config.json"
    try:
        config: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DataError(
            f"wanted a head in {folder}, but its config.json cannot be read ({error}). Pass what "
            f"`nobackfill fit -o FOLDER` or `save_pretrained` wrote."
        ) from None
    if config.get("schema") != SCHEMA or "new_dim" not in config:
        raise DataError(f"wanted a head in {folder}, but its config.json is of something else.")
    return config


__all__ = ["CompatibleHead", "check_method", "matched"]
