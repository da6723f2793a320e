"""Mistakes on the command line in one line, with a suggestion."""

import re
from typing import Any

from nobackfill.errors import ConfigError


def as_config_error(error: Any) -> Exception:
    """A `ConfigError` for a mistake on the command line, with a remedy.

    No arguments at all are no mistake: then the help has been printed.
    """
    is_help = type(error).__name__ == "NoArgsIsHelpError"
    return error if is_help else ConfigError(sentence(error))


def sentence(error: Any) -> str:
    """What is wrong with a command line, and what to do."""
    from nobackfill.core.suggest import closest, suggest

    context = error.ctx
    message = str(error.format_message()).strip()
    command = command_of(context)
    if (option := getattr(error, "option_name", None)) and "No such" in message:
        names = [name for part in context.command.params for name in part.opts if name[0] == "-"]
        message, close = f"unknown option `{option}`.", closest(option, ["--help", *names])
    elif no_command := re.match(r"No such command '(.*?)'\.", message):
        typed = no_command[1]
        message = f"unknown command `{typed}`."
        close = closest(typed, context.command.commands)
    elif no_choice := re.search(r"for '(.*?)': .*?'(.*?)' is not one of (.*)\.", message):
        name, typed, choices = no_choice.groups()
        known = re.findall("'(.*?)'", choices)
        what = f"value `{typed}` of {name}" if name[0] == "-" else f"{name} `{typed}`"
        return f"unknown {what}. {suggest(typed, known)}"
    else:
        message, close = plain(message), None
    hint = f"Did you mean `{close}`?" if close else f"See `{command} --help`."
    return f"{message} {hint}"


def command_of(context: Any) -> str:
    """The words by which a command is called."""
    words = []
    while context is not None and context.parent is not None:
        words.append(str(context.info_name))
        context = context.parent
    return " ".join(["nobackfill", *reversed(words)])


def plain(message: str) -> str:
    """A message of typer in plain words.

    Example:
        >>> plain("Invalid value for '--top': Input should be a valid integer, unable to parse x")
        'invalid value for `--top`: it must be a valid integer.'
        >>> plain("Missing option '--old'.")
        'missing option `--old`.'
    """
    message = re.sub(r"(Input should be [^,]*), unable to parse.*", r"\1", message)
    message = message.replace("Input should be", "it must be").removeprefix("Invalid value: ")
    message = re.sub(r"'(-?-?[\w-]+)'", r"`\1`", message).rstrip(".")
    return f"{message[:1].lower()}{message[1:]}."
