"""Reports: a page of sections, as self-contained HTML and as Markdown."""

from nobackfill.report.html import render_html
from nobackfill.report.markdown import render_markdown
from nobackfill.report.page import Cell, Figure, Page, Picture, Section, Table

__all__ = [
    "Cell",
    "Figure",
    "Page",
    "Picture",
    "Section",
    "Table",
    "render_html",
    "render_markdown",
]
