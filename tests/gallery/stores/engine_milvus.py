"""A Milvus Lite gallery, as its owner would make it."""


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
