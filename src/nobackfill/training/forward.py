"""Runs the model on a batch and returns embeddings, labels and item indices.

An item is what `OldSpace` has one row for: a training image, or one of its texts.
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor, nn

from nobackfill.core import distributed
from nobackfill.core.config import PairsConfig
from nobackfill.data.captions import Captions
from nobackfill.data.collection import Collection
from nobackfill.data.loader import Batch, Crew
from nobackfill.methods.losses import pair_contrast
from nobackfill.models.dual import DualEncoder, OneSide
from nobackfill.models.embed import Watch, embed, embed_texts

Part = tuple[int, int]  # index of the part, number of parts
WHOLE: Part = (0, 1)


class MethodInputs(NamedTuple):
    """Inputs of the method from one batch."""

    new: Float[Tensor, "items dim"]
    labels: Int[Tensor, " items"]
    items: Int[Tensor, " items"]  # in the order of `OldSpace`
    terms: dict[str, Float[Tensor, ""]]  # loss terms that do not depend on the method


@dataclass(frozen=True, eq=False)
class ForwardPass:
    """Turns batches into method inputs and embeds all training items, for a model of images.

    Attributes:
        collection: Collection that holds the images.
        rows: Rows of the training images; each is an item.
    """

    collection: Collection
    rows: Int[Tensor, " items"]

    @property
    def shown(self) -> Int[Tensor, " shown"]:
        """Row of each image that an epoch shows; `Batch.items` are positions in it."""
        return self.rows

    def labels(self, part: Part = WHOLE) -> Int[Tensor, " items"]:
        """Class of each item, in the order of `OldSpace`."""
        return self.collection.labels[select_part(self.rows, part)]

    def run(self, model: nn.Module, batch: Batch, generator: torch.Generator) -> MethodInputs:
        """Runs the model in every process on its part of the batch and gathers the results."""
        new = distributed.gather(model(batch.images), len(batch.items))
        return MethodInputs(new, batch.labels, batch.items, {})

    def embed(
        self, model: nn.Module, *, part: Part = WHOLE, watch: Watch = iter, crew: Crew | None = None
    ) -> Float[Tensor, "items dim"]:
        """Embeds the items without augmentation."""
        return embed(model, self.collection, select_part(self.rows, part), watch=watch, crew=crew)


@dataclass(frozen=True, eq=False)
class ImageTextForwardPass(ForwardPass):
    """Forward pass of a model of images and texts: each image with one of its texts.

    An epoch shows each image with a random one of its texts, or once with each (`config.texts`).
    The method gets image embeddings, text embeddings or both, as `config.modalities` selects.
    Items are the training images, then all their texts, restricted to these modalities.

    Attributes:
        captions: Texts of the training images.
        prepared: Texts in the model's input format, on the model's device.
        config: Settings of the joint training.
    """

    captions: Captions
    prepared: Shaped[Tensor, "texts ..."]
    config: PairsConfig

    @classmethod
    def of(
        cls,
        collection: Collection,
        rows: Int[Tensor, " images"],
        model: DualEncoder,
        config: PairsConfig,
    ) -> "ImageTextForwardPass":
        """Prepares all texts of the training images for a model."""
        captions, device = collection.captions_of(rows), next(model.parameters()).device
        prepared = model.prepare(captions.texts, captions.ids).to(device)
        return cls(collection, rows, captions.to(device), prepared, config)

    @property
    def shown(self) -> Int[Tensor, " shown"]:
        """See `ForwardPass`."""
        if self.config.texts == "one":
            return self.rows
        return self.rows[self.captions.images.to(self.rows.device)]

    def labels(self, part: Part = WHOLE) -> Int[Tensor, " items"]:
        """See `ForwardPass`."""
        by_modality = [self.collection.rows_of(self.rows, name) for name in self.config.modalities]
        return self.collection.labels[torch.cat([select_part(r, part) for r in by_modality])]

    def run(self, model: nn.Module, batch: Batch, generator: torch.Generator) -> MethodInputs:
        """See `ForwardPass`."""
        # Draw one text for each image, or take the one that is due, and embed both.
        images = drawn = batch.items
        if self.config.texts == "one":
            uniform = torch.rand(len(images), generator=generator).to(images.device)
            drawn = self.captions.drawn(images, uniform)
        else:
            images = self.captions.images[drawn]
        image, text, terms = self.match(model, batch, drawn, generator)

        # Hand the selected modalities to the method; text items are numbered after image items.
        first_text = len(self.rows) if "image" in self.config.modalities else 0
        by_modality = {"image": (image, images), "text": (text, first_text + drawn)}
        new, items = zip(*(by_modality[name] for name in self.config.modalities), strict=True)
        return MethodInputs(
            torch.cat(new),
            batch.labels.repeat(len(new)),
            torch.cat(items),
            {name: self.config.weight * term for name, term in terms.items()},
        )

    def match(
        self,
        model: nn.Module,
        batch: Batch,
        drawn: Int[Tensor, " items"],
        generator: torch.Generator,
    ) -> tuple[Float[Tensor, "items dim"], Float[Tensor, "items dim"], dict[str, Tensor]]:
        """Embeds the images of a batch and the drawn texts; also returns the joint loss terms.

        `generator` is in the same state in every process.
        """
        embeddings = model(batch.images, self.prepared[select_part(drawn, distributed.part())])
        image, text = (distributed.gather(each, len(batch.items)) for each in embeddings)
        contrast = pair_contrast(image, text, batch.labels, temperature=self.config.temperature)
        return image, text, {"image_text": contrast}

    def embed(
        self, model: nn.Module, *, part: Part = WHOLE, watch: Watch = iter, crew: Crew | None = None
    ) -> Float[Tensor, "items dim"]:
        """See `ForwardPass`."""
        embeddings = []
        for modality in self.config.modalities:
            encoder = OneSide(model, modality)
            if modality == "text":
                embeddings.append(embed_texts(encoder, select_part(self.prepared, part)))
            else:
                rows = select_part(self.rows, part)
                embeddings.append(embed(encoder, self.collection, rows, watch=watch, crew=crew))
        return torch.cat(embeddings)


def select_part(values: Shaped[Tensor, "items ..."], part: Part) -> Shaped[Tensor, "selected ..."]:
    """Returns one of several parts of nearly equal size."""
    index, count = part
    return values.tensor_split(count)[index]
