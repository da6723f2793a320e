"""The settings of a recipe, as frozen dataclasses."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from nobackfill.core.config.defaults import DEFAULT_TEMPERATURE
from nobackfill.errors import ConfigError

TRAIN_LIMITS = {
    "epochs": (1, 10**6),
    "batch_size": (2, 10**6),  # BatchNorm requires two items
    "learning_rate": (0.0, 10.0**6),
    "momentum": (0.0, 1.0),
    "beta2": (0.0, 0.999999),
    "weight_decay": (0.0, 1.0),
    "seed": (0, 2**40),
    "warmup_steps": (0, 10**9),
    "warmup_factor": (0.0, 1.0),
    "bias_factor": (0.0, 100.0),
    "accumulate": (1, 10**6),
    "smoothing": (0.0, 1.0),
}


@dataclass(frozen=True)
class Choice:
    """A collection, backbone, text encoder or method: its name and its options."""

    name: str
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class OldConfig:
    """The old model: a run folder, a file of its vectors, a recipe to train it, or none.

    Attributes:
        run: Run folder of the old model.
        vectors: File of the old model's vectors of the new training set.
        known_classes: Number of classes that the old model was trained on, the first ones. With
            `run` it is read from the run; with `vectors`, the default is all classes.
        independent: Run folder or file of vectors of a new model trained without compatibility,
            for the methods that start from one.
        recipe: Recipe of the old model, which is trained first if it does not exist yet. The path
            is relative to the recipe that names it.
        independent_recipe: Recipe of the model of `independent`, likewise.
    """

    run: str | None = None
    vectors: str | None = None
    known_classes: int | None = None
    independent: str | None = None
    recipe: str | None = None
    independent_recipe: str | None = None

    def __post_init__(self) -> None:
        for names in (("run", "vectors", "recipe"), ("independent", "independent_recipe")):
            sources = [name for name in names if getattr(self, name)]
            if len(sources) > 1:
                raise ConfigError(
                    f"[old] has both `{sources[0]}` and `{sources[1]}`, which name the same model. "
                    f"Remove one of them."
                )


@dataclass(frozen=True)
class ImagesConfig:
    """Preprocessing of image files, the same for all collections of a recipe.

    Attributes:
        size: Length to resize the shorter side to, or height and width.
        crop: Height and width of the crop: at a random position for training, otherwise in the
            centre. Empty for no crop; required if `size` is one number.
        channels: 3 for colour, 1 for grey.
        interpolation: "bicubic" or "bilinear", with antialiasing.
        normalize: "imagenet" standardises each channel by ImageNet's mean and standard deviation;
            "half" maps to -1 .. 1; "rstpreid" standardises by RSTPReid's.
        flip: Share of the training images that are mirrored.
        pad: Maximal shift of a training image in pixels; the border is filled with black.
        erase: Share of the training images in which a random rectangle is erased.
    """

    size: tuple[int, ...] = (256,)
    crop: tuple[int, ...] = (224, 224)
    channels: int = 3
    interpolation: Literal["bicubic", "bilinear"] = "bicubic"
    normalize: Literal["imagenet", "half", "rstpreid"] = "imagenet"
    flip: float = 0.5
    pad: int = 0
    erase: float = 0.0

    def __post_init__(self) -> None:
        size, crop = self.size, self.crop
        if len(size) not in (1, 2) or len(crop) not in (0, 2):
            raise ConfigError(
                f"[images] has size = {list(size)} and crop = {list(crop)}. Write one or two "
                f"numbers as `size`, and two or none as `crop`."
            )
        if not crop and len(size) == 1:
            raise ConfigError(
                "[images] has one number as `size` and no `crop`, so images would differ in shape. "
                "Add `crop = [height, width]`, or write `size = [height, width]`."
            )
        full = size if len(size) == 2 else size * 2
        too_large = any(part > whole for part, whole in zip(crop, full, strict=False))
        if too_large or min(*size, *crop) < 1:
            raise ConfigError(
                f"[images] has size = {list(size)} and crop = {list(crop)}. Choose a `crop` that "
                f"fits into the resized image."
            )
        if self.channels not in (1, 3):
            raise ConfigError(f"`channels` in [images] must be 1 or 3, not {self.channels}.")
        for name in ("flip", "erase"):
            if not 0 <= getattr(self, name) <= 1:
                raise ConfigError(
                    f"`{name}` in [images] must be a share from 0 to 1, not {getattr(self, name)}."
                )
        if self.pad < 0:
            raise ConfigError(f"`pad` in [images] must be 0 or more, not {self.pad}.")

    @property
    def shape(self) -> tuple[int, int]:
        """Height and width of the model's input."""
        height, width = self.crop or self.size
        return height, width


