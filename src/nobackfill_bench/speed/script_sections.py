"""Sections of SPEED.md with results of the scripts in benchmarks/."""

from collections.abc import Callable, Iterable, Sequence
from itertools import groupby

from nobackfill_bench.markdown import table
from nobackfill_bench.results_log import Line

Read = Callable[[str], list[Line]]  # the name of a benchmark in, its lines out


def render_scripts(read: Read) -> list[str]:
    """Returns a section for each script that has results."""
    renderers = {
        "ndpp_memory": render_ndpp_memory,
        "step_time": render_steps,
        "flops": render_flops,
        "throughput": render_throughput,
        "streaming": render_streaming,
        "head_size": render_head_sizes,
    }
    return [render(lines) for name, render in renderers.items() if (lines := read(name))]


def section(title: str, text: str, command: str, tables: Iterable[str]) -> str:
    """Returns a section: its title, a paragraph, the command, and the lines of its tables."""
    return "\n".join([f"## {title}", "", text, "", f"    {command}", "", *tables])


def render_ndpp_memory(lines: Sequence[Line]) -> str:
    """Returns the section about NDPP with very many classes on a CPU."""
    rows = [
        [
            f"{line['classes']:,} × {line['dim']}",
            f"{line['threads']}",
            f"{line['seconds']:.0f} s",
            f"{line['process_peak_mb'] * 2**20 / 1e9:.2f} GB",
        ]
        for line in lines
    ]
    return section(
        "NDPP with very many classes on a CPU",
        "One update. Memory is that of the whole process, including torch and both matrices. "
        "The cores were also used by other processes.",
        "python benchmarks/ndpp_memory.py --classes 300000",
        table(["classes", "threads", "time", "memory"], rows),
    )


def render_steps(lines: Sequence[Line]) -> str:
    """Returns the section of the latest step time of each method, precision and machine."""
    latest = {(line["device"], line["precision"], line["method"]): line for line in lines}
    tables: list[str] = []
    for (device, precision), names in groupby(latest, key=lambda key: key[:2]):
        rows = [
            [
                f"`{name}`",
                f"{line['ratio']:.3f}",
                f"({line['lowest']:.3f} to {line['highest']:.3f})",
                f"{line['step_ms']:.1f}",
            ]
            for *_, name in names
            for line in [latest[device, precision, name]]
        ]
        tables += [f"### {device}, {precision}", "", *table(["", "ratio", "", "ms"], rows), ""]
    return section(
        "A training step, relative to plain classification",
        "ResNet-18 at 224 px, batch 256, 24,393 classes, 256 dimensions (`cores`: one per class; "
        "`bt2`: 512 before its own projection), stored old vectors. Medians; each method takes "
        "turns with `independent`; the lowest and highest ratio of a turn are in brackets. The "
        "pass for new prototypes and the perturbations run once per epoch and are not included.",
        "python benchmarks/step_time.py",
        tables[:-1],
    )


def render_flops(lines: Sequence[Line]) -> str:
    """Returns the section of counted operations: of a step, the start of an epoch, an epoch."""
    latest = {line["method"]: line for line in lines}
    base = latest["independent"]
    rows = []
    for name, line in latest.items():
        images = line["batch"] * line["image"]
        rows.append(
            [
                f"`{name}`",
                f"{line['terms'] / 1e9:.1f}",
                f"{100 * line['terms'] / (images + line['terms']):.2f} %",
                f"{line['start'] / 1e9:,.0f}" if line["start"] else "–",
                f"{line['images'] * line['forward'] / 1e9:,.0f}" if line["passes"] else "–",
                f"{flops_of_an_epoch(line) / 1e15:.3f}",
                f"{flops_of_an_epoch(line) / flops_of_an_epoch(base):.4f}",
            ]
        )
    head = ["", "terms of a step, G", "of the step", "start of an epoch, G", "pass, G"]
    return section(
        "Arithmetic of an epoch, counted",
        f"An epoch of the paper's length: {base['images']:,} images of {base['classes']:,} "
        f"classes, ResNet-18 at {base['side']} px, batches of {base['batch']}, {base['dim']} "
        f"dimensions; the model takes {base['image'] / 1e9:.2f} GFLOP per image, forward and "
        "backward. PyTorch counts matrix products and convolutions, with two operations for "
        "each multiplication with its addition, and no elementwise operations. *Pass* is the "
        "pass over all images that computes new prototypes; running means "
        '(`train.new_prototypes = "running"`) need none. The class means are synthetic and far '
        "apart; in a crowded space ODPP compares more pairs.",
        "python benchmarks/flops.py",
        [
            *table([*head, "epoch, PFLOP", "of `independent`"], rows),
            "",
            "The paper prints 3.05e3 GFLOPs for NDPP (one product of all class means with each "
            "other is 305) and 4.98e4 for ODPP.",
        ],
    )


