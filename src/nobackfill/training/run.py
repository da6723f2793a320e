"""The run folder: what a training was told, where it stands, and the model it came to.

    config.toml         the recipe, every default written out
    environment.json    versions, device, date
    lineage.json        of the old model, what must outlive it: its dimension and its fingerprint
    metrics.jsonl       one line per epoch
    state.pt            what is needed to go on after the last finished epoch
    model.safetensors   the finished model and method; its presence says that training is done
    validation.parquet  the vectors of what is searched, with its fingerprint beside it
    validation_query.parquet  the same as queries to the old gallery, where the method maps these
    evaluation.json     what came out against the old model, if there is one

Every file is written beside its place and then moved there: a kill at any moment leaves the state
of the last finished epoch, never half of one.
"""

import json
import platform
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from hashlib import sha256 as sha256_of
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float, Int, Shaped
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

import nobackfill
from nobackfill.core.atomic_files import replacing, sha256, write_text
from nobackfill.core.config import Choice, Recipe, read_recipe, resolve_options, suggest, to_toml
from nobackfill.core.distributed import is_main, wait
from nobackfill.core.seeding import seeded
from nobackfill.data.captions import Captions
from nobackfill.data.collection import Collection
from nobackfill.data.registry import resolve_collection
from nobackfill.errors import ConfigError, DataError
from nobackfill.methods import METHODS, Method, Sides
from nobackfill.methods.base import ClassifyingMethod
from nobackfill.methods.old_space import OldSpace
from nobackfill.models import DualEncoder, Embedder, make_dual, make_model, resolve_model
from nobackfill.models.dual import OneSide, resolve_text
from nobackfill.models.embed import Watch, embed, embed_texts
from nobackfill.training.checkpoint import (
    Keeper,
    load_state,
    save_state,
    that_can_be_resumed,
    write_metrics,
)
from nobackfill.training.forward import Images, ImagesAndTexts, Sight
from nobackfill.training.loop import Epoch, make_optimizer, train
from nobackfill.training.new_prototypes_running import RunningMeans
from nobackfill.training.precision import scaler_for
from nobackfill.vectors.records import measured_in
from nobackfill.vectors.space import Space

PLACES = ("path", "tokenizer", "frozen")  # options that say nothing of how texts are read


def resolve(recipe: Recipe) -> Recipe:
    """The same recipe with every default written out; raises at the first thing that is wrong."""
    model = resolve_model(recipe.model)
    name = recipe.method.name
    if name not in METHODS:
        raise ConfigError(f"unknown method `{name}`. {suggest(name, METHODS)}")
    options = resolve_options(METHODS[name], recipe.method.options, where="method")
    if "dim" in options:
        dim = model.options["embedding_dim"]
        if options["dim"] not in (None, dim):
            raise ConfigError(
                f"wanted one dimension of the new embedding, but [method] has dim = "
                f"{options['dim']} and [model] embedding_dim = {dim}. Remove the first."
            )
        options["dim"] = dim
    return replace(
        recipe,
        data=resolve_collection(recipe.data),
        tests={
            test: resolve_collection(choice, where=f"tests.{test}")
            for test, choice in recipe.tests.items()
        },
        model=model,
        text=None if recipe.text is None else resolve_text(recipe.text),
        method=Choice(name, options),
    )


@dataclass(frozen=True)
class Lineage:
    """What must be known of the old model after it is gone.

    Attributes:
        old_dim: The dimension of its vectors; None without an old model.
        parent: The fingerprint of its space; None where the new one was not made to fit it.
    """

    old_dim: int | None = None
    parent: str | None = None


