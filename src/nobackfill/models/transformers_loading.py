"""A model of transformers, from a local folder or from scratch: the part that sees, or that reads.

Nothing is fetched, no code of a folder is run, and all weights must fit.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

from torch import nn

from nobackfill.errors import ConfigError, DataError
from nobackfill.models.arguments import read_arguments, write_arguments
from nobackfill.models.base import optional_package, unknown_architecture

Part = Literal["vision", "text"]
TABLES = {"vision": "model", "text": "text"}  # of a recipe, for errors
EXAMPLES = {"vision": "ViTConfig", "text": "BertConfig"}

# Of a configuration, what says nothing about the layers that make features.
NOT_SETTINGS = {
    "_name_or_path", "architectures", "dtype", "id2label", "label2id", "model_type",
    "out_features", "out_indices", "problem_type", "stage_names", "torch_dtype",
    "transformers_version",
}  # fmt: skip


def resolve_architecture(options: Mapping[str, Any], part: Part) -> dict[str, Any]:
    """Writes out what the folder at `path` says of its architecture.

    So that a finished run is built again from its recipe, wherever the folder has gone.

    Args:
        options: With `path`, `architecture` and `settings`.
        part: Which to take, of a model of images and texts.
    """
    path, architecture, settings = (options[k] for k in ("path", "architecture", "settings"))
    if architecture is not None:
        return dict(options)
    if path is None:
        raise ConfigError(
            f"wanted `path` (a folder) or `architecture` (such as {EXAMPLES[part]}) in "
            f"[{TABLES[part]}], but got neither."
        )
    config = _take_part(_read_config(path), part)
    known = type(config)().to_dict().keys() - NOT_SETTINGS  # files have others, of older releases
    values = {key: value for key, value in config.to_diff_dict().items() if key in known}
    values |= read_arguments(settings, key="settings", where=TABLES[part])
    written = write_arguments(values)
    return {**options, "architecture": type(config).__name__, "settings": written}


def make_config(architecture: str, settings: tuple[str, ...], part: Part) -> Any:
    """The configuration that a resolved recipe names."""
    transformers = optional_package("transformers", extra="transformers")
    kind = getattr(transformers, architecture, None)
    if not architecture.endswith("Config") or not isinstance(kind, type):
        known = [known for known in dir(transformers) if known.endswith("Config")]
        raise unknown_architecture(
            architecture,
            known,
            listed_by="The documentation of transformers",
            where=TABLES[part],
        )
    arguments = read_arguments(settings, key="settings", where=TABLES[part])
    try:
        config = kind(**arguments)
    except Exception as error:  # of many kinds, as each configuration checks for itself
        raise ConfigError(
            f"wanted `settings` in [{TABLES[part]}] that {architecture} takes, but: {error}"
        ) from error
    unknown = [key for key in arguments if key not in kind().to_dict()]
    if unknown:
        raise ConfigError(
            f"wanted `settings` in [{TABLES[part]}] that {architecture} knows, but got "
            f"{', '.join(unknown)}. See its documentation."
        )
    return config


def make_network(config: Any, path: str | None, pool: str, part: Part) -> Any:
    """The model of a configuration, in float32: with the weights of a folder, or fresh ones.

    Args:
        config: As `make_config` returns it.
        path: The folder.
        pool: "projected" for the model with its projection. What any other way but "model" does
            not ask of a model need not be in the folder, and does not learn.
        part: For errors.
    """
    transformers = optional_package("transformers", extra="transformers")
    try:
        kind = _model_class(transformers, config, pool, part)
        if path is not None:
            model = _load(transformers, kind, Path(path), config, pool, part)
        else:
            automatic = kind is transformers.AutoModel
            model = kind.from_config(config) if automatic else kind(config)
    except ImportError as error:
        raise ConfigError(
            f"wanted a model of transformers, but it cannot be imported here: "
            f"{error.__cause__ or error}. Install a torchvision that belongs to your torch (or "
            f"none), or choose another in [{TABLES[part]}]."
        ) from error
    return model.float()


def freeze_pooler(model: nn.Module) -> None:
    """A pooler that nobody asks gets no gradient, which processes would wait for."""
    for name, parameter in model.named_parameters():
        if _is_pooler(name):
            parameter.requires_grad_(False)


def _is_pooler(name: str) -> bool:
    """Whether a weight belongs to the pooler, which SigLIP calls its head."""
    return "pooler." in name or name.startswith("head.")


def _read_config(path: str) -> Any:
    """The configuration in a folder."""
    transformers = optional_package("transformers", extra="transformers")
    if not (Path(path) / "config.json").exists():
        raise DataError(
            f"wanted a folder of transformers at {path}, but it has no config.json. Pass what "
            f"`save_pretrained` wrote; nothing is fetched."
        )
    try:
        return transformers.AutoConfig.from_pretrained(
            path, local_files_only=True, trust_remote_code=False
        )
    except (OSError, ValueError, KeyError) as error:
        raise DataError(
            f"wanted a model that transformers {transformers.__version__} knows in {path}, but: "
            f"{str(error).rstrip('.')}. Install another release, or choose another folder."
        ) from None


def _take_part(whole: Any, part: Part) -> Any:
    """The configuration of one part, which has the projection that the whole names."""
    config = getattr(whole, f"{part}_config", whole)
    if hasattr(whole, "projection_dim") and hasattr(config, "projection_dim"):
        config.projection_dim = whole.projection_dim
    return config


def _model_class(transformers: ModuleType, config: Any, pool: str, part: Part) -> Any:
    """What makes the model: `AutoModel`, but where it does not know the part, or its projection."""
    if pool != "projected" and type(config) in transformers.MODEL_MAPPING:
        return transformers.AutoModel
    name = type(config).__name__.removesuffix("Config") + "Model"
    name += "WithProjection" if pool == "projected" else ""
    kind = getattr(transformers, name, None)
    if kind is None:
        what_to_do = 'Set `pool = "model"`' if pool == "projected" else "Choose another one"
        raise ConfigError(
            f"wanted a {name} of transformers, as `pool` and `architecture` in [{TABLES[part]}] "
            f"say, but there is none. {what_to_do}."
        )
    return kind


def _load(
    transformers: ModuleType, kind: Any, path: Path, config: Any, pool: str, part: Part
) -> Any:
    """The model of a folder, if all its weights are there."""
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
            f"wanted the weights of a {type(config).__name__} in {path}, but they cannot be "
            f"loaded: {str(error).rstrip('.')}. Save the model again by `save_pretrained`, as "
            f"safetensors."
        ) from error
    missing = sorted(report["missing_keys"])
    if pool in ("mean", "first"):
        missing = [name for name in missing if not _is_pooler(name)]
    elif missing and all(_is_pooler(name) for name in missing):
        raise DataError(
            f'wanted the weights of the pooler in {path}, but it has none. Set `pool = "first"` '
            f'or `pool = "mean"` in [{TABLES[part]}].'
        )
    elif missing and all("_projection." in name for name in missing) and pool == "projected":
        raise DataError(
            f"wanted the weights of the projection in {path}, but it has none. Set "
            f'`pool = "model"` in [{TABLES[part]}].'
        )
    wrong = {
        "missing": missing,
        "left over": sorted(n for n in report["unexpected_keys"] if _is_part_of(model, n, part)),
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
            f"{kinds}\nRemove `settings` from [{TABLES[part]}], or choose another folder."
        )
    return model


def _is_part_of(model: Any, name: str, part: Part) -> bool:
    """Whether a name belongs to a part the model has; that of a classifier or other part does not.

    What does not is dropped, as with any head.
    """
    inner = name.removeprefix(f"{model.base_model_prefix}.").removeprefix(f"{part}_model.")
    children = dict(model.named_children()) | dict(model.base_model.named_children())
    return inner.split(".")[0] in children


@contextmanager
def quiet(transformers: ModuleType) -> Iterator[None]:
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
