"""A run on pairs of texts: fine-tunes a model so that its queries find the old documents.

    settings.json       files, models, method and all other settings
    environment.json    versions and date
    old_documents.npy   old vectors of the training documents, until the training is done
    state.pt            state of the last saved step, until the training is done
    model/              finished model, which sentence-transformers loads without nobackfill
    old.parquet         vectors of the held-out queries and documents by the old model
    new.parquet         the same by the new model
    new_query.parquet   queries for the old documents, if the model maps them
    evaluation.json     results, and the verdict

Every file is written under a temporary name and then renamed. A kill leaves the last saved step.
"""

import json
import platform
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

import nobackfill
from nobackfill.core.atomic_files import replacing, sha256, write_text
from nobackfill.core.atomic_folders import replacing_folder
from nobackfill.core.json_files import as_kind, parse_object, read_json_text
from nobackfill.core.locks import lock_folder
from nobackfill.core.steps import Step, Watch, unwatched
from nobackfill.data.pair_files import read_pair_file
from nobackfill.data.pair_groups import group_pairs, hold_out_pairs
from nobackfill.data.texts import TextPair
from nobackfill.errors import ConfigError, DataError
from nobackfill.evaluation.evaluate import evaluate
from nobackfill.integrations.text_models import (
    embed_texts,
    load_text_model,
    maps_queries,
    text_space,
)
from nobackfill.integrations.text_training import STATE, Progress, TextTraining, fine_tune
from nobackfill.vectors import Vectors, load_vectors
from nobackfill.vectors.space import Space

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

SETTINGS = "settings.json"
MODEL = "model"
OLD_DOCUMENTS = "old_documents.npy"
OLD, NEW, NEW_QUERY = "old.parquet", "new.parquet", "new_query.parquet"
EVALUATION = "evaluation.json"
REMEDY = "Restore the file, or train again in another folder."
TRAINING = "fine-tuning"


@dataclass(frozen=True)
class TextRunSettings:
    """Settings of a run on pairs.

    Attributes:
        pairs: File of pairs.
        old_model: Model whose vectors are stored: a folder or a name of the Hugging Face hub.
        new_model: Model to fine-tune; None to start from the old model.
        texts: File of the texts of each id, if the pairs are ids.
        old_vectors: File of old vectors of the documents by id; None to embed them.
        method: Name in `nobackfill.methods.pairs.PAIR_METHODS`.
        weight: Weight of the compatible loss beside that of the pairs.
        temperature: Temperature of the compatible loss.
        held_out: Share of the groups of pairs that are not trained on but searched.
        max_tokens: Number of tokens at which texts are cut; None for that of each model.
        training: Settings of the fine-tuning.
        pairs_digest: SHA-256 of the file of pairs, set when the run starts.
    """

    pairs: str
    old_model: str
    new_model: str | None = None
    texts: str | None = None
    old_vectors: str | None = None
    method: str = "contrast"
    weight: float = 1.0
    temperature: float = 0.05
    held_out: float = 0.1
    max_tokens: int | None = None
    training: TextTraining = field(default_factory=TextTraining)
    pairs_digest: str = ""

    def __post_init__(self) -> None:
        if not 0 < self.held_out < 1:
            raise ConfigError(f"`held_out` is {self.held_out}, but must be between 0 and 1.")
        if self.max_tokens is not None and self.max_tokens < 1:
            raise ConfigError(f"`max_tokens` is {self.max_tokens}, but must be at least 1.")


