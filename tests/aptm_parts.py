"""A tiny APTM, with its tokenizer, for the tests of several rooms."""

import transformers

from nobackfill.core.config import Choice

PIECES = (
    "a line from top left centre right bottom to bending up down and mark high on the far middle "
    "halfway low at level falling up ##right rising in red coat man walk ##ing ##s t shirt"
).split()
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
VOCABULARY = SPECIAL + sorted(set(PIECES))
BERT = {
    "vocab_size": len(VOCABULARY), "hidden_size": 16, "num_hidden_layers": 4,
    "num_attention_heads": 2, "intermediate_size": 32, "max_position_embeddings": 64,
}  # fmt: skip
IMAGE = {
    "size": (96, 32), "channels": 1, "window": 4, "width": 8, "depths": (2, 2, 2),
    "heads": (1, 2, 4), "drop_path": 0.0, "embedding_dim": 12,
}  # fmt: skip


def save_tokenizer(folder):
    """Writes a tokenizer of word pieces to a folder, and returns the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "vocab.txt").write_text("\n".join(VOCABULARY) + "\n")
    tokenizer = transformers.BertTokenizerFast(str(folder / "vocab.txt"))
    tokenizer.save_pretrained(str(folder))
    return str(folder)


def choices(tokenizer, *, dropout=0.0, bert=None, **image):
    """Tables [model] and [text] of a tiny APTM."""
    drops = {"hidden_dropout_prob": dropout, "attention_probs_dropout_prob": dropout}
    settings = tuple(f"{key}={value}" for key, value in (BERT | drops | (bert or {})).items())
    text = {"tokenizer": tokenizer, "settings": settings, "fusion_from": 2}
    return Choice("aptm", IMAGE | image), Choice("aptm", text)
