"""Vision and text models of transformers, from a local folder or from scratch.

Nothing is downloaded, no code of a folder is run, and all weights must fit.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

from torch import Tensor, nn

from nobackfill.errors import ConfigError, DataError
from nobackfill.models.arguments import read_arguments, write_arguments
from nobackfill.models.base import optional_package, unknown_architecture
from nobackfill.models.weights import require_fit

Pool = Literal["model", "mean", "first", "projected"]
Part = Literal["vision", "text"]
TABLES = {"vision": "model", "text": "text"}  # tables of a recipe, for errors
EXAMPLES = {"vision": "ViTConfig", "text": "BertConfig"}

# Keys of a configuration that do not affect the layers that make features.
NOT_SETTINGS = {
    "_name_or_path", "architectures", "dtype", "id2label", "label2id", "model_type",
    "out_features", "out_indices", "problem_type", "stage_names", "torch_dtype",
    "transformers_version",
}  # fmt: skip


def resolve_architecture(options: Mapping[str, Any], part: Part) -> dict[str, Any]:
    """Adds the architecture of the model in the folder at `path` to the options.

    A finished run can then be built again from its recipe, even if the folder is gone.

    Args:
        options: Options with `path`, `architecture` and `settings`.
        part: Part to use of a model of images and texts.
    """
    path, architecture, settings = (options[k] for k in ("path", "architecture", "settings"))
    if architecture is not None:
        return dict(options)
    if path is None:
        raise ConfigError(
            f"[{TABLES[part]}] has neither `path` (a folder) nor `architecture` (such as "
            f"{EXAMPLES[part]}). Add one of them."
        )
    config = _read_config(path, part)
    known = type(config)().to_dict().keys() - NOT_SETTINGS  # files of older releases have others
    values = {key: value for key, value in config.to_diff_dict().items() if key in known}
    values |= read_arguments(settings, key="settings", where=TABLES[part])
    written = write_arguments(values)
    return {**options, "architecture": type(config).__name__, "settings": written}


def make_config(architecture: str, settings: tuple[str, ...], part: Part) -> Any:
    """Makes the configuration that a resolved recipe names."""
    transformers = optional_package("transformers", extra="transformers")
    kind = getattr(transformers, architecture, None)
    if not architecture.endswith("Config") or not isinstance(kind, type):
        known = [known for known in dir(transformers) if known.endswith("Config")]
        source = "The documentation of transformers"
        raise unknown_architecture(architecture, known, listed_by=source, where=TABLES[part])
    arguments = read_arguments(settings, key="settings", where=TABLES[part])
    try:
        config = kind(**arguments)
    except Exception as error:  # of many kinds, as each configuration checks for itself
        raise ConfigError(
            f"{architecture} refuses `settings` in [{TABLES[part]}]: {error}"
        ) from error
    if unknown := [key for key in arguments if key not in kind().to_dict()]:
        raise ConfigError(
            f"{architecture} does not know these `settings` in [{TABLES[part]}]: "
            f"{', '.join(unknown)}. See its documentation."
        )
    return config


def make_network(config: Any, path: str | None, pool: Pool, part: Part) -> Any:
    """Makes the model of a configuration, in float32, with the weights of a folder or random ones.

    Args:
        config: Configuration of `make_config`.
        path: Path of the folder, or None.
        pool: "projected" for the model with its projection. With "mean" and "first", the folder may
            lack the pooler, which is not trained.
        part: Part of the model, for errors.
    """
    transformers = optional_package("transformers", extra="transformers")
    try:
        kind = _model_class(transformers, config, pool, part)
        if path is not None:
            model = load_folder(transformers, kind, Path(path), config, pool, part)
        else:
            automatic = kind is transformers.AutoModel
            model = kind.from_config(config) if automatic else kind(config)
    except ImportError as error:
        raise ConfigError(
            f"The model of transformers cannot be imported here: {error.__cause__ or error}. "
            f"Install a torchvision that belongs to your torch (or none), or choose another model "
            f"in [{TABLES[part]}]."
        ) from error
    return model.float()


def pooled_output(output: Any, pool: Pool, projected: str) -> Tensor | None:
    """Returns the vectors that the model itself pooled; None if tokens are to be pooled.

    Args:
        output: Output of a model of transformers.
        pool: Pooling of the features.
        projected: Attribute of the output for "projected".
    """
    if pool == "projected":
        return getattr(output, projected)  # type: ignore[no-any-return]
    return getattr(output, "pooler_output", None) if pool == "model" else None


def freeze_pooler(model: nn.Module) -> None:
    """Freezes an unused pooler: processes would wait for its gradient."""
    for name, parameter in model.named_parameters():
        if _is_pooler(name):
            parameter.requires_grad_(False)


def _is_pooler(name: str) -> bool:
    """Whether a weight belongs to the pooler, which is named head in SigLIP."""
    return "pooler." in name or name.startswith("head.")


def _read_config(path: str, part: Part) -> Any:
    """Reads the configuration of one part of the model in a folder."""
    transformers = optional_package("transformers", extra="transformers")
    if not (Path(path) / "config.json").exists():
        raise DataError(
            f"{path} has no config.json, so it is no model folder of transformers. Pass one that "
            f"`save_pretrained` wrote; nothing is downloaded."
        )
    try:
        whole = transformers.AutoConfig.from_pretrained(
            path, local_files_only=True, trust_remote_code=False
        )
    except (OSError, ValueError, KeyError) as error:
        raise DataError(
            f"transformers {transformers.__version__} does not know the model in {path}: "
            f"{str(error).rstrip('.')}. Install another release, or choose another folder."
        ) from None
    config = getattr(whole, f"{part}_config", whole)
    if hasattr(whole, "projection_dim") and hasattr(config, "projection_dim"):
        config.projection_dim = whole.projection_dim
    return config


def _model_class(transformers: ModuleType, config: Any, pool: Pool, part: Part) -> Any:
    """Returns `AutoModel`, or the class of a part or projection that `AutoModel` does not know."""
    if pool != "projected" and type(config) in transformers.MODEL_MAPPING:
        return transformers.AutoModel
    name = type(config).__name__.removesuffix("Config") + "Model"
    name += "WithProjection" if pool == "projected" else ""
    kind = getattr(transformers, name, None)
    if kind is None:
        remedy = 'Set `pool = "model"`' if pool == "projected" else "Choose another one"
        raise ConfigError(
            f"transformers has no {name}, which `pool` and `architecture` in [{TABLES[part]}] "
            f"require. {remedy}."
        )
    return kind


def load_folder(
    transformers: ModuleType, kind: Any, path: Path, config: Any, pool: Pool, part: Part
) -> Any:
    """Loads the model in a folder, all of whose weights must fit."""
    try:
        with quiet(transformers):
            model, report = kind.from_pretrained(
                str(path),
                config=config,
                local_files_only=True,
                use_safetensors=True,
                ignore_mismatched_sizes=True,  # they are reported below, with the others
                output_loading_info=True,
                **({"trust_remote_code": False} if kind is transformers.AutoModel else {}),
            )
    except (OSError, RuntimeError, ValueError) as error:
        raise DataError(
            f"The weights of a {type(config).__name__} in {path} cannot be loaded: "
            f"{str(error).rstrip('.')}. Save the model again by `save_pretrained`, as safetensors."
        ) from error
    missing = _needed(sorted(report["missing_keys"]), path, pool, part)
    unexpected = [name for name in report["unexpected_keys"] if _is_part_of(model, name, part)]
    require_fit(
        path,
        {
            "missing": missing,
            "left over": sorted(unexpected),
            "of another shape": sorted(name for name, *_ in report["mismatched_keys"]),
        },
        f"Remove `settings` from [{TABLES[part]}], or choose another folder.",
    )
    return model


def _needed(missing: list[str], path: Path, pool: Pool, part: Part) -> list[str]:
    """Returns the missing weights without those of an unused pooler.

    Raises if only the pooler or only the projection is missing: other poolings do not use it.
    """
    if pool in ("mean", "first"):
        return [name for name in missing if not _is_pooler(name)]
    if missing and all(_is_pooler(name) for name in missing):
        raise DataError(
            f'{path} has no weights of the pooler. Set `pool = "first"` or `pool = "mean"` in '
            f"[{TABLES[part]}]."
        )
    if missing and all("_projection." in name for name in missing) and pool == "projected":
        raise DataError(
            f'{path} has no weights of the projection. Set `pool = "model"` in [{TABLES[part]}].'
        )
    return missing


def _is_part_of(model: Any, name: str, part: Part) -> bool:
    """Whether a weight belongs to a part of the model; others, as of classifiers, are dropped."""
    inner = name.removeprefix(f"{model.base_model_prefix}.").removeprefix(f"{part}_model.")
    children = dict(model.named_children()) | dict(model.base_model.named_children())
    if ".seq_relationship." in inner:  # BERT's head for pairs of sentences
        return False
    return inner.split(".")[0] in children


@contextmanager
def quiet(transformers: ModuleType) -> Iterator[None]:
    """Hides the progress bar and the report of loading; errors are raised anyway."""
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
