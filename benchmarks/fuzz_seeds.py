"""Whole files of every format that is read, and for each the command that reads it.

Seeds are small: a fuzzer reads tens of thousands. `make_seeds` writes them all below one folder.
"""

import csv
import io
import json
import os
import pickle
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout, suppress
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import torch
from PIL import Image

import nobackfill as nb
from nobackfill.cli.main import app
from nobackfill.core.config import Choice, OldConfig, Recipe, TrainConfig
from nobackfill.training.pipeline import train_run
from nobackfill.vectors.space import Space

ITEMS, DIM = 48, 6
IDS = np.array([f"item {number:03}" for number in range(ITEMS)])
LABELS = np.array([f"class {number % 12}" for number in range(ITEMS)])
CPU = ["--device", "cpu"]

Reader = Callable[[], object] | list[str]


@dataclass(frozen=True)
class Seed:
    """Files that are read together.

    Attributes:
        name: What is read.
        folder: Folder of the files, which the reader runs in.
        damaged: Names of the files that are damaged, one at a time.
        read: Command that reads them, or a function.
        writes: Names of what the command writes, of which nothing may be left if it fails.
        weight: How often it is chosen; what starts processes of its own takes seconds.
    """

    name: str
    folder: Path
    damaged: tuple[str, ...]
    read: Reader
    writes: tuple[str, ...] = ()
    weight: int = 0

    @property
    def share(self) -> int:
        """The weight, by default less for commands, which take ten times as long."""
        return self.weight or (5 if isinstance(self.read, list) else 20)


def make_seeds(below: Path) -> list[Seed]:
    """Writes whole files below a folder, and returns what reads them."""
    made: list[Seed] = []
    for maker in (
        vector_files,
        sides,
        heads,
        galleries,
        indexes,
        plans,
        pairs,
        runs,
        recipes,
        others,
    ):
        folder = below / maker.__name__
        folder.mkdir()
        made += maker(folder)
    return made


def matrix(seed: int) -> np.ndarray:
    """Vectors whose classes are near each other."""
    random = np.random.default_rng(seed)
    means = np.random.default_rng(5).normal(size=(12, DIM))[np.arange(ITEMS) % 12]
    return np.float32(means + 0.5 * random.normal(size=(ITEMS, DIM)))


def vectors(seed: int) -> nb.Vectors:
    """The same with ids, labels and a space."""
    columns = {
        "camera": np.arange(ITEMS) % 3,
        "title": np.array([f"a, ß {n}" for n in range(ITEMS)]),
    }
    space = Space(dim=DIM, weights=f"model {seed}")
    return nb.Vectors(IDS, matrix(seed), LABELS, columns=columns, space=space)


