"""Renders SPEED.md from the stored results."""

from collections.abc import Sequence
from pathlib import Path
from re import sub

from nobackfill.core.atomic_files import write_text
from nobackfill_bench.markdown import table
from nobackfill_bench.results_log import Line, read_lines
from nobackfill_bench.speed.case import Suite, in_words
from nobackfill_bench.speed.extrapolate import exponent, extrapolate
from nobackfill_bench.speed.figures import by_curve, gigabytes, growth_figure, memory_of, times_of
from nobackfill_bench.speed.runner import LINES, speed_key
from nobackfill_bench.speed.script_sections import render_scripts
from nobackfill_bench.speed.suites import SPEED_SUITES

PAGE = "SPEED.md"
HOW_TO_READ = """\
Rendered by `nobackfill bench speed --render` from the JSON lines next to it. In the first sections,
our implementation and its peer take turns in one run (ours, peer, ours, …), so a busy or faster
machine affects both. The ratio is the median over the pairs of turns; the lowest and highest follow
it. Seconds are medians. *Memory* is our peak, including the inputs. *Added* and *peer adds* are the
peaks above the inputs: of torch's allocator on a GPU, of the whole process on a CPU. *Counted* are
the operations and bytes that the text of the section explains. If a case was measured twice on one
device, the later result is shown; all results are in [speed.jsonl](speed.jsonl).

GPU figures of NDPP, ODPP and the loss are of an earlier state with twelve Triton kernels.
[kernels.jsonl](kernels.jsonl) compares whole jobs on an H200 with two kernels (ranks, and terms of
the loss) and with twelve: with two, an epoch with ResNet-18 at 224 px takes 1.01 times as long, a
step with 1,000,000 classes 1.00 times, an epoch of 24,393 classes at 40 px 1.08 times (NDPP) and
1.16 times (ODPP), with TF32 up to 1.3 times. For the last two, the kernels of ODPP's masks and of
the sums with TF32 were put back; four are left, and no figure here was measured with these four."""


def render_page(folder: Path) -> Path:
    """Writes SPEED.md and its figures from the results in a folder; returns its path."""
    path = folder / PAGE
    write_text(path, render(folder, folder / "figures"))
    return path


def render(folder: Path, figures: Path) -> str:
    """Returns the text of the page.

    Args:
        folder: Folder of the results.
        figures: Folder for the figures.
    """
    lines = read_lines(folder / LINES, key=speed_key)
    sections = ["# Speed", *([targets(lines)] if lines else []), HOW_TO_READ]
    for name, suite in SPEED_SUITES.items():
        own = [line for line in lines if line["suite"] == name]
        if own:
            sections += suite_section(name, suite, own, figures)
    sections += render_scripts(lambda name: all_lines(folder / f"{name}.jsonl"))
    if lines:
        sections += ["## Beyond one machine", *extrapolate(lines)]
    return "\n\n".join(section.strip("\n") for section in sections if section) + "\n"


def all_lines(path: Path) -> list[Line]:
    """Reads all lines of a file, including repeated measurements."""
    numbers = iter(range(10**9))
    return read_lines(path, key=lambda line: (next(numbers),))


def targets(lines: Sequence[Line]) -> str:
    """Returns the number of targets that are met, and a list of the others."""
    targets = [(line, text, met) for line in lines for text, met in targets_of(line)]
    if not targets:
        return ""
    missed = [(line, text) for line, text, met in targets if not met]
    sentence = f"{len(targets) - len(missed)} of {len(targets)} targets are met."
    if not missed:
        return sentence
    each = [
        f"- {line['suite']}, {line['case']}, {in_words(line['size'])}, {line['device']}: "
        f"{line['ratio']:.3g} and {time(line['ours_s'])} ({text}){recorded(line, lines)}"
        for line, text in missed
    ]
    return "\n".join([f"{sentence} Not met:", "", *each])


def recorded(line: Line, lines: Sequence[Line]) -> str:
    """Returns the ratio of the same case as a CUDA graph, if it was measured."""
    same = ("suite", "size", "device")
    for other in lines:
        if other["case"] == f"{line['case']}, recorded" and all(
            other[name] == line[name] for name in same
        ):
            return f"; recorded {other['ratio']:.3g}"
    return ""


def targets_of(line: Line) -> list[tuple[str, bool]]:
    """Returns the targets of a measurement, and whether each is met.

    Example:
        >>> targets_of({"target": 2.0, "counts": "ours/peer", "ratio": 1.5})
        [('≤ 2', True)]
    """
    targets = []
    if (target := line.get("target")) is not None:
        small = line["counts"] == "ours/peer"
        met = line["ratio"] <= target if small else line["ratio"] >= target
        targets.append((f"{'≤' if small else '≥'} {target:g}", met))
    if (target := line.get("target_s")) is not None:
        targets.append((f"≤ {target:g} s", line["ours_s"] <= target))
    if (target := line.get("target_gb")) is not None:
        targets.append((f"≤ {target:g} GB", gigabytes(line) <= target))
    return targets


