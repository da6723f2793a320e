"""Text models of transformers, from a local folder or from scratch."""

from collections.abc import Callable, Mapping, Sequence
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
    Pool,
    freeze_pooler,
    make_config,
    make_network,
    pooled_output,
    resolve_architecture,
)

TooLong = Literal["error", "cut"]


class PooledText(TextEncoder):
    """A text model of transformers that returns one vector for each text.

    Args:
        model: Model that takes `input_ids` and `attention_mask`.
        pool: "model" for the model's own `pooler_output`, or the mean over tokens if it has none;
            "mean" for the mean over tokens, as in sentence-transformers; "first" for the first
            token; "projected" for the `text_embeds` of CLIP, which are compared with images.
        tokenizer: Folder of the tokenizer, which is first read by `prepare`.
        vocabulary: Fingerprint of the model's tokenizer.
        limit: Maximal number of tokens of a text.
        too_long: Whether a longer text is an "error" or "cut".
        frozen: Whether the model stays in eval mode and without gradient.
    """

    def __init__(
        self,
        model: nn.Module,
        *,
        pool: Pool,
        tokenizer: str,
        vocabulary: str,
        limit: int,
        too_long: TooLong,
        frozen: bool,
    ):
        super().__init__()
        self.model, self.pool, self.frozen = model, pool, frozen
        self.tokenizer, self.vocabulary = tokenizer, vocabulary
        self.limit, self.too_long = limit, too_long
        # SigLIP uses the last position, even of padding: it was trained on padded texts.
        self.fill = type(model).__name__.startswith("Siglip")
        if pool in ("mean", "first"):
            freeze_pooler(model)
        if frozen:
            model.requires_grad_(False).eval()
        with torch.no_grad():
            example = torch.tensor([0, 1])[:, None].expand(2, 2, 2)  # two tokens, both attended to
            self.feature_dim = self.pooled(example.contiguous()).shape[1]

    def train(self, mode: bool = True) -> "PooledText":
        """Sets the mode; a frozen model stays in eval mode."""
        super().train(mode)
        if self.frozen:
            self.model.eval()
        return self

    def prepare(self, texts: Sequence[str], ids: Sequence[str]) -> Int64[Tensor, "texts 2 length"]:
        """Returns the tokens of each text and their attention mask."""
        tokenizer = open_tokenizer(self.tokenizer)
        if (vocabulary := tokenizer_fingerprint(tokenizer)) != self.vocabulary:
            raise DataError(
                f"The tokenizer in {self.tokenizer} is {vocabulary}, but the encoder was made with "
                f"{self.vocabulary}. Restore it, or set `tokenizer` in [text] to its folder."
            )
        fill = self.fill or "attention_mask" not in tokenizer.model_input_names
        return tokenize(tokenizer, texts, ids, limit=self.limit, too_long=self.too_long, fill=fill)

    def forward(self, prepared: Shaped[Tensor, "texts ..."]) -> Float[Tensor, "texts features"]:
        """Returns the features of each text."""
        with torch.set_grad_enabled(torch.is_grad_enabled() and not self.frozen):
            return self.pooled(prepared)

    def pooled(self, prepared: Int64[Tensor, "texts 2 length"]) -> Float[Tensor, "texts features"]:
        """Runs the model on tokens, and pools its output."""
        numbers, seen = prepared.unbind(dim=1)
        output = self.model(input_ids=numbers, attention_mask=seen)
        pooled = pooled_output(output, self.pool, "text_embeds")
        if pooled is not None:
            return pooled
        tokens: Tensor = output.last_hidden_state
        return tokens[:, 0] if self.pool == "first" else mean_seen(tokens, seen)


