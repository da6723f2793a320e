"""Gallery URIs: where a gallery is, in one line whose credentials are never shown.

A text that is not understood is not echoed either: any part of it could be a password.
"""

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import parse_qsl, quote, unquote, urlencode

from nobackfill.core.suggest import suggest
from nobackfill.errors import ConfigError
from nobackfill.gallery.stores.registry import STORES

SECRET = ("password", "passwd", "api_key", "apikey", "token", "secret")  # in names of options
HIDDEN = "***"
PASSWORD_FILE = "NOBACKFILL_PASSWORD_FILE"  # variable with the path of a file with the password
SECRET_OPTION = {"qdrant": "api_key", "milvus": "token"}  # that holds it; otherwise the password
HOST = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^:\[\]]*)(?::(.*))?")
OPTION = re.compile(r"[A-Za-z_]+=.*", re.DOTALL)
QUOTED = "In a user name or a password write @ as %40, : as %3A, / as %2F, ? as %3F and # as %23."


@dataclass(frozen=True, repr=False)
class Uri:
    """The address of a gallery; absent parts are empty."""

    scheme: str  # a key of `STORES`
    host: str  # with the port
    user: str
    password: str
    path: str  # after the host, still quoted; for files the path of the file
    options: Mapping[str, str]  # after the question mark

    @property
    def shown(self) -> str:
        """The URI without credentials, for people and logs.

        Example:
            >>> read_uri("pgvector://ann:secret@db/shop/items?sslmode=require&api_key=k").shown
            'pgvector://ann:***@db/shop/items?sslmode=require&api_key=***'
        """
        user = f"{self.user}{f':{HIDDEN}' if self.password else ''}@" if self.user else ""
        public = {key: HIDDEN if is_secret(key) else value for key, value in self.options.items()}
        options = f"?{urlencode(public, safe='/*')}" if public else ""
        slashes = "//" if self.host or user or STORES[self.scheme].address != "either" else ""
        return f"{self.scheme}:{slashes}{user}{self.host}{self.path}{options}"

    def __repr__(self) -> str:
        return f"Uri({self.shown})"


def read_uri(text: str) -> Uri:
    """Parses a URI such as `pgvector://ann@db/shop/items`.

    A server's password may be in a file instead, whose path is in `NOBACKFILL_PASSWORD_FILE`.

    Example:
        >>> read_uri("lancedb://galleries/photos").path
        'galleries/photos'
        >>> read_uri("qdrant:stored?collection=photos").options
        {'collection': 'photos'}
    """
    scheme, colon, rest = text.partition(":")
    if not colon or scheme not in STORES:
        forms = ", ".join(engine.form for engine in STORES.values())
        raise ConfigError(f"Unknown gallery URI. Use one of {forms}. {suggest(scheme, STORES)}")
    address = STORES[scheme].address
    rest, _, query = rest.partition("?")
    options = _read_options(query, scheme)
    if address == "path" or (address == "either" and not rest.startswith("//")):
        path = rest.removeprefix("//") if address == "path" else rest
        if re.match(r"[^/]*:[^/]*@", path):
            raise _not_understood(scheme, "names a user and a password, but is of files")
        return Uri(scheme, "", "", "", path, options)
    if not rest.startswith("//"):
        raise _not_understood(scheme, "has no // before the host")
    authority, slash, path = rest[2:].partition("/")
    if "@" in path or "@" in query or "#" in text:
        raise _not_understood(scheme, "has an @ or a # where none can be")
    user, host = _read_authority(authority, scheme)
    name, _, password = user.partition(":")
    uri = Uri(scheme, host, unquote(name), unquote(password), f"{slash}{path}", options)
    return _with_password_of_file(uri)


def _read_options(query: str, scheme: str) -> dict[str, str]:
    """Reads what follows the question mark."""
    if not all(OPTION.fullmatch(part) for part in query.split("&") if part):
        raise _not_understood(scheme, "must have options such as ?name=value&other=value")
    return dict(parse_qsl(query, keep_blank_values=True))


def _read_authority(authority: str, scheme: str) -> tuple[str, str]:
    """Returns the user with the password, and the host with the port."""
    user, _, place = authority.rpartition("@")
    match = HOST.fullmatch(place)
    if "@" in user or user.count(":") > 1 or match is None:
        raise _not_understood(scheme, "must have the form USER:PASSWORD@HOST:PORT")
    host, port = match[1].lower().strip("[]"), match[2]
    if port and not (port.isascii() and port.isdecimal() and int(port[:6]) < 2**16):
        raise _not_understood(scheme, "has a port that is not a number")
    if user and ":" not in user and scheme in SECRET_OPTION:
        name = SECRET_OPTION[scheme]
        raise _not_understood(scheme, f"has a user without a password; write a key as ?{name}=…")
    return user, f"{host}:{port}" if port and host else host


def _not_understood(scheme: str, reason: str) -> ConfigError:
    """Returns an error that repeats nothing of the URI but its scheme."""
    return ConfigError(
        f"The URI of the {scheme} gallery {reason}. Use {STORES[scheme].form}. {QUOTED}"
    )


def _with_password_of_file(uri: Uri) -> Uri:
    """Returns the URI with the password of the file, if there is one and the URI has none."""
    file = os.environ.get(PASSWORD_FILE)
    if not file or uri.password or any(map(is_secret, uri.options)):
        return uri
    try:
        lines = Path(file).read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "it is no text"
        raise ConfigError(f"The file of the password cannot be read: {reason}.") from None
    if not lines or not lines[0]:
        raise ConfigError("The file of the password is empty. Write it into the first line.")
    if (name := SECRET_OPTION.get(uri.scheme)) is not None:
        return replace(uri, options={**uri.options, name: lines[0]})
    return replace(uri, password=lines[0])


def is_secret(key: str) -> bool:
    """Whether the value of an option must not be shown."""
    return any(word in key.lower() for word in SECRET)


def secrets_of(uri: Uri) -> list[str]:
    """Returns what an error of a client must not repeat."""
    return forms_of({**uri.options, "password": uri.password})


def forms_of(options: Mapping[str, str]) -> list[str]:
    """Returns the secrets among options, as they are and as they may be quoted."""
    values = [value for key, value in options.items() if value and is_secret(key)]
    forms = {form for v in values for form in (v, quote(v), quote(v, safe=""), repr(v)[1:-1])}
    return sorted(forms, key=len, reverse=True)


def without_secrets(text: str, secrets: Iterable[str]) -> str:
    """Returns a text in which secrets are hidden."""
    for secret in secrets:
        text = text.replace(secret, HIDDEN)
    return text


def check_options(uri: Uri, *supported: str) -> None:
    """Raises if the URI has an option that the engine does not support."""
    for key in uri.options:
        if key not in supported:
            raise ConfigError(
                f"unknown option `{key}` behind {uri.scheme}:. {suggest(key, supported)}"
            )
