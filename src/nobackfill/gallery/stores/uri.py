"""Gallery URIs: where a gallery is, in one line whose credentials are never shown."""

from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit

from nobackfill.core.suggest import suggest
from nobackfill.errors import ConfigError
from nobackfill.gallery.stores import STORES

SECRET = ("password", "api_key", "apikey", "token", "secret", "sslpassword")  # option names
HIDDEN = "***"


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

    Example:
        >>> read_uri("lancedb://galleries/photos").path
        'galleries/photos'
        >>> read_uri("qdrant:stored?collection=photos").options
        {'collection': 'photos'}
    """
    scheme, colon, _ = text.partition(":")
    if not colon or scheme not in STORES:
        forms = ", ".join(engine.form for engine in STORES.values())
        raise ConfigError(
            f"Unknown gallery URI that begins with {scheme[:20]!r}. Use one of {forms}. "
            f"{suggest(scheme, STORES)}"
        )
    split = urlsplit(text)
    is_path = STORES[scheme].address == "path"
    try:
        port = split.port
    except ValueError:
        raise ConfigError(f"The port in the URI of the {scheme} gallery is not a number.") from None
    host = "" if is_path else (split.hostname or "")
    return Uri(
        scheme=scheme,
        host=f"{host}:{port}" if port and host else host,
        user="" if is_path else unquote(split.username or ""),
        password="" if is_path else unquote(split.password or ""),
        path=f"{split.netloc}{split.path}" if is_path else split.path,
        options=dict(parse_qsl(split.query, keep_blank_values=True)),
    )


def is_secret(key: str) -> bool:
    """Whether the value of an option must not be shown."""
    return any(word in key.lower() for word in SECRET)


def check_options(uri: Uri, *supported: str) -> None:
    """Raises if the URI has an option that the engine does not support."""
    for key in uri.options:
        if key not in supported:
            raise ConfigError(
                f"unknown option `{key}` behind {uri.scheme}:. {suggest(key, supported)}"
            )