def long_text() -> nb.Vectors:
    """The same with one text that is so long that texts are not padded to it."""
    texts = [*(f"text {number}" for number in range(ITEMS - 1)), "z" * (2**24 // ITEMS + 1000)]
    return nb.Vectors(IDS, matrix(0), LABELS, columns={"text": texts})


def save_pair(folder: Path) -> None:
    """Writes old.parquet and new.parquet."""
    vectors(0).save(folder / "old.parquet")
    vectors(1).save(folder / "new.parquet")


def vector_files(folder: Path) -> Iterator[Seed]:
    """Every format of vectors, read alone and by `evaluate`."""
    rows = [
        {"id": str(id), "vector": vector.tolist(), "label": str(label)}
        for id, vector, label in zip(IDS, matrix(0), LABELS, strict=True)
    ]
    table = pa.Table.from_pylist(rows)
    makers: dict[str, Callable[[Path], None]] = {
        "v.parquet": lambda path: vectors(0).save(path),
        "v.safetensors": lambda path: vectors(0).save(path),
        "v.npz": lambda path: vectors(0).save(path),
        "texts.npz": lambda path: long_text().save(path),
        "texts.safetensors": lambda path: long_text().save(path),
        "v.npy": lambda path: np.save(path, matrix(0)),
        "v.jsonl": lambda path: write(path, "\n".join(map(json.dumps, rows))),
        "v.json": lambda path: write(path, json.dumps(rows)),
        "by_id.json": lambda path: write(
            path, json.dumps({r["id"]: {"vector": r["vector"]} for r in rows})
        ),
        "wide.csv": lambda path: write_wide(path, ","),
        "wide.tsv": lambda path: write_wide(path, "\t"),
        "lists.csv": lambda path: write_lists(path, rows),
        "v.arrow": lambda path: write_arrow(path, table),
        "v.feather": lambda path: write_arrow(path, table),
        "stream.arrow": lambda path: write_stream(path, table),
        "v.pt": lambda path: torch.save(
            {"id": IDS.tolist(), "vector": torch.from_numpy(matrix(0))}, path
        ),
    }
    for name, make in makers.items():
        place = folder / name.replace(".", "_")
        place.mkdir()
        make(place / name)
        yield Seed(name, place, (name,), lambda name=name: nb.load_vectors(name))
        yield Seed(
            f"{name}, invalid ones dropped",
            place,
            (name,),
            lambda name=name: nb.load_vectors(name, drop_invalid=True),
        )
    shards = folder / "shards"
    (shards / "v").mkdir(parents=True)
    for part in range(2):
        vectors(0).select(np.arange(24) + 24 * part).save(shards / "v" / f"{part}.parquet")
    write(shards / "v" / "space.json", vectors(0).space.to_json())
    yield Seed(
        "folder of shards", shards, ("v/0.parquet", "v/space.json"), lambda: nb.load_vectors("v")
    )
    with suppress(ImportError):
        import datasets

        saved = folder / "datasets"
        datasets.disable_progress_bars()
        datasets.Dataset.from_list(rows).save_to_disk(saved / "v")
        names = tuple(f"v/{path.name}" for path in (saved / "v").iterdir())
        yield Seed("folder of datasets", saved, names, lambda: nb.load_vectors("v"))
    lance = folder / "lance"
    in_a_process(lambda: write_lance(lance, rows))  # its threads do not survive a fork
    names = tuple(str(path.relative_to(lance)) for path in lance.rglob("*") if path.is_file())
    if names:
        yield Seed("Lance table", lance, names, lambda: nb.load_vectors("v.lance"), weight=1)


def write_lance(folder: Path, rows: list[dict[str, object]]) -> None:
    """Writes a table of LanceDB, if that is installed."""
    with suppress(ImportError):
        import lancedb

        lancedb.connect(str(folder)).create_table("v", rows)


def in_a_process(write: Callable[[], None]) -> None:
    """Writes something in a process of its own."""
    if (child := os.fork()) == 0:
        write()
        os._exit(0)
    os.waitpid(child, 0)


def write(path: Path, text: str) -> None:
    """Writes a text."""
    path.write_text(text, encoding="utf-8")


def write_wide(path: Path, mark: str) -> None:
    """Writes a table with a column for each dimension."""
    with path.open("w", newline="") as file:
        writer = csv.writer(file, delimiter=mark)
        writer.writerow(["id", "label", *(f"v{place}" for place in range(DIM))])
        for id, label, vector in zip(IDS, LABELS, matrix(0).tolist(), strict=True):
            writer.writerow([id, label, *vector])


def write_lists(path: Path, rows: list[dict[str, object]]) -> None:
    """Writes a table with a list in each row."""
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, ["id", "vector", "label"])
        writer.writeheader()
        writer.writerows(rows)


def write_arrow(path: Path, table: pa.Table) -> None:
    """Writes a file of Arrow."""
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)


def write_stream(path: Path, table: pa.Table) -> None:
    """Writes a stream of Arrow."""
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)


def sides(folder: Path) -> Iterator[Seed]:
    """Files of vectors and their records, by the commands that compare them."""
    pairs = ["--old", "old.parquet", "--new", "new.parquet"]
    save_pair(folder)
    yield Seed(
        "evaluate",
        folder,
        ("old.parquet", "new.parquet"),
        ["evaluate", *pairs, *CPU, "--report", "out.html", "--flips", "1"],
        ("out.html", "out.json", "out.md"),
    )
    yield Seed(
        "evaluate --json, slices",
        folder,
        ("new.parquet",),
        ["evaluate", *pairs, *CPU, "--slice", "camera", "--smallest", "1", "--json"],
    )
    yield Seed("matrix", folder, ("old.parquet",), ["matrix", "old.parquet", "new.parquet", *CPU])
    yield Seed(
        "fit",
        folder,
        ("new.parquet",),
        ["fit", *pairs, "-o", "head", "--epochs", "1", *CPU],
        ("head",),
    )
    bare = folder / "bare"
    bare.mkdir()
    for name, seed in (("old", 0), ("new", 1)):
        nb.Vectors(
            np.arange(ITEMS), matrix(seed), space=Space(dim=DIM, weights=f"model {seed}")
        ).save(bare / f"{name}.npy")
    records = tuple(path.name for path in bare.iterdir() if path.suffix == ".json")
    yield Seed(
        "records beside",
        bare,
        ("old.npy", *records),
        ["evaluate", "--old", "old.npy", "--new", "new.npy", *CPU],
    )


