"""Lightning: a callback that starts the epochs of a method and logs its terms."""

from collections.abc import Callable, Iterable
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn

from nobackfill.errors import ConfigError
from nobackfill.integrations.method_loss import MethodLoss
from nobackfill.integrations.training_pass import embed_all, in_order
from nobackfill.models.base import optional_package

if TYPE_CHECKING:
    import lightning.pytorch as lightning
else:  # the package `lightning`, or only the older `pytorch_lightning`
    older = find_spec("lightning") is None and find_spec("pytorch_lightning") is not None
    optional_package("pytorch_lightning" if older else "lightning", extra="lightning")
    lightning = optional_package(
        "pytorch_lightning" if older else "lightning.pytorch", extra="lightning"
    )

__all__ = ["CompatibleEpochs", "MethodLoss"]


class CompatibleEpochs(lightning.Callback):
    """Callback for a LightningModule that has a `MethodLoss` as an attribute.

    ::

        def __init__(self, model, method):
            ...
            self.loss = MethodLoss(method)

        def training_step(self, batch, index):
            images, labels = batch
            return self.loss(self.model(images), labels)

    Parameters and state of the method are then part of `self.parameters()` and of checkpoints. The
    callback calls `start_epoch`, with new prototypes of a pass or of running means, and logs the
    mean of each term.

    Args:
        embed: Function from the module and a batch to embeddings and labels. By default
            `(module(batch[0]), batch[1])`.
        loader: Loader of all training items in the order of `OldSpace`, without augmentation. By
            default the training loader's data set, in its order and with its augmentation.
        log_as: Name under which a term is logged; `{}` stands for the term. None logs nothing.
    """

    def __init__(
        self,
        *,
        embed: Callable[[nn.Module, Any], tuple[Tensor, Tensor]] | None = None,
        loader: Iterable[Any] | None = None,
        log_as: str | None = "train/{}",
    ):
        self.embed, self.loader, self.log_as = embed or _embed, loader, log_as

    def on_train_epoch_start(self, trainer: Any, pl_module: Any) -> None:
        """Starts an epoch of the method."""

        def embed_batch(batch: Any) -> tuple[Tensor, Tensor]:
            batch = trainer.strategy.batch_to_device(batch)
            with trainer.precision_plugin.forward_context():
                return self.embed(pl_module, batch)

        def embed_items() -> tuple[Tensor, Tensor]:
            loader = self.loader
            if loader is None:
                loader = in_order(trainer.train_dataloader)
            return embed_all(pl_module, loader, embed_batch)

        find_loss(pl_module).start_epoch(trainer.current_epoch, count_epochs(trainer), embed_items)

    def on_train_batch_end(self, trainer: Any, pl_module: Any, *batch: Any) -> None:
        """Logs the terms of a batch."""
        if self.log_as is not None:
            terms = find_loss(pl_module).terms
            named = {self.log_as.format(name): term for name, term in terms.items()}
            pl_module.log_dict(named, on_step=False, on_epoch=True)


def find_loss(module: nn.Module) -> MethodLoss:
    """Returns the only `MethodLoss` within a module."""
    losses = [part for part in module.modules() if isinstance(part, MethodLoss)]
    if len(losses) != 1:
        raise ConfigError(
            f"{type(module).__name__} must have one MethodLoss, but has {len(losses)}. Set "
            f"`self.loss = MethodLoss(method)` in its constructor."
        )
    return losses[0]


def count_epochs(trainer: Any) -> int:
    """Returns the number of epochs of a trainer, which may be limited by steps instead."""
    if trainer.max_epochs and trainer.max_epochs > 0:
        return int(trainer.max_epochs)
    if trainer.max_steps > 0:
        steps = -(-trainer.num_training_batches // trainer.accumulate_grad_batches)
        return int(-(-trainer.max_steps // steps))
    raise ConfigError("Methods need the number of epochs. Set `max_epochs` of the Trainer.")


def _embed(module: nn.Module, batch: Any) -> tuple[Tensor, Tensor]:
    """Embeds a batch of inputs and labels."""
    inputs, labels, *_ = batch
    return module(inputs), labels
