"""Tokenizers of transformers: from a local folder, and only that of the very model."""

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
PROBE = "Two naïve DOGS, 42 m apart!"  # what a tokenizer makes of case, accents, digits and signs


def open_tokenizer(folder: str) -> Any:
    """The tokenizer in a folder; nothing is fetched, and no code of the folder is run."""
    transformers = optional_package("transformers", extra="transformers")
    if not has_tokenizer(folder):
        raise DataError(
            f"wanted a tokenizer in {folder}, but it has none of {', '.join(FILES)}. Save the "
            f"model's own there (`tokenizer.save_pretrained`), or write as `tokenizer` in [text] "
            f"the folder that has it."
        )
    try:
        with quiet(transformers):
            return transformers.AutoTokenizer.from_pretrained(
                folder, local_files_only=True, trust_remote_code=False
            )
    except Exception as error:  # of many kinds, as each tokenizer reads files of its own
        raise DataError(
            f"wanted a tokenizer that transformers {transformers.__version__} reads in {folder}, "
            f"but: {str(error).rstrip('.')}. Save it again by `save_pretrained`."
        ) from error


def has_tokenizer(folder: str) -> bool:
    """Whether the files of a tokenizer lie in a folder."""
    return any((Path(folder) / name).exists() for name in FILES)


def tokenizer_fingerprint(tokenizer: Any) -> str:
    """Tells tokenizers apart by their vocabulary and by what they make of one sentence."""
    known = [sorted(tokenizer.get_vocab().items()), tokenizer(PROBE)["input_ids"]]
    return hashlib.sha256(json.dumps(known).encode()).hexdigest()[:16]


def check_tokenizer(tokenizer: Any, config: Any, *, folder: str, path: str | None) -> None:
    """Refuses a tokenizer that is not the model's.

    Args:
        tokenizer: Of the folder `folder`.
        config: Of the model.
        folder: For the errors.
        path: The model's own folder, if there is one.
    """
    name = type(config).__name__
    highest = max(tokenizer.get_vocab().values())
    if highest >= config.vocab_size:
        raise ConfigError(
            f"wanted the model's own tokenizer in {folder}, but its tokens go up to number "
            f"{highest}, while the {name} has embeddings for {config.vocab_size}, up to "
            f"{config.vocab_size - 1}. Write the model's as `tokenizer` in [text]."
        )
    for key in _special_tokens(config):
        wanted, came = getattr(config, key, None), getattr(tokenizer, key, None)
        needed = name.startswith("CLIP")  # it looks for the end, and takes what stands there
        if isinstance(wanted, int) and came != wanted and (came is not None or needed):
            raise ConfigError(
                f"wanted the model's own tokenizer in {folder}, but its {key} is {came}, and that "
                f"of the {name} is {wanted}. Write the model's as `tokenizer` in [text]; or, where "
                f"the model's configuration is known to be wrong, the right {key} in `settings`."
            )
    if path is None or not has_tokenizer(path) or Path(path).resolve() == Path(folder).resolve():
        return
    if tokenizer_fingerprint(open_tokenizer(path)) != tokenizer_fingerprint(tokenizer):
        raise ConfigError(
            f"wanted the model's own tokenizer, which lies in {path}, but `tokenizer` in [text] "
            f"names {folder}, which numbers words in another way. Remove `tokenizer` from [text]."
        )


def _special_tokens(config: Any) -> tuple[str, ...]:
    """The special tokens that a configuration names as its tokenizer does.

    SigLIP's has the numbers of CLIP, of which it uses none. CLIP's own is right about the end of a
    text alone, the one token it looks for; or not even there: older files have 2, by which
    transformers understands the highest number in a text.
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
    """The numbers of the tokens of each text, and 1 for each of them that is to be looked at.

    Args:
        tokenizer: Of the model.
        texts: In plain words.
        ids: Their names, for errors.
        limit: How many tokens the model takes.
        too_long: What becomes of a text with more; "cut" drops the last words.
        fill: Whether every text is filled up to the limit, and the filling looked at. Otherwise
            texts are filled up to the longest.
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
    filling = tokenizer.pad_token_id or 0
    numbers = torch.tensor([row + [filling] * (length - len(row)) for row in rows])
    seen = (torch.arange(length) < lengths[:, None]) | fill
    return torch.stack([numbers, seen.long()], dim=1)


def _check_lengths(
    lengths: Int64[Tensor, " texts"], ids: Sequence[str], *, least: int, limit: int
) -> None:
    """Refuses texts of no token, or of more than the model takes."""
    for row in (lengths <= least).nonzero()[:1, 0].tolist():
        raise DataError(
            f"wanted words in every text, but the tokenizer finds none in {ids[row]!r}. Write "
            f"them, or leave this item out."
        )
    longer = (lengths > limit).nonzero()[:, 0].tolist()
    if longer:
        raise DataError(
            f"wanted texts of at most {limit} tokens, but {len(longer)} of {len(ids)} have more, "
            f"the first being {ids[longer[0]]!r} with {lengths[longer[0]]}. Shorten them, or set "
            f'`too_long = "cut"` in [text], which drops the words at their ends.'
        )
