"""Hugging Face `Trainer`: a method as `compute_loss_func`, for models that return embeddings."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float, Int
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from nobackfill.errors import ConfigError, DataError
from nobackfill.integrations.method_loss import MethodLoss
from nobackfill.integrations.training_pass import embed_all, in_order
from nobackfill.methods import Method
from nobackfill.models.base import optional_package

if TYPE_CHECKING:
    import transformers
else:
    transformers = optional_package("transformers", extra="transformers")

NAME = "compatible_loss"  # of the loss within the model, and of its file beside an adapter
Embedding = str | Callable[[Any], Tensor]  # field of a model's outputs, or function of them


class CompatibleLoss(MethodLoss):
    """A method as `compute_loss_func`; see `compatible_training`."""

    item_labels: Int[Tensor, " items"] | None

    def __init__(
        self,
        method: Method,
        *,
        embedding: Embedding = "pooler_output",
        item_labels: Int[Tensor, " items"] | None = None,
        running_means: bool = False,
    ):
        super().__init__(method, running_means=running_means)
        if item_labels is None and "embeddings" in method.needs and method.compares_items:
            raise ConfigError(
                f"{type(method).__name__} compares each item with its own old vector, but Trainer "
                f"passes only labels to a loss. Let the column `labels` contain the row of each "
                f"item in OldSpace.embeddings, and pass the classes as `item_labels=`."
            )
        self.embedding = embedding
        self.register_buffer("item_labels", item_labels, persistent=False)

    def forward(  # type: ignore[override]  # the arguments of Trainer
        self,
        outputs: Any,
        labels: Int[Tensor, " batch"] | None,
        num_items_in_batch: Tensor | int | None = None,
    ) -> Float[Tensor, ""]:
        """Returns the loss of a batch; `num_items_in_batch` counts the items of a step."""
        classes = self.classes(labels)
        items = None if self.item_labels is None else labels
        loss = super().forward(self.embeddings(outputs), classes, items=items)
        if num_items_in_batch is None:
            return loss
        return loss * len(classes) / torch.as_tensor(num_items_in_batch, device=loss.device)

    def classes(self, labels: Int[Tensor, " batch"] | None) -> Int[Tensor, " batch"]:
        """Returns the classes of a batch from its column `labels`."""
        if labels is None:
            raise DataError(
                "Trainer passes no labels to the loss: it drops a column `labels` that the model "
                'does not take. Set TrainingArguments(label_names=["labels"]), or name the column '
                "`label`."
            )
        return labels if self.item_labels is None else self.item_labels[labels]

    def embeddings(self, outputs: Any) -> Float[Tensor, "batch dim"]:
        """Returns the embeddings among the outputs of a model."""
        new: Any
        if callable(self.embedding):
            new = self.embedding(outputs)
        else:
            new = outputs.get(self.embedding) if isinstance(outputs, Mapping) else None
        if not isinstance(new, Tensor):
            fields = ", ".join(outputs) if isinstance(outputs, Mapping) else type(outputs).__name__
            raise DataError(
                f"The outputs of the model have no embedding `{self.embedding}`, but: {fields}. "
                f"Pass `embedding=`, the name of a field, or a function of the outputs."
            )
        return new.flatten(1)


class StartEpochs(transformers.TrainerCallback):
    """Starts the epochs of a `CompatibleLoss`, logs its terms, and saves it beside an adapter."""

    def __init__(self, loss: CompatibleLoss):
        self.loss = loss

    def on_train_begin(self, args: Any, state: Any, control: Any, **others: Any) -> None:
        """Restores the loss beside an adapter, whose checkpoints leave it out."""
        if state.global_step and _saves_adapters_only(others["model"]):
            path = _checkpoint(args, state)
            if not path.exists():
                raise DataError(
                    f"The checkpoint has no state of the method: {path} does not exist. Resume "
                    f"from a checkpoint of `output_dir`, or train from the start."
                )
            self.loss.load_state_dict(load_file(path))

    def on_epoch_begin(self, args: Any, state: Any, control: Any, **others: Any) -> None:
        """Starts an epoch of the method."""
        model, loader = others["model"], others["train_dataloader"]

        def embed(batch: dict[str, Any]) -> tuple[Tensor, Tensor]:
            inputs = {
                name: value.to(args.device) if isinstance(value, Tensor) else value
                for name, value in batch.items()
            }
            classes = self.loss.classes(inputs.pop("labels", None))
            return self.loss.embeddings(model(**inputs)), classes

        self.loss.start_epoch(
            int(state.epoch or 0),
            state.num_train_epochs,
            lambda: embed_all(model, in_order(loader), embed),
        )

    def on_log(self, args: Any, state: Any, control: Any, **others: Any) -> None:
        """Adds the terms of the last batch to the log."""
        if state.log_history and "loss" in state.log_history[-1]:
            terms = {f"loss_{name}": term.item() for name, term in self.loss.terms.items()}
            state.log_history[-1].update(terms)

    def on_save(self, args: Any, state: Any, control: Any, **others: Any) -> None:
        """Saves the loss beside an adapter."""
        if state.is_world_process_zero and _saves_adapters_only(others["model"]):
            tensors = {k: v.contiguous().clone() for k, v in self.loss.state_dict().items()}
            save_file(tensors, _checkpoint(args, state))


def compatible_training(
    model: nn.Module,
    method: Method,
    *,
    embedding: Embedding = "pooler_output",
    item_labels: Int[Tensor, " items"] | None = None,
    running_means: bool = False,
) -> dict[str, Any]:
    """Returns arguments for `Trainer` that train a model by a method.

    ::

        trainer = Trainer(model, args, train_dataset=..., **compatible_training(model, method))

    The method becomes a part of the model (`model.compatible_loss`), so that its parameters reach
    the optimizer, gradient clipping and checkpoints, and `resume_from_checkpoint` restores them.
    Call `plain(model)` before `save_pretrained`. The terms of the loss are in
    `trainer.state.log_history`.

    Args:
        model: Any model, such as a `PreTrainedModel` or a `PeftModel`.
        method: Method, such as `nb.METHODS["ndpp"](old, num_classes)`.
        embedding: Name of the field of the model's outputs, such as "pooler_output" or
            "image_embeds", or a function of the outputs.
        item_labels: Class of each training item. If it is given, the column `labels` of the data
            contains items, rows of `OldSpace.embeddings`, in place of classes. Methods that compare
            items with their own old vectors require this.
        running_means: See `MethodLoss`.
    """
    loss = CompatibleLoss(
        method, embedding=embedding, item_labels=item_labels, running_means=running_means
    )
    loss.to(next(model.parameters()).device)
    model.add_module(NAME, loss)
    return {"compute_loss_func": loss, "callbacks": [StartEpochs(loss)]}


def plain(model: nn.Module) -> nn.Module:
    """Removes what `compatible_training` added, and returns the model."""
    if hasattr(model, NAME):
        delattr(model, NAME)
    return model


def _saves_adapters_only(model: nn.Module) -> bool:
    return hasattr(model, "peft_config")


def _checkpoint(args: Any, state: Any) -> Path:
    return Path(args.output_dir) / f"checkpoint-{state.global_step}" / f"{NAME}.safetensors"
