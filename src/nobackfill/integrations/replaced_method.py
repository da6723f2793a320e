"""Replaces a method of a single object within a block."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def replaced_method(owner: object, name: str, method: Callable[..., Any]) -> Iterator[None]:
    """Within the block, `owner` has another method; afterwards the one that it had before.

    Example:
        >>> class Light:
        ...     def color(self): return "green"
        >>> light = Light()
        >>> with replaced_method(light, "color", lambda: "red"):
        ...     light.color()
        'red'
        >>> light.color()
        'green'
    """
    own = vars(owner).get(name)  # an attribute of the object hides that of its class
    setattr(owner, name, method)
    try:
        yield
    finally:
        delattr(owner, name)
        if own is not None:
            setattr(owner, name, own)
