"""A gallery of faiss, as its owner would make it."""

import faiss
import numpy as np


def fill(folder, ids, vectors, columns):
    path = folder / "items.faiss"
    index = faiss.index_factory(vectors.shape[1], "IDMap,Flat", faiss.METRIC_INNER_PRODUCT)
    index.add_with_ids(vectors, np.array(ids, dtype=np.int64))
    faiss.write_index(index, str(path))
    return f"faiss://{path}"
