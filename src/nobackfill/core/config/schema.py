"""What a recipe says, as frozen dataclasses."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from nobackfill.errors import ConfigError


@dataclass(frozen=True)
class Choice:
    """Something chosen by name, with its own options: a collection, a backbone, a method."""

    name: str
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class OldConfig:
    """Where the old model is known from: a run folder, or a file of its vectors, or nowhere.

    Attributes:
        run: The folder of the old model's run.
        vectors: A file of its vectors, of the new training set.
        known_classes: How many classes, the first, the old model was trained on. A run knows; of a
            file, all count as known where this is not given.
        independent: A run folder, or a file of vectors, of a new model trained without constraint,
            for the methods that start from one.
        recipe: How to train the old model, beside the new one and under the name of this file,
            where no one has done so yet. A path from the recipe that names it.
        independent_recipe: The same for `independent`.
    """

    run: str | None = None
    vectors: str | None = None
    known_classes: int | None = None
    independent: str | None = None
    recipe: str | None = None
    independent_recipe: str | None = None

    def __post_init__(self) -> None:
        places = [name for name in ("run", "vectors", "recipe") if getattr(self, name)]
        if len(places) > 1:
            raise ConfigError(
                f"wanted the old model from one place, but [old] has both `{places[0]}` and "
                f"`{places[1]}`. Remove one: a run knows its vectors and its classifier too."
            )
        if self.independent and self.independent_recipe:
            raise ConfigError(
                "wanted the independent model from one place, but [old] has `independent` and "
                "`independent_recipe`. Remove one."
            )


@dataclass(frozen=True)
class ImagesConfig:
    """What a model sees of an image file: the same for all collections of a recipe.

    Attributes:
        size: One number: the shorter side is resized to it. Two: height and width, whatever the
            image's shape.
        crop: Height and width of what is cut out: anywhere for training, in the middle otherwise.
            Empty for all of it; needed where `size` is one number.
        channels: 3 for colour, 1 for grey.
        interpolation: "bicubic" or "bilinear", with the smoothing that shrinking needs.
        normalize: "imagenet" takes its mean and deviation off each channel; "half" maps to -1 .. 1.
        flip: How often a training image is mirrored, as a share.
        pad: By how many pixels a training image may be shifted; what comes in is black.
        erase: How often a random rectangle of a training image is erased, as a share.
    """

    size: tuple[int, ...] = (256,)
    crop: tuple[int, ...] = (224, 224)
    channels: int = 3
    interpolation: Literal["bicubic", "bilinear"] = "bicubic"
    normalize: Literal["imagenet", "half"] = "imagenet"
    flip: float = 0.5
    pad: int = 0
    erase: float = 0.0

    def __post_init__(self) -> None:
        if len(self.size) not in (1, 2) or len(self.crop) not in (0, 2):
            raise ConfigError(
                f"wanted one or two numbers as `size` and two or none as `crop` in [images], but "
                f"got {list(self.size)} and {list(self.crop)}."
            )
        if not self.crop and len(self.size) == 1:
            raise ConfigError(
                "wanted images of one shape, but [images] has one number as `size` and no `crop`. "
                "Add `crop = [height, width]`, or write `size = [height, width]`."
            )
        full = self.size if len(self.size) == 2 else self.size * 2
        if any(side < 1 for side in (*self.size, *self.crop)) or any(
            part > whole for part, whole in zip(self.crop, full, strict=False)
        ):
            raise ConfigError(
                f"wanted a `crop` in [images] that fits into the resized image, but got "
                f"size = {list(self.size)} and crop = {list(self.crop)}."
            )
        if self.channels not in (1, 3):
            raise ConfigError(f"wanted `channels` in [images] 1 or 3, but got {self.channels}.")
        for name in ("flip", "erase"):
            if not 0 <= getattr(self, name) <= 1:
                raise ConfigError(
                    f"wanted `{name}` in [images] as a share from 0 to 1, but got "
                    f"{getattr(self, name)}."
                )
        if self.pad < 0:
            raise ConfigError(f"wanted `pad` in [images] 0 or more, but got {self.pad}.")

    @property
    def shape(self) -> tuple[int, int]:
        """Height and width of what the model sees."""
        height, width = self.crop or self.size
        return height, width


@dataclass(frozen=True)
class TrainConfig:
    """How long and how fast to train.

    Attributes:
        step: Which upgrade this is: the classes of `shares[step]` of the data are trained on, the
            last by default.
        epochs: Passes over the training set.
        batch_size: Items at a time.
        learning_rate: At the start; scaled down by `schedule`.
        schedule: "cosine" to 0, or "steps": a tenth from each of the `milestones` on.
        milestones: Epochs.
        optimizer: "sgd", "adam" or "adamw".
        momentum: Of SGD.
        weight_decay: Of all three.
        seed: Of the weights, the order of items and their augmentation.
        items_per_class: With this, a batch holds so many items of each of its classes; otherwise
            items come in random order.
        warmup_steps: Over how many steps the learning rate rises, from `warmup_factor` of it.
        warmup_factor: See `warmup_steps`.
        accumulate: How many batches make one step.
        smoothing: Of the labels that the new classifier learns; a method may have its own.
        precision: Of the model: "float32" as torch has it (on NVIDIA GPUs convolutions then take 10
            bits, unless you turn that off in torch), "tf32" (matrix products too), "bfloat16" or
            "float16" (autocast). The loss is in float32 in the last two.
        compile: Whether torch compiles the model first.
        new_prototypes: Where the new class means at the start of an epoch come from: "pass" (the
            model sees the training set once more, as for a test) or "running" (from what it made of
            the training images during the last epoch, which costs nothing).
        old_view: What the old model sees of a training item, where a method compares with it item
            by item: "test" (embedded once, as for a test) or "same" (the augmented image of the new
            model, embedded at every step).
    """

    step: int = -1
    epochs: int = 30
    batch_size: int = 256
    learning_rate: float = 0.1
    schedule: Literal["cosine", "steps"] = "cosine"
    milestones: tuple[int, ...] = (5, 10, 20)
    optimizer: Literal["sgd", "adam", "adamw"] = "sgd"
    momentum: float = 0.9
    weight_decay: float = 5e-4
    seed: int = 0
    items_per_class: int | None = None
    warmup_steps: int = 0
    warmup_factor: float = 0.1
    accumulate: int = 1
    smoothing: float = 0.0
    precision: Literal["float32", "tf32", "bfloat16", "float16"] = "float32"
    compile: bool = False
    new_prototypes: Literal["pass", "running"] = "pass"
    old_view: Literal["test", "same"] = "test"

    def __post_init__(self) -> None:
        limits = {
            "epochs": (1, 10**6),
            "batch_size": (2, 10**6),  # BatchNorm has nothing to say about one item
            "learning_rate": (0.0, 10.0**6),
            "momentum": (0.0, 1.0),
            "weight_decay": (0.0, 1.0),
            "seed": (0, 2**40),
            "warmup_steps": (0, 10**9),
            "warmup_factor": (0.0, 1.0),
            "accumulate": (1, 10**6),
            "smoothing": (0.0, 1.0),
        }
        for name, (low, high) in limits.items():
            if not low <= getattr(self, name) <= high:
                raise ConfigError(
                    f"wanted `{name}` in [train] from {low} to {high}, but got "
                    f"{getattr(self, name)}. Change it in the recipe, or by --set train.{name}=…"
                )
        each = self.items_per_class
        if each is not None and not (2 <= each <= self.batch_size // 2):
            raise ConfigError(
                f"wanted `items_per_class` in [train] from 2 to half of batch_size = "
                f"{self.batch_size}, so that a batch has two classes, but got {each}."
            )


@dataclass(frozen=True)
class PairsConfig:
    """How images and texts are trained together, where a recipe has [text].

    Attributes:
        compatible: Whose new embeddings the method sees, with their old ones: "image" (as the paper
            has it: the contrast with the images carries the texts), "text" or "both". What is of
            one class is one class, image or text.
        towards: Which old vectors the method is given for them: their "own"; those of the "image"
            for texts too, so that texts learn to ask the old images directly; or those of the
            "other" modality, a text's image and the mean of an image's texts.
        temperature: Of the contrast between images and texts.
        weight: Of the contrast; it plays the part of the classification loss.
        classification: Whether the method's classifier learns too, as from images alone. An old
            model needs it where a method asks for its classifier.
    """

    compatible: Literal["image", "text", "both"] = "image"
    towards: Literal["own", "image", "other"] = "own"
    temperature: float = 0.07
    weight: float = 1.0
    classification: bool = False

    def __post_init__(self) -> None:
        if not 0 < self.temperature <= 10 or not 0 <= self.weight < 10**6:
            raise ConfigError(
                f"wanted `temperature` in [pairs] above 0 and at most 10 and `weight` of 0 or "
                f"more, but got {self.temperature} and {self.weight}."
            )

    @property
    def modalities(self) -> tuple[str, ...]:
        """Whose embeddings the method sees."""
        return ("image", "text") if self.compatible == "both" else (self.compatible,)


@dataclass(frozen=True)
class Recipe:
    """All that one training run is told.

    Attributes:
        data: What is trained on, and searched.
        images: What the model sees of image files.
        tests: Other collections that are searched too, by a name of the recipe's own.
        model: A backbone and its projection.
        text: An encoder of texts, which gets a projection into the same space; None for models that
            see images alone.
        pairs: How both are trained together.
        method: What the training minimises; in a file that names an old model, `janus` by default.
        old: The model whose gallery is to be served.
        train: How long and how fast.
        expected: What came out elsewhere, for comparison; nothing depends on it.
    """

    data: Choice = Choice("glyphs")
    images: ImagesConfig = ImagesConfig()
    tests: Mapping[str, Choice] = field(default_factory=dict)
    model: Choice = Choice("small")
    text: Choice | None = None
    pairs: PairsConfig = PairsConfig()
    method: Choice = Choice("independent")
    old: OldConfig = OldConfig()
    train: TrainConfig = TrainConfig()
    expected: Mapping[str, Any] = field(default_factory=dict)
