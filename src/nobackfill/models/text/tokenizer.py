"""Tokenizers of transformers, from a local folder."""

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import torch
from jaxtyping import Int64
from torch import Tensor

from nobackfill.errors import ConfigError, DataError
from nobackfill.models.base import optional_package
from nobackfill.models.text.base import check_texts
from nobackfill.models.transformers_loading import quiet

FILES = (
    "tokenizer.json", "vocab.txt", "vocab.json", "spiece.model", "sentencepiece.bpe.model",
    "tokenizer.model",
)  # fmt: skip
SPECIAL = ("pad_token_id", "bos_token_id", "eos_token_id", "cls_token_id", "sep_token_id")
PROBE = (
    "Two naïve DOGS, 42 m apart!"  # shows how a tokenizer treats case, accents, digits and signs
)


def open_tokenizer(folder: str) -> Any:
    """Loads the tokenizer in a folder; nothing is downloaded, and no code of the folder is run."""
    transformers = optional_package("transformers", extra="transformers")
    if not has_tokenizer(folder):
        raise DataError(
            f"No tokenizer in {folder}: it has none of {', '.join(FILES)}. Save the model's own "
            f"there (`tokenizer.save_pretrained`), or set `tokenizer` in [text] to its folder."
        )
    try:
        with quiet(transformers):
            return transformers.AutoTokenizer.from_pretrained(
                folder, local_files_only=True, trust_remote_code=False
            )
    except Exception as error:  # of many kinds, as each tokenizer reads its own files
        raise DataError(
            f"transformers {transformers.__version__} cannot read the tokenizer in {folder}: "
            f"{str(error).rstrip('.')}. Save it again by `save_pretrained`."
        ) from error


def has_tokenizer(folder: str) -> bool:
    """Whether a folder contains the files of a tokenizer."""
    return any((Path(folder) / name).exists() for name in FILES)


def tokenizer_fingerprint(tokenizer: Any) -> str:
    """Returns a hash of the vocabulary and of the tokens of one sentence."""
    known = [sorted(tokenizer.get_vocab().items()), tokenizer(PROBE)["input_ids"]]
    return hashlib.sha256(json.dumps(known).encode()).hexdigest()[:16]


def check_tokenizer(tokenizer: Any, config: Any, *, folder: str, path: str | None) -> None:
    """Raises if a tokenizer is not the model's.

    Args:
        tokenizer: Tokenizer in `folder`.
        config: Configuration of the model.
        folder: Folder of the tokenizer.
        path: Folder of the model, if there is one.
    """
    name, not_own = type(config).__name__, f"The tokenizer in {folder} is not the model's"
    highest = max(tokenizer.get_vocab().values())
    if highest >= config.vocab_size:
        raise ConfigError(
            f"{not_own}: its tokens go up to number {highest}, while the {name} has embeddings for "
            f"{config.vocab_size}, up to {config.vocab_size - 1}. Set `tokenizer` in [text] to the "
            f"model's."
        )
    for key in _special_tokens(config):
        expected, actual = getattr(config, key, None), getattr(tokenizer, key, None)
        required = name.startswith("CLIP")  # it uses the position of the end token
        if isinstance(expected, int) and actual != expected and (actual is not None or required):
            raise ConfigError(
                f"{not_own}: its {key} is {actual}, and that of the {name} is {expected}. Set "
                f"`tokenizer` in [text] to the model's; or, if the model's configuration is known "
                f"to be wrong, write the right {key} in `settings`."
            )
    if path is None or not has_tokenizer(path) or Path(path).resolve() == Path(folder).resolve():
        return
    if tokenizer_fingerprint(open_tokenizer(path)) != tokenizer_fingerprint(tokenizer):
        raise ConfigError(
            f"{not_own}, which is in {path}: it numbers words in another way. Remove `tokenizer` "
            f"from [text]."
        )


def _special_tokens(config: Any) -> tuple[str, ...]:
    """Returns the special tokens whose numbers in a configuration are those of its tokenizer.

    SigLIP has the numbers of CLIP, and uses none of them. CLIP uses the end of a text only; in
    older files it is 2, which transformers understands as the highest number in a text.
    """
    name = type(config).__name__
    if name.startswith("Siglip"):
        return ()
    if name.startswith("CLIP"):
        return () if config.eos_token_id == 2 else ("eos_token_id",)
    return SPECIAL


def tokenize(
    tokenizer: Any,
    texts: Sequence[str],
    ids: Sequence[str],
    *,
    limit: int,
    too_long: Literal["error", "cut"],
    fill: bool,
) -> Int64[Tensor, "texts 2 length"]:
    """Returns the tokens of each text and their attention mask.

    Args:
        tokenizer: Tokenizer of the model.
        texts: Texts to tokenize.
        ids: Ids of the texts, for errors.
        limit: Maximal number of tokens.
        too_long: Whether a longer text is an "error", or "cut" at its end.
        fill: Whether all texts are padded to the limit, and attention includes the padding.
            Otherwise they are padded to the longest one.
    """
    check_texts(texts, ids)
    if not texts:
        return torch.zeros(0, 2, 1, dtype=torch.int64)
    plain = {"add_special_tokens": True, "padding": False, "verbose": False}
    tokenizer.truncation_side = "right"
    cut = {"truncation": True, "max_length": limit} if too_long == "cut" else {}
    rows = tokenizer(list(texts), **plain, **cut)["input_ids"]
    lengths = torch.tensor([len(row) for row in rows])
    _check_lengths(lengths, ids, least=tokenizer.num_special_tokens_to_add(), limit=limit)
    length = limit if fill else int(lengths.max())
    padding = tokenizer.pad_token_id or 0
    numbers = torch.tensor([row + [padding] * (length - len(row)) for row in rows])
    seen = (torch.arange(length) < lengths[:, None]) | fill
    return torch.stack([numbers, seen.long()], dim=1)


def _check_lengths(
    lengths: Int64[Tensor, " texts"], ids: Sequence[str], *, least: int, limit: int
) -> None:
    """Raises if a text has no token, or more than the model supports."""
    for row in (lengths <= least).nonzero()[:1, 0].tolist():
        raise DataError(
            f"The tokenizer finds no words in {ids[row]!r}. Write some, or leave this item out."
        )
    longer = (lengths > limit).nonzero()[:, 0].tolist()
    if longer:
        raise DataError(
            f"Texts must have at most {limit} tokens, but {len(longer)} of {len(ids)} have more; "
            f"the first is {ids[longer[0]]!r} with {lengths[longer[0]]}. Shorten them, or set "
            f'`too_long = "cut"` in [text], which drops the words at their ends.'
        )
