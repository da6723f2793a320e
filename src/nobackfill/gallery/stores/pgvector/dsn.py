"""What a line such as pgvector://ann@db/shop/items says: the table, and how to connect."""

from urllib.parse import unquote

from nobackfill.errors import ConfigError
from nobackfill.gallery.stores.uri import FORMS, Uri

LIBPQ = (  # options that the connection is given as they are
    "sslmode", "sslrootcert", "sslcert", "sslkey", "host", "port", "connect_timeout",
    "application_name", "passfile", "service", "target_session_attrs",
)  # fmt: skip


def read_place(uri: Uri) -> tuple[str, str | None, str]:
    """Database, schema if it is said, and table of a line.

    Example:
        >>> from nobackfill.gallery.stores.uri import read_uri
        >>> read_place(read_uri("pgvector://db/shop/public.items"))
        ('shop', 'public', 'items')
        >>> read_place(read_uri("pgvector://db/shop/v1%2E5"))
        ('shop', None, 'v1.5')
    """
    parts = uri.path.split("/")
    if len(parts) != 3 or not all(parts[1:]):
        raise ConfigError(f"wanted {FORMS['pgvector']}, but got {uri.shown}.")
    schema, dot, table = parts[2].rpartition(".")
    return unquote(parts[1]), unquote(schema) if dot else None, unquote(table)


def read_parameters(uri: Uri) -> dict[str, str]:
    """What libpq is given of a line, other than the database.

    Example:
        >>> from nobackfill.gallery.stores.uri import read_uri
        >>> read_parameters(read_uri("pgvector://ann@db:5433/shop/items?sslmode=require&id=number"))
        {'host': 'db', 'port': '5433', 'user': 'ann', 'sslmode': 'require'}
    """
    host, _, port = uri.host.partition(":")
    if ":" in port:
        raise ConfigError(
            f"wanted a host and maybe a port, but got {uri.host}. Write an address of IPv6 behind "
            f"the question mark, as ?host=::1&port=5432."
        )
    said = {"host": host, "port": port, "user": uri.user, "password": uri.password}
    options = {key: value for key, value in uri.options.items() if key in LIBPQ}
    return {key: value for key, value in said.items() if value} | options
