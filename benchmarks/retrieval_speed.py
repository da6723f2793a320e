"""How fast is mean average precision from vectors, ours against other libraries?

Each peer runs in a child process of its own, one after the other, repeats interleaved; the best
repeat counts. A child reports the seconds from vectors in memory to the value (imports excluded),
the peak of its memory above what it held before, and the value. Every run appends one JSON line to
`retrieval_speed.jsonl` beside this file.

    python benchmarks/retrieval_speed.py --size market gldv2 --repeats 3
    python benchmarks/retrieval_speed.py --size market --peers nobackfill torch_argsort

Peers are the `bench` extra of this package; those not installed are skipped with a line.
"""

import argparse
import importlib.metadata
import importlib.util
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

RESULTS = Path(__file__).with_suffix(".jsonl")
SIZES = {  # query, gallery, classes, noise (which sets how hard it is: mAP about 0.79 and 0.16)
    "market": (3_368, 15_913, 750, 1.75),
    "gldv2": (1_129, 200_000, 10_000, 2.1),
    "small": (300, 2_000, 100, 1.75),
}
DIM = 256


def clustered(size: str) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Unit float32 vectors around class centres: query, gallery and their labels."""
    num_query, num_gallery, classes, noise = SIZES[size]
    generator = torch.Generator().manual_seed(0)
    centre = torch.randn(classes, DIM, generator=generator)
    labels = [torch.arange(rows) % classes for rows in (num_query, num_gallery)]
    query, gallery = (
        torch.nn.functional.normalize(
            torch.randn(len(label), DIM, generator=generator).mul_(noise).add_(centre[label])
        )
        for label in labels
    )
    return query, gallery, labels[0], labels[1]


def nobackfill(
    query: Tensor, gallery: Tensor, query_labels: Tensor, gallery_labels: Tensor
) -> float:
    from nobackfill.metrics import retrieval

    return retrieval(query, gallery, query_labels, gallery_labels).mean_average_precision


def torchmetrics(
    query: Tensor, gallery: Tensor, query_labels: Tensor, gallery_labels: Tensor
) -> float:
    """Its functional form, query by query. It drops scores <= 0, so they are shifted."""
    from torchmetrics.functional.retrieval import retrieval_average_precision

    values = []
    for first in range(0, len(query), 64):
        score = (query[first : first + 64] @ gallery.T).add_(1).div_(2)
        for row, label in zip(score, query_labels[first : first + 64], strict=True):
            values.append(retrieval_average_precision(row, gallery_labels == label))
    return torch.stack(values).double().mean().item()


def pytorch_metric_learning(
    query: Tensor, gallery: Tensor, query_labels: Tensor, gallery_labels: Tensor
) -> float:
    """Its AccuracyCalculator over faiss, the whole gallery as neighbours."""
    import faiss
    from pytorch_metric_learning.utils.accuracy_calculator import AccuracyCalculator
    from pytorch_metric_learning.utils.inference import FaissKNN

    faiss.omp_set_num_threads(torch.get_num_threads())
    knn = FaissKNN(index_init_fn=faiss.IndexFlatIP, reset_before=True)
    calculator = AccuracyCalculator(
        include=("mean_average_precision",), k=None, device=torch.device("cpu"), knn_func=knn
    )
    found = calculator.get_accuracy(query, query_labels, gallery, gallery_labels, False)
    return float(found["mean_average_precision"])


def scikit_learn(
    query: Tensor, gallery: Tensor, query_labels: Tensor, gallery_labels: Tensor
) -> float:
    """Its average_precision_score, query by query: also the truth the values are held against."""
    from sklearn.metrics import average_precision_score

    values = []
    for first in range(0, len(query), 64):
        score = (query[first : first + 64] @ gallery.T).numpy()
        for row, label in zip(score, query_labels[first : first + 64], strict=True):
            values.append(average_precision_score((gallery_labels == label).numpy(), row))
    return float(np.mean(values))


def numpy_argsort(
    query: Tensor, gallery: Tensor, query_labels: Tensor, gallery_labels: Tensor
) -> float:
    """What one writes by hand: argsort a chunk, look where the hits are."""
    values = []
    labels = gallery_labels.numpy()
    for first in range(0, len(query), 64):
        score = (query[first : first + 64] @ gallery.T).numpy()
        order = np.argsort(-score, axis=1)
        for ranking, label in zip(order, query_labels[first : first + 64].numpy(), strict=True):
            ranks = np.flatnonzero(labels[ranking] == label) + 1
            values.append((np.arange(1, len(ranks) + 1) / ranks).mean())
    return float(np.mean(values))


def torch_argsort(
    query: Tensor, gallery: Tensor, query_labels: Tensor, gallery_labels: Tensor
) -> float:
    """The same in torch: argsort a chunk, cumulative sum of hits."""
    values = []
    rank = torch.arange(1, len(gallery) + 1)
    for first in range(0, len(query), 64):
        order = (query[first : first + 64] @ gallery.T).argsort(dim=1, descending=True)
        hit = gallery_labels[order] == query_labels[first : first + 64, None]
        precision = hit.cumsum(dim=1) / rank
        values.append((hit * precision).sum(dim=1).double() / hit.sum(dim=1))
    return torch.cat(values).mean().item()


PEERS: dict[str, tuple[Callable[[Tensor, Tensor, Tensor, Tensor], float], tuple[str, ...]]] = {
    "nobackfill": (nobackfill, ("nobackfill",)),
    "torch_argsort": (torch_argsort, ()),
    "numpy_argsort": (numpy_argsort, ()),
    "torchmetrics": (torchmetrics, ("torchmetrics",)),
    "scikit_learn": (scikit_learn, ("sklearn",)),
    "pytorch_metric_learning": (pytorch_metric_learning, ("pytorch_metric_learning", "faiss")),
}
LIBRARIES = {"torchmetrics", "scikit_learn", "pytorch_metric_learning"}
PACKAGES = (
    "torch",
    "numpy",
    "torchmetrics",
    "scikit-learn",
    "pytorch-metric-learning",
    "faiss-cpu",
)


def status_mb(field: str) -> float:
    """`VmRSS` or `VmHWM` of this process."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field):
            return int(line.split()[1]) / 1024
    raise KeyError(field)