def heads(folder: Path) -> Iterator[Seed]:
    """The folder of a head."""
    save_pair(folder)
    head = nb.CompatibleHead(epochs=1, hidden=8).fit(vectors(1), vectors(0))
    head.save_pretrained(folder / "head")
    names = tuple(f"head/{path.name}" for path in (folder / "head").iterdir() if path.is_file())
    yield Seed(
        "embed by a head",
        folder,
        names,
        ["embed", "head", "new.parquet", "-o", "out.parquet", *CPU],
        ("out.parquet",),
    )
    yield Seed(
        "check a head", folder, names, ["gallery", "check", "flat://old.parquet", "--model", "head"]
    )


def galleries(folder: Path) -> Iterator[Seed]:
    """The collections, routes and logs beside a file."""
    save_pair(folder)
    gallery = ["flat://old.parquet"]
    call(
        folder,
        "gallery",
        "plan",
        *gallery,
        "--old",
        "old.parquet",
        "--new",
        "new.parquet",
        *CPU,
        "-o",
        "plan.parquet",
    )
    call(folder, "gallery", "backfill", *gallery, "--plan", "plan.parquet", "--new", "new.parquet")
    call(folder, "gallery", "switch", *gallery, "--model", "new.parquet", "--name", "new")
    notes = ("old.parquet.nobackfill",)
    for command in ("status", "log", "rollback"):
        yield Seed(f"gallery {command}", folder, notes, ["gallery", command, *gallery])
    yield Seed(
        "gallery search",
        folder,
        (*notes, "old.parquet"),
        ["gallery", "search", *gallery, "--queries", "new.parquet", "--name", "new"],
    )
    yield Seed(
        "gallery pull",
        folder,
        notes,
        ["gallery", "pull", *gallery, "--name", "new", "-o", "out.parquet"],
        ("out.parquet",),
    )


def indexes(folder: Path) -> Iterator[Seed]:
    """Index files of faiss and USearch."""
    rows = matrix(0) / np.linalg.norm(matrix(0), axis=1, keepdims=True)
    many = np.float32(np.random.default_rng(1).normal(size=(1000, DIM)))
    many /= np.linalg.norm(many, axis=1, keepdims=True)
    query = nb.Vectors(np.arange(3), rows[:3], space=Space(dim=DIM, weights="model 0"))
    query.save(folder / "query.parquet")
    write(folder / "space.json", Space(dim=DIM, weights="model 0").to_json())
    search = ["--queries", "query.parquet", "--assume-space", "space.json"]
    with suppress(ImportError):
        import faiss

        for kind in ("IDMap,Flat", "IVF4,Flat", "HNSW8,Flat", "IDMap,SQfp16", "IVF2,PQ3x4"):
            index = faiss.index_factory(DIM, kind, faiss.METRIC_INNER_PRODUCT)
            index.train(many)
            if kind.startswith("IDMap"):
                index.add_with_ids(rows, np.arange(ITEMS))
            else:
                index.add(rows)
            name = f"{kind.replace(',', '_')}.faiss"
            faiss.write_index(index, str(folder / name))
            yield Seed(
                f"faiss {kind}",
                folder,
                (name,),
                ["gallery", "search", f"faiss://{name}", *search],
                weight=1,
            )
    with suppress(ImportError):
        from usearch.index import Index

        usearch = Index(ndim=DIM, metric="cos", dtype="f32")
        usearch.add(np.arange(ITEMS), rows)
        usearch.save(str(folder / "a.usearch"))
        yield Seed(
            "usearch",
            folder,
            ("a.usearch",),
            ["gallery", "search", "usearch://a.usearch", *search],
            weight=2,
        )


