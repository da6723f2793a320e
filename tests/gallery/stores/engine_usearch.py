"""A gallery of USearch, as its owner would make it."""

import numpy as np
from usearch.index import Index


def fill(folder, ids, vectors, columns):
    path = folder / "items.usearch"
    index = Index(ndim=vectors.shape[1], metric="cos", dtype="f32")
    index.add(np.array(ids, dtype=np.uint64), vectors, threads=1)
    index.save(str(path))
    return f"usearch://{path}"