@dataclass(frozen=True)
class TrainConfig:
    """Settings of the training loop.

    Attributes:
        step: Step of the data: the classes of `shares[step]` are trained on, by default the last.
        epochs: Number of passes over the training set.
        batch_size: Number of items per batch.
        learning_rate: Initial learning rate, decreased by `schedule`.
        schedule: "cosine" to 0; "steps": divided by 10 at each of the `milestones`; or
            "linear_steps", as in APTM: a line to 0, halved after 40 % of the training and cut to a
            fifth after 70 %.
        milestones: Epochs at which "steps" decreases the learning rate.
        optimizer: "sgd", "adam" or "adamw".
        momentum: Momentum of SGD.
        beta2: Second beta of "adam" and "adamw".
        weight_decay: Weight decay of the optimizer.
        seed: Random seed of the order of items and their augmentation, and of the initial weights.
        weights_seed: Random seed of the initial weights of model and method. By default it follows
            from `seed`, `step` and the old model's: two models never start from equal weights,
            which would give even independent models related spaces.
        items_per_class: Number of items of each class in a batch; None for random order.
        warmup_steps: Number of steps over which the learning rate rises to its initial value.
        warmup_factor: Share of the learning rate at which the warmup starts.
        schedule_start: Epoch from which `schedule` counts: the "start" of the training, or the end
            of the "warmup", as fast-reid counts.
        bias_factor: Factor of the learning rate of biases.
        accumulate: Number of batches per optimizer step.
        smoothing: Label smoothing of the new classifier; a method may have its own.
        precision: Precision of the model: "float32" as torch has it (on NVIDIA GPUs convolutions
            then use TF32, unless you turn that off in torch), "tf32" (matrix products too),
            "bfloat16" or "float16" (autocast). The last two compute the loss in float32.
        compile: Whether to compile the model with `torch.compile`.
        new_prototypes: Source of the new class means at the start of an epoch: "pass" (embed the
            training set once more, without augmentation) or "running" (average the embeddings of
            the last epoch, at no cost).
        old_view: Input of the old model for methods that compare item by item: "test" (embedded
            once, without augmentation) or "same" (the augmented image of the new model, embedded
            at every step).
    """

    step: int = -1
    epochs: int = 30
    batch_size: int = 256
    learning_rate: float = 0.1
    schedule: Literal["cosine", "steps", "linear_steps"] = "cosine"
    milestones: tuple[int, ...] = (5, 10, 20)
    optimizer: Literal["sgd", "adam", "adamw"] = "sgd"
    momentum: float = 0.9
    beta2: float = 0.999
    weight_decay: float = 5e-4
    seed: int = 0
    weights_seed: int | None = None
    items_per_class: int | None = None
    warmup_steps: int = 0
    warmup_factor: float = 0.1
    schedule_start: Literal["start", "warmup"] = "start"
    bias_factor: float = 1.0
    accumulate: int = 1
    smoothing: float = 0.0
    precision: Literal["float32", "tf32", "bfloat16", "float16"] = "float32"
    compile: bool = False
    new_prototypes: Literal["pass", "running"] = "pass"
    old_view: Literal["test", "same"] = "test"

    def __post_init__(self) -> None:
        for name, (low, high) in TRAIN_LIMITS.items():
            if not low <= getattr(self, name) <= high:
                raise ConfigError(
                    f"`{name}` in [train] must be from {low} to {high}, not {getattr(self, name)}. "
                    f"Change it in the recipe, or by --set train.{name}=…"
                )
        if self.weights_seed is not None and not 0 <= self.weights_seed <= TRAIN_LIMITS["seed"][1]:
            raise ConfigError(
                f"`weights_seed` in [train] must be from 0 to {TRAIN_LIMITS['seed'][1]}, not "
                f"{self.weights_seed}. Leave it out to derive it from `seed`."
            )
        items = self.items_per_class
        if items is not None and not (2 <= items <= self.batch_size // 2):
            raise ConfigError(
                f"`items_per_class` in [train] must be from 2 to half of batch_size = "
                f"{self.batch_size}, so that a batch has two classes, not {items}."
            )


@dataclass(frozen=True)
class PairsConfig:
    """Joint training of images and texts, in recipes with [text].

    Attributes:
        compatible: Modality whose new and old embeddings the method receives: "image" (as in the
            paper; the contrastive loss carries the texts along), "text" or "both". Images and
            texts share their classes.
        towards: Old vectors that the method receives: those of the "own" modality; those of the
            "image" for texts too, so that text queries learn to search old images directly; or
            those of the "other" modality (a text's image, the mean of an image's texts).
        texts: Texts that an epoch shows each image with: "one" of them at random, or "each".
        temperature: Temperature of the contrastive loss between images and texts.
        weight: Weight of the contrastive loss, which replaces the classification loss.
        classification: Whether to train the method's classifier too. Set it for an old model whose
            classifier a later method requires.
    """

    compatible: Literal["image", "text", "both"] = "image"
    towards: Literal["own", "image", "other"] = "own"
    texts: Literal["one", "each"] = "one"
    temperature: float = DEFAULT_TEMPERATURE
    weight: float = 1.0
    classification: bool = False

    def __post_init__(self) -> None:
        if not 0 < self.temperature <= 10 or not 0 <= self.weight < 10**6:
            raise ConfigError(
                f"[pairs] has temperature = {self.temperature} and weight = {self.weight}. "
                f"`temperature` must be above 0 and at most 10, `weight` 0 or more."
            )

    @property
    def modalities(self) -> tuple[str, ...]:
        """Modalities whose embeddings the method receives."""
        return ("image", "text") if self.compatible == "both" else (self.compatible,)


@dataclass(frozen=True)
class Recipe:
    """All settings of a training run.

    Attributes:
        data: Collection to train and evaluate on.
        images: Preprocessing of image files.
        tests: More collections to evaluate on, by name.
        model: Backbone and its projection.
        text: Text encoder with a projection into the same space; None for models of images alone.
        pairs: Joint training of images and texts.
        method: Training method; with an old model, `member_contrast` by default.
        old: Old model whose gallery stays in use.
        train: Settings of the training loop.
        expected: Published results, for comparison only.
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