class Run:
    """One training run in its folder.

    Args:
        folder: Where it lives.
        recipe: What it was told, as `resolve` returns it.
    """

    def __init__(self, folder: Path, recipe: Recipe):
        self.folder, self.recipe = folder, recipe

    @classmethod
    def start(cls, recipe: Recipe, folder: Path, *, resume: bool = False) -> "Run":
        """A new run, or with `resume` one that was told the same; nothing is written yet."""
        run = cls(folder, resolve(recipe))
        text = to_toml(run.recipe)
        config = folder / "config.toml"
        if not config.exists() and any(
            (folder / name).exists() for name in ("state.pt", "model.safetensors")
        ):
            raise ConfigError(
                f"wanted to know what the run in {folder} was told, but it has weights and no "
                f"config.toml. Put that back, or choose another folder."
            )
        if config.exists():
            if not resume:
                raise ConfigError(
                    f"wanted an empty place for a new run, but {folder} holds one. Go on with it "
                    f"by --resume, or choose another folder."
                )
            if config.read_text(encoding="utf-8") != text:
                raise ConfigError(
                    f"wanted to go on with the run in {folder}, but its config.toml says something "
                    f"else than this recipe. Resume it with its own config.toml, or choose another "
                    f"folder (for a model that a recipe needs first, another parent of -o)."
                )
        if not run.finished:
            run.check_old_run()
        return run

    @classmethod
    def open(cls, folder: Path) -> "Run":
        """Opens a finished run."""
        if not (folder / "config.toml").exists():
            found = f"{folder} has no config.toml" if folder.is_dir() else f"there is no {folder}"
            raise DataError(
                f"wanted the folder of a run, but {found}. Pass what `nobackfill train RECIPE -o "
                f"FOLDER` wrote."
            )
        run = cls(folder, resolve(read_recipe(folder / "config.toml")))
        if not run.finished:
            raise DataError(
                f"wanted a finished run, but {folder} has no model.safetensors: its training was "
                f"stopped. Finish it with `nobackfill train {folder}/config.toml -o {folder} "
                f"--resume`."
            )
        return run

    def check_old_run(self) -> None:
        """Raises where the recipe names the run of an old model, and none is there."""
        old = self.recipe.old.run
        if old is not None and not (Path(old) / "config.toml").exists():
            raise ConfigError(
                f'wanted the old model that the recipe names by `run = "{old}"` in [old], but no '
                f"run is there. Train it first (`nobackfill train RECIPE -o {old}`), name another "
                f"(`--set old.run=FOLDER`), or name its recipe in place of it (`recipe` in [old]): "
                f"then it is trained first."
            )

    @property
    def weights(self) -> Path:
        """The file with the finished model."""
        return self.folder / "model.safetensors"

    @property
    def finished(self) -> bool:
        """Whether the training is done."""
        return self.weights.exists()

    def train(
        self,
        collection: Collection,
        old: OldSpace,
        *,
        device: torch.device,
        lineage: Lineage,
        old_model: nn.Module | None = None,
        watch: Watch = iter,
    ) -> Iterator[Epoch]:
        """Trains from where the folder stands to the end, and yields after each epoch."""
        if self.finished:
            return
        config = self.recipe.train
        rows = collection.training_rows(config.step)
        model = self._make_model(seed=config.seed).to(device)
        sight = self._sight(model, collection, rows)
        method = self._make_method(old.to(device), int(collection.labels[rows].max()) + 1)
        method.to(device)
        optimizer = make_optimizer(model, method, config)
        scaler = scaler_for(config.precision, device)
        running = None
        keepers: dict[str, Keeper] = {"model": model, "method": method, "optimizer": optimizer}
        if config.precision == "float16":
            keepers["scaler"] = scaler
        if config.new_prototypes == "running":
            running = RunningMeans(method.num_classes, model.embedding_dim).to(device)
            keepers["running"] = running
        history = load_state(self.folder, keepers, device)
        if is_main():
            write_text(self.folder / "config.toml", to_toml(self.recipe))
            write_text(self.folder / "lineage.json", json.dumps(asdict(lineage), indent=2))
            write_text(self.folder / "environment.json", json.dumps(environment(device), indent=2))
            write_metrics(self.folder, history)  # a kill may have come just before it

        for epoch in train(
            model, method, collection, rows, config, sight=sight, old_model=old_model,
            optimizer=optimizer, scaler=scaler, running=running, start=len(history), watch=watch,
        ):  # fmt: skip
            history.append(epoch)
            if is_main():
                save_state(self.folder, keepers, history)
            yield epoch

        if is_main():
            with that_can_be_resumed("the finished model", self.folder):
                self._save_weights(model, method)
        wait()

    def _save_weights(self, model: nn.Module, method: Method) -> None:
        """Writes the finished model; from then on, the state to resume from is not needed."""
        tensors = {f"model.{key}": value for key, value in model.state_dict().items()}
        tensors |= {f"method.{key}": value for key, value in method.state_dict().items()}
        with replacing(self.weights) as unfinished:
            save_file(
                {key: t.detach().cpu().contiguous() for key, t in tensors.items()}, unfinished
            )
        (self.folder / "state.pt").unlink(missing_ok=True)

    def searches(self, test: str = "") -> Choice | None:
        """What a test of the recipe searches; its own data where none is named."""
        return self.recipe.tests.get(test) if test else self.recipe.data

    def model(self, device: torch.device) -> Embedder | DualEncoder:
        """The finished model."""
        model = self._make_model(seed=0, bare=True)
        model.load_state_dict(self._tensors("model."))
        return model.to(device).eval()

    @property
    def modalities(self) -> tuple[str, ...]:
        """What the model embeds."""
        return ("image",) if self.recipe.text is None else ("image", "text")

    def _make_model(self, *, seed: int, bare: bool = False) -> Embedder | DualEncoder:
        model, text = self.recipe.model, self.recipe.text
        if text is None:
            return make_model(model, seed=seed, bare=bare)
        return make_dual(model, text, seed=seed, bare=bare)

    def _sight(self, model: nn.Module, collection: Collection, rows: Int[Tensor, " rows"]) -> Sight:
        if isinstance(model, DualEncoder):
            return ImagesAndTexts.of(collection, rows, model, self.recipe.pairs)
        return Images(collection, rows)

    def lineage(self) -> Lineage:
        """What is remembered of the old model."""
        path = self.folder / "lineage.json"
        return Lineage(**json.loads(path.read_text())) if path.exists() else Lineage()

    @property
    def maps_queries(self) -> bool:
        """Whether the old gallery is asked with other vectors than are stored."""
        return METHODS[self.recipe.method.name].maps_queries

    def sides(self) -> Sides:
        """What the finished method does to the model's embeddings before they are compared."""
        method = self.recipe.method
        return METHODS[method.name].sides(self._tensors("method."), method.options)

    def encoder(
        self, device: torch.device, side: str = "gallery", *, modality: str = "image"
    ) -> nn.Module:
        """Images in, vectors out: the finished model and one side of its method.

        Args:
            device: What to work on.
            side: "gallery", or "query" for what asks the old gallery.
            modality: "image", or "text" for texts in, as `DualEncoder.prepare` makes them.
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
        """The vectors of some images, of all their texts, or of both in this order.

        Args:
            collection: Where the images are; seen as the model was trained to.
            rows: Which of them.
            modalities: "image", "text", or both.
            side: "gallery", or "query" for what asks the old gallery.
            device: What to work on.
            watch: Wraps the batches, as a progress bar does.
        """
        found = []
        for modality in modalities:
            encoder = self.encoder(device, side, modality=modality)
            if modality == "text":
                texts = self.prepare(collection.captions_of(rows))
                found.append(embed_texts(encoder, texts))
            else:
                seen = collection.seen_as(self.recipe.images)
                found.append(embed(encoder, seen, rows, watch=watch))
        return torch.cat(found)

    def prepare(self, captions: Captions) -> Shaped[Tensor, "texts ..."]:
        """Texts as the model wants them."""
        model = self._make_model(seed=0, bare=True)
        if not isinstance(model, DualEncoder):
            raise ConfigError(
                f"wanted a model that reads texts, but {self.folder} was trained on images alone. "
                f"Choose a run whose recipe has [text]."
            )
        return model.prepare(captions.texts, captions.ids)

    @property
    def dim(self) -> int:
        """Of the vectors that go into the gallery."""
        embedding = torch.zeros(1, self.recipe.model.options["embedding_dim"])
        gallery = self.sides().gallery.eval()
        return int(gallery(embedding).shape[1])

    @property
    def has_classifier(self) -> bool:
        """Whether its classifier, if its method has one, was trained."""
        return self.recipe.text is None or self.recipe.pairs.classification

    def classifier(self) -> torch.Tensor:
        """The weights of the finished method's classifier."""
        tensors = self._tensors("method.")
        if "classifier.weight" not in tensors:
            raise DataError(
                f"wanted the classifier of {self.folder}, but its method "
                f"`{self.recipe.method.name}` trains none. Choose a method that does not need it."
            )
        if not isinstance(self.sides().gallery, nn.Identity):
            raise DataError(
                f"wanted the classifier of the vectors that {self.folder} stores, but that of its "
                f"method `{self.recipe.method.name}` is of the embedding before these were made. "
                f"Choose a method that does not need it."
            )
        return tensors["classifier.weight"]

    def moved_prototypes(self) -> torch.Tensor | None:
        """Where the method had moved the old prototypes by the end, if it moves any."""
        tensors = self._tensors("method.")
        if "perturb.moved" in tensors:
            return tensors["perturb.moved"]
        if "perturb.perturbation" in tensors:
            return tensors["perturb.old"] + tensors["perturb.perturbation"]
        return None

    def space(
        self, collection: Collection, parent: str | None, *, dim: int, side: str = "gallery"
    ) -> Space:
        """What this model makes of a collection, given its parent's; with all that was measured."""
        as_query = ", mapped for the old gallery" if side == "query" else ""
        texts = "" if self.recipe.text is None else f"; texts: {read_by(self.recipe.text)}"
        space = Space(
            dim=dim,
            weights=sha256(self.weights),
            preprocessing=collection.preprocessing + texts + as_query,
            parent=parent,
            method=self.recipe.method.name,
        )
        return replace(space, compatible_with=measured_in(self.folder, space.fingerprint))

    def _make_method(self, old: OldSpace, num_classes: int) -> Method:
        with seeded(self.recipe.train.seed + 1):
            kind = METHODS[self.recipe.method.name]
            method = kind(old, num_classes, **self.recipe.method.options)
        if isinstance(method, ClassifyingMethod):
            method.classifies = self.has_classifier
            if "smoothing" not in self.recipe.method.options:
                method.smoothing = self.recipe.train.smoothing
        return method

    def _tensors(self, prefix: str) -> dict[str, torch.Tensor]:
        try:
            tensors = load_file(self.weights)
        except Exception as error:
            raise DataError(
                f"wanted the weights of a run in {self.weights}, but it cannot be read: {error}. "
                f"Remove it, and train again with --resume."
            ) from None
        return {k.removeprefix(prefix): t for k, t in tensors.items() if k.startswith(prefix)}


def read_by(text: Choice) -> str:
    """An encoder of texts in a few letters, which are others where it reads texts otherwise.

    Example:
        >>> read_by(Choice("words", {"longest": 64})), read_by(Choice("words", {"longest": 32}))
        ('words 2390a1d8', 'words 8ce85043')
    """
    told = {key: value for key, value in text.options.items() if key not in PLACES}
    digest = sha256_of(json.dumps(told, sort_keys=True, default=str).encode()).hexdigest()
    return f"{text.name} {digest[:8]}"


def environment(device: torch.device) -> dict[str, str | int]:
    """What a run ran on."""
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "nobackfill": nobackfill.__version__,
        "python": sys.version.split()[0],
        "torch": torch.__version__,
        "numpy": np.__version__,
        "platform": platform.platform(),
        "device": str(device),
        "device_name": torch.cuda.get_device_name() if device.type == "cuda" else "cpu",
        "threads": torch.get_num_threads(),
    }
