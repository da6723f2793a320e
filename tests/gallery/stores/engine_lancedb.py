"""A gallery of LanceDB, as its owner would make it."""

import lancedb
import pyarrow as pa


def fill(folder, ids, vectors, columns):
    flat = pa.array(vectors.ravel())
    data = {
        "id": pa.array([int(one) for one in ids], pa.int64()),
        "vector": pa.FixedSizeListArray.from_arrays(flat, vectors.shape[1]),
        **columns,
    }
    lancedb.connect(folder / "galleries").create_table("items", pa.table(data))
    return f"lancedb://{folder}/galleries/items"
