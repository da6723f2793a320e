"""A Milvus Lite gallery, as its owner would make it."""

import time
from types import SimpleNamespace

from pymilvus.client import grpc_handler

# It looks every half second whether an index is ready; these are after milliseconds.
grpc_handler.time = SimpleNamespace(
    **{**vars(time), "sleep": lambda seconds: time.sleep(min(seconds, 0.01))}
)


def fill(folder, ids, vectors, columns):
    """Returns its line."""
    from milvus_lite.server_manager import server_manager_instance
    from pymilvus import MilvusClient

    path = str(folder / "stored.db")
    client = MilvusClient(path)
    client.create_collection("photos", dimension=vectors.shape[1], metric_type="COSINE")
    rows = [
        {"id": int(one), "vector": row.tolist(), "colour": colour}
        for one, row, colour in zip(ids, vectors, columns["colour"], strict=True)
    ]
    client.insert("photos", rows)
    client.close()
    server_manager_instance.release_server(path)  # as the end of the owner's process does
    return f"milvus:{path}"