def suite_section(name: str, suite: Suite, lines: Sequence[Line], figures: Path) -> list[str]:
    """Returns the section of a suite: heading, text and a table for each device."""
    sections = [f"## {suite.title}", *suite.text, f"    nobackfill bench speed --suite {name}"]
    devices = sorted({line["device"] for line in lines}, key=lambda name: (name == "cpu", name))
    for device in devices:
        own = [line for line in lines if line["device"] == device]
        sections.append(f"### {heading(own)}")
        plain = [line for line in own if "ratio" in line and not line["axis"]]
        if plain:
            sections += [peers(plain), "\n".join(timed_table(plain))]
        findings = [line for line in own if "found" in line]
        if findings:
            sections += ["\n".join(found_table(findings))]
        if any(line.get("axis") for line in own):
            file = f"speed-growth-{slug(device)}.svg"
            write_text(figures / file, growth_figure(own))
            sections += ["\n".join(growth_table(own)), f"![{suite.title}](figures/{file})"]
    return sections


def heading(lines: Sequence[Line]) -> str:
    """Returns device, torch version and date of the newest measurement."""
    last = max(lines, key=lambda line: line["date"])
    name = last["device"]
    if name == "cpu":
        threads = "1 thread" if last["threads"] == 1 else f"{last['threads']} threads"
        name = f"CPU ({last['processor']}), {threads}"
    return f"{name}, torch {last['torch']}, {last['date'][:10]}"


def peers(lines: Sequence[Line]) -> str:
    """Returns a sentence that names the peers, if there are at most two."""
    known = dict.fromkeys(line["peer"] for line in lines)
    return f"Peer: {'; '.join(known)}." if len(known) <= 2 else ""


def timed_table(lines: Sequence[Line]) -> list[str]:
    """Returns a table with a row for each measurement."""
    with_values = any(line["value"] is not None for line in lines)
    head = ["", "size", lines[0]["counts"], "lowest to highest", "ours", "peer", "target",
            "memory", "added", "peer adds", "counted", "TFLOP/s"]  # fmt: skip
    rows = []
    for line in lines:
        targets = [f"{text}: {'met' if met else '**missed**'}" for text, met in targets_of(line)]
        rate = f", {line['steps'] / line['ours_s']:,.0f} steps/s" if line["steps"] else ""
        peer_rate = f", {line['steps'] / line['peer_s']:,.0f} steps/s" if line["steps"] else ""
        row = [
            line["case"],
            in_words(line["size"]),
            f"**{line['ratio']:.3g}**",
            f"{line['lowest']:.3g} to {line['highest']:.3g} ({line['repeats']})",
            time(line["ours_s"]) + rate,
            time(line["peer_s"]) + peer_rate,
            ", ".join(targets) or "–",
            f"{gigabytes(line):.2f} GB",
            amount(1e6 * line["added_mb"], "B"),
            amount(1e6 * line["peer_added_mb"], "B"),
            f"{amount(line['operations'], 'FLOP')}, {amount(line['bytes'], 'B')}",
            f"{line['operations'] / line['ours_s'] / 1e12:.3g}",
        ]
        if with_values:
            row += [", ".join(value(line[key]) for key in ("value", "peer_value"))]
        rows.append(row)
    return table([*head, "values"] if with_values else head, rows)


def found_table(lines: Sequence[Line]) -> list[str]:
    """Returns a table with a row for each finding."""
    rows = [
        [line["case"], in_words(line["size"]), finding(line["found"]), line["says"]]
        for line in lines
    ]
    return table(["", "size", "found", ""], rows)


def finding(number: float) -> str:
    """Formats a share, or a small error.

    Example:
        >>> finding(0.99957), finding(1.458e-8)
        ('0.99957', '1.5e-08')
    """
    return f"{number:.5f}" if number >= 0.01 else f"{number:.1e}"


def growth_table(lines: Sequence[Line]) -> list[str]:
    """Returns a table with a row for each curve."""
    rows = []
    for name, curve in by_curve(lines).items():
        axis = curve[0]["axis"]
        first, last = curve[0], curve[-1]
        others = {key: size for key, size in last["size"].items() if key != axis}
        rows.append(
            [
                name,
                in_words(others),
                f"{first['size'][axis]:,} to {last['size'][axis]:,}",
                f"{time(first['ours_s'])} to {time(last['ours_s'])}",
                grown(exponent(times_of(curve))),
                f"{gigabytes(first):.2g} to {gigabytes(last):.2g} GB",
                grown(exponent(memory_of(curve))),
                f"{last['ratio']:.3g}",
            ]
        )
    head = ["", "at", "from … to", "time", "exponent", "memory", "exponent", "ours/peer at the end"]
    return table(head, rows)


def grown(power: float | None) -> str:
    """Formats an exponent, or a dash."""
    return "–" if power is None else f"**{power:.2f}**"


def value(number: float | None) -> str:
    """Formats a returned value."""
    return "–" if number is None else f"{number:.8f}"


def time(seconds: float) -> str:
    """Formats seconds with three digits.

    Example:
        >>> time(12.345), time(0.012345), time(0.0000123)
        ('12.3 s', '12.3 ms', '12.3 µs')
    """
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= size:
            return f"{seconds / size:{'.0f' if seconds >= 1000 else '.3g'}} {unit}"
    return f"{seconds / 1e-6:.3g} µs"


def amount(number: float, unit: str) -> str:
    """Formats a large number with an SI prefix.

    Example:
        >>> amount(3.05e11, "FLOP"), amount(99_900_000.0, "B")
        ('305 GFLOP', '99.9 MB')
    """
    for prefix, size in (("P", 1e15), ("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if number >= size:
            return f"{number / size:.3g} {prefix}{unit}"
    return f"{number:.0f} {unit}"


def slug(name: str) -> str:
    """Converts a name to a part of a file name.

    Example:
        >>> slug("NVIDIA H200")
        'nvidia-h200'
    """
    return sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
