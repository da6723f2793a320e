"""Masked words: tokens of a text that a model predicts from the rest and from the image."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Int64
from torch import Tensor

from nobackfill.errors import DataError
from nobackfill.models.aptm.losses import IGNORED

SHARE = 0.25  # of the tokens of a text
MOST = 10  # tokens of a text
SPANS = 0.2  # share of the draws that take several words in a row
LONGEST_SPAN = 3  # words
REPLACED, RANDOM = 0.8, 0.1  # shares of the tokens: by the mask, by any other; the rest stays


class Masked(NamedTuple):
    """Texts with masked words."""

    prepared: Int64[Tensor, "texts 2 length"]
    places: Int64[Tensor, "texts most"]  # of masked tokens, then zeros
    targets: Int64[Tensor, "texts most"]  # the tokens themselves, then -100


@dataclass(frozen=True, eq=False)
class Vocabulary:
    """Facts about a tokenizer that masking needs.

    Attributes:
        mask: Number of the mask token.
        continues: Whether each token continues the word before it.
    """

    mask: int
    continues: Bool[Tensor, " tokens"]

    @classmethod
    def of(cls, tokenizer: Any, size: int) -> "Vocabulary":
        """Reads the vocabulary of a tokenizer, for a model with `size` tokens."""
        if tokenizer.mask_token_id is None:
            raise DataError(
                "The tokenizer has no mask token, which APTM trains with. Choose the tokenizer of "
                "a BERT."
            )
        continues = torch.zeros(size, dtype=torch.bool)
        for token, number in tokenizer.get_vocab().items():
            continues[number] = token.startswith("##")
        return cls(tokenizer.mask_token_id, continues)


def mask_words(
    prepared: Int64[Tensor, "texts 2 length"], vocabulary: Vocabulary, generator: torch.Generator
) -> Masked:
    """Masks whole words until a quarter of the tokens of each text are masked, at most 10.

    A fifth of the draws take two or three words in a row. The first and the last token, which mark
    the ends, stay. Of masked tokens, 80 % become the mask, 10 % any token, and 10 % stay.

    Args:
        prepared: Tokens and attention masks of texts on the CPU.
        vocabulary: Vocabulary of the tokens.
        generator: Generator of all draws.
    """
    numbers, seen = prepared.unbind(dim=1)
    masked, texts = numbers.clone(), len(numbers)
    places = torch.zeros(texts, MOST, dtype=torch.int64)
    targets = torch.full((texts, MOST), IGNORED)
    for row, length in enumerate(seen.sum(dim=1).tolist()):
        words = _words(vocabulary.continues[numbers[row, 1 : length - 1]])
        chosen = torch.tensor(_choose(words, generator), dtype=torch.int64)
        places[row, : len(chosen)] = chosen
        targets[row, : len(chosen)] = numbers[row, chosen]
    by = torch.rand(texts, MOST, generator=generator)
    other = torch.randint(len(vocabulary.continues), (texts, MOST), generator=generator)
    tokens = numbers.gather(1, places)
    tokens = tokens.where(by >= REPLACED + RANDOM, other)
    tokens = tokens.where(by >= REPLACED, vocabulary.mask)
    is_masked = targets != IGNORED
    rows = torch.arange(texts)[:, None].expand_as(places)
    masked[rows[is_masked], places[is_masked]] = tokens[is_masked]
    return Masked(torch.stack([masked, seen], dim=1), places, targets)


def _words(continues: Bool[Tensor, " tokens"]) -> list[list[int]]:
    """Returns the places of each word's tokens; the first token of the text itself is at 1."""
    words: list[list[int]] = []
    for place, goes_on in enumerate(continues.tolist(), start=1):
        if goes_on and words:
            words[-1].append(place)
        else:
            words.append([place])
    return words


def _choose(words: list[list[int]], generator: torch.Generator) -> list[int]:
    """Draws places, word by word, until there are enough."""
    tokens = sum(map(len, words))
    number = min(MOST, max(1, round(SHARE * tokens)))
    chosen: dict[int, None] = {}
    for word in torch.randperm(len(words), generator=generator).tolist():
        if len(chosen) >= number:
            break
        span, drawn = 1, torch.rand((), generator=generator)
        if drawn < SPANS:
            span = int(torch.randint(2, LONGEST_SPAN + 1, (), generator=generator))
        for places in words[word : word + span]:
            chosen |= dict.fromkeys(places)
    return list(chosen)[:number]
