"""Options that a method passes on to one of its parts, so that defaults are written only once."""

import inspect
from collections.abc import Callable, Sequence
from functools import wraps
from inspect import Parameter, Signature
from typing import Any


def passes_on(
    part: Callable[..., Any], *, without: Sequence[str] = (), before: str | None = None
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Gives a constructor the options of `part` in place of its own `**options`.

    Recipes, `inspect.signature` and the documentation then see the options of `part`, with its
    types and defaults.

    Args:
        part: Class or function that receives the options: its keyword-only arguments.
        without: Options of `part` that the constructor does not have.
        before: Option of the constructor that follows those of `part`. None puts them last.

    Example:
        >>> class Ball:
        ...     def __init__(self, *, radius: float = 1.0, color: str = "red"): ...
        >>> class Match:
        ...     @passes_on(Ball, without=["color"])
        ...     def __init__(self, *, minutes: int = 90, **ball): ...
        >>> inspect.signature(Match)
        <Signature (*, minutes: int = 90, radius: float = 1.0)>
    """
    options = [
        parameter
        for parameter in inspect.signature(part).parameters.values()
        if parameter.kind is Parameter.KEYWORD_ONLY and parameter.name not in without
    ]

    def decorate(init: Callable[..., None]) -> Callable[..., None]:
        own = list(inspect.signature(init).parameters.values())[:-1]  # the last is `**options`
        names = [parameter.name for parameter in own]
        place = len(own) if before is None else names.index(before)
        signature = Signature([*own[:place], *options, *own[place:]])

        @wraps(init)
        def checked(*args: Any, **kwargs: Any) -> None:
            signature.bind(*args, **kwargs)  # raises TypeError at an unknown option
            init(*args, **kwargs)

        checked.__annotations__ = {p.name: p.annotation for p in signature.parameters.values()}
        vars(checked).update(__signature__=signature, part=part)
        return checked

    return decorate