def plans(folder: Path) -> Iterator[Seed]:
    """A plan of a backfill."""
    save_pair(folder)
    call(
        folder,
        "gallery",
        "plan",
        "flat://old.parquet",
        "--old",
        "old.parquet",
        "--new",
        "new.parquet",
        *CPU,
        "-o",
        "plan.parquet",
    )
    yield Seed(
        "plan",
        folder,
        ("plan.parquet",),
        [
            "gallery",
            "backfill",
            "flat://old.parquet",
            "--plan",
            "plan.parquet",
            "--new",
            "new.parquet",
        ],
        ("old.parquet.nobackfill",),
    )


def pairs(folder: Path) -> Iterator[Seed]:
    """Files of relevant items, of judgements, and the official lists."""
    save_pair(folder)
    related = {str(IDS[row]): [str(IDS[(row + 12) % ITEMS])] for row in range(ITEMS)}
    lines = [json.dumps({"query": query, "relevant": items}) for query, items in related.items()]
    write(folder / "pairs.jsonl", "\n".join(lines))
    table = pa.table({"query": list(related), "relevant": [items[0] for items in related.values()]})
    rows = "\n".join(f"{query},{items[0]}" for query, items in related.items())
    write(folder / "pairs.csv", f"query,relevant\n{rows}\n")
    write(folder / "pairs.tsv", f"query\trelevant\n{rows}\n".replace(",", "\t"))
    import pyarrow.parquet as pq

    pq.write_table(table, folder / "pairs.parquet")
    judged = [
        json.dumps(
            {
                "query": query,
                "relevant": [],
                "before": [query],
                "after": items,
                "preferred": "after",
            }
        )
        for query, items in related.items()
    ]
    write(folder / "judged.jsonl", "\n".join(judged))
    truth = {
        "imlist": IDS[:-2].tolist(),
        "qimlist": IDS[-2:].tolist(),
        "gnd": [{"easy": [0, 12], "hard": [24], "junk": [3], "bbx": [0.0, 0.0, 9.0, 9.0]}] * 2,
    }
    (folder / "gnd_roxford5k.pkl").write_bytes(pickle.dumps(truth))
    arrays = {**truth, "gnd": [{**entry, "easy": np.array([0, 12])} for entry in truth["gnd"]]}
    (folder / "gnd_rparis6k.pkl").write_bytes(pickle.dumps(arrays, protocol=4))
    names = (
        "pairs.jsonl",
        "pairs.csv",
        "pairs.tsv",
        "pairs.parquet",
        "judged.jsonl",
        "gnd_roxford5k.pkl",
        "gnd_rparis6k.pkl",
    )
    from nobackfill.data.ground_truth import read_ground_truth

    for name in names:
        yield Seed(name, folder, (name,), lambda name=name: read_ground_truth(Path(name)))
    yield Seed(
        "evaluate --pairs",
        folder,
        ("pairs.jsonl", "judged.jsonl"),
        [
            "evaluate",
            "--old",
            "old.parquet",
            "--new",
            "new.parquet",
            "--pairs",
            "pairs.jsonl",
            *CPU,
        ],
    )


