"""Vision models of transformers, from a local folder or from scratch."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

from jaxtyping import Float
from torch import Tensor, nn

from nobackfill.errors import ConfigError, DataError
from nobackfill.models.arguments import read_arguments, write_arguments
from nobackfill.models.base import (
    Backbone,
    find_feature_dim,
    optional_package,
    unknown_architecture,
)

# Of a configuration, what says nothing about the layers that make features.
NOT_SETTINGS = {
    "_name_or_path", "architectures", "dtype", "id2label", "label2id", "model_type",
    "out_features", "out_indices", "problem_type", "stage_names", "torch_dtype",
    "transformers_version",
}  # fmt: skip


class Pooled(nn.Module):
    """A vision model of transformers that returns one vector for each image.

    Args:
        model: Takes `pixel_values`.
        pool: "model" for its own `pooler_output`, and where it has none, the mean over tokens;
            "mean" for that in any case; "first" for the first token, the class token of most.
    """

    def __init__(self, model: nn.Module, pool: Literal["model", "mean", "first"]):
        super().__init__()
        self.model, self.pool = model, pool
        if pool != "model":  # a pooler that nobody asks gets no gradient, which processes wait for
            for name, parameter in model.named_parameters():
                if "pooler." in name:
                    parameter.requires_grad_(False)

    def forward(
        self, images: Float[Tensor, "batch channels height width"]
    ) -> Float[Tensor, "batch features"]:
        """Returns the features of each image."""
        output = self.model(pixel_values=images)
        pooled: Tensor | None = getattr(output, "pooler_output", None)
        if self.pool == "model" and pooled is not None:
            return pooled.flatten(start_dim=1)
        tokens: Tensor = output.last_hidden_state
        if tokens.ndim == 4:  # of a convolutional network: channels before places
            tokens = tokens.flatten(start_dim=2).transpose(1, 2)
        return tokens[:, 0] if self.pool == "first" else tokens.mean(dim=1)


def transformers_backbone(
    *,
    path: str | None = None,
    architecture: str | None = None,
    settings: tuple[str, ...] = (),
    pool: Literal["model", "mean", "first"] = "model",
) -> Backbone:
    """A vision model of transformers: its features after pooling, before any classifier.

    Args:
        path: A folder with config.json and safetensors, as `save_pretrained` writes it. Nothing is
            fetched. Of a model of images and texts, the part for images is taken.
        architecture: The configuration to start from scratch with, such as "ViTConfig"; with
            `path`, it is read there.
        settings: Of the configuration, such as ["hidden_size=192", "num_channels=1"].
        pool: See `Pooled`.
    """
    transformers = optional_package("transformers", extra="transformers")
    found = resolve_transformers({"path": path, "architecture": architecture, "settings": settings})
    config = _make_config(transformers, found["architecture"], found["settings"])
    try:
        if path is None:
            model = transformers.AutoModel.from_config(config)
        else:
            model = _load(transformers, Path(path), config, pool)
    except ImportError as error:
        raise ConfigError(
            f"wanted a model of transformers, but it cannot be imported here: "
            f"{error.__cause__ or error}. Install a torchvision that belongs to your torch (or "
            f"none), or choose another backbone."
        ) from error
    network = Pooled(model.float(), pool)
    size = getattr(config, "image_size", None) or 64
    return Backbone(
        network,
        find_feature_dim(
            network,
            channels=getattr(config, "num_channels", 3),
            size=size if isinstance(size, int) else size[0],
        ),
    )


def resolve_transformers(options: Mapping[str, Any]) -> dict[str, Any]:
    """Writes out what the folder at `path` says of its architecture.

    So that a finished run is built again from its recipe, wherever the folder has gone.
    """
    path, architecture, settings = (options[k] for k in ("path", "architecture", "settings"))
    if architecture is not None:
        return dict(options)
    if path is None:
        raise ConfigError(
            "wanted `path` (a folder) or `architecture` (such as ViTConfig) in [model], but got "
            "neither."
        )
    transformers = optional_package("transformers", extra="transformers")
    if not (Path(path) / "config.json").exists():
        raise DataError(
            f"wanted a folder of transformers at {path}, but it has no config.json. Pass what "
            f"`save_pretrained` wrote; nothing is fetched."
        )
    try:
        config = transformers.AutoConfig.from_pretrained(
            path, local_files_only=True, trust_remote_code=False
        )
    except (OSError, ValueError, KeyError) as error:
        raise DataError(
            f"wanted a model that transformers {transformers.__version__} knows in {path}, but: "
            f"{str(error).rstrip('.')}. Install another release, or choose another folder."
        ) from None
    config = getattr(config, "vision_config", config)
    known = type(config)().to_dict().keys() - NOT_SETTINGS  # files have others, of older releases
    values = {key: value for key, value in config.to_diff_dict().items() if key in known}
    values |= read_arguments(settings, key="settings")
    written = write_arguments(values)
    return {**options, "architecture": type(config).__name__, "settings": written}


def _make_config(transformers: ModuleType, name: str, settings: tuple[str, ...]) -> Any:
    kind = getattr(transformers, name, None)
    if not name.endswith("Config") or not isinstance(kind, type):
        known = [known for known in dir(transformers) if known.endswith("Config")]
        raise unknown_architecture(name, known, listed_by="The documentation of transformers")
    arguments = read_arguments(settings, key="settings")
    try:
        config = kind(**arguments)
    except Exception as error:  # of many kinds, as each configuration checks for itself
        raise ConfigError(
            f"wanted `settings` in [model] that {name} takes, but: {error}"
        ) from error
    unknown = [key for key in arguments if key not in kind().to_dict()]
    if unknown:
        raise ConfigError(
            f"wanted `settings` in [model] that {name} knows, but got {', '.join(unknown)}. See "
            f"its documentation."
        )
    return config


def _load(transformers: ModuleType, path: Path, config: Any, pool: str) -> Any:
    """The model of a folder, if all its weights are there."""
    try:
        with _quiet(transformers):
            model, report = transformers.AutoModel.from_pretrained(
                str(path),
                config=config,
                local_files_only=True,
                trust_remote_code=False,
                use_safetensors=True,
                ignore_mismatched_sizes=True,  # they are reported below, with the others
                output_loading_info=True,
            )
    except (OSError, RuntimeError, ValueError) as error:
        raise DataError(
            f"wanted the weights of a {type(config).__name__} in {path}, but they cannot be "
            f"loaded: {str(error).rstrip('.')}. Save the model again by `save_pretrained`, as "
            f"safetensors."
        ) from error
    missing = sorted(report["missing_keys"])
    if pool != "model":
        missing = [name for name in missing if "pooler." not in name]
    elif missing and all("pooler." in name for name in missing):
        raise DataError(
            f'wanted the weights of the pooler in {path}, but it has none. Set `pool = "first"` '
            f'or `pool = "mean"` in [model].'
        )
    wrong = {
        "missing": missing,
        "left over": sorted(n for n in report["unexpected_keys"] if _is_part_of(model, n)),
        "of another shape": sorted(name for name, *_ in report["mismatched_keys"]),
    }
    if any(wrong.values()):
        kinds = "".join(
            f"\n  {kind} ({len(names)}): {', '.join(names[:5])}{', …' if len(names) > 5 else ''}"
            for kind, names in wrong.items()
            if names
        )
        raise DataError(
            f"wanted all the weights of a {type(config).__name__} in {path}, but they do not fit."
            f"{kinds}\nRemove `settings` from [model], or choose another folder."
        )
    return model


def _is_part_of(model: Any, name: str) -> bool:
    """Whether a name belongs to a part the model has; that of a classifier or text model does not.

    What does not is dropped, as with any head.
    """
    inner = name.removeprefix(f"{model.base_model_prefix}.").removeprefix("vision_model.")
    return inner.split(".")[0] in dict(model.named_children())


@contextmanager
def _quiet(transformers: ModuleType) -> Iterator[None]:
    """Without the progress bar and report of loading: what matters of it, we raise."""
    logging = transformers.utils.logging
    verbosity, bar = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if bar:
            logging.enable_progress_bar()
