"""The run folder of a training, and the finished model in it.

    config.toml         recipe with every default filled in
    environment.json    versions, device, date
    lineage.json        seed of the initial weights, dimension and fingerprint of the old model
    metrics.jsonl       one line per epoch
    state.pt            state after the last finished epoch, to resume from
    model.safetensors   finished model and method; exists only when the training is done
    validation.parquet  vectors of the validation items
    validation_query.parquet  the same as queries to the old gallery, if the method maps queries
    evaluation.json     results against the old model, if there is one

Every file is written under a temporary name and then renamed. A kill at any moment leaves the
complete state of the last finished epoch.
"""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from hashlib import sha256 as sha256_of
from pathlib import Path

import torch
from jaxtyping import Float, Int, Shaped
from safetensors.torch import load_file
from torch import Tensor, nn

from nobackfill.core.atomic_files import sha256
from nobackfill.core.config import Choice, Recipe, read_recipe, to_toml
from nobackfill.core.json_files import as_kind, parse_object, read_json_text
from nobackfill.core.suggest import suggest_path
from nobackfill.data.captions import Captions
from nobackfill.data.collection import Collection
from nobackfill.errors import ConfigError, DataError
from nobackfill.methods import METHODS, Sides
from nobackfill.models import DualEncoder, Embedder, make_dual, make_model
from nobackfill.models.dual import OneSide
from nobackfill.models.embed import Watch, embed, embed_texts
from nobackfill.training.resolve import resolve
from nobackfill.vectors.records import measured_in
from nobackfill.vectors.space import Space

# Options that do not change how texts are read.
PATH_OPTIONS = ("path", "tokenizer", "frozen", "synonyms")


@dataclass(frozen=True)
class Lineage:
    """Facts about a run and its old model that later runs need."""

    old_dim: int | None = None  # dimension of the old vectors; None without an old model
    parent: str | None = None  # fingerprint of the old space, if the new model was trained to fit
    weights_seed: int | None = None  # of the initial weights; None for a run of an older version


