"""A page and the path of its report are printed for people, the facts for programs."""

import json
from pathlib import Path

import pytest

from nobackfill.cli.output import print_page
from nobackfill.core.page import Page

PAGE = Page("T", ["Do this."], notes=["no space"])


@pytest.mark.parametrize("report", [None, Path("a/[b] page.html")])
def test_people_read_the_page_and_where_its_report_is(capsys, report):
    print_page(PAGE, {"a": 1}, as_json=False, report=report)
    path = f"Report: {report}\n" if report else ""
    assert capsys.readouterr().out == f"Do this.\nNote: no space.\n{path}"


def test_programs_get_the_facts_alone(capsys):
    print_page(PAGE, {"a": 1}, as_json=True, report=Path("a.html"))
    assert json.loads(capsys.readouterr().out) == {"a": 1}
