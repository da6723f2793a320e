"""Reports: one self-contained HTML page, made of sections; each may hold a figure."""

from nobackfill.report.page import Section, Table, render_page

__all__ = ["Section", "Table", "render_page"]
