"""APTM: two encoders with one space, and a cross-encoder that judges pairs of image and text."""

from typing import NamedTuple

import torch
from jaxtyping import Float, Int, Int64, Shaped
from torch import Tensor, nn

from nobackfill.models.aptm.fusion import FusionBert
from nobackfill.models.aptm.losses import draw_negatives
from nobackfill.models.aptm.names import published_name
from nobackfill.models.aptm.swin import SwinTokens
from nobackfill.models.dual_encoder import Both, DualEncoder
from nobackfill.models.embedder import Embedder

TEMPERATURE = 0.07  # that learning starts at


class Judged(NamedTuple):
    """Outputs of APTM for its losses on a batch; the first two are the embeddings."""

    image: Float[Tensor, "batch dim"]
    text: Float[Tensor, "batch dim"]
    changed: Float[Tensor, "batch dim"]  # of the changed texts
    temperature: Float[Tensor, ""]
    match: Float[Tensor, "batch 3 2"]  # see `matching_loss`
    changed_match: Float[Tensor, "batch 3 2"]  # the same for the changed texts
    words: Float[Tensor, "batch places vocabulary"]  # scores at the masked places


class Aptm(DualEncoder):
    """APTM by Yang et al., Towards Unified Text-based Person Retrieval (ACM Multimedia 2023).

    A search uses the two embeddings alone. Training also uses a cross-encoder: the upper half of
    the BERT, which attends to the image tokens.

    Args:
        image: Image encoder with a Swin.
        text: Text encoder with a BERT.
        top_factor: Factor of the learning rate of the upper layers, see `rate_factor`.
    """

    def __init__(self, image: Embedder, text: Embedder, *, top_factor: float = 2.0):
        super().__init__(image, text)
        width = self.bert.feature_dim
        self.itm_head = nn.Sequential(
            nn.Linear(width, 2 * width), nn.LayerNorm(2 * width), nn.GELU(), nn.Linear(2 * width, 2)
        )
        self.temp = nn.Parameter(torch.tensor(TEMPERATURE))
        self.top_factor = top_factor

    @property
    def swin(self) -> SwinTokens:
        """The image encoder without its projection."""
        network = self.image.backbone.network
        assert isinstance(network, SwinTokens)
        return network

    @property
    def bert(self) -> FusionBert:
        """The text encoder without its projection."""
        assert isinstance(self.text.backbone, FusionBert)
        return self.text.backbone

    def forward(  # type: ignore[override]
        self,
        images: Float[Tensor, "images channels height width"] | None,
        texts: Shaped[Tensor, "texts ..."] | None,
        *training: Tensor,
    ) -> Both | Judged:
        """Returns the embeddings of images and of texts, or None if there are none.

        With the four tensors of `judge`, which training passes, it returns what `judge` does.
        """
        if not training:
            return super().forward(images, texts)
        assert images is not None
        assert texts is not None
        return self.judge(images, texts, *training)

    def judge(
        self,
        images: Float[Tensor, "batch channels height width"],
        texts: Shaped[Tensor, "batch 2 length"],
        changed: Int64[Tensor, "batch 2 other_length"],
        masked: Int64[Tensor, "batch 2 length"],
        places: Int64[Tensor, "batch places"],
        labels: Int[Tensor, " batch"],
    ) -> Judged:
        """Returns what the losses need of a batch; negatives are drawn within it.

        Args:
            images: Images.
            texts: A text of each image, as `prepare` returns it.
            changed: The same texts with changed words.
            masked: The same texts with masked words.
            places: Masked places of each text.
            labels: Class of each image and its text.
        """
        tokens = self.swin.tokens(images)
        image = self.image.norm(self.image.projection(tokens[:, 0]))
        judged: list[tuple[Tensor, Tensor]] = []
        for version in (texts, changed):
            read, seen = self.bert.read(version), version[:, 1]
            text = self.text.norm(self.text.projection(read[:, 0]))
            judged.append((text, self.match(image, tokens, text, read, seen, labels)))
        fused = self.bert.fuse(self.bert.read(masked), masked[:, 1], tokens)
        rows = torch.arange(len(places), device=places.device)[:, None]
        words = self.bert.name_words(fused[rows, places])
        (text, match), (changed_text, changed_match) = judged
        return Judged(image, text, changed_text, self.temp, match, changed_match, words)

    def match(
        self,
        image: Float[Tensor, "batch dim"],
        tokens: Float[Tensor, "batch tokens features"],
        text: Float[Tensor, "batch dim"],
        read: Float[Tensor, "batch length width"],
        seen: Int64[Tensor, "batch length"],
        labels: Int[Tensor, " batch"],
    ) -> Float[Tensor, "batch 3 2"]:
        """Judges each pair, its text with a hard negative image, and its image with a hard text.

        Args:
            image: Embeddings of the images.
            tokens: Tokens of the images.
            text: Embeddings of the texts.
            read: Tokens of the texts after the layers that read texts alone.
            seen: Attention masks of the texts.
            labels: Class of each image and its text.
        """
        own = torch.arange(len(labels), device=labels.device)
        temperature = self.temp.detach()
        other_image = draw_negatives(text, image, labels, temperature=temperature)
        other_text = draw_negatives(image, text, labels, temperature=temperature)
        of_images = torch.cat([own, other_image, own])
        of_texts = torch.cat([own, own, other_text])
        fused = self.bert.fuse(read[of_texts], seen[of_texts], tokens[of_images])
        logits: Tensor = self.itm_head(fused[:, 0])
        return torch.stack(logits.split(len(own)), dim=1)

    def rate_factor(self, name: str) -> float:
        """Returns the factor of the learning rate of a parameter, by its name.

        `top_factor` for the last two stages of the Swin, the last two layers of both halves of the
        BERT, its masked-word head, the projections and the matching head; else 1.
        """
        stages, layers = len(self.swin.swin.layers), len(self.bert.layers)  # type: ignore[arg-type]
        half = self.bert.fusion_from
        tops = [f"vision_encoder.layers.{stage}." for stage in range(stages - 2, stages)]
        tops += [
            f"text_encoder.bert.encoder.layer.{layer}."
            for layer in (half - 2, half - 1, layers - 2, layers - 1)
        ]
        tops += ["text_encoder.cls.", "vision_proj.", "text_proj.", "itm_head."]
        return self.top_factor if published_name(name).startswith(tuple(tops)) else 1.0

    @staticmethod
    def decays(name: str) -> bool:
        """Whether weight decay applies to a parameter: not to biases, tables of them, and norms."""
        norms = ("LayerNorm.weight", "norm.weight", "norm1.weight", "norm2.weight")
        return "bias" not in name and not name.endswith(norms)
