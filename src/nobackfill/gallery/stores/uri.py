"""Where a gallery is: one line, whose credentials are never shown."""

from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit

from nobackfill.core.config import suggest
from nobackfill.errors import ConfigError

FORMS = {
    "flat": "flat://FILE",
    "faiss": "faiss://FILE",
    "usearch": "usearch://FILE",
    "qdrant": "qdrant://HOST[:PORT]/COLLECTION or qdrant:FOLDER[?collection=NAME]",
    "pgvector": "pgvector://[USER[:PASSWORD]@][HOST[:PORT]]/DATABASE/TABLE",
    "lancedb": "lancedb://FOLDER/TABLE",
    "milvus": "milvus:FILE[?collection=NAME] or milvus://HOST:PORT/COLLECTION",
}
SECRET = ("password", "api_key", "apikey", "token", "secret", "sslpassword")  # of options
HIDDEN = "***"


@dataclass(frozen=True, repr=False)
class Uri:
    """Where a gallery is.

    Attributes:
        scheme: Of `FORMS`: the kind of database.
        host: With port; empty for files.
        user: Who asks; empty for nobody.
        password: Theirs; empty for none.
        path: What stands behind the host, as it is written: a file's path, maybe absolute.
        options: What stands behind the question mark.
    """

    scheme: str
    host: str
    user: str
    password: str
    path: str
    options: Mapping[str, str]

    @property
    def shown(self) -> str:
        """The same without credentials, for people and logs.

        Example:
            >>> read_uri("pgvector://ann:secret@db/shop/items?sslmode=require&api_key=k").shown
            'pgvector://ann:***@db/shop/items?sslmode=require&api_key=***'
        """
        who = f"{self.user}{f':{HIDDEN}' if self.password else ''}@" if self.user else ""
        told = {key: HIDDEN if is_secret(key) else value for key, value in self.options.items()}
        options = f"?{urlencode(told, safe='/*')}" if told else ""
        slashes = "//" if self.host or who or self.scheme not in ("qdrant", "milvus") else ""
        return f"{self.scheme}:{slashes}{who}{self.host}{self.path}{options}"

    def __repr__(self) -> str:
        return f"Uri({self.shown})"


def read_uri(text: str) -> Uri:
    """Reads one line such as `pgvector://ann@db/shop/items`.

    Example:
        >>> read_uri("lancedb://galleries/photos").path
        'galleries/photos'
        >>> read_uri("qdrant:stored?collection=photos").options
        {'collection': 'photos'}
    """
    scheme, colon, _ = text.partition(":")
    if not colon or scheme not in FORMS:
        known = ", ".join(FORMS.values())
        raise ConfigError(
            f"wanted where the gallery is, as one of {known}, but got a line that begins with "
            f"{scheme[:20]!r}. {suggest(scheme, FORMS)}"
        )
    split = urlsplit(text)
    is_file = scheme in ("flat", "faiss", "usearch", "lancedb")
    path = f"{split.netloc}{split.path}" if is_file else split.path
    try:
        port = split.port
    except ValueError:
        raise ConfigError(f"wanted a port as a number in the line of a {scheme} gallery.") from None
    host = "" if is_file else (split.hostname or "")
    return Uri(
        scheme=scheme,
        host=f"{host}:{port}" if port and host else host,
        user="" if is_file else unquote(split.username or ""),
        password="" if is_file else unquote(split.password or ""),
        path=path,
        options=dict(parse_qsl(split.query, keep_blank_values=True)),
    )


def is_secret(key: str) -> bool:
    """Whether an option's value must not be shown."""
    return any(word in key.lower() for word in SECRET)


def check_options(uri: Uri, *known: str) -> None:
    """Refuses options that a kind of gallery does not know."""
    for key in uri.options:
        if key not in known:
            raise ConfigError(f"unknown option `{key}` behind {uri.scheme}:. {suggest(key, known)}")
