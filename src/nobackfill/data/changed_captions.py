"""Captions with a tenth of their words changed, as by EDA.

Wei and Zou, EDA: Easy Data Augmentation Techniques for Boosting Performance on Text Classification
Tasks, EMNLP 2019. It takes synonyms from WordNet, which is not part of this package: without a file
of synonyms, two of its four changes are left.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

import torch

from nobackfill.core.json_files import parse_object, read_json_text
from nobackfill.errors import DataError

SHARE = 0.1  # of the words
TRIES = 10  # words that are drawn until one has a synonym

Synonyms = Mapping[str, Sequence[str]]


def change_caption(text: str, generator: torch.Generator, synonyms: Synonyms | None = None) -> str:
    """Changes words of a text in one of two ways, with synonyms in one of four.

    Words are swapped or deleted; with synonyms, they may also be replaced or inserted.

    Args:
        text: Words with spaces between them.
        generator: Generator of all draws.
        synonyms: Synonyms of each word that has any.

    Example:
        >>> change_caption("a man in a red coat", torch.Generator().manual_seed(0))
        'a man in red a coat'
    """
    words = text.split()
    if len(words) < 2:
        return text
    ways = 4 if synonyms else 2
    way = int(torch.randint(ways, (), generator=generator))
    if way < 2:
        return " ".join((swap_words, delete_words)[way](words, generator))
    return " ".join((replace_words, insert_words)[way - 2](words, generator, synonyms or {}))


def swap_words(words: list[str], generator: torch.Generator) -> list[str]:
    """Swaps two words, once for each ten words, at least once."""
    words = list(words)
    for _ in range(_changes(words)):
        first, second = torch.randperm(len(words), generator=generator)[:2].tolist()
        words[first], words[second] = words[second], words[first]
    return words


def delete_words(words: list[str], generator: torch.Generator) -> list[str]:
    """Deletes each word with a chance of a tenth; one word stays."""
    drawn = torch.rand(len(words), generator=generator)
    kept = [word for word, chance in zip(words, drawn.tolist(), strict=True) if chance >= SHARE]
    return kept or [words[int(drawn.argmax())]]


def replace_words(words: list[str], generator: torch.Generator, synonyms: Synonyms) -> list[str]:
    """Replaces a tenth of the words, at least one, by synonyms, at every place in the text."""
    known = sorted({word for word in words if synonyms.get(word)})
    order = torch.randperm(len(known), generator=generator).tolist()
    chosen = [known[place] for place in order[: _changes(words)]]
    by = {word: _drawn(synonyms[word], generator) for word in chosen}
    return [by.get(word, word) for word in words]


def insert_words(words: list[str], generator: torch.Generator, synonyms: Synonyms) -> list[str]:
    """Inserts synonyms of a tenth of the words, at least one, anywhere."""
    words = list(words)
    for _ in range(_changes(words)):
        drawn = (_drawn(words, generator) for _ in range(TRIES))
        choices = next((synonyms[word] for word in drawn if synonyms.get(word)), None)
        if choices is not None:
            place = int(torch.randint(len(words), (), generator=generator))
            words.insert(place, _drawn(choices, generator))
    return words


def read_synonyms(path: Path) -> Synonyms:
    """Reads a JSON file from words to lists of their synonyms."""
    remedy = 'Write a list of synonyms for each word, such as {"coat": ["jacket"]}.'
    content = parse_object(read_json_text(path), str(path), remedy)
    for word, choices in content.items():
        if not isinstance(choices, list) or not all(isinstance(text, str) for text in choices):
            raise DataError(f"The synonyms of {word!r} in {path} are no list of words. {remedy}")
    return content


def _changes(words: Sequence[str]) -> int:
    return max(1, int(SHARE * len(words)))


def _drawn(choices: Sequence[str], generator: torch.Generator) -> str:
    return choices[int(torch.randint(len(choices), (), generator=generator))]
