"""Errors name files by the paths that the user has passed."""

from collections.abc import Mapping
from functools import wraps
from typing import Any

from nobackfill.errors import NobackfillError

# What an error calls the file of an option.
FILES = {
    "old": "the old file",
    "new": "the new file",
    "query_for_old": "the file of mapped queries",
}
BOTH = {
    "neither file": "neither {old} nor {new}",
    "Neither file": "Neither {old} nor {new}",
    "either file": "{old} or {new}",
    "The files have": "{old} and {new} have",
    "no file has": "neither {old} nor {new} has",
}


def name_files(command: Any) -> Any:
    """Makes the errors of a command, or of those of a group, name files by their paths."""
    for part in getattr(command, "commands", {}).values():
        name_files(part)
    if {"old", "new"} <= {part.name for part in command.params}:
        command.callback = _naming(command.callback)
    return command


def with_paths(message: str, options: Mapping[str, Any]) -> str:
    """A message with paths in place of "the old file" and the like.

    Example:
        >>> options = {"old": "a.csv", "new": "b.csv"}
        >>> with_paths("no column `x` in the old file", options)
        'no column `x` in a.csv'
        >>> with_paths("no column `x` in either file", options)
        'no column `x` in a.csv or b.csv'
        >>> with_paths("neither file has `x`", options)
        'neither a.csv nor b.csv has `x`'
    """
    for option, words in FILES.items():
        if options.get(option) is not None:
            message = message.replace(words, str(options[option]))
            message = message.replace(words[0].upper() + words[1:], str(options[option]))
    for words, pattern in BOTH.items():
        message = message.replace(words, pattern.format(old=options["old"], new=options["new"]))
    return message


def _naming(function: Any) -> Any:
    @wraps(function)
    def run(**options: Any) -> Any:
        try:
            return function(**options)
        except NobackfillError as error:
            error.args = (with_paths(str(error), options), *error.args[1:])
            raise

    return run
