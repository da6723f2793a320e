"""The folder of a run on pairs of texts: names of its files, and its settings.

    settings.json       files, models, method and all other settings
    environment.json    versions and date
    old_documents.npy   old vectors of the training documents, until the training is done
    state.pt            state of the last saved step, until the training is done
    model/              finished model, which sentence-transformers loads without nobackfill
    old.parquet         vectors of the held-out queries and documents by the old model
    validation.parquet  the same by the new model
    validation_query.parquet  queries for the old documents, if the model maps them
    evaluation.json     results, and the verdict

Every file is written under a temporary name and then renamed. A kill leaves the last saved step.
"""

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from nobackfill.core.json_files import as_kind, parse_object, read_json_text
from nobackfill.errors import ConfigError, DataError
from nobackfill.integrations.text_training import TextTraining

SETTINGS = "settings.json"
MODEL = "model"
OLD_DOCUMENTS = "old_documents.npy"
OLD, NEW, NEW_QUERY = "old.parquet", "validation.parquet", "validation_query.parquet"
EVALUATION = "evaluation.json"
REMEDY = "Restore the file, or train again in another folder."


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


def read_settings(folder: Path) -> TextRunSettings:
    """Reads the settings of a run on pairs."""
    path = folder / SETTINGS
    facts = parse_object(read_json_text(path), str(path), REMEDY)
    return as_kind(TextRunSettings, facts, str(path), REMEDY)


def flat(settings: TextRunSettings) -> dict[str, Any]:
    """Returns all settings by name."""
    values = asdict(settings)
    training: dict[str, Any] = values.pop("training")
    return values | training


def is_text_run(folder: Path) -> bool:
    """Whether a folder contains a run on pairs."""
    return (folder / SETTINGS).exists()


def require_finished(folder: Path) -> None:
    """Raises if the training of a run on pairs is not done."""
    if not (folder / EVALUATION).exists():
        raise DataError(
            f"The run in {folder} is not finished. Continue it with --resume and the options that "
            f"it was started with; {folder / SETTINGS} lists them."
        )
