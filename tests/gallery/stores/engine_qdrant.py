"""A Qdrant gallery, embedded, as its owner would make it."""


def fill(folder, ids, vectors, columns):
    """Returns its line."""
    from qdrant_client import QdrantClient, models

    client = QdrantClient(path=str(folder / "stored"))
    config = models.VectorParams(size=vectors.shape[1], distance=models.Distance.COSINE)
    client.create_collection("photos", vectors_config=config)
    # It commits every point on its own, and each commit waits for the disk.
    client._client.collections["photos"].storage.storage.execute("pragma synchronous = off")
    points = [
        models.PointStruct(id=int(one), vector=row.tolist(), payload={"colour": colour})
        for one, row, colour in zip(ids, vectors, columns["colour"], strict=True)
    ]
    client.upsert("photos", points)
    client.close()
    return f"qdrant:{folder / 'stored'}"
