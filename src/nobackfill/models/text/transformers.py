"""Text models of transformers, from a local folder or from scratch."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import torch
from jaxtyping import Float, Int64, Shaped
from torch import Tensor, nn

from nobackfill.errors import ConfigError, DataError
from nobackfill.models.text.base import TextEncoder
from nobackfill.models.text.tokenizer import (
    check_tokenizer,
    open_tokenizer,
    tokenize,
    tokenizer_fingerprint,
)
from nobackfill.models.transformers_loading import (
    freeze_pooler,
    make_config,
    make_network,
    resolve_architecture,
)

Pool = Literal["model", "mean", "first", "projected"]


class PooledText(TextEncoder):
    """A text model of transformers that returns one vector for each text.

    Args:
        model: Takes `input_ids` and `attention_mask`.
        pool: "model" for its own `pooler_output`, and where it has none, the mean over tokens;
            "mean" for that in any case, as sentence-transformers does; "first" for the first token;
            "projected" for the `text_embeds` of CLIP, which it compares with images.
        tokenizer: The folder of the tokenizer; nothing is read before `prepare` asks.
        vocabulary: Fingerprint of the tokenizer that belongs to the model.
        limit: How many tokens of a text the model takes.
        too_long: Whether a text with more is an "error" or "cut".
        frozen: Whether the model stays as it is: in eval mode, and without gradient.
    """

    def __init__(
        self,
        model: nn.Module,
        *,
        pool: Pool,
        tokenizer: str,
        vocabulary: str,
        limit: int,
        too_long: Literal["error", "cut"],
        frozen: bool,
    ):
        super().__init__()
        self.model, self.pool, self.frozen = model, pool, frozen
        self.tokenizer, self.vocabulary = tokenizer, vocabulary
        self.limit, self.too_long = limit, too_long
        # SigLIP takes the last place, whatever stands there: it was trained on filled up texts.
        self.fill = type(model).__name__.startswith("Siglip")
        self.says = f"{'' if self.fill else 'at most '}{limit} tokens of tokenizer {vocabulary}"
        if pool in ("mean", "first"):
            freeze_pooler(model)
        if frozen:
            model.requires_grad_(False).eval()
        with torch.no_grad():
            example = torch.tensor([0, 1])[:, None].expand(2, 2, 2)  # of two tokens, both seen
            self.feature_dim = self.pooled(example.contiguous()).shape[1]

    def train(self, mode: bool = True) -> "PooledText":
        """Sets the mode, but of a frozen model."""
        super().train(mode)
        if self.frozen:
            self.model.eval()
        return self

    def prepare(self, texts: Sequence[str], ids: Sequence[str]) -> Int64[Tensor, "texts 2 length"]:
        """Returns the tokens of each text, and 1 for each of them that is to be looked at."""
        tokenizer = open_tokenizer(self.tokenizer)
        if tokenizer_fingerprint(tokenizer) != self.vocabulary:
            raise DataError(
                f"wanted the tokenizer {self.vocabulary} in {self.tokenizer}, as when the encoder "
                f"was made, but it is {tokenizer_fingerprint(tokenizer)}. Put it back, or write "
                f"where it is as `tokenizer` in [text]."
            )
        fill = self.fill or "attention_mask" not in tokenizer.model_input_names
        return tokenize(tokenizer, texts, ids, limit=self.limit, too_long=self.too_long, fill=fill)

    def forward(self, prepared: Shaped[Tensor, "texts ..."]) -> Float[Tensor, "texts features"]:
        """Returns the features of each text."""
        with torch.set_grad_enabled(torch.is_grad_enabled() and not self.frozen):
            return self.pooled(prepared)

    def pooled(self, prepared: Int64[Tensor, "texts 2 length"]) -> Float[Tensor, "texts features"]:
        """What the model makes of the tokens of each text, as one vector."""
        numbers, seen = prepared.unbind(dim=1)
        output = self.model(input_ids=numbers, attention_mask=seen)
        if self.pool == "projected":
            projected: Tensor = output.text_embeds
            return projected
        pooled: Tensor | None = getattr(output, "pooler_output", None)
        if self.pool == "model" and pooled is not None:
            return pooled
        tokens: Tensor = output.last_hidden_state
        return tokens[:, 0] if self.pool == "first" else mean_seen(tokens, seen)


def mean_seen(
    tokens: Float[Tensor, "texts length features"], seen: Int64[Tensor, "texts length"]
) -> Float[Tensor, "texts features"]:
    """The mean over the tokens of each text that are to be looked at.

    Example:
        >>> mean_seen(torch.tensor([[[1.0], [3.0], [9.0]]]), torch.tensor([[1, 1, 0]]))
        tensor([[2.]])
    """
    weight = seen.to(tokens.dtype).unsqueeze(dim=-1)
    return (tokens * weight).sum(dim=1) / weight.sum(dim=1)


def transformers_text(
    *,
    path: str | None = None,
    architecture: str | None = None,
    settings: tuple[str, ...] = (),
    pool: Pool = "model",
    tokenizer: str | None = None,
    vocabulary: str | None = None,
    longest: int | None = None,
    too_long: Literal["error", "cut"] = "error",
    frozen: bool = False,
) -> TextEncoder:
    """A text model of transformers: BERT and its kin, or the part for texts of CLIP and SigLIP.

    Args:
        path: A folder with config.json and safetensors, as `save_pretrained` writes it. Nothing is
            fetched.
        architecture: The configuration to start from scratch with, such as "BertConfig"; with
            `path`, it is read there.
        settings: Of the configuration, such as ["num_hidden_layers=2"].
        pool: See `PooledText`.
        tokenizer: A folder with the model's tokenizer; it is `path` by default.
        vocabulary: Fingerprint of the tokenizer, which is read from its folder.
        longest: How many tokens of a text are taken, at most as many as the model has places for.
        too_long: Whether a text with more is an "error" or "cut".
        frozen: Whether the model stays as it is, and only what follows it learns.
    """
    given = {"path": path, "architecture": architecture, "settings": settings}
    found = resolve_texts(given | {"tokenizer": tokenizer, "vocabulary": vocabulary})
    if found["vocabulary"] is None:
        found = read_vocabulary(found)
    config = make_config(found["architecture"], found["settings"], "text")
    model = make_network(config, path, pool, "text")
    return PooledText(
        model,
        pool=pool,
        tokenizer=found["tokenizer"],
        vocabulary=found["vocabulary"],
        limit=_limit(model, config, longest),
        too_long=too_long,
        frozen=frozen,
    )


def resolve_texts(options: Mapping[str, Any]) -> dict[str, Any]:
    """Writes out what the folders say of the architecture and of the tokenizer.

    So that a finished run is built again from its recipe, wherever the weights have gone; texts
    want the tokenizer still, and it must be the same. A recipe with `architecture` can be planned
    before its folder is there: then nothing is read before the model is made.
    """
    found = resolve_architecture(options, "text")
    found["tokenizer"] = found["tokenizer"] or found["path"]
    if found["tokenizer"] is None:
        raise ConfigError(
            "wanted `tokenizer` in [text], a folder with the tokenizer of the model, but got "
            "neither that nor `path`. Write where it lies."
        )
    is_later = options["architecture"] is not None and not Path(found["tokenizer"]).exists()
    if found["vocabulary"] is not None or is_later:
        return found
    return read_vocabulary(found)


def read_vocabulary(found: Mapping[str, Any]) -> dict[str, Any]:
    """Adds the fingerprint of the tokenizer, which must be that of the model."""
    config = make_config(found["architecture"], found["settings"], "text")
    writes = getattr(config, "is_encoder_decoder", False)
    if writes or getattr(config, "vocab_size", None) is None:
        raise ConfigError(
            f"wanted a model in [text] that encodes texts, such as BERT, MiniLM or CLIP, but got a "
            f"{found['architecture']}, which {'writes them' if writes else 'knows no words'}. "
            f"Choose another."
        )
    tokenizer = open_tokenizer(found["tokenizer"])
    check_tokenizer(tokenizer, config, folder=found["tokenizer"], path=found["path"])
    return {**found, "vocabulary": tokenizer_fingerprint(tokenizer)}


def _limit(model: nn.Module, config: Any, longest: int | None) -> int:
    """How many tokens of a text are taken: what is asked for, if the model has as many places."""
    places = _places(model) or getattr(config, "max_position_embeddings", None) or longest
    if places is None:
        raise ConfigError(
            f"wanted `longest` in [text], the most tokens of a text, as a {type(config).__name__} "
            f"does not say how many it takes, but got none."
        )
    if longest is not None and not 1 <= longest <= places:
        raise ConfigError(
            f"wanted `longest` in [text] to lie between 1 and {places}, the places that the "
            f"{type(config).__name__} has for tokens, but got {longest}."
        )
    return longest or int(places)


def _places(model: nn.Module) -> int | None:
    """How many tokens a learned table of places has room for, if the model has such a table.

    RoBERTa and its kin leave the places free up to that of the filling token.
    """
    for name, module in model.named_modules():
        if isinstance(module, nn.Embedding) and name.split(".")[-1].startswith("position_embed"):
            free = 0 if module.padding_idx is None else module.padding_idx + 1
            return module.num_embeddings - free
    return None
