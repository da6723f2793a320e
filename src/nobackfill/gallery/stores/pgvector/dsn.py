"""Reads the table and the connection parameters from a URI such as pgvector://ann@db/shop/items."""

from urllib.parse import unquote

from nobackfill.errors import ConfigError
from nobackfill.gallery.stores import STORES
from nobackfill.gallery.stores.uri import Uri

LIBPQ = (  # options that are passed to libpq
    "sslmode", "sslrootcert", "sslcert", "sslkey", "host", "port", "connect_timeout",
    "application_name", "passfile", "service", "target_session_attrs",
)  # fmt: skip


def read_place(uri: Uri) -> tuple[str, str | None, str]:
    """Returns database, schema (None if absent) and table of a URI.

    Example:
        >>> from nobackfill.gallery.stores.uri import read_uri
        >>> read_place(read_uri("pgvector://db/shop/public.items"))
        ('shop', 'public', 'items')
        >>> read_place(read_uri("pgvector://db/shop/v1%2E5"))
        ('shop', None, 'v1.5')
    """
    parts = uri.path.split("/")
    if len(parts) != 3 or not all(parts[1:]):
        raise ConfigError(f"The URI is not of the form {STORES['pgvector'].form}.")
    schema, dot, table = parts[2].rpartition(".")
    return unquote(parts[1]), unquote(schema) if dot else None, unquote(table)


def read_parameters(uri: Uri) -> dict[str, str]:
    """Returns the connection parameters of a URI, except for the database.

    Example:
        >>> from nobackfill.gallery.stores.uri import read_uri
        >>> read_parameters(read_uri("pgvector://ann@db:5433/shop/items?sslmode=require&id=number"))
        {'host': 'db', 'port': '5433', 'user': 'ann', 'sslmode': 'require'}
    """
    host, _, port = uri.host.partition(":")
    if ":" in port:
        raise ConfigError(
            "The URI has no host with an optional port. Write an address of IPv6 as options, "
            "such as ?host=::1&port=5432."
        )
    parts = {"host": host, "port": port, "user": uri.user, "password": uri.password}
    options = {key: value for key, value in uri.options.items() if key in LIBPQ}
    return {key: value for key, value in parts.items() if value} | options
