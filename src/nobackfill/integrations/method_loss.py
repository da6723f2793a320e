"""The loss of a method in any training loop: its terms, its epochs, its state."""

from collections.abc import Callable

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from nobackfill.core.distributed import sum_over_processes
from nobackfill.core.seeding import seeded
from nobackfill.errors import ConfigError
from nobackfill.methods import Method
from nobackfill.methods.base import Items, Labels, New, Old
from nobackfill.methods.prototypes import class_means
from nobackfill.training.new_prototypes import RunningMeans

Pass = Callable[[], tuple[Float[Tensor, "items dim"], Int[Tensor, " items"]]]


class MethodLoss(nn.Module):
    """Sum of a method's terms, with what a loop must do at the start of an epoch.

    All that training changes is in `state_dict`, so a loop that saves this module can resume.

    Attributes:
        method: The method.
        means: Running means of the new embeddings; None if prototypes come from a pass.
        terms: Terms of the last batch by name, without gradients.

    Args:
        method: Method, such as `nb.METHODS["ndpp"](old, num_classes)`. If the new dimension is free
            (`janus`), it must be set (`dim=`): optimizers need all parameters before the first
            batch.
        running_means: Whether new prototypes are the means of the last epoch's batches. Otherwise
            they cost a pass over the training set per epoch; the first ones do in any case. Methods
            without new prototypes ignore this.
    """

    started: Int[Tensor, ""]  # number of epochs that have begun

    def __init__(self, method: Method, *, running_means: bool = False):
        super().__init__()
        if any(isinstance(p, nn.UninitializedParameter) for p in method.parameters()):
            raise ConfigError(
                f"The dimension of the new embeddings must be known before training, but "
                f"{type(method).__name__} would take it from the first batch. Pass `dim=` to the "
                f"method."
            )
        self.method = method
        self.means = _running_means(method) if running_means else None
        self.terms: dict[str, Tensor] = {}
        self.register_buffer("started", torch.zeros((), dtype=torch.int64))

    def forward(
        self, new: New, labels: Labels, *, items: Items = None, old: Old = None
    ) -> Float[Tensor, ""]:
        """Returns the sum of the method's terms, in float32; see `Method` for the arguments."""
        with torch.autocast(new.device.type, enabled=False):
            new, labels = new.float(), labels.to(new.device)
            terms = self.method(new, labels, items=items, **({} if old is None else {"old": old}))
            if self.means is not None and self.training:
                with torch.no_grad():
                    self.means.add(self.method.compared(new), labels)
            self.terms = {name: term.detach() for name, term in terms.items()}
            return torch.stack(list(terms.values())).sum()

    def start_epoch(self, epoch: int, epochs: int, embed: Pass) -> None:
        """Starts an epoch of the method; call it before the first batch.

        An epoch that had begun before the run was resumed is not started twice: the method builds
        its indexes again, and keeps its state.

        Args:
            epoch: Number of the epoch, from 0.
            epochs: Number of epochs.
            embed: Function that returns the embedding and the label of each training item, in the
                order of `OldSpace`. It is called only if the method needs it.
        """
        self.method.train()
        before = {name: value.clone() for name, value in self.method.state_dict().items()}
        resumed = epoch < int(self.started)
        passes: list[tuple[Tensor, Tensor]] = []

        def embed_once() -> tuple[Tensor, Tensor]:
            if not passes:
                with torch.no_grad():
                    passes.append(embed())
            return passes[0]

        def new_prototypes() -> Float[Tensor, "classes dim"]:
            means = None if self.means is None else self._take(self.means, resumed)
            if means is not None:
                return means
            embeddings, labels = embed_once()
            with torch.no_grad():
                compared = self.method.compared(embeddings.float())
            return class_means(compared, labels, self.method.num_classes, **self.method.averaging)

        with seeded(epoch):  # what is drawn here is the same in a resumed run
            self.method.start_epoch(
                epoch,
                epochs,
                new_prototypes=new_prototypes,
                new_embeddings=lambda: embed_once()[0].float(),
            )
        if resumed:
            self.method.load_state_dict(before)
        else:
            self.started.fill_(epoch + 1)

    def _take(self, means: RunningMeans, resumed: bool) -> Float[Tensor, "classes dim"] | None:
        """Returns the means of the last epoch's batches, of all processes."""
        if resumed:  # the sums are those of the epoch that goes on
            return means.last.clone()
        means.sums.copy_(sum_over_processes(means.sums))
        means.counts.copy_(sum_over_processes(means.counts))
        return means.take()


def _running_means(method: Method) -> RunningMeans | None:
    """Returns running means for a method that needs new prototypes; None for all others."""
    old = getattr(method, "old", None)
    if getattr(method, "perturb", None) is None or not isinstance(old, Tensor):
        return None
    return RunningMeans(method.num_classes, old.shape[1], **method.averaging)
