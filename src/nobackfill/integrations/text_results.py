"""Vectors and results of a run on pairs of texts."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch

from nobackfill.core.atomic_files import write_text
from nobackfill.core.steps import Watch, unwatched
from nobackfill.core.suggest import suggest
from nobackfill.data.listing import read_text
from nobackfill.data.pair_files import read_text_table
from nobackfill.data.texts import TextPair
from nobackfill.errors import ConfigError, DataError
from nobackfill.evaluation.evaluate import evaluate
from nobackfill.evaluation.result import Evaluation
from nobackfill.integrations.text_folder import (
    EVALUATION,
    MODEL,
    NEW,
    NEW_QUERY,
    OLD,
    TextRunSettings,
    read_settings,
    require_finished,
)
from nobackfill.integrations.text_models import (
    embed_texts,
    load_text_model,
    maps_queries,
    text_space,
)
from nobackfill.vectors import Vectors, load_vectors
from nobackfill.vectors.records import read_space
from nobackfill.vectors.space import Space

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer


def embed_held_out(
    settings: TextRunSettings, folder: Path, pairs: Sequence[TextPair], device: str, watch: Watch
) -> None:
    """Writes the vectors of the held-out queries and documents by both models."""
    old = load_text_model(settings.old_model, settings.max_tokens, device)
    new = load_text_model(str(folder / MODEL), settings.max_tokens, device)
    space = text_space(old)
    held_out_vectors(old, pairs, space, "old", watch).save(folder / OLD)
    parent: str | None = space.fingerprint
    method: str | None = f"pairs: {settings.method}"
    if maps_queries(new):
        queries = held_out_vectors(
            new,
            pairs,
            text_space(new, parent=parent, method=method, side="query"),
            "new",
            watch,
            sides=("query",),
        )
        queries.save(folder / NEW_QUERY)
        parent, method = None, None
    space = text_space(new, parent=parent, method=method)
    held_out_vectors(new, pairs, space, "new", watch, plain=True).save(folder / NEW)


def held_out_vectors(
    model: "SentenceTransformer",
    pairs: Sequence[TextPair],
    space: Space,
    name: str,
    watch: Watch,
    *,
    sides: Sequence[str] = ("query", "document"),
    plain: bool = False,
) -> Vectors:
    """Returns the vectors of the queries and documents of pairs, labelled by their group.

    Args:
        model: Model that embeds them.
        pairs: Pairs of a query and a document.
        space: Space of the vectors.
        name: Adjective of the model, "old" or "new", for the progress.
        watch: Receives the progress.
        sides: Sides to embed.
        plain: Whether queries are for documents of the same model, see `encode`.
    """
    texts = {
        "query": {pair.query_id: (pair.query, pair.group) for pair in pairs},
        "document": {pair.document_id: (pair.document, pair.group) for pair in pairs},
    }
    is_ambiguous = not texts["query"].keys().isdisjoint(texts["document"])
    ids, labels, words, is_query, vectors = [], [], [], [], []
    for side in sides:
        role = "plain query" if plain and side == "query" else side
        what = f"{name} {'queries' if side == 'query' else 'documents'}"
        side_texts = [text for text, _ in texts[side].values()]
        vectors.append(embed_texts(model, side_texts, side=role, what=what, watch=watch))
        prefix = "query " if side == "query" and is_ambiguous else ""
        ids += [f"{prefix}{item}" for item in texts[side]]
        labels += [group for _, group in texts[side].values()]
        words += side_texts
        is_query += [side == "query"] * len(side_texts)
    marks = np.array(is_query)
    return Vectors(
        ids,
        torch.cat(vectors),
        labels,
        columns={"text": words, "is_query": marks, "is_gallery": ~marks},
        space=space,
    )


def save_evaluation(folder: Path) -> None:
    """Evaluates the held-out vectors in a run folder, and writes the results."""
    result, _ = evaluation_of(folder)
    write_text(folder / EVALUATION, json.dumps(result.summary(), indent=2) + "\n")


def evaluation_of(folder: Path) -> tuple[Evaluation, list[Vectors]]:
    """Evaluates the held-out vectors of a run; returns the result and both files."""
    files = [load_vectors(folder / name) for name in (OLD, NEW)]
    mapped = folder / NEW_QUERY
    return evaluate(*files, query_for_old=load_vectors(mapped) if mapped.exists() else None), files


def embed_with_run(
    folder: Path,
    data: Path,
    *,
    side: str | None = None,
    device: torch.device | str = "cpu",
    watch: Watch = unwatched,
) -> Vectors:
    """Embeds texts with the model of a finished run.

    Args:
        folder: Run folder.
        data: A .txt file with a text on each line, or a .jsonl, .csv, .tsv or .parquet file of the
            columns `id` and `text`.
        side: "query" for queries to the old documents, the default of a .txt; "gallery" for
            documents to store, the default of a table.
        device: Device to work on.
        watch: Receives the progress.
    """
    require_finished(folder)
    if side not in ("query", "gallery", None):
        raise ConfigError(f"unknown side `{side}`. {suggest(side, ['query', 'gallery'])}")
    if data.suffix == ".txt":
        lines = [line.strip() for line in read_text(data, "texts to embed").splitlines()]
        table = {str(row): text for row, text in enumerate(filter(None, lines))}
    else:
        table = read_text_table(data)
    if not table:
        raise DataError(f"{data} has no texts to embed.")
    is_query = side == "query" or (side is None and data.suffix == ".txt")
    model = load_text_model(str(folder / MODEL), read_settings(folder).max_tokens, str(device))
    vectors = embed_texts(
        model, list(table.values()), side="query" if is_query else "document", watch=watch
    )
    record = folder / (NEW_QUERY if is_query and (folder / NEW_QUERY).exists() else NEW)
    return Vectors(
        list(table), vectors, columns={"text": list(table.values())}, space=read_space(record)
    )
