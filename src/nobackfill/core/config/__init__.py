"""Settings: frozen dataclasses read from TOML. Unknown keys are errors."""

from nobackfill.core.config.parse import build, build_recipe, check_keys, resolve_options
from nobackfill.core.config.schema import (
    Choice,
    ImagesConfig,
    OldConfig,
    PairsConfig,
    Recipe,
    TrainConfig,
)
from nobackfill.core.config.toml import (
    change_tables,
    merge_tables,
    read_recipe,
    read_sequence,
    to_toml,
)

__all__ = [
    "Choice", "ImagesConfig", "OldConfig", "PairsConfig", "Recipe", "TrainConfig", "build",
    "build_recipe", "change_tables", "check_keys", "merge_tables", "read_recipe", "read_sequence",
    "resolve_options", "to_toml",
]  # fmt: skip
