"""Time and memory of reading vectors from each format, beside pyarrow or polars on the same file.

    python benchmarks/reading.py                                # all formats
    python benchmarks/reading.py --formats parquet csv --rows 100000

Writes 1,000,000 × 256 float32 with ids of text (100,000 rows of CSV, JSONL and other text, unless
--rows says otherwise), reads it by `nobackfill.load_vectors` and by the peer in turns, each time in
a process of its own, and removes it. Of three turns the fastest counts. Memory is what the process
held at most, less what it held before reading, in units of the floats of the file. `load_vectors`
also checks every vector and every id; the peer ends with a table or an array in memory. Appends a
JSON line per format to reading.jsonl.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path

TURNS = 3
LONG, SHORT = 1_000_000, 100_000
FORMATS = {  # name of the file, what the peer is, and whether it is text
    "parquet": ("old.parquet", "pyarrow.parquet.read_table", False),
    "parquet, 40 shards": ("shards", "pyarrow.dataset.to_table", False),
    "arrow": ("old.arrow", "pyarrow.ipc, read_all", False),
    "arrow stream": ("old.arrows.arrow", "pyarrow.ipc, read_all", False),
    "lance": ("old.lance", "lancedb, to_arrow", False),
    "npz": ("old.npz", "numpy.load", False),
    "npy": ("old.npy", "numpy.load", False),
    "safetensors": ("old.safetensors", "safetensors.numpy.load_file", False),
    "pt": ("old.pt", "torch.load", False),
    "csv, a column per dimension": ("wide.csv", "pyarrow.csv.read_csv", True),
    "csv, lists": ("lists.csv", "polars.read_csv, str.json_decode", True),
    "csv.gz, a column per dimension": ("wide.csv.gz", "pyarrow.csv.read_csv", True),
    "jsonl": ("old.jsonl", "pyarrow.json.read_json", True),
    "jsonl.zst": ("old.jsonl.zst", "pyarrow.json.read_json", True),
    "json, columns": ("old.json", "json.load, numpy.array", True),
}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--formats", nargs="*", default=list(FORMATS), choices=FORMATS)
    parser.add_argument("--rows", type=int)
    parser.add_argument("--dim", type=int, default=256)
    parser.add_argument("--turns", type=int, default=TURNS)
    parser.add_argument("--step", nargs=3, help=argparse.SUPPRESS)  # of a child process
    parser.add_argument("-o", "--output", type=Path, default=Path(__file__).with_suffix(".jsonl"))
    options = parser.parse_args()
    if options.step:
        run_step(*options.step, options)
        return
    for name in options.formats:
        file, peer, is_text = FORMATS[name]
        rows = options.rows or (SHORT if is_text else LONG)
        with tempfile.TemporaryDirectory() as folder:
            child = [sys.executable, __file__, "--rows", str(rows), "--dim", str(options.dim)]
            path = str(Path(folder) / file)
            subprocess.run([*child, "--step", "write", name, path], check=True)
            turns = {"nobackfill": [], "peer": []}
            for _ in range(options.turns):
                for reader, results in turns.items():
                    step = [*child, "--step", reader, name, path]
                    done = subprocess.run(step, check=True, capture_output=True, text=True)
                    results.append(json.loads(done.stdout.splitlines()[-1]))
        seconds, floats, used = (
            {reader: min(result[i] for result in results) for reader, results in turns.items()}
            for i in range(3)
        )
        line = {
            "date": datetime.now(UTC).isoformat(timespec="seconds"),
            "format": name,
            "peer": peer,
            "rows": rows,
            "dim": options.dim,
            "turns": options.turns,
            "seconds": round(seconds["nobackfill"], 3),
            "peer_seconds": round(seconds["peer"], 3),
            "time_ratio": round(seconds["nobackfill"] / seconds["peer"], 2),
            "cpu_seconds": round(used["nobackfill"], 3),
            "peer_cpu_seconds": round(used["peer"], 3),
            "load": round(os.getloadavg()[0], 1),
            "memory_per_floats": round(floats["nobackfill"], 2),
            "peer_memory_per_floats": round(floats["peer"], 2),
        }
        print(json.dumps(line), flush=True)
        with options.output.open("a", encoding="utf-8") as output:
            output.write(json.dumps(line) + "\n")


def run_step(step, name, path, options):
    """Writes the file, or reads it and prints seconds and memory."""
    if step == "write":
        small = Path(path + ".small") / Path(path).name
        small.parent.mkdir()
        write(name, small, 80, 4)
        write(name, Path(path), options.rows, options.dim)
        return
    if step == "nobackfill":
        import nobackfill as nb

        read = nb.load_vectors
    else:
        read = peer_of(name)
    read(path + ".small/" + Path(path).name)  # imports what the first use imports
    before, used = held(), time.process_time()
    start = time.perf_counter()
    result = read(path)
    seconds, used = time.perf_counter() - start, time.process_time() - used
    assert len(result) == options.rows, len(result)
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(json.dumps([seconds, (most - before) / (4 * options.rows * options.dim), used]))


def held():
    """Returns the memory that this process holds now, in bytes."""
    text = Path("/proc/self/status").read_text()
    return 1024 * int(text.split("VmRSS:")[1].split()[0])


def peer_of(name):
    """Returns a function that reads a file by another library."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.csv as pacsv
    import pyarrow.dataset as pads
    import pyarrow.json as pajson
    import pyarrow.parquet as pq

    def lance(path):
        import lancedb

        return lancedb.connect(str(Path(path).parent)).open_table(Path(path).stem).to_arrow()

    def lists(path):
        import polars as pl

        table = pl.read_csv(path)
        return table.with_columns(pl.col("vector").str.json_decode(pl.List(pl.Float32)))

    def tensors(path):
        from safetensors.numpy import load_file

        return load_file(path)["vector"]

    def pt(path):
        import torch

        return torch.load(path, weights_only=True)["vector"]

    def npz(path):
        with np.load(path) as archive:
            return {key: archive[key] for key in archive.files}["vector"]

    def document(path):
        with open(path, encoding="utf-8") as file:
            return np.array(json.load(file)["embeddings"], dtype=np.float32)

    return {
        "parquet": pq.read_table,
        "parquet, 40 shards": lambda path: pads.dataset(path).to_table(),
        "arrow": lambda path: pa.ipc.open_file(pa.OSFile(path)).read_all(),
        "arrow stream": lambda path: pa.ipc.open_stream(pa.OSFile(path)).read_all(),
        "lance": lance,
        "npz": npz,
        "npy": np.load,
        "safetensors": tensors,
        "pt": pt,
        "csv, a column per dimension": pacsv.read_csv,
        "csv, lists": lists,
        "csv.gz, a column per dimension": pacsv.read_csv,
        "jsonl": pajson.read_json,
        "jsonl.zst": lambda path: pajson.read_json(pa.input_stream(path, compression="detect")),
        "json, columns": document,
    }[name]


