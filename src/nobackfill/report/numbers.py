"""Numbers as people read them."""


def percent(share: float, *, digits: int = 1) -> str:
    """A share as people read it.

    Example:
        >>> percent(0.1234), percent(0.1234, digits=0)
        ('12.3 %', '12 %')
    """
    return f"{100 * share:.{digits}f} %"


def maybe(value: float | None, *, digits: int = 1, unit: str = "") -> str:
    """A fraction in percent, or a dash where it was not measured."""
    return "–" if value is None else f"{100 * value:.{digits}f}{unit}"


def count(number: int, one: str, many: str) -> str:
    """A number with its noun.

    Example:
        >>> count(1, "query", "queries"), count(2000, "query", "queries")
        ('1 query', '2,000 queries')
    """
    return f"{number:,} {one if number == 1 else many}"


def out_of(counted: int, asked: int) -> str:
    """How many count, and of how many where these are more.

    Example:
        >>> out_of(300, 1200), out_of(1200, 1200)
        ('300 of 1,200', '1,200')
    """
    return f"{counted:,}" if counted == asked else f"{counted:,} of {asked:,}"
