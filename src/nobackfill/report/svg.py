"""The style of figures, and a matplotlib figure as SVG text for a page.

matplotlib is imported when a figure is drawn, so that a page can be printed without it.
"""

import io
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INK, SOFT, LINE, PAPER = "#1d2733", "#5c6b7a", "#d9e0e8", "#fefefe"
COLORS = (
    "#2457c5", "#d1495b", "#2a9d6f", "#e08e00", "#7b4bb7",
    "#0f8b8d", "#a4480f", "#c2378f", "#5f7a00", "#475569",
)  # fmt: skip

# CSS variables with which a page replaces the colours, in dark mode for example.
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
    "svg.fonttype": "none",  # text stays text, which a browser can search
    "svg.hashsalt": "nobackfill",  # the same data gives the same file
}


@contextmanager
def new_figure(width: float, height: float) -> Iterator["Figure"]:
    """A figure in the style of the reports; sizes are in inches."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    with mpl.rc_context(STYLE), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph")  # the fonts of the page have more glyphs
        yield Figure(figsize=(width, height), layout="constrained")


def hide_y_axis(axes: "Axes") -> None:
    """Removes the line and the numbers on the left, for shares whose height means nothing."""
    axes.set_yticks([])
    axes.spines["left"].set_visible(False)


def to_svg(figure: "Figure") -> str:
    """The figure as an SVG element, without the header and metadata of an SVG file."""
    from matplotlib.backends.backend_svg import FigureCanvasSVG

    out = io.StringIO()
    canvas: Any = FigureCanvasSVG(figure)
    canvas.print_svg(out, metadata=dict.fromkeys(("Date", "Creator", "Format", "Type")))
    text = out.getvalue()
    return _embeddable(text[text.index("<svg") :])


def _embeddable(svg: str) -> str:
    """The same SVG, ready to share a page with other figures.

    Colours and font follow the CSS variables of the page. Ids without a reference are removed; the
    others begin with a hash of the figure, so that the ids of two figures differ.
    """
    prefix = f"f{sha256(svg.encode()).hexdigest()[:10]}-"
    used = set(re.findall(r'(?:href="|url\()#([^")]+)', svg))

    def new_id(match: re.Match[str]) -> str:
        return f' id="{prefix}{match[1]}"' if match[1] in used else ""

    def new_color(match: re.Match[str]) -> str:
        color = match[0]
        return f"var({VARIABLES[color]}, {color})" if color in VARIABLES else color

    def new_tag(match: re.Match[str]) -> str:
        tag = re.sub(r' id="([^"]*)"', new_id, match[0])
        tag = re.sub(r'href="#|url\(#', lambda reference: reference[0] + prefix, tag)
        tag = re.sub(r'font-family: [^;"]*;? ?', "", tag)
        return re.sub(r"(?<=fill: )#[0-9a-f]{6}|(?<=stroke: )#[0-9a-f]{6}", new_color, tag)

    svg = re.sub(r"<defs>\s*<style.*?</style>\s*</defs>", "", svg, count=1, flags=re.DOTALL)
    svg = re.sub(r"<[^<>]+>", new_tag, svg)
    (width,) = re.findall(r'<svg[^>]* width="([^"]*)"', svg)
    style = f"--width: {width}; font-family: var(--font, sans-serif); stroke-linejoin: round"
    return svg.replace("<svg", f'<svg style="{style}"', 1)
