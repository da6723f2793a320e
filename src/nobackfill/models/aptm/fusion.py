"""APTM's text encoder: a BERT whose lower layers read texts, and whose upper ones attend to images.

All layers are those of transformers; the cross-attention of the upper ones is added here.
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int64
from torch import Tensor, nn

from nobackfill.errors import ConfigError
from nobackfill.models.base import optional_package
from nobackfill.models.text.base import TextEncoder
from nobackfill.models.text.transformers import PooledText, resolve_texts, resolved_now
from nobackfill.models.transformers_loading import load_folder, make_config

NO_WORD = re.compile(r"[\W_]+")
SPREAD = 0.02  # standard deviation of new weights, as in BERT


class CrossAttention(nn.Module):
    """Attention of text tokens to image tokens, with the names that published checkpoints use.

    Args:
        config: Configuration of the BERT.
        image_width: Number of features of an image token.
    """

    def __init__(self, config: Any, image_width: int):
        super().__init__()
        width = config.hidden_size
        self.heads, self.drop = config.num_attention_heads, config.attention_probs_dropout_prob
        sources = {"query": width, "key": image_width, "value": image_width}
        self.self = nn.ModuleDict({name: nn.Linear(size, width) for name, size in sources.items()})
        norm = nn.LayerNorm(width, eps=config.layer_norm_eps)
        self.output = nn.ModuleDict({"dense": nn.Linear(width, width), "LayerNorm": norm})
        self.dropout = nn.Dropout(config.hidden_dropout_prob)
        for layer in (*self.self.values(), self.output["dense"]):
            assert isinstance(layer, nn.Linear)
            nn.init.normal_(layer.weight, std=SPREAD)
            nn.init.zeros_(layer.bias)

    def forward(
        self,
        texts: Float[Tensor, "pairs length width"],
        images: Float[Tensor, "pairs tokens features"],
    ) -> Float[Tensor, "pairs length width"]:
        """Adds the attention of each text token to the image tokens of its pair."""
        query, key, value = (
            self.self[name](source).unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for name, source in (("query", texts), ("key", images), ("value", images))
        )
        drop = self.drop if self.training else 0.0
        attended = F.scaled_dot_product_attention(query, key, value, dropout_p=drop)
        attended = self.dropout(self.output["dense"](attended.transpose(1, 2).flatten(-2)))
        added: Tensor = self.output["LayerNorm"](attended + texts)
        return added


class FusionBert(PooledText):
    """A BERT for texts alone and for pairs of a text and an image.

    Layers before `fusion_from` read the text; the others also attend to the image. The feature of a
    text is its first token after the former.

    Args:
        model: BertForMaskedLM of transformers.
        image_width: Number of features of an image token.
        fusion_from: Number of layers that read texts alone.
        tokenizer: Folder of the tokenizer, which is first read by `prepare`.
        vocabulary: Fingerprint of the model's tokenizer.
        limit: Maximal number of tokens of a text; the rest is dropped.
        synonyms: File of synonyms for the texts that training changes, see `read_synonyms`.
    """

    def __init__(
        self,
        model: nn.Module,
        image_width: int,
        fusion_from: int,
        *,
        tokenizer: str,
        vocabulary: str,
        limit: int,
        synonyms: str | None = None,
    ):
        config: Any = model.config
        if not 0 < fusion_from < config.num_hidden_layers:
            raise ConfigError(
                f"`fusion_from` in [text] must lie between 1 and "
                f"{config.num_hidden_layers - 1}, as the BERT has {config.num_hidden_layers} "
                f"layers, but it is {fusion_from}."
            )
        for layer in model.bert.encoder.layer[fusion_from:]:  # type: ignore[union-attr,index]
            layer.crossattention = CrossAttention(config, image_width)
        self.synonyms = synonyms
        self.fusion_from = fusion_from  # before `PooledText` runs the model once
        super().__init__(
            model, pool="first", tokenizer=tokenizer, vocabulary=vocabulary, limit=limit,
            too_long="cut", frozen=False,
        )  # fmt: skip

    def prepare(self, texts: Sequence[str], ids: Sequence[str]) -> Int64[Tensor, "texts 2 length"]:
        """Returns the tokens of each text, in lower case and without signs, and their mask."""
        return super().prepare([plain_words(text) for text in texts], ids)

    def pooled(self, prepared: Int64[Tensor, "texts 2 length"]) -> Float[Tensor, "texts features"]:
        """Returns the first token of each text after the layers that read texts alone."""
        return self.read(prepared)[:, 0]

    def read(
        self, prepared: Int64[Tensor, "texts 2 length"]
    ) -> Float[Tensor, "texts length features"]:
        """Runs the layers that read texts alone."""
        numbers, seen = prepared.unbind(dim=1)
        hidden: Tensor = self.model.bert.embeddings(input_ids=numbers)  # type: ignore[union-attr,operator]
        for layer in self.layers[: self.fusion_from]:
            hidden = layer.feed_forward_chunk(layer.attention(hidden, _mask(seen, hidden))[0])
        return hidden

    def fuse(
        self,
        read: Float[Tensor, "pairs length features"],
        seen: Int64[Tensor, "pairs length"],
        images: Float[Tensor, "pairs tokens image_features"],
    ) -> Float[Tensor, "pairs length features"]:
        """Runs the layers that attend to images, on texts that were read and image tokens."""
        hidden = read
        for layer in self.layers[self.fusion_from :]:
            attended = layer.attention(hidden, _mask(seen, hidden))[0]
            hidden = layer.feed_forward_chunk(layer.crossattention(attended, images))
        return hidden

    def name_words(
        self, hidden: Float[Tensor, "pairs places features"]
    ) -> Float[Tensor, "pairs places vocabulary"]:
        """Returns the score of every word of the vocabulary at each place."""
        scores: Tensor = self.model.cls(hidden)  # type: ignore[operator]
        return scores

    @property
    def layers(self) -> Any:
        """All layers of the BERT."""
        return self.model.bert.encoder.layer  # type: ignore[union-attr]


def plain_words(text: str) -> str:
    """Returns a text in lower case with spaces for everything but letters and digits.

    Example:
        >>> plain_words("A man, in a T-shirt.")
        'a man in a t shirt'
    """
    return NO_WORD.sub(" ", text.lower()).strip()


def aptm_text(
    image_width: int = 1024,
    *,
    path: str | None = None,
    settings: tuple[str, ...] = (),
    architecture: str | None = None,
    tokenizer: str | None = None,
    vocabulary: str | None = None,
    longest: int = 56,
    fusion_from: int = 6,
    synonyms: str | None = None,
) -> TextEncoder:
    """Makes APTM's text encoder, by default from BERT-base.

    Args:
        image_width: Number of features of an image token.
        path: Local folder of a BERT with its masked-word head, to start with; not needed with
            `weights` in [model].
        settings: Settings of the BertConfig, such as ["num_hidden_layers=4"].
        architecture: "BertConfig"; with `path`, it is read there.
        tokenizer: Folder of the tokenizer, by default `path`.
        vocabulary: Fingerprint of the tokenizer, which is read from its folder.
        longest: Maximal number of tokens of a text; the rest is dropped.
        fusion_from: Number of layers that read texts alone.
        synonyms: JSON file of synonyms, such as those of WordNet, for the texts that training
            changes; without it, they only lose and swap words.
    """
    options = resolved_now(
        resolve_aptm_text, path=path, architecture=architecture, settings=settings,
        tokenizer=tokenizer, vocabulary=vocabulary,
    )  # fmt: skip
    config = make_config(options["architecture"], options["settings"], "text")
    if not 1 <= longest <= config.max_position_embeddings:
        raise ConfigError(
            f"`longest` in [text] must lie between 1 and {config.max_position_embeddings}, the "
            f"number of tokens that the BERT supports, but it is {longest}."
        )
    return FusionBert(
        _masked_bert(config, path),
        image_width,
        fusion_from,
        tokenizer=options["tokenizer"],
        vocabulary=options["vocabulary"],
        limit=longest,
        synonyms=synonyms,
    )


def resolve_aptm_text(options: Mapping[str, Any]) -> dict[str, Any]:
    """Completes the options as `resolve_texts` does; without a folder, it is BERT-base."""
    default = "BertConfig" if options["path"] is None else None
    resolved = resolve_texts({**options, "architecture": options["architecture"] or default})
    if resolved["architecture"] != "BertConfig":
        raise ConfigError(
            f"[text] `aptm` requires a BERT, not a {resolved['architecture']}. Choose the folder "
            f"of a BERT as `path`, or leave `architecture` out."
        )
    return resolved


def _masked_bert(config: Any, path: str | None) -> nn.Module:
    """Makes the BERT with its masked-word head, with the weights of a folder or random ones."""
    transformers = optional_package("transformers", extra="transformers")
    config._attn_implementation = "eager"  # takes the same mask in every precision
    if path is None:
        model = transformers.BertForMaskedLM(config)
    else:
        model = load_folder(
            transformers, transformers.BertForMaskedLM, Path(path), config, "first", "text"
        )
    return model.float()  # type: ignore[no-any-return]


def _mask(
    seen: Int64[Tensor, "texts length"], hidden: Float[Tensor, "texts length features"]
) -> Float[Tensor, "texts 1 1 length"]:
    """Returns what is added to attention scores: 0, or the lowest number for padding."""
    lowest = torch.finfo(hidden.dtype).min
    return (1 - seen[:, None, None].to(hidden.dtype)) * lowest
