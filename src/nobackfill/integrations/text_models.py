"""Models of sentence-transformers: loading, embedding, and the space of their vectors."""

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float
from torch import Tensor

from nobackfill.core.atomic_folders import replacing_folder
from nobackfill.core.steps import Step, Watch, unwatched
from nobackfill.errors import ConfigError, DataError
from nobackfill.models.transformers_loading import quiet
from nobackfill.vectors.space import Space

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

BLOCK = 2048  # texts between two reports of progress


def load_text_model(
    model: str, max_tokens: int | None = None, device: str = "cpu"
) -> "SentenceTransformer":
    """Loads a model from a folder, or by its name on the Hugging Face hub.

    Args:
        model: Folder or name.
        max_tokens: Number of tokens at which texts are cut; None for that of the model.
        device: Device to work on.
    """
    try:
        import transformers
        from sentence_transformers import SentenceTransformer
    except ImportError:
        raise ConfigError(
            "sentence-transformers is not installed. Install it with `pip install "
            "'nobackfill[sentence-transformers]'`."
        ) from None
    try:
        with quiet(transformers):
            loaded = SentenceTransformer(model, device=device)
    except Exception as error:  # of many kinds: no file, no network, an unknown architecture
        reason = " ".join(str(error).split())[:200]
        raise DataError(
            f"Cannot load the model {model} ({type(error).__name__}: {reason}). Pass the folder of "
            f"a sentence-transformers model, or its name on the hub."
        ) from None
    if max_tokens is not None:
        loaded.max_seq_length = max_tokens
    return loaded


def save_text_model(model: "SentenceTransformer", folder: Path) -> None:
    """Writes a model atomically, as sentence-transformers loads it."""
    import transformers

    with quiet(transformers), replacing_folder(folder, own=()) as unfinished:
        model.save_pretrained(str(unfinished), create_model_card=False)


def embed_texts(
    model: "SentenceTransformer",
    texts: Sequence[str],
    *,
    side: str,
    what: str = "texts",
    watch: Watch = unwatched,
) -> Float[Tensor, "texts dim"]:
    """Embeds texts in float32; leaves the model in eval mode.

    Args:
        model: Model.
        texts: Texts.
        side: "query", "document" or "plain query", see `encode`.
        what: Noun phrase for the texts, for the progress.
        watch: Receives the progress.
    """
    from nobackfill.integrations.sentence_transformers.old_texts import encode

    model.eval()
    blocks = []
    for first in range(0, len(texts), BLOCK):
        watch(Step(f"embedding {what}", first, len(texts), "texts"))
        blocks.append(encode(model, texts[first : first + BLOCK], side))
    return torch.cat(blocks)


def maps_queries(model: "SentenceTransformer") -> bool:
    """Whether a model maps queries for old documents to another space than its documents."""
    from nobackfill.integrations.sentence_transformers.query_map import query_map_of

    return query_map_of(model) is not None


def text_space(
    model: "SentenceTransformer",
    *,
    parent: str | None = None,
    method: str | None = None,
    side: str = "document",
) -> Space:
    """Describes the vectors of a model.

    Args:
        model: Model.
        parent: Fingerprint of the space that it was trained to fit.
        method: Method of that training.
        side: "query" for mapped queries to the old documents.
    """
    is_mapped = side == "query" and maps_queries(model)
    probe = embed_texts(model, ["a"], side="query" if is_mapped else "document")
    length = float(probe.norm())
    mapped = ", mapped for the old gallery" if is_mapped else ""
    return Space(
        dim=probe.shape[1],
        weights=weights_digest(model),
        preprocessing=f"sentence-transformers, {model.max_seq_length} tokens{mapped}",
        normalized=abs(length - 1) < 1e-3,
        parent=parent,
        method=method,
    )


def weights_digest(model: torch.nn.Module) -> str:
    """Returns the SHA-256 of all weights, the same wherever the model is stored."""
    digest = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        values = tensor.detach().cpu().flatten()  # a view as bytes requires a dimension
        digest.update(values.view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()
