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
from nobackfill.core.suggest import closest, suggest, suggest_path

__all__ = [
    "Choice", "ImagesConfig", "OldConfig", "PairsConfig", "Recipe", "TrainConfig", "build",
    "build_recipe", "change_tables", "check_keys", "closest", "merge_tables", "read_recipe",
    "read_sequence", "resolve_options", "suggest", "suggest_path", "to_toml",
]  # fmt: skip
