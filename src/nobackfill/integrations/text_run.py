"""Fine-tunes a model on pairs in a run folder, and evaluates it; see `text_folder`."""

import json
import platform
import sys
from collections.abc import Sequence
from dataclasses import asdict, replace
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
from nobackfill.core.json_files import parse_object, read_json_text
from nobackfill.core.locks import lock_folder
from nobackfill.core.steps import Step, Watch, unwatched
from nobackfill.data.pair_files import read_pair_file
from nobackfill.data.pair_groups import group_pairs, hold_out_pairs
from nobackfill.data.texts import TextPair
from nobackfill.errors import ConfigError, DataError
from nobackfill.integrations.text_folder import (
    EVALUATION,
    MODEL,
    OLD_DOCUMENTS,
    REMEDY,
    SETTINGS,
    TextRunSettings,
    flat,
    read_settings,
)
from nobackfill.integrations.text_models import embed_texts, load_text_model, save_text_model
from nobackfill.integrations.text_results import embed_held_out, save_evaluation
from nobackfill.integrations.text_training import STATE, fine_tune
from nobackfill.vectors import load_vectors

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

TRAINING = "fine-tuning"


def train_on_pairs(
    settings: TextRunSettings,
    folder: Path,
    *,
    resume: bool = False,
    seconds: float | None = None,
    device: torch.device | str = "cpu",
    watch: Watch = unwatched,
) -> dict[str, Any] | None:
    """Fine-tunes a model in a run folder and evaluates it.

    Args:
        settings: Settings of the run.
        folder: Run folder.
        resume: Whether to continue a run of the same settings.
        seconds: Training stops after this time; None for no limit.
        device: Device to work on.
        watch: Receives the name of each step of the job.

    Returns:
        The summary of the evaluation; None if the time limit ended the training.
    """
    with lock_folder(folder):
        settings = start(settings, folder, resume=resume)
        watch("reading pairs")
        pairs, held_out = read_split(settings)
        if not (folder / MODEL).exists():
            model = train_model(settings, folder, pairs, seconds, str(device), watch)
            if model is None:
                return None
            save_text_model(model, folder / MODEL)
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
    settings = replace(settings, pairs_digest=digest)
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
) -> "SentenceTransformer | None":
    """Returns the fine-tuned model; None if the time limit ended the training."""
    from nobackfill.integrations.sentence_transformers import CompatibleLoss, add_query_map

    documents = {pair.document_id: pair for pair in pairs}
    old = old_documents(settings, folder, list(documents.values()), device, watch)
    watch("loading the new model")
    model = load_text_model(settings.new_model or settings.old_model, settings.max_tokens, device)
    if old.shape[1] != embed_texts(model, ["a"], side="document").shape[1]:
        add_query_map(model, old.shape[1])
    loss = CompatibleLoss(
        model,
        ([pair.document for pair in documents.values()], old),
        method=settings.method,
        weight=settings.weight,
        temperature=settings.temperature,
        groups=[pair.group for pair in documents.values()],
    )

    is_done = fine_tune(
        model,
        loss,
        pairs,
        settings.training,
        folder=folder,
        seconds=seconds,
        watch=lambda progress: watch(Step(TRAINING, progress.step, progress.steps, "steps")),
    )
    return model if is_done else None


def old_documents(
    settings: TextRunSettings,
    folder: Path,
    pairs: Sequence[TextPair],
    device: str,
    watch: Watch,
) -> Float[Tensor, "documents dim"]:
    """Reads the old vectors of the documents of pairs, or embeds them with the old model."""
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
    with replacing(path) as unfinished, unfinished.open("wb") as stream:
        np.save(stream, vectors.numpy())
    return vectors
