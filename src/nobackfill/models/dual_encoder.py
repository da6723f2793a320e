"""The interface of models of images and texts, and one of its two sides."""

from collections.abc import Sequence

from jaxtyping import Float, Shaped
from torch import Tensor, nn

from nobackfill.models.embedder import Embedder
from nobackfill.models.text.base import TextEncoder

Both = tuple[Float[Tensor, "images dim"] | None, Float[Tensor, "texts dim"] | None]


class DualEncoder(nn.Module):
    """A model of images and a model of texts with the same space."""

    def __init__(self, image: Embedder, text: Embedder):
        super().__init__()
        self.image, self.text = image, text
        self.embedding_dim = image.embedding_dim

    def forward(
        self,
        images: Float[Tensor, "images channels height width"] | None,
        texts: Shaped[Tensor, "texts ..."] | None,
    ) -> Both:
        """Returns the embeddings of images and of texts, or None if there are none."""
        return (
            None if images is None else self.image(images),
            None if texts is None else self.text(texts),
        )

    def prepare(self, texts: Sequence[str], ids: Sequence[str]) -> Shaped[Tensor, "texts ..."]:
        """Prepares texts for the text encoder, see `TextEncoder.prepare`."""
        encoder = self.text.backbone
        assert isinstance(encoder, TextEncoder)
        return encoder.prepare(texts, ids)


class OneSide(nn.Module):
    """The part of a `DualEncoder`, possibly wrapped, for one modality: "image" or "text"."""

    def __init__(self, model: nn.Module, modality: str):
        super().__init__()
        self.model, self.modality = model, modality
        self.training = model.training

    def forward(self, inputs: Shaped[Tensor, "batch ..."]) -> Float[Tensor, "batch dim"]:
        """Returns the embedding of each image or text."""
        embeddings: Tensor
        if self.modality == "image":
            embeddings, _ = self.model(inputs, None)
        else:
            _, embeddings = self.model(None, inputs)
        return embeddings
