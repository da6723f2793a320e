"""LoRA and other adapters of peft: the old model and its upgrade in one loaded model.

With the adapter off, the model is the old one, bit for bit. The upgrade is the adapter's file.
"""

import hashlib
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from nobackfill.core.atomic_files import write_text
from nobackfill.core.json_files import as_kind, parse_object, read_json_text
from nobackfill.errors import ConfigError, DataError, SpaceMismatch
from nobackfill.head.old_query import add_old
from nobackfill.integrations.method_loss import MethodLoss
from nobackfill.models.base import optional_package
from nobackfill.models.evaluating import evaluating

FACTS, MAP = "nobackfill.json", "query_map.safetensors"  # beside the adapter


@dataclass(frozen=True)
class _Facts:
    """What is stored beside an adapter.

    Attributes:
        base: Fingerprint of the old model.
        old_weight: Weight of the old vector in queries.
    """

    base: str
    old_weight: float


class AdapterUpgrade:
    """An old model and its upgrade: one model with the adapter off and on.

    Args:
        model: A `PeftModel`, or a model with `add_adapter` (transformers, sentence-transformers).
        embed: Function from the model and a batch to embeddings.
        query_map: Linear map of new queries to the old gallery, as `method.back` of `janus`.
        old_weight: Weight of the old vector in queries for the old gallery; 0 leaves it out and
            saves a pass through the model. `nobackfill.head.old_query.choose_weight` chooses it.
    """

    def __init__(
        self,
        model: nn.Module,
        embed: Callable[[Any, Any], Tensor],
        query_map: nn.Linear | None = None,
        old_weight: float = 0.0,
    ):
        self.model, self.embed = model, embed
        self.query_map, self.old_weight = query_map, old_weight

    def old(self, batch: Any) -> Float[Tensor, "batch old_dim"]:
        """Embeds by the old model: the adapter is off."""
        with adapter_off(self.model):
            return self.new(batch)

    def new(self, batch: Any) -> Float[Tensor, "batch dim"]:
        """Embeds by the new model."""
        with evaluating(self.model):
            return self.embed(self.model, batch)

    def query(self, batch: Any) -> Float[Tensor, "batch old_dim"]:
        """Returns queries for the old gallery, of the new model or of both; see `add_old`."""
        new = self.new(batch)
        if self.query_map is not None:
            with torch.no_grad():
                new = self.query_map(new)
        return add_old(new, self.old(batch), self.old_weight) if self.old_weight else new

    def save(self, folder: Path | str) -> None:
        """Writes the adapter, the map and the weight to a folder; the old model is not in it."""
        folder = Path(folder)
        _part_with_adapter(self.model).save_pretrained(folder)
        (folder / MAP).unlink(missing_ok=True)  # that of an earlier upgrade
        if self.query_map is not None:
            save_file(dict(self.query_map.state_dict()), folder / MAP)
        facts = {"base": fingerprint(self.model), "old_weight": self.old_weight}
        write_text(folder / FACTS, json.dumps(facts, indent=2) + "\n")

    @classmethod
    def load(
        cls, base: nn.Module, folder: Path | str, embed: Callable[[Any, Any], Tensor]
    ) -> "AdapterUpgrade":
        """Attaches a saved upgrade to its old model.

        Raises:
            SpaceMismatch: If the adapter was trained on another base.
        """
        folder = Path(folder)
        if not (folder / FACTS).exists():
            raise DataError(
                f"{folder} has no {FACTS}, so it is no upgrade that `AdapterUpgrade.save` wrote. "
                f"Choose its folder."
            )
        facts = as_kind(
            _Facts, parse_object(read_json_text(folder / FACTS), str(folder / FACTS)), FACTS
        )
        if fingerprint(base) != facts.base:
            raise SpaceMismatch(
                f"The adapter in {folder} was trained on another base model, or its base changed "
                f"in training (as BatchNorm does). Load it onto the old model it was trained on."
            )
        if hasattr(base, "load_adapter"):  # transformers and sentence-transformers
            attach: Any = base.load_adapter
            attach(str(folder))
            model = base
        else:
            peft: Any = optional_package("peft", extra="peft")
            model = peft.PeftModel.from_pretrained(base, str(folder))
        query_map = None
        if (folder / MAP).exists():
            tensors = load_file(folder / MAP)
            old_dim, dim = tensors["weight"].shape
            query_map = nn.Linear(dim, old_dim)
            query_map.load_state_dict(tensors)
        return cls(model, embed, query_map, facts.old_weight)


@contextmanager
def adapter_off(model: nn.Module) -> Iterator[None]:
    """Within the block, the model is its base: every adapter in it is off."""
    layers = _adapter_layers(model)
    if any(getattr(layer, "merged", False) for layer in layers):
        raise ConfigError(
            "The adapter is merged into the weights of its base, which removing it again restores "
            "only approximately. Keep it unmerged (`unmerge_adapter`), or load the base anew."
        )
    trainable = {p: p.requires_grad for layer in layers for p in layer.parameters()}
    enabled = [layer for layer in layers if not layer.disable_adapters]
    try:
        for layer in enabled:
            layer.enable_adapters(False)
        yield
    finally:
        for layer in enabled:
            layer.enable_adapters(True)
        for parameter, requires_grad in trainable.items():  # which switching on sets to True
            parameter.requires_grad_(requires_grad)


def fingerprint(model: nn.Module) -> str:
    """Returns a digest of all tensors of a model, except those of adapters and losses.

    It does not depend on names, which an adapter changes.
    """
    left_out: set[int] = set()
    for part in model.modules():
        own = [part] if isinstance(part, MethodLoss) else _adapter_parts(part)
        left_out |= {id(t) for module in own for t in (*module.parameters(), *module.buffers())}
    digests = []
    for tensor in (*model.parameters(), *model.buffers()):
        if id(tensor) not in left_out:
            data = tensor.detach().cpu().contiguous()
            digest = hashlib.sha256(f"{data.dtype} {tuple(data.shape)}".encode())
            digest.update(data.flatten().view(torch.uint8).numpy().tobytes())
            digests.append(digest.hexdigest())
    return hashlib.sha256("".join(sorted(digests)).encode()).hexdigest()[:16]


def _adapter_layers(model: nn.Module) -> list[Any]:
    """Returns the layers of a model that have an adapter."""
    optional_package("peft", extra="peft")
    from peft.tuners.tuners_utils import BaseTunerLayer
    from peft.utils import ModulesToSaveWrapper

    layers = [m for m in model.modules() if isinstance(m, (BaseTunerLayer, ModulesToSaveWrapper))]
    if not layers:
        raise ConfigError(
            "The model has no adapter. Add one by `peft.get_peft_model(model, LoraConfig(...))` "
            "or `model.add_adapter(LoraConfig(...))`."
        )
    return layers


def _adapter_parts(layer: nn.Module) -> list[nn.Module]:
    """Returns the modules of a layer that belong to its adapter."""
    names = getattr(layer, "adapter_layer_names", ())
    return [part for name in names if isinstance(part := getattr(layer, name, None), nn.Module)]


def _part_with_adapter(model: nn.Module) -> Any:
    """Returns the module that saves the adapter alone: the outermost with peft's configuration."""
    for part in model.modules():
        if getattr(part, "peft_config", None) and hasattr(part, "save_pretrained"):
            return part
    raise ConfigError("The model has no adapter that peft can save. Make it by peft.")
