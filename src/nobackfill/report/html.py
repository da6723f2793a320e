"""A report as one page of HTML that needs nothing but itself."""

import json
from base64 import b64encode
from dataclasses import asdict
from functools import cache
from hashlib import sha256
from importlib.resources import files

from jinja2 import Environment, FunctionLoader, StrictUndefined, Template
from markupsafe import Markup

from nobackfill.core.page import TONES, Figure, JudgingSheet, Page
from nobackfill.report.titles import PAIRS


def render_html(page: Page) -> str:
    """Returns the page as HTML.

    Every text is escaped; only a figure's SVG is taken as it is. The page forbids the browser to
    load anything, and to run any script but its own.
    """
    return _template().render(page=page)


@cache
def _template() -> Template:
    environment = Environment(
        loader=FunctionLoader(_source),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"drawn": _drawn, "hash": _hash, "as_data": _as_data}
    environment.globals.update(
        pairs=PAIRS,
        tones=TONES,
        source=lambda name: Markup(_source(name)),
    )
    return environment.get_template("page.html.jinja")


def _source(name: str) -> str:
    """A file of this package."""
    return files("nobackfill.report").joinpath(name).read_text(encoding="utf-8")


def _drawn(figure: Figure) -> Markup:
    """The SVG with its title, and with its words for those who cannot see it."""
    attributes, _, drawing = figure.svg.removeprefix("<svg").partition(">")
    return Markup('<svg role="img" aria-label="{}"{}><title>{}</title>{}').format(
        figure.says or figure.title, Markup(attributes), figure.title, Markup(drawing)
    )


def _hash(script: str) -> str:
    """The hash by which a page allows a script."""
    return "sha256-" + b64encode(sha256(script.encode()).digest()).decode()


def _as_data(sheet: JudgingSheet) -> Markup:
    """A judging sheet as JSON in a script element, which no text of it can close."""
    text = json.dumps(asdict(sheet)).replace("<", "\\u003c")
    return Markup(text)