def train_on_pairs(
    settings: TextRunSettings,
    folder: Path,
    *,
    resume: bool = False,
    seconds: float | None = None,
    device: torch.device | str = "cpu",
    watch: Watch = unwatched,
    watch_step: Callable[[Progress], None] | None = None,
) -> dict[str, Any] | None:
    """Fine-tunes a model in a run folder and evaluates it.

    Args:
        settings: Settings of the run.
        folder: Run folder.
        resume: Whether to continue a run of the same settings.
        seconds: Training stops after this time; None for no limit.
        device: Device to work on.
        watch: Receives the name of each step of the job.
        watch_step: Receives the progress after each training step.

    Returns:
        The summary of the evaluation; None if the time was over before the training was done.
    """
    with lock_folder(folder):
        settings = start(settings, folder, resume=resume)
        watch("reading pairs")
        pairs, held_out = read_split(settings)
        if not (folder / MODEL).exists():
            model = train_model(
                settings, folder, pairs, seconds, str(device), watch, watch_step
            )
            if model is None:
                return None
            with replacing_folder(folder / MODEL, own=()) as unfinished:
                model.save_pretrained(str(unfinished), create_model_card=False)
        for name in (STATE, OLD_DOCUMENTS):
            (folder / name).unlink(missing_ok=True)
        if not (folder / EVALUATION).exists():
            embed_held_out(settings, folder, held_out, str(device), watch)
            watch("searching")
            save_evaluation(folder)
        return parse_object(read_json_text(folder / EVALUATION), str(folder / EVALUATION), REMEDY)


def start(settings: TextRunSettings, folder: Path, *, resume: bool) -> TextRunSettings:
    """Writes the settings of a new run, or checks that they are those of the run there."""
    digest = sha256(settings.pairs) if Path(settings.pairs).is_file() else ""
    settings = TextRunSettings(**{**vars(settings), "pairs_digest": digest})
    path = folder / SETTINGS
    if not path.exists():
        if any((folder / name).exists() for name in ("config.toml", STATE, MODEL)):
            raise ConfigError(
                f"{folder} already contains another run. Choose another folder for the pairs."
            )
        environment = {
            "date": datetime.now(UTC).isoformat(timespec="seconds"),
            "nobackfill": nobackfill.__version__,
            "python": sys.version.split()[0],
            "platform": platform.platform(),
            "threads": torch.get_num_threads(),
            **{name: version(name) for name in ("torch", "transformers", "sentence-transformers")},
        }
        write_text(folder / "environment.json", json.dumps(environment, indent=2) + "\n")
        write_text(path, json.dumps(asdict(settings), indent=2) + "\n")
        return settings
    if not resume:
        raise ConfigError(
            f"{folder} already contains a run. Continue it with --resume, or choose another folder."
        )
    before, now = flat(read_settings(folder)), flat(settings)
    if changed := [name for name in now if now[name] != before[name]]:
        name = changed[0]
        there = "the file has changed" if name == "pairs_digest" else f"it is {before[name]!r}"
        raise ConfigError(
            f"The run in {folder} has other settings: {', '.join(changed)} ({there} there, not "
            f"{now[name]!r}). Continue it with the same, or choose another folder."
        )
    return settings


def read_settings(folder: Path) -> TextRunSettings:
    """Reads the settings of a run on pairs."""
    path = folder / SETTINGS
    facts = parse_object(read_json_text(path), str(path), REMEDY)
    return as_kind(TextRunSettings, facts, str(path), REMEDY)


def flat(settings: TextRunSettings) -> dict[str, Any]:
    """Returns all settings by name."""
    values = asdict(settings)
    return values | values.pop("training")


def read_split(settings: TextRunSettings) -> tuple[list[TextPair], list[TextPair]]:
    """Reads the pairs; returns those to train on, and the held-out ones."""
    known = None
    if settings.old_vectors is not None:
        known = {str(item) for item in load_vectors(settings.old_vectors).ids.tolist()}
    texts = None if settings.texts is None else Path(settings.texts)
    pairs = group_pairs(read_pair_file(Path(settings.pairs), texts=texts, known=known))
    train, held_out = hold_out_pairs(pairs, settings.held_out, seed=settings.training.seed)
    if len(train) < 2 or not held_out:
        raise DataError(
            f"{settings.pairs} has {len(pairs)} pairs, of which {len(train)} are left for training "
            f"and {len(held_out)} for the verdict. Add pairs, or change the share that is held out."
        )
    return train, held_out


