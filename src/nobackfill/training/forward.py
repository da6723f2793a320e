"""What a method is shown of a batch: images, or images and texts; and which items there are."""

from dataclasses import dataclass
from typing import NamedTuple, Protocol, runtime_checkable

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

Part = tuple[int, int]  # which one, and of how many
WHOLE: Part = (0, 1)


class Seen(NamedTuple):
    """What a method is shown of a batch.

    Attributes:
        new: New embeddings.
        labels: Their classes.
        items: Theirs among all items, as `OldSpace` numbers them.
        terms: Of the loss, that no method makes.
    """

    new: Float[Tensor, "shown dim"]
    labels: Int[Tensor, " shown"]
    items: Int[Tensor, " shown"]
    terms: dict[str, Float[Tensor, ""]]


@runtime_checkable
class Sight(Protocol):
    """How a model's batches become what a method is shown, and which items there are."""

    def labels(self, part: Part = WHOLE) -> Int[Tensor, " items"]:
        """The class of each item, in the order in which `OldSpace` has them."""

    def look(self, model: nn.Module, batch: Batch, generator: torch.Generator) -> Seen:
        """Runs the model, all processes together, each on its part of the batch."""

    def embed(
        self,
        model: nn.Module,
        *,
        part: Part = WHOLE,
        watch: Watch = iter,
        crew: Crew | None = None,
    ) -> Float[Tensor, "items dim"]:
        """The model's embeddings of the items, as for a test."""


@dataclass(frozen=True, eq=False)
class Images:
    """Images alone.

    Attributes:
        collection: Where they are.
        rows: Which of them are items.
    """

    collection: Collection
    rows: Int[Tensor, " items"]

    def labels(self, part: Part = WHOLE) -> Int[Tensor, " items"]:
        """See `Sight`."""
        return self.collection.labels[cut(self.rows, part)]

    def look(self, model: nn.Module, batch: Batch, generator: torch.Generator) -> Seen:
        """See `Sight`."""
        new = distributed.gather(model(batch.images), len(batch.items))
        return Seen(new, batch.labels, batch.items, {})

    def embed(
        self,
        model: nn.Module,
        *,
        part: Part = WHOLE,
        watch: Watch = iter,
        crew: Crew | None = None,
    ) -> Float[Tensor, "items dim"]:
        """See `Sight`."""
        return embed(model, self.collection, cut(self.rows, part), watch=watch, crew=crew)


@dataclass(frozen=True, eq=False)
class ImagesAndTexts:
    """Images, and one text of each by chance; the method is shown the ones, the others, or both.

    Items are the images, then all their texts, as far as the method is shown them.

    Attributes:
        collection: Where the images are.
        rows: Which of them are trained on.
        captions: Their texts.
        prepared: The texts as the model wants them, on its device.
        config: How both are trained together.
    """

    collection: Collection
    rows: Int[Tensor, " images"]
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
    ) -> "ImagesAndTexts":
        """All texts of some images, prepared for a model."""
        captions, device = collection.captions_of(rows), next(model.parameters()).device
        prepared = model.prepare(captions.texts, captions.ids).to(device)
        return cls(collection, rows, captions.to(device), prepared, config)

    def labels(self, part: Part = WHOLE) -> Int[Tensor, " items"]:
        """See `Sight`."""
        each = [self.collection.rows_of(self.rows, one) for one in self.config.modalities]
        return self.collection.labels[torch.cat([cut(rows, part) for rows in each])]

    def look(self, model: nn.Module, batch: Batch, generator: torch.Generator) -> Seen:
        """See `Sight`."""
        chance = torch.rand(len(batch.items), generator=generator).to(batch.items.device)
        chosen = self.captions.drawn(batch.items, chance)
        both = model(batch.images, self.prepared[cut(chosen, distributed.part())])
        image, text = (distributed.gather(one, len(batch.items)) for one in both)
        contrast = pair_contrast(image, text, batch.labels, temperature=self.config.temperature)
        before = len(self.rows) if "image" in self.config.modalities else 0
        shown = {"image": (image, batch.items), "text": (text, before + chosen)}
        new, items = zip(*(shown[one] for one in self.config.modalities), strict=True)
        return Seen(
            torch.cat(new),
            batch.labels.repeat(len(new)),
            torch.cat(items),
            {"image_text": self.config.weight * contrast},
        )

    def embed(
        self,
        model: nn.Module,
        *,
        part: Part = WHOLE,
        watch: Watch = iter,
        crew: Crew | None = None,
    ) -> Float[Tensor, "items dim"]:
        """See `Sight`."""
        found = []
        for one in self.config.modalities:
            side = OneSide(model, one)
            if one == "text":
                found.append(embed_texts(side, cut(self.prepared, part)))
            else:
                rows = cut(self.rows, part)
                found.append(embed(side, self.collection, rows, watch=watch, crew=crew))
        return torch.cat(found)


def cut(values: Shaped[Tensor, "items ..."], part: Part) -> Shaped[Tensor, "some ..."]:
    """One of so many parts of equal size."""
    mine, of = part
    return values.tensor_split(of)[mine]