def flops_of_an_epoch(line: Line) -> float:
    """Adds the operations of all steps, the start and the pass of an epoch."""
    return float(
        line["images"] * (line["image"] + line["terms"] / line["batch"])
        + line["start"]
        + line["images"] * line["forward"] * line["passes"]
    )


def render_throughput(lines: Sequence[Line]) -> str:
    """Returns the section of our training loop, a bare loop and the start of an epoch."""
    rows = []
    for line in lines:
        rates = {name: max(turns) for name, turns in line["images_per_second"].items()}
        bare, epoch = rates["bare"], line["epoch_seconds"]
        rows.append(
            [
                line["device"],
                f"{line['classes']:,}",
                f"{bare:,.0f}",
                *(
                    f"{rates[name]:,.0f} ({rates[name] / bare:.2f})" if name in rates else "–"
                    for name in ("memory", "files")
                ),
                *(
                    f"{seconds:.2f} s ({100 * seconds / epoch:.2f} %)"
                    for seconds in (line[f"{name}_seconds"] for name in ("ndpp", "odpp", "pass"))
                ),
            ]
        )
    head = ["device", "classes", "bare images/s", "from memory", "from JPEGs"]
    return section(
        "Training loop, and the start of an epoch",
        "ResNet-18 at 224 px, batch 256. Best of all turns, with the ratio to the bare loop; "
        "then the seconds at the start of an epoch of the paper's length, and their share of "
        "the epoch.",
        "python benchmarks/throughput.py --device cuda",
        table([*head, "NDPP", "ODPP", "pass for new prototypes"], rows),
    )


def render_head_sizes(lines: Sequence[Line]) -> str:
    """Returns the section of time, memory and quality of heads on many items."""
    rows = [
        [
            f"{line['items']:,}",
            f"{line['classes']:,}",
            "–" if line["limit"] is None else f"{line['limit']:g} s",
            f"{line['seconds']:.0f} s",
            f"{line['anonymous_mb'] * 2**20 / 1e9:.2f} GB",
            f"{line['peak_mb'] * 2**20 / 1e9:.2f} GB",
            f"{100 * line['old_old']:.2f}",
            f"{100 * line['new_old']:.2f}",
        ]
        for line in lines
    ]
    head = ["items", "classes", "limit", "time", "memory", "with pages", "old/old", "new/old"]
    return section(
        "Fitting a head to many items",
        "`nobackfill fit` on files of synthetic vectors in half precision, 1,024 → 256 "
        "dimensions, from the files to the head; queries are of 1,000 other classes. *Memory* "
        "is the process's own memory; *with pages* includes cached pages of the mapped files.",
        "python benchmarks/head_size.py --items 100000 --classes 10000 --seconds 52",
        table(head, rows),
    )


def render_streaming(lines: Sequence[Line]) -> str:
    """Returns the section of time and peak memory of evaluations of large galleries."""
    latest = {(line["device"], line["queries"], line["gallery"]): line for line in lines}
    rows = [
        [
            line["device"],
            f"{line['queries']:,} × {line['gallery']:,}",
            f"{line['seconds']:.0f} s",
            f"{line['peak_mb'] * 2**20 / 1e9:.2f} GB",
            *(f"{line[key]:.8f}" for key in ("old_old", "new_old", "new_new")),
        ]
        for line in latest.values()
    ]
    return section(
        "`nobackfill evaluate` on a large gallery",
        "From two Parquet files of 256 dimensions to the verdict: three exact searches, with "
        "flips and intervals. Memory is that of the whole process. The long run on a CPU "
        "shared its two cores with other processes.",
        "python benchmarks/streaming.py --queries 10000 --gallery 1000000",
        table(["device", "size", "time", "memory", "old/old", "new/old", "new/new"], rows),
    )
