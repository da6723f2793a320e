"""Checks of options of `nobackfill evaluate` that exclude each other."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nobackfill.errors import ConfigError


def check_one_kind(label: str, pairs: Path | None) -> None:
    """Raises `ConfigError` if both --pairs and --label are set."""
    if pairs is not None and label != "label":
        raise ConfigError(
            "--pairs and --label both define which items are relevant. Pass only one of them."
        )


def check_alone(options: Mapping[str, Any]) -> None:
    """Raises `ConfigError` for options that do not work with --by-modality."""
    if also := [name for name, value in options.items() if value not in (None, [])]:
        raise ConfigError(
            f"--by-modality searches in several directions, but {', '.join(also)} "
            f"{'requires' if len(also) == 1 else 'require'} one direction. Leave out the one or "
            f"the other; --protocol text_to_image or image_to_text chooses a direction."
        )