def mean_seen(
    tokens: Float[Tensor, "texts length features"], seen: Int64[Tensor, "texts length"]
) -> Float[Tensor, "texts features"]:
    """Returns the mean over the tokens that are attended to.

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
    too_long: TooLong = "error",
    frozen: bool = False,
) -> TextEncoder:
    """Makes a text model of transformers, such as BERT, or the text part of CLIP or SigLIP.

    Args:
        path: Local folder with config.json and safetensors, as `save_pretrained` writes it.
        architecture: Configuration to start from scratch with, such as "BertConfig"; with `path`,
            it is read there.
        settings: Settings of the configuration, such as ["num_hidden_layers=2"].
        pool: Pooling of the features, see `PooledText`.
        tokenizer: Folder of the model's tokenizer, by default `path`.
        vocabulary: Fingerprint of the tokenizer, which is read from its folder.
        longest: Maximal number of tokens of a text, by default as many as the model supports.
        too_long: Whether a longer text is an "error" or "cut".
        frozen: Whether only the projection is trained.
    """
    options = resolved_now(
        resolve_texts, path=path, architecture=architecture, settings=settings, tokenizer=tokenizer,
        vocabulary=vocabulary,
    )  # fmt: skip
    config = make_config(options["architecture"], options["settings"], "text")
    model = make_network(config, path, pool, "text")
    return PooledText(
        model,
        pool=pool,
        tokenizer=options["tokenizer"],
        vocabulary=options["vocabulary"],
        limit=_limit(model, config, longest),
        too_long=too_long,
        frozen=frozen,
    )


def resolve_texts(options: Mapping[str, Any]) -> dict[str, Any]:
    """Adds the architecture and the tokenizer to the options.

    A finished run can then be built again from its recipe, even if the weights are gone; preparing
    texts still requires the same tokenizer. A recipe with `architecture` can be planned before its
    folder exists: then nothing is read before the model is made.
    """
    resolved = resolve_architecture(options, "text")
    resolved["tokenizer"] = resolved["tokenizer"] or resolved["path"]
    if resolved["tokenizer"] is None:
        raise ConfigError(
            "[text] has neither `tokenizer`, the folder of the model's tokenizer, nor `path`. Add "
            "one of them."
        )
    is_later = options["architecture"] is not None and not Path(resolved["tokenizer"]).exists()
    if resolved["vocabulary"] is not None or is_later:
        return resolved
    return read_vocabulary(resolved)


def resolved_now(
    resolve: Callable[[Mapping[str, Any]], dict[str, Any]], **options: Any
) -> dict[str, Any]:
    """Completes the options of a model that is made now, and reads a tokenizer left for later."""
    resolved = resolve(options)
    return read_vocabulary(resolved) if resolved["vocabulary"] is None else resolved


def read_vocabulary(options: Mapping[str, Any]) -> dict[str, Any]:
    """Adds the fingerprint of the tokenizer, which must be that of the model."""
    config = make_config(options["architecture"], options["settings"], "text")
    writes = getattr(config, "is_encoder_decoder", False)
    if writes or getattr(config, "vocab_size", None) is None:
        raise ConfigError(
            f"[text] requires a model that encodes texts, such as BERT, MiniLM or CLIP, but a "
            f"{options['architecture']} {'writes them' if writes else 'knows no words'}. Choose "
            f"another."
        )
    tokenizer = open_tokenizer(options["tokenizer"])
    check_tokenizer(tokenizer, config, folder=options["tokenizer"], path=options["path"])
    return {**options, "vocabulary": tokenizer_fingerprint(tokenizer)}


def _limit(model: nn.Module, config: Any, longest: int | None) -> int:
    """Returns the maximal number of tokens: `longest`, or as many as the model supports."""
    places = _places(model) or getattr(config, "max_position_embeddings", None) or longest
    if places is None:
        raise ConfigError(
            f"[text] requires `longest`, the maximal number of tokens of a text, because a "
            f"{type(config).__name__} does not state one. Add it."
        )
    if longest is not None and not 1 <= longest <= places:
        raise ConfigError(
            f"`longest` in [text] must lie between 1 and {places}, the number of tokens that the "
            f"{type(config).__name__} supports, but it is {longest}."
        )
    return longest or int(places)


def _places(model: nn.Module) -> int | None:
    """Returns the number of tokens in a learned table of positions, or None without a table.

    RoBERTa and similar models do not use the positions up to that of the padding token.
    """
    for name, module in model.named_modules():
        if isinstance(module, nn.Embedding) and name.split(".")[-1].startswith("position_embed"):
            free = 0 if module.padding_idx is None else module.padding_idx + 1
            return module.num_embeddings - free
    return None
