"""Figures as SVG text. Arrays in, SVG out; nothing is read or written."""

import io
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from hashlib import sha256
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from numpy.typing import NDArray

INK, SOFT, LINE, PAPER = "#1d2733", "#5c6b7a", "#d9e0e8", "#fefefe"
COLORS = (
    "#2457c5", "#d1495b", "#2a9d6f", "#e08e00", "#7b4bb7",
    "#0f8b8d", "#a4480f", "#c2378f", "#5f7a00", "#475569",
)  # fmt: skip

# What a page may set, for dark paper say. A figure that stands alone keeps the colours above.
VARIABLES = {INK: "--ink", SOFT: "--soft", LINE: "--line", PAPER: "--card"} | {
    color: f"--series-{index}" for index, color in enumerate(COLORS, start=1)
}

STYLE: dict[Any, Any] = {
    "font.size": 10,
    "font.family": "sans-serif",
    "text.color": INK,
    "axes.edgecolor": LINE,
    "axes.labelcolor": SOFT,
    "axes.titlesize": 11,
    "axes.titleweight": "bold",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "xtick.color": SOFT,
    "ytick.color": SOFT,
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "svg.fonttype": "none",  # text stays text: sharp, small, and found by a search
    "svg.hashsalt": "nobackfill",  # the same figure is the same file
}


@contextmanager
def _figure(width: float, height: float) -> Iterator[Figure]:
    with mpl.rc_context(STYLE), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph")  # the page's fonts have more scripts
        yield Figure(figsize=(width, height), layout="constrained")


def _svg(figure: Figure) -> str:
    """The figure as an SVG element, without what only a file of its own needs."""
    out = io.StringIO()
    canvas: Any = FigureCanvasSVG(figure)
    canvas.print_svg(out, metadata=dict.fromkeys(("Date", "Creator", "Format", "Type")))
    text = out.getvalue()
    return _beside_others(text[text.index("<svg") :])


def _beside_others(svg: str) -> str:
    """The same SVG, fit to share a page with other figures.

    Colours and font are the page's, where it sets them. Only the ids that something refers to
    stay, and they begin with a hash of the whole, so that no two figures mean the same.
    """
    prefix = f"f{sha256(svg.encode()).hexdigest()[:10]}-"
    used = set(re.findall(r'(?:href="|url\()#([^")]+)', svg))

    def new_id(found: re.Match[str]) -> str:
        return f' id="{prefix}{found[1]}"' if found[1] in used else ""

    def new_color(found: re.Match[str]) -> str:
        color = found[0]
        return f"var({VARIABLES[color]}, {color})" if color in VARIABLES else color

    def new_tag(found: re.Match[str]) -> str:
        tag = re.sub(r' id="([^"]*)"', new_id, found[0])
        tag = re.sub(r'href="#|url\(#', lambda reference: reference[0] + prefix, tag)
        tag = re.sub(r'font-family: [^;"]*;? ?', "", tag)
        return re.sub(r"(?<=fill: )#[0-9a-f]{6}|(?<=stroke: )#[0-9a-f]{6}", new_color, tag)

    svg = re.sub(r"<defs>\s*<style.*?</style>\s*</defs>", "", svg, count=1, flags=re.DOTALL)
    svg = re.sub(r"<[^<>]+>", new_tag, svg)
    (width,) = re.findall(r'<svg[^>]* width="([^"]*)"', svg)
    style = f"--width: {width}; font-family: var(--font, sans-serif); stroke-linejoin: round"
    return svg.replace("<svg", f'<svg style="{style}"', 1)


def heat_map(values: NDArray[Any], rows: Sequence[str], columns: Sequence[str]) -> str:
    """A matrix of mAPs in percent: query by the model of the row, gallery by that of the column."""
    with _figure(1.6 + 1.05 * len(columns), 1.1 + 0.52 * len(rows)) as figure:
        axes = figure.add_subplot()
        axes.imshow(
            values, cmap="Blues", vmin=0, vmax=1.15 * float(np.nanmax(values)), aspect="auto"
        )
        dark = 0.78 * np.nanmax(values)
        for (i, j), value in np.ndenumerate(values):
            color = "#ffffff" if value > dark else "#10202f"  # on its cell, whatever the page
            text = "" if np.isnan(value) else f"{100 * value:.1f}"
            axes.text(j, i, text, ha="center", va="center", color=color)
        axes.set_xticks(range(len(columns)), columns)
        axes.set_yticks(range(len(rows)), rows)
        axes.set_xlabel("gallery by")
        axes.set_ylabel("query by")
        axes.spines[:].set_visible(False)
        axes.tick_params(length=0)
        axes.set_xticks(np.arange(len(columns) + 1) - 0.5, minor=True)
        axes.set_yticks(np.arange(len(rows) + 1) - 0.5, minor=True)
        axes.grid(which="minor", color=PAPER, linewidth=2)
        axes.tick_params(which="minor", length=0)
        return _svg(figure)


