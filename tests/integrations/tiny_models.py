"""Tiny sentence transformers with random weights, and pairs that they can learn."""

import random
from pathlib import Path

import torch
from transformers import BertConfig, BertModel, BertTokenizerFast

WORDS = [f"{a}{b}{c}" for a in "bdgkl" for b in "aeiou" for c in "mnrst"]  # 125 words


def bert_folder(folder: Path, *, seed: int = 0, dim: int = 32, words=WORDS) -> Path:
    """A BERT of two layers with a WordPiece vocabulary of whole words, saved for transformers."""
    folder.mkdir(parents=True)
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", ":", *words, "query", "passage"]
    (folder / "vocab.txt").write_text("\n".join(vocabulary))
    tokenizer = BertTokenizerFast(str(folder / "vocab.txt"), model_max_length=32)
    torch.manual_seed(seed)
    model = BertModel(
        BertConfig(
            vocab_size=len(vocabulary), hidden_size=dim, num_hidden_layers=2, num_attention_heads=2,
            intermediate_size=2 * dim, max_position_embeddings=64,
            hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
        )
    )  # fmt: skip
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def tiny_model(folder: Path, **options):
    """A sentence transformer of `bert_folder` with mean pooling and unit length."""
    from sentence_transformers import SentenceTransformer

    try:
        from sentence_transformers.sentence_transformer.modules import (
            Normalize,
            Pooling,
            Transformer,
        )
    except ImportError:
        from sentence_transformers.models import Normalize, Pooling, Transformer
    dim = options.get("dim", 32)
    transformer = Transformer(str(bert_folder(folder, **options)), max_seq_length=24)
    return SentenceTransformer(modules=[transformer, Pooling(dim), Normalize()], device="cpu")


def pairs(number: int, *, seed: int = 0) -> tuple[list[str], list[str]]:
    """Queries of three words, and documents of ten that contain them."""
    draw = random.Random(seed)
    queries, documents = [], []
    for _ in range(number):
        words = draw.sample(WORDS, 10)
        queries.append(" ".join(words[:3]))
        documents.append(" ".join(draw.sample(words, 10)))
    return queries, documents
