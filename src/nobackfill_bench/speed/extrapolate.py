"""Power laws of the measurements, and estimates for larger sizes."""

from collections.abc import Mapping, Sequence
from math import log
from statistics import linear_regression

from nobackfill_bench.results_log import Line

GALLERY, CLASSES, QUERIES, BATCH, DIM = 10**8, 10**7, 10_000, 1_024, 256
GPU_BYTES = 80e9  # memory of a data-centre GPU
STEPS = 50


def exponent(points: Mapping[float, float]) -> float | None:
    """Fits the exponent of growth: least squares on logarithms over the upper half.

    Args:
        points: Measured values by size. Sizes at or above the geometric middle count, at least
            three of them.

    Returns:
        The exponent; None with fewer than three points.

    Example:
        >>> round(exponent({10.0**n: 7 * 100.0**n for n in range(5)}), 6)
        2.0
    """
    known = sorted((size, value) for size, value in points.items() if size > 0 and value > 0)
    if len(known) < 3:
        return None
    middle = (known[0][0] * known[-1][0]) ** 0.5
    upper = [point for point in known if point[0] >= middle]
    upper = upper if len(upper) >= 3 else known[-3:]
    sizes, values = zip(*((log(size), log(value)) for size, value in upper), strict=True)
    return linear_regression(sizes, values).slope


def extrapolate(lines: Sequence[Line]) -> list[str]:
    """Estimates the cost of 10⁸ gallery items and 10⁷ classes on a cluster.

    The rates are those of the largest measurement on the fastest GPU, or on a CPU without one.
    """
    timed = [line for line in lines if "ours_s" in line]
    gpus = [line for line in timed if line["device"] != "cpu"]
    return [
        "The rates are those of the largest size above. Work grows with the gallery items for a "
        "search, with the square of the classes for perturbations, and with the classes for the "
        "loss. These numbers are calculated, not measured: they do not include the time for "
        "communication and for reading the vectors.",
        gallery_at_scale(gpus or timed),
        classes_at_scale(gpus or timed),
    ]


def gallery_at_scale(lines: Sequence[Line]) -> str:
    """Estimates a search of 10,000 queries in 10⁸ items."""
    line = largest(lines, "retrieval", "gallery", "mAP")
    if line is None:
        return "No search was measured yet. Run `nobackfill bench speed --suite retrieval`."
    pairs = line["size"]["queries"] * line["size"]["gallery"] * line["size"]["dim"]
    seconds = line["ours_s"] * QUERIES * GALLERY * DIM / pairs
    stored = 4.0 * GALLERY * DIM
    machines = at_least(stored / GPU_BYTES)
    return (
        f"**{power(GALLERY)} gallery items.** They take {stored / 1e9:,.0f} GB in float32 and "
        f"{stored / 2e9:,.0f} GB in half precision: at least {machines} GPUs of 80 GB, or one GPU "
        f"that processes them in parts. Gallery rows are sharded; queries are copied to each "
        f"shard. The rank of a relevant item is one plus the number of items before it, and these "
        f"counts add up over shards. A search sends the scores of the relevant items to all shards "
        f"and gets back one integer for each, so exact mAP needs no further work. "
        f"{QUERIES:,} queries would take {gpu_seconds(seconds, line)} in total, "
        f"{spoken(seconds / machines)} on {machines} of them. To serve such a gallery, use an "
        f"engine with shards: Milvus, Qdrant, or faiss (`IndexShards`, over the GPUs of one "
        f"machine). `nobackfill gallery` supports Qdrant; `nobackfill evaluate` uses one device."
    )


def classes_at_scale(lines: Sequence[Line]) -> str:
    """Estimates perturbations and loss with 10⁷ classes."""
    stored = 4.0 * CLASSES * DIM
    sentences = [
        f"**{power(CLASSES)} classes.** A matrix of class means takes {stored / 1e9:,.1f} GB in "
        f"float32, so old, moved and new ones fit on one GPU; only the work grows."
    ]
    if line := largest(lines, "ndpp", "classes", "`update`"):
        seconds = line["ours_s"] * (CLASSES / line["size"]["classes"]) ** 2
        sentences.append(
            f"NDPP: the old rows are sharded and the new ones are gathered by all (one all-gather "
            f"of {stored / 1e9:,.1f} GB per epoch); nothing else is exchanged. An update would "
            f"take {gpu_seconds(seconds, line)}, {spoken(seconds / 64)} on 64 of them. At that "
            f"size an approximate index (faiss IVF or HNSW) is the better choice."
        )
    if line := largest(lines, "odpp", "classes", "constructor, dense"):
        seconds = line["ours_s"] * (CLASSES / line["size"]["classes"]) ** 2
        sentences.append(
            f"ODPP, {STEPS} steps in which every pair contributes: rows are sharded in the same "
            f"way, and the moved ones are gathered in every step; {gpu_seconds(seconds, line)}, "
            f"{spoken(seconds / 64)} on 64 of them."
        )
    if line := largest(lines, "loss", "classes", "forward + backward"):
        seconds = line["ours_s"] * CLASSES * BATCH / line["size"]["classes"]
        seconds /= line["size"]["batch"]
        exchanged = 4.0 * BATCH * (DIM + 2)
        sentences.append(
            f"`prototype_loss`: classes are sharded, as in partial FC, or by `loss_parallel` of "
            f"torch.distributed; a step exchanges two sums and one gradient per item, "
            f"{exchanged / 1e6:,.1f} MB for a batch of {BATCH:,}. Forward and backward would take "
            f"{gpu_seconds(seconds, line)} per step, {spoken(seconds / 8)} on 8 of them."
        )
    return " ".join(sentences)


def largest(lines: Sequence[Line], suite: str, by: str, starts: str) -> Line | None:
    """Returns the float32 result of a suite with the largest size; the latest of equals."""
    points = [
        line
        for line in lines
        if line["suite"] == suite
        and line["case"].startswith(starts)
        and line["precision"] == "float32"
    ]
    return max(points, key=lambda line: (line["size"][by], line["date"]), default=None)


def gpu_seconds(seconds: float, line: Line) -> str:
    """Formats a cost with its machine.

    Example:
        >>> gpu_seconds(1234.5, {"device": "NVIDIA H200"})
        '1,230 GPU-seconds (NVIDIA H200)'
    """
    unit = "CPU" if line["device"] == "cpu" else "GPU"
    three_digits = float(f"{seconds:.3g}")
    number = f"{three_digits:,.0f}" if seconds >= 100 else f"{three_digits:g}"
    return f"{number} {unit}-seconds ({line['device']})"


def spoken(seconds: float) -> str:
    """Formats a duration.

    Example:
        >>> spoken(0.02), spoken(42.0), spoken(600.0), spoken(90_000.0)
        ('20 ms', '42 s', '10 min', '25 h')
    """
    for unit, size in (("h", 3600.0), ("min", 60.0)):
        if seconds >= 5 * size:
            return f"{seconds / size:,.0f} {unit}"
    return f"{seconds:,.0f} s" if seconds >= 1 else f"{1000 * seconds:.0f} ms"


def power(number: int) -> str:
    """Formats a power of ten.

    Example:
        >>> power(10**8)
        '10⁸'
    """
    return "10" + str(len(str(number)) - 1).translate(str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹"))


def at_least(number: float) -> int:
    """Rounds up, to at least 1."""
    return max(1, -int(-number // 1))