def write(name, path, rows, dim):
    """Writes random vectors in a format."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.csv as pacsv
    import pyarrow.parquet as pq

    matrix = np.random.default_rng(0).standard_normal((rows, dim), dtype=np.float32)
    ids = np.array([f"item-{row:07d}" for row in range(rows)])
    lists = pa.FixedSizeListArray.from_arrays(pa.array(matrix.ravel()), dim)
    table = pa.table({"id": ids, "vector": lists})
    wide = {f"dim_{n}": matrix[:, n] for n in range(dim)} if name.startswith("csv") else {}
    if name == "parquet":
        pq.write_table(table, path, use_dictionary=["id"])
    elif name == "parquet, 40 shards":
        path.mkdir()
        for shard in range(40):
            part = table.slice(shard * rows // 40, rows // 40)
            pq.write_table(part, path / f"part-{shard:02d}.parquet", use_dictionary=["id"])
    elif name in ("arrow", "arrow stream"):
        new = pa.ipc.new_file if name == "arrow" else pa.ipc.new_stream
        with new(str(path), table.schema) as writer:
            writer.write_table(table, max_chunksize=10_000)
    elif name == "lance":
        import lancedb

        lancedb.connect(str(path.parent)).create_table(path.stem, table)
    elif name == "npz":
        np.savez(path, id=ids, vector=matrix)
    elif name == "npy":
        np.save(path, matrix)
    elif name in ("safetensors", "pt"):
        import torch
        from safetensors.torch import save_file

        tensors = {"id": torch.arange(rows), "vector": torch.from_numpy(matrix)}
        (save_file if name == "safetensors" else torch.save)(tensors, path)
    elif name in ("csv, a column per dimension", "csv.gz, a column per dimension"):
        with pa.output_stream(str(path), compression="detect") as file:
            pacsv.write_csv(pa.table({"id": ids, **wide}), file)
    else:
        write_text(name, path, ids.tolist(), matrix)


def write_text(name, path, ids, matrix):
    """Writes random vectors as lists in CSV, JSON lines or a document."""
    import pyarrow as pa

    with pa.output_stream(str(path), compression="detect") as file:
        if name == "csv, lists":
            file.write(b"id,vector\n")
            for id, row in zip(ids, matrix, strict=True):
                file.write(f'{id},"{row.tolist()}"\n'.encode())
        elif name == "json, columns":
            file.write(json.dumps({"ids": ids, "embeddings": matrix.tolist()}).encode())
        else:
            for id, row in zip(ids, matrix, strict=True):
                file.write((json.dumps({"id": id, "vector": row.tolist()}) + "\n").encode())


if __name__ == "__main__":
    main()