def runs(folder: Path) -> Iterator[Seed]:
    """The folders of two trained models, and weights."""
    data = Choice(
        "glyphs", {"train_classes": 10, "test_classes": 5, "images_per_class": 4, "side": 16}
    )
    old = Recipe(
        data=data,
        model=Choice("small", {"width": 4, "embedding_dim": 8}),
        train=TrainConfig(step=0, epochs=1, batch_size=8, learning_rate=0.05, seed=7),
    )
    device = torch.device("cpu")
    list(train_run(old, folder / "first", device=device))
    # A path within the recipe is relative to where the reader runs.
    before = Path.cwd()
    os.chdir(folder)
    try:
        new = replace(
            old, method=Choice("bct"), old=OldConfig(run="first"), train=replace(old.train, step=1)
        )
        list(train_run(new, Path("second"), device=device))
    finally:
        os.chdir(before)
    own = tuple(f"second/{path.name}" for path in (folder / "second").iterdir() if path.suffix)
    firsts = tuple(
        f"first/{name}" for name in ("config.toml", "model.safetensors", "validation.parquet")
    )
    yield Seed(
        "report",
        folder,
        (*own, *firsts),
        ["report", "second", "-o", "out.html", *CPU],
        ("out.html",),
    )
    yield Seed(
        "embed by a run",
        folder,
        own,
        ["embed", "second", "second", "-o", "out.parquet", *CPU, "--workers", "0"],
        ("out.parquet",),
    )
    yield Seed(
        "check a run",
        folder,
        own,
        ["gallery", "check", "flat://first/validation.parquet", "--model", "second"],
    )
    (folder / "all").mkdir()
    models = [
        {"run": str(number), "method": "bct", "step": number, "parent": None} for number in range(2)
    ]
    write(
        folder / "all" / "sequence.json",
        json.dumps(
            {
                "models": models,
                "matrix": [[0.5], [0.4, 0.6]],
                "ac": 1.0,
                "am": 0.5,
                "tests": {},
                "after": [{"upgrades": 1, "ac": 1.0, "am": 0.5}],
                "independent": [None, 0.6],
                "p_scores": [],
                "expected": {},
            }
        ),
    )
    yield Seed(
        "report on a sequence",
        folder,
        ("all/sequence.json",),
        ["report", "all", "-o", "out.html"],
        ("out.html",),
    )
    from nobackfill.models import weights
    from nobackfill.training.run import Run

    torch.save(Run.open(folder / "first").model(device).state_dict(), folder / "weights.pt")
    for name in ("weights.pt", "first/model.safetensors"):
        yield Seed(
            f"weights, {name}", folder, (name,), lambda name=name: weights.read_weights(Path(name))
        )


def recipes(folder: Path) -> Iterator[Seed]:
    """A recipe that extends another one, and a table of images."""
    write(
        folder / "base.toml",
        '[data]\nname = "manifest"\npath = "images.csv"\n'
        "[images]\nsize = [16, 16]\ncrop = [16, 16]\n",
    )
    write(
        folder / "recipe.toml",
        "\n".join(
            [
                'extends = "base.toml"',
                "[model]",
                'name = "small"',
                "channels = 3",
                "width = 4",
                "embedding_dim = 8",
                "[train]",
                "epochs = 1",
                "batch_size = 8",
                "learning_rate = 0.05",
                "step = 0",
                "seed = 7",
                "[expected]",
                'source = "nowhere"',
                "new_new = 0.5",
            ]
        ),
    )
    (folder / "images").mkdir()
    random = np.random.default_rng(0)
    names = [
        f"images/{number}.{kind}"
        for number, kind in enumerate(("png", "jpg", "webp", "gif", "bmp") * 4)
    ]
    for name in names:
        Image.fromarray(random.integers(0, 255, (16, 16, 3), dtype=np.uint8)).save(folder / name)
    split = ["train"] * 10 + ["validation"] * 10
    rows = [f"{name},{place % 5},{split[place]}" for place, name in enumerate(names)]
    write(folder / "images.csv", "path,label,split\n" + "\n".join(rows) + "\n")
    files = ("recipe.toml", "base.toml", "images.csv", *names[:5], *names[10:15])
    yield Seed(
        "train --dry-run",
        folder,
        files[:3],
        ["train", "recipe.toml", "-o", "run", "--dry-run", *CPU, "--workers", "0"],
        ("run",),
    )
    yield Seed(
        "train", folder, files, ["train", "recipe.toml", "-o", "run", *CPU, "--workers", "0"], ()
    )


def others(folder: Path) -> Iterator[Seed]:
    """Records of spaces, and texts."""
    save_pair(folder)
    np.save(folder / "bare.npy", matrix(0))
    space = Space(dim=DIM, weights="model 1")
    write(folder / "space.json", space.to_json())
    write(folder / "short.space.json", '{"name": "model 1", "dim": 6, "normalized": false}')
    for name in ("space.json", "short.space.json"):
        yield Seed(
            f"assumed {name}",
            folder,
            (name,),
            [
                "gallery",
                "check",
                "flat://bare.npy",
                "--model",
                "new.parquet",
                "--assume-space",
                name,
            ],
        )


def call(folder: Path, *arguments: str) -> None:
    """Runs a command in a folder."""
    before = Path.cwd()
    os.chdir(folder)
    try:
        with redirect_stdout(io.StringIO()):
            app([*arguments, "--quiet"], standalone_mode=False)
    finally:
        os.chdir(before)
