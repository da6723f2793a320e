"""Captions with a tenth of their words swapped or deleted: EDA without its synonyms.

Wei and Zou, EDA: Easy Data Augmentation Techniques for Boosting Performance on Text Classification
Tasks, EMNLP 2019. Of its four changes, two take synonyms from WordNet, which is not part of this
package; one of the other two is drawn for each caption.
"""

import torch

SHARE = 0.1  # of the words


def change_caption(text: str, generator: torch.Generator) -> str:
    """Swaps pairs of words of a text, or deletes words, with equal chance.

    Example:
        >>> change_caption("a man in a red coat", torch.Generator().manual_seed(0))
        'a man in red a coat'
    """
    words = text.split()
    if len(words) < 2:
        return text
    swaps = bool(torch.rand((), generator=generator) < 0.5)
    return " ".join((swap_words if swaps else delete_words)(words, generator))


def swap_words(words: list[str], generator: torch.Generator) -> list[str]:
    """Swaps two words, once for each ten words, at least once."""
    words = list(words)
    for _ in range(max(1, int(SHARE * len(words)))):
        one, other = torch.randperm(len(words), generator=generator)[:2].tolist()
        words[one], words[other] = words[other], words[one]
    return words


def delete_words(words: list[str], generator: torch.Generator) -> list[str]:
    """Deletes each word with a chance of a tenth; one word stays."""
    drawn = torch.rand(len(words), generator=generator)
    kept = [word for word, chance in zip(words, drawn.tolist(), strict=True) if chance >= SHARE]
    return kept or [words[int(drawn.argmax())]]