def train_model(
    settings: TextRunSettings,
    folder: Path,
    pairs: Sequence[TextPair],
    seconds: float | None,
    device: str,
    watch: Watch,
    watch_step: Callable[[Progress], None] | None,
) -> "SentenceTransformer | None":
    """Returns the fine-tuned model; None if the time was over before."""
    from nobackfill.integrations.sentence_transformers import CompatibleLoss, add_query_map

    documents = {pair.document_id: pair for pair in pairs}
    old = old_documents(settings, folder, list(documents.values()), device, watch)
    watch("loading the new model")
    model = load_text_model(settings.new_model or settings.old_model, settings.max_tokens, device)
    if old.shape[1] != model.get_sentence_embedding_dimension():
        add_query_map(model, old.shape[1])
    loss = CompatibleLoss(
        model,
        ([pair.document for pair in documents.values()], old),
        method=settings.method,
        weight=settings.weight,
        temperature=settings.temperature,
        groups=[pair.group for pair in documents.values()],
    )

    def watch_both(progress: Progress) -> None:
        watch(Step(TRAINING, progress.step, progress.steps, "steps"))
        if watch_step is not None:
            watch_step(progress)

    done = fine_tune(
        model, loss, pairs, settings.training, folder=folder, seconds=seconds, watch=watch_both
    )
    return model if done else None


def old_documents(
    settings: TextRunSettings,
    folder: Path,
    pairs: Sequence[TextPair],
    device: str,
    watch: Watch,
) -> Float[Tensor, "documents dim"]:
    """Returns the old vectors of the documents of some pairs: from a file, or by the old model."""
    if settings.old_vectors is not None:
        file = load_vectors(settings.old_vectors)
        row_of = {str(item): row for row, item in enumerate(file.ids.tolist())}
        return file.vectors[[row_of[pair.document_id] for pair in pairs]].float()
    path = folder / OLD_DOCUMENTS
    if path.exists():
        return torch.from_numpy(np.load(path, allow_pickle=False))
    watch("loading the old model")
    model = load_text_model(settings.old_model, settings.max_tokens, device)
    texts = [pair.document for pair in pairs]
    vectors = embed_texts(model, texts, side="document", what="old documents", watch=watch)
    with replacing(path) as unfinished, unfinished.open("wb") as file:
        np.save(file, vectors.numpy())
    return vectors


def embed_held_out(
    settings: TextRunSettings, folder: Path, pairs: Sequence[TextPair], device: str, watch: Watch
) -> None:
    """Writes the vectors of the held-out queries and documents by both models."""
    old = load_text_model(settings.old_model, settings.max_tokens, device)
    new = load_text_model(str(folder / MODEL), settings.max_tokens, device)
    space = text_space(old)
    held_out_vectors(old, pairs, space, "old", watch).save(folder / OLD)
    parent, method = space.fingerprint, f"pairs: {settings.method}"
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
    """Returns the vectors of the queries and documents of pairs, labelled by their group."""
    texts = {
        "query": {pair.query_id: (pair.query, pair.group) for pair in pairs},
        "document": {pair.document_id: (pair.document, pair.group) for pair in pairs},
    }
    is_ambiguous = not texts["query"].keys().isdisjoint(texts["document"])
    ids, labels, words, roles, vectors = [], [], [], [], []
    for side in sides:
        ask = "plain query" if plain and side == "query" else side
        what = f"{name} {'queries' if side == 'query' else 'documents'}"
        found = [text for text, _ in texts[side].values()]
        vectors.append(embed_texts(model, found, side=ask, what=what, watch=watch))
        prefix = "query " if side == "query" and is_ambiguous else ""
        ids += [f"{prefix}{item}" for item in texts[side]]
        labels += [group for _, group in texts[side].values()]
        words += found
        roles += [side == "query"] * len(found)
    is_query = np.array(roles)
    return Vectors(
        ids,
        torch.cat(vectors),
        labels,
        columns={"text": words, "is_query": is_query, "is_gallery": ~is_query},
        space=space,
    )


def save_evaluation(folder: Path) -> None:
    """Evaluates the held-out vectors in a run folder, and writes the results."""
    mapped = folder / NEW_QUERY
    result = evaluate(
        load_vectors(folder / OLD),
        load_vectors(folder / NEW),
        query_for_old=load_vectors(mapped) if mapped.exists() else None,
    )
    write_text(folder / EVALUATION, json.dumps(result.summary(), indent=2) + "\n")
