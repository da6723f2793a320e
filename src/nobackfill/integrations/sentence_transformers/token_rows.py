"""Finds texts by their tokens: losses of sentence-transformers see tokens only, no texts or ids.

A text is identified by a key of 64 bits of its token ids and their positions, as the model reads
them: after the prompt was added and the text cut to the model's length. Two texts with the same
tokens have the same key, and the same embedding.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor

from nobackfill.errors import ConfigError

CHUNK = 4096  # texts tokenised at a time
ODD = (-7046029254386353131, -4658895280553007687, -7723592293110705685)  # odd 64-bit constants

Features = Mapping[str, Any]
Keys = Int[Tensor, " texts"]


def token_keys(features: Features) -> Keys:
    r"""Returns the key of each text of a tokenised batch.

    .. math::
        k = \sum_t h\bigl(\mathrm{id}_t + 2^{32} t\bigr) \bmod 2^{64}

    over its tokens from :math:`t = 1`, with a mixing function :math:`h` of 64 bits. Padding does
    not count, on either side.
    """
    ids, text, number = token_positions(features)
    first = torch.zeros(number + 1, dtype=torch.int64, device=ids.device)
    first.index_add_(0, text + 1, torch.ones_like(text))
    position = torch.arange(len(ids), device=ids.device) - first.cumsum(0)[text] + 1
    keys = torch.zeros(number, dtype=torch.int64, device=ids.device)
    return keys.index_add_(0, text, mixed(ids + (position << 32)))


def token_positions(
    features: Features,
) -> tuple[Int[Tensor, " tokens"], Int[Tensor, " tokens"], int]:
    """Returns the ids of all tokens, the text of each, ascending, and the number of texts.

    Batches are padded, or have all texts in one row (`cu_seq_lens_q` of flash attention, `offsets`
    of static embeddings).
    """
    ids = features.get("input_ids")
    if not isinstance(ids, Tensor):
        raise ConfigError(
            f"Old vectors are found by the tokens of a text, but this batch has none: it has "
            f"{', '.join(sorted(features))}. CompatibleLoss can train models of texts only."
        )
    ends = features.get("cu_seq_lens_q")
    if ends is None and ids.ndim == 1 and "offsets" in features:
        ends = torch.cat([features["offsets"], torch.tensor([len(ids)], device=ids.device)])
    if ends is not None:
        counts = ends.diff().long()
        text = torch.arange(len(counts), device=ids.device).repeat_interleave(counts)
        return ids.flatten().long(), text, len(counts)
    mask = features.get("attention_mask")
    mask = torch.ones_like(ids) if mask is None else mask
    text, column = mask.nonzero(as_tuple=True)
    return ids[text, column].long(), text, len(ids)


def mixed(values: Int[Tensor, " some"]) -> Int[Tensor, " some"]:
    """Mixes 64 bits so that each bit depends on all (splitmix64)."""
    z = values * ODD[0]
    z = (z ^ shifted(z, 30)) * ODD[1]
    z = (z ^ shifted(z, 27)) * ODD[2]
    return z ^ shifted(z, 31)


def shifted(values: Int[Tensor, " some"], by: int) -> Int[Tensor, " some"]:
    """Shifts to the right without the sign."""
    return (values >> by) & ((1 << (64 - by)) - 1)


def tokenized(model: Any, texts: Sequence[str], prompt: str | None, task: str | None) -> Features:
    """Tokenises texts as the trainer's collator does."""
    if hasattr(model, "preprocess"):
        features: Features = model.preprocess(list(texts), prompt=prompt or None, task=task)
        return features
    prompted = [prompt + text for text in texts] if prompt else list(texts)
    before: Features = model.tokenize(prompted, task=task)  # sentence-transformers 5.0 to 5.2
    return before


class TokenRows:
    """Rows of texts, found by their tokens.

    Args:
        model: Model whose tokens they are.
        texts: One text per row; a row without text is never found.
        prompts: Prompts that may come before a text. All are tried in turn.
    """

    def __init__(self, model: Any, texts: Sequence[str | None], prompts: Sequence[str] = ("",)):
        self.texts, self.prompts = texts, list(dict.fromkeys(prompts))
        self.tables: dict[tuple[Any, ...], tuple[Keys, Int[Tensor, " rows"]]] = {}
        known, row = self.table(model, self.prompts[0], None)
        self.keys = torch.empty_like(known).scatter_(0, row, known)

    def rows(self, model: Any, features: Features) -> Int[Tensor, " batch"]:
        """Returns the first row with the tokens of each text of a batch; -1 if there is none."""
        keys = token_keys(features).cpu()
        rows = torch.full_like(keys, -1)
        for prompt in self.prompts:
            known, row = self.table(model, prompt, features.get("task"))
            place = torch.searchsorted(known, keys).clamp(max=len(known) - 1)
            is_new = (known[place] == keys) & (rows < 0)
            rows = torch.where(is_new, row[place], rows)
            if (rows >= 0).all():
                break
        return rows

    def table(self, model: Any, prompt: str, task: str | None) -> tuple[Keys, Int[Tensor, " rows"]]:
        """Returns the sorted keys and their rows, which are computed once."""
        name = (prompt, task, getattr(model, "max_seq_length", None))
        if name not in self.tables:
            known = self.keys_of_texts(model, prompt, task)
            order = known.argsort(stable=True)
            self.tables[name] = known[order], order
        return self.tables[name]

    def keys_of_texts(self, model: Any, prompt: str, task: str | None) -> Keys:
        """Returns the key of each row's text after a prompt; random for a row without text."""
        keys = mixed(-1 - torch.arange(len(self.texts)))
        rows = [row for row, text in enumerate(self.texts) if text is not None]
        for first in range(0, len(rows), CHUNK):
            part = rows[first : first + CHUNK]
            texts = [self.texts[row] or "" for row in part]
            keys[torch.tensor(part)] = token_keys(tokenized(model, texts, prompt, task)).cpu()
        return keys