def histograms(
    values: Mapping[str, NDArray[Any]], *, label: str, marks: Mapping[str, float] | None = None
) -> str:
    """Several distributions over one axis, as outlines; `marks` are dotted lines with a name."""
    with _figure(9.0, 3.4) as figure:
        axes = figure.add_subplot()
        low = min(float(value.min()) for value in values.values())
        high = max(float(value.max()) for value in values.values())
        bins = np.linspace(low, high, 61).tolist()
        for index, (name, value) in enumerate(values.items()):
            color = SOFT if index == 0 else COLORS[index - 1]
            axes.hist(
                value,
                bins=bins,
                density=True,
                histtype="step",
                linewidth=1.8,
                color=color,
                label=name,
            )
        for name, place in (marks or {}).items():
            axes.axvline(place, color=SOFT, linewidth=1, linestyle=":")
            axes.text(place, axes.get_ylim()[1], f" {name}", va="top", color=SOFT)
        axes.set_xlabel(label)
        axes.set_yticks([])
        axes.spines["left"].set_visible(False)
        axes.legend(frameon=False)
        return _svg(figure)


def maps(panels: Mapping[str, Mapping[str, NDArray[Any]]], classes: NDArray[Any]) -> str:
    """Points in the plane, one panel per space side by side, all on the same axes.

    Args:
        panels: For each title `points` (one per item), `prototypes` (one per class, a star) and,
            where they were moved, `moved` (one per class, an arrow's end).
        classes: The class of each point, which gives its colour.
    """
    everything = np.concatenate([part for panel in panels.values() for part in panel.values()])
    low, high = everything.min(axis=0), everything.max(axis=0)
    margin = 0.06 * (high - low)
    with _figure(2.6 * len(panels), 2.7) as figure:
        for index, (title, panel) in enumerate(panels.items()):
            axes = figure.add_subplot(1, len(panels), index + 1)
            _one_map(axes, panel, classes)
            axes.set_title(title, loc="left")
            axes.set_xlim(low[0] - margin[0], high[0] + margin[0])
            axes.set_ylim(low[1] - margin[1], high[1] + margin[1])
        return _svg(figure)


def _one_map(axes: Axes, panel: Mapping[str, NDArray[Any]], classes: NDArray[Any]) -> None:
    """Draws one panel of `maps`."""
    for c, at in enumerate(panel["prototypes"]):
        color = COLORS[c % len(COLORS)]
        mine = panel["points"][classes == c]
        axes.scatter(mine[:, 0], mine[:, 1], s=14, alpha=0.6, linewidths=0, color=color)
        axes.scatter(
            at[0], at[1], s=110, marker="*", color=color, edgecolors=INK, linewidths=0.7, zorder=3
        )
        if "moved" in panel:
            arrow = {"arrowstyle": "->", "color": INK, "lw": 1.1}
            axes.annotate("", panel["moved"][c], at, arrowprops=arrow, zorder=4)
    axes.set_xticks([])
    axes.set_yticks([])
    axes.spines[:].set_visible(True)


def pictures(images: Sequence[NDArray[Any]], colors: Sequence[str]) -> str:
    """Small grey pictures in a row, each in a frame of its colour."""
    with _figure(10.4, 0.95) as figure:
        for index, (image, color) in enumerate(zip(images, colors, strict=True)):
            axes = figure.add_subplot(1, max(10, len(images)), index + 1)
            axes.imshow(255 - image, cmap="gray", vmin=0, vmax=255, interpolation="bilinear")
            axes.set_xticks([])
            axes.set_yticks([])
            axes.spines[:].set(visible=True, color=color, linewidth=2.2)
        return _svg(figure)
