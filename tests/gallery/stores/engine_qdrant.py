"""A Qdrant gallery, embedded, as its owner would make it."""

from qdrant_client.local.persistence import CollectionPersistence

begin = CollectionPersistence.__init__


def begin_without_waiting(self, *arguments, **options):
    """It commits every point on its own, and each commit waits for the disk."""
    begin(self, *arguments, **options)
    self.storage.execute("pragma synchronous = off")


CollectionPersistence.__init__ = begin_without_waiting


def fill(folder, ids, vectors, columns):
    """Returns its line."""
    from qdrant_client import QdrantClient, models

    client = QdrantClient(path=str(folder / "stored"))
    config = models.VectorParams(size=vectors.shape[1], distance=models.Distance.COSINE)
    client.create_collection("photos", vectors_config=config)
    points = [
        models.PointStruct(id=int(one), vector=row.tolist(), payload={"colour": colour})
        for one, row, colour in zip(ids, vectors, columns["colour"], strict=True)
    ]
    client.upsert("photos", points)
    client.close()
    return f"qdrant:{folder / 'stored'}"
