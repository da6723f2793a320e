"""Removes the vectors of a LanceDB table, into which its owner may insert meanwhile.

LanceDB has no locks, and joins a removal with rows that were inserted just before. Its versions
show that, and bring the vectors back.
"""

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from nobackfill.errors import GalleryError
from nobackfill.gallery.stores.lancedb.rows import Names, read_ids


def drop_vectors(table: Any, names: Names, new: pa.ChunkedArray) -> None:
    """Removes the column of vectors, or restores it if an item has no new vector; then raises.

    Programs that opened the table before can no longer insert into it until they open it again:
    LanceDB would drop the vectors that they insert, without an error.

    Args:
        table: The owner's table.
        names: Names of its columns.
        new: Ids of the items that have a new vector.
    """
    dropped = table.drop_columns([names.vector]).version
    table.checkout(dropped - 1)  # the items whose vectors were removed
    ids = read_ids(table, names.id)
    missing = pc.sum(pc.invert(pc.is_in(ids, value_set=new))).as_py()
    table.checkout_latest()
    if not missing:
        refuse_earlier_writers(table)
        return
    remedy = f"Its version {dropped - 1} has all vectors: restore that (`table.restore`)."
    if table.version == dropped:
        table.restore(dropped - 1)
        remedy = "All vectors are there again. Finish the backfill first."
    raise GalleryError(
        f"Stopped removing the old vectors of `{table.name}`: {missing:,} items that the owner "
        f"inserted meanwhile have no new one. {remedy}"
    )


def refuse_earlier_writers(table: Any) -> None:
    """Makes LanceDB refuse rows of programs that opened an earlier version, by restoring this one.

    Rows that were inserted in the meantime are restored too.
    """
    version = table.version
    table.restore(version)
    if table.version != version + 1:
        table.restore(table.version - 1)