def child(peer: str, size: str, threads: int) -> dict[str, float]:
    """Measures one peer once, in this process."""
    torch.set_num_threads(threads)
    function, _ = PEERS[peer]
    function(*clustered("small"))  # imports, thread pools
    data = clustered(size)
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts from here
    before, start = status_mb("VmRSS"), time.perf_counter()
    value = function(*data)
    seconds = time.perf_counter() - start
    return {"seconds": seconds, "peak_mb": status_mb("VmHWM") - before, "map": value}


def versions() -> dict[str, str]:
    installed = {dist.name.lower() for dist in importlib.metadata.distributions()}
    found = {name: importlib.metadata.version(name) for name in PACKAGES if name in installed}
    return {"python": sys.version.split()[0], **found}


def run(peer: str, size: str, threads: int, timeout: float) -> dict[str, float] | None:
    """Measures one peer in a new process, and appends what it found to the results."""
    command = [sys.executable, __file__, "--child", peer, "--size", size, "--threads", str(threads)]
    limits = {"OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads)}
    try:
        done = subprocess.run(
            command,
            env={**os.environ, **limits, "OPENBLAS_NUM_THREADS": str(threads)},
            capture_output=True,
            text=True,
            timeout=timeout,
        )
    except subprocess.TimeoutExpired:
        print(f"{size}: {peer} took more than {timeout:.0f} s, skipped")
        return None
    if done.returncode:
        reason = (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1]
        print(f"{size}: {peer} failed, skipped: {reason}")
        return None
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    num_query, num_gallery, classes, _ = SIZES[size]
    line = {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "sizes": {"query": num_query, "gallery": num_gallery, "dim": DIM, "classes": classes},
        "threads": threads,
        "peer": peer,
        **found,
        "load": os.getloadavg()[0],
        "versions": versions(),
    }
    with RESULTS.open("a") as file:
        file.write(json.dumps(line) + "\n")
    return found


def print_table(size: str, runs: dict[str, list[dict[str, float]]]) -> None:
    """The best of each peer, and how many times as long as ours it took."""
    num_query, num_gallery, _, _ = SIZES[size]
    best = {
        peer: min(all_of, key=lambda r: r["seconds"]) for peer, all_of in runs.items() if all_of
    }
    ours = best.get("nobackfill")
    print(f"\n{size}: {num_query:,} x {num_gallery:,}, dimension {DIM}")
    print(f"{'peer':<24} {'seconds':>8} {'x ours':>7} {'peak MB':>8}  mAP")
    for peer, found in sorted(best.items(), key=lambda pair: pair[1]["seconds"]):
        ratio = f"{found['seconds'] / ours['seconds']:.1f}" if ours else "-"
        print(
            f"{peer:<24} {found['seconds']:8.2f} {ratio:>7} {found['peak_mb']:8.0f}  "
            f"{found['map']:.8f}"
        )
    for name, group in (("library", LIBRARIES), ("argsort", {"torch_argsort", "numpy_argsort"})):
        there = [best[peer]["seconds"] for peer in group if peer in best]
        if ours and there:
            print(f"fastest {name}: {min(there) / ours['seconds']:.1f} times as long as ours")
    if ours and "scikit_learn" in best:
        difference = abs(ours["map"] - best["scikit_learn"]["map"])
        print(f"mAP differs from scikit-learn's by {difference:.1e}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--size", nargs="+", choices=SIZES, default=["market"])
    parser.add_argument("--peers", nargs="+", choices=PEERS, default=list(PEERS))
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--timeout", type=float, default=600, help="seconds for one run")
    parser.add_argument("--child", choices=PEERS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        print(json.dumps(child(options.child, options.size[0], options.threads)))
        return
    peers = []
    for peer in options.peers:
        missing = [name for name in PEERS[peer][1] if importlib.util.find_spec(name) is None]
        if missing:
            print(f"{peer} skipped: {', '.join(missing)} not installed")
        else:
            peers.append(peer)
    for size in options.size:
        runs: dict[str, list[dict[str, float]]] = {peer: [] for peer in peers}
        for _ in range(options.repeats):
            for peer in list(peers):
                found = run(peer, size, options.threads, options.timeout)
                runs[peer] += [found] if found else []
        print_table(size, runs)


if __name__ == "__main__":
    main()