class Run:
    """A training run in its folder, with its recipe as returned by `resolve`."""

    def __init__(self, folder: Path, recipe: Recipe):
        self.folder, self.recipe = folder, recipe

    @classmethod
    def start(cls, recipe: Recipe, folder: Path, *, resume: bool = False) -> "Run":
        """Opens a new run, or with `resume` one of the same recipe; writes nothing yet."""
        run = cls(folder, resolve(recipe))
        config = folder / "config.toml"
        if not config.exists() and any(
            (folder / name).exists() for name in ("state.pt", "model.safetensors")
        ):
            raise ConfigError(
                f"{folder} has weights and no config.toml, so its recipe is unknown. Restore "
                f"config.toml, or choose another folder."
            )
        if config.exists():
            if not resume:
                raise ConfigError(
                    f"{folder} already contains a run. Continue it with --resume, or choose "
                    f"another folder."
                )
            if config.read_text(encoding="utf-8") != to_toml(run.recipe):
                raise ConfigError(
                    f"Cannot resume the run in {folder}: its config.toml differs from this recipe. "
                    f"Resume it with its own config.toml, or choose another folder. (For a model "
                    f"that a recipe needs first, choose another parent folder for -o.)"
                )
        old = run.recipe.old.run
        if not run.finished and old is not None and not (Path(old) / "config.toml").exists():
            raise ConfigError(
                f'`run = "{old}"` in [old] is not a run folder. Train the old model first '
                f"(`nobackfill train RECIPE -o {old}`), name another run (`--set "
                f"old.run=FOLDER`), or name its recipe instead (`recipe` in [old]), which is then "
                f"trained first."
            )
        return run

    @classmethod
    def open(cls, folder: Path) -> "Run":
        """Opens a finished run."""
        if not (folder / "config.toml").exists():
            reason = "it has no config.toml" if folder.is_dir() else "it does not exist"
            remedy = "Pass a folder that `nobackfill train RECIPE -o FOLDER` wrote."
            remedy = remedy if folder.is_dir() else suggest_path(folder, remedy)
            raise DataError(f"{folder} is not a run folder: {reason}. {remedy}")
        run = cls(folder, resolve(read_recipe(folder / "config.toml")))
        if not run.finished:
            raise DataError(
                f"The run in {folder} is not finished: it has no model.safetensors. Finish it with "
                f"`nobackfill train {folder}/config.toml -o {folder} --resume`."
            )
        return run

    @property
    def weights(self) -> Path:
        """File of the finished model."""
        return self.folder / "model.safetensors"

    @property
    def finished(self) -> bool:
        """Whether the training is done."""
        return self.weights.exists()

    def lineage(self) -> Lineage:
        """Reads the facts that later runs need."""
        path = self.folder / "lineage.json"
        if not path.exists():
            return Lineage()
        remedy = "Train the run again."
        facts = parse_object(read_json_text(path), str(path), remedy)
        return as_kind(Lineage, facts, str(path), remedy)

    def test_data(self, test: str = "") -> Choice | None:
        """Returns the collection of a test of the recipe; its own data for the empty name."""
        return self.recipe.tests.get(test) if test else self.recipe.data

    @property
    def modalities(self) -> tuple[str, ...]:
        """Modalities that the model embeds."""
        return ("image",) if self.recipe.text is None else ("image", "text")

    @property
    def maps_queries(self) -> bool:
        """Whether queries to the old gallery differ from the stored vectors."""
        return METHODS[self.recipe.method.name].maps_queries

    def make_model(self, *, seed: int, bare: bool = False) -> Embedder | DualEncoder:
        """Creates the untrained model of the recipe."""
        if self.recipe.text is None:
            return make_model(self.recipe.model, seed=seed, bare=bare)
        return make_dual(self.recipe.model, self.recipe.text, seed=seed, bare=bare)

    def model(self, device: torch.device) -> Embedder | DualEncoder:
        """Loads the finished model."""
        model = self.make_model(seed=0, bare=True)
        with self._fitting():
            model.load_state_dict(self._tensors("model."))
        return model.to(device).eval()

    @contextmanager
    def _fitting(self) -> Iterator[None]:
        """Raises a DataError if the weights are not those of the recipe."""
        try:
            yield
        except (RuntimeError, KeyError, ValueError, IndexError) as error:
            reason = " ".join(str(error).split())[:300]
            raise DataError(
                f"The weights in {self.weights} do not fit the recipe next to them ({reason}). "
                f"Restore both, or remove the weights and train again with --resume."
            ) from error

    def sides(self) -> Sides:
        """Loads what the finished method applies to embeddings before a search."""
        method = self.recipe.method
        with self._fitting():
            return METHODS[method.name].sides(self._tensors("method."), method.options)

    def encoder(
        self, device: torch.device, side: str = "gallery", *, modality: str = "image"
    ) -> nn.Module:
        """Loads the finished model of a modality followed by one side of its method.

        The side is "gallery", or "query" for queries to the old gallery. Texts must be prepared by
        `DualEncoder.prepare`.
        """
        sides, model = self.sides(), self.model(device)
        last = sides.query if side == "query" else sides.gallery
        first = OneSide(model, modality) if isinstance(model, DualEncoder) else model
        return nn.Sequential(first, last.to(device)).eval()

    def embed(
        self,
        collection: Collection,
        rows: Int[Tensor, " rows"],
        *,
        modalities: Sequence[str] = ("image",),
        side: str = "gallery",
        device: torch.device,
        watch: Watch = iter,
    ) -> Float[Tensor, "items dim"]:
        """Embeds rows of images, all their texts, or both in the order of `modalities`.

        The side is "gallery", or "query" for queries to the old gallery.
        """
        embeddings = []
        for modality in modalities:
            encoder = self.encoder(device, side, modality=modality)
            if modality == "text":
                texts = self.prepare(collection.captions_of(rows))
                embeddings.append(embed_texts(encoder, texts))
            else:
                images = collection.seen_as(self.recipe.images)
                embeddings.append(embed(encoder, images, rows, watch=watch))
        return torch.cat(embeddings)

    def prepare(self, captions: Captions) -> Shaped[Tensor, "texts ..."]:
        """Converts texts to the model's input format."""
        model = self.make_model(seed=0, bare=True)
        if not isinstance(model, DualEncoder):
            raise ConfigError(
                f"The model in {self.folder} reads only images, not texts. Choose a run whose "
                f"recipe has [text]."
            )
        return model.prepare(captions.texts, captions.ids)

    @property
    def dim(self) -> int:
        """Dimension of the stored vectors."""
        embedding = torch.zeros(1, self.recipe.model.options["embedding_dim"])
        gallery = self.sides().gallery.eval()
        return int(gallery(embedding).shape[1])

    @property
    def has_classifier(self) -> bool:
        """Whether the method trained its classifier, if it has one."""
        return self.recipe.text is None or self.recipe.pairs.classification

    def classifier(self) -> torch.Tensor:
        """Loads the weights of the finished method's classifier."""
        tensors = self._tensors("method.")
        if "classifier.weight" not in tensors:
            raise DataError(
                f"{self.folder} has no classifier: its method `{self.recipe.method.name}` trains "
                f"none. Choose a method that does not need it."
            )
        if not isinstance(self.sides().gallery, nn.Identity):
            raise DataError(
                f"The classifier in {self.folder} does not fit the stored vectors: the method "
                f"`{self.recipe.method.name}` applies it before it maps the embeddings. Choose a "
                f"method that does not need it."
            )
        return tensors["classifier.weight"]

    def moved_prototypes(self) -> torch.Tensor | None:
        """Loads the old prototypes as the method moved them; None if it moves none."""
        tensors = self._tensors("method.")
        if "perturb.moved" in tensors:
            return tensors["perturb.moved"]
        if "perturb.perturbation" in tensors:
            return tensors["perturb.old"] + tensors["perturb.perturbation"]
        return None

    def space(
        self, collection: Collection, parent: str | None, *, dim: int, side: str = "gallery"
    ) -> Space:
        """Describes the vectors of a collection, with the recorded compatibility measurements."""
        as_query = ", mapped for the old gallery" if side == "query" else ""
        text = self.recipe.text
        texts = "" if text is None else f"; texts: {text_encoder_key(text)}"
        space = Space(
            dim=dim,
            weights=sha256(self.weights),
            preprocessing=collection.preprocessing + texts + as_query,
            parent=parent,
            method=self.recipe.method.name,
        )
        return replace(space, compatible_with=measured_in(self.folder, space.fingerprint))

    def _tensors(self, prefix: str) -> dict[str, torch.Tensor]:
        """Reads the tensors with a prefix from the file of the finished model."""
        try:
            tensors = load_file(self.weights)
        except Exception as error:
            raise DataError(
                f"Could not read the weights in {self.weights}: {error}. Remove the file and train "
                f"again with --resume."
            ) from None
        return {k.removeprefix(prefix): t for k, t in tensors.items() if k.startswith(prefix)}


def text_encoder_key(text: Choice) -> str:
    """Returns a short key of a text encoder; it changes with every option that affects reading.

    Example:
        >>> long, short = Choice("words", {"longest": 64}), Choice("words", {"longest": 32})
        >>> text_encoder_key(long), text_encoder_key(short)
        ('words 2390a1d8', 'words 8ce85043')
    """
    options = {key: value for key, value in text.options.items() if key not in PATH_OPTIONS}
    digest = sha256_of(json.dumps(options, sort_keys=True, default=str).encode()).hexdigest()
    return f"{text.name} {digest[:8]}"
