"""The pages of the methods are what their docstrings say, and the docstrings say enough."""

import html
import importlib.util
import re
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

from nobackfill.methods import METHODS
from nobackfill.methods.old_space import MEANING

DOCS = Path(__file__).parents[1] / "docs"
COMMITTED = {path.name: path.read_text(encoding="utf-8") for path in (DOCS / "methods").iterdir()}
EVERY_METHOD = pytest.mark.parametrize(("name", "method"), METHODS.items(), ids=METHODS)


def load_make_pages():
    spec = importlib.util.spec_from_file_location("make_pages", DOCS / "make_pages.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


make_pages = load_make_pages()


def test_pages_are_those_of_the_docstrings():
    made = make_pages.make_pages()
    stale = [
        name
        for name in sorted(made.keys() | COMMITTED.keys())
        if made.get(name) != COMMITTED.get(name)
    ]
    assert not stale, f"{stale} in docs/methods: run `python docs/make_pages.py`, and commit them."


@EVERY_METHOD
def test_every_option_is_explained(name, method):
    _, _, sections = make_pages.split_docstring(method.__doc__)
    own = make_pages.split_arguments(sections.get("Args", ""))
    explained = make_pages.explain_arguments(method)  # with those that base classes explain
    options = make_pages.keyword_options(method)
    assert list(own) == [option for option in options if option in own]  # no others, in this order
    for option in ["old", "num_classes", *options]:
        meaning = explained[option]
        assert meaning.endswith("."), option
        assert f"| `{option}` |" in COMMITTED[f"{name}.md"] or option not in options


@EVERY_METHOD
def test_every_page_has_a_formula_and_says_what_the_old_model_sees(name, method):
    page = COMMITTED[f"{name}.md"]
    assert re.search(r"^\$\$\n.+\n\$\$$", page, re.MULTILINE | re.DOTALL)
    assert page.count("$") % 2 == 0
    assert ":math:" not in page
    assert "\n## Old view\n" in page
    assert f'```toml\n[method]\nname = "{name}"\n```' in page
    for need in method.needs:
        assert f"- `{need}`: {MEANING[need]}" in page
    if method.needs:
        assert "\n## New classes\n" in page


@EVERY_METHOD
def test_formulas_pass_through_markdown(name, method):
    page = COMMITTED[f"{name}.md"]
    shown = html.unescape(MarkdownIt().enable("table").render(page))
    for formula in re.findall(r"\$\$\n.+?\n\$\$|\$[^$\n]+\$", page, re.DOTALL):
        assert formula in shown


@pytest.mark.parametrize("name", COMMITTED)
def test_links_lead_somewhere(name):
    for target in re.findall(r"\]\(([^)#:]+)\)", COMMITTED[name]):
        assert (DOCS / "methods" / target).exists(), target
    named = set(re.findall(r"`(\w+)`", COMMITTED[name]))
    assert not named & {method.__name__ for method in METHODS.values()}  # by name, not by class


def test_the_index_has_each_method_once():
    listed = re.findall(r"^\| \[`(\w+)`\]", COMMITTED["README.md"], re.MULTILINE)
    assert sorted(listed) == sorted(METHODS)
    groups = dict(
        re.findall(r"^## ([^\n]+)\n(.*?)(?=^## |\Z)", COMMITTED["README.md"], re.M | re.S)
    )
    assert list(groups) == [
        "Nothing", "Prototypes", "Embeddings", "Classifier", "Independent model",
    ]  # fmt: skip
    for group, name in {
        "Nothing": "cores",
        "Prototypes": "ndpp",
        "Embeddings": "prototype_mimic",
        "Classifier": "lwf",
        "Independent model": "bt2",
    }.items():
        assert f"| [`{name}`]" in groups[group]


DOCSTRING = r"""`BCT` made shorter.

    .. math::
        \{a\} +
        b \, c

    What :math:`a
    + b` is, see https://example.org/a.

    New classes:
        Take part.

        And more.

    Args:
        old: Not used.
        dim: Of the embedding, which
            may be long: as :math:`a`.
    """


def test_a_docstring_is_taken_apart():
    sentence, body, sections = make_pages.split_docstring(DOCSTRING)
    assert make_pages.to_markdown(sentence) == "[`bct`](bct.md) made shorter."
    assert make_pages.to_markdown(body) == (
        "$$\n\\lbrace a\\rbrace +\nb \\thinspace c\n$$\n\nWhat $a + b$ is, see <https://example.org/a>."
    )
    assert list(sections) == ["New classes", "Args"]
    assert make_pages.to_markdown(sections["New classes"]) == "Take part.\n\nAnd more."
    assert make_pages.split_arguments(sections["Args"]) == {
        "old": "Not used.",
        "dim": "Of the embedding, which may be long: as :math:`a`.",
    }


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (True, "true"),
        (1e-3, "0.001"),
        (2, "2"),
        ("adam", '"adam"'),
        ((10 / 35, 0.5), "[0.2857, 0.5]"),
    ],
)
def test_defaults_are_written_as_in_a_recipe(value, text):
    assert make_pages.to_toml(value) == text


def test_pages_are_written_and_those_of_methods_that_are_gone_removed(tmp_path, monkeypatch):
    monkeypatch.setattr(make_pages, "FOLDER", tmp_path / "methods")
    (tmp_path / "methods").mkdir()
    (tmp_path / "methods" / "gone.md").write_text("# gone")
    make_pages.main()
    written = {path.name: path.read_text("utf-8") for path in (tmp_path / "methods").iterdir()}
    assert written == make_pages.make_pages()


FAULTS = (DOCS / "faults.md").read_text(encoding="utf-8")


def test_every_fault_has_a_line_and_a_test_that_exists():
    rows = re.findall(r"^\| (\d+) \|.*\| (.*) \|$", FAULTS, re.MULTILINE)
    assert [int(number) for number, _ in rows] == list(range(1, 42))
    for number, cell in rows:
        places = re.findall(r"`([\w/]+\.py)(?:::(\w+))?`", cell)
        assert places, number
        for path, name in places:
            source = DOCS.parent / ("" if path.startswith("benchmarks/") else "tests") / path
            assert source.is_file(), (number, path)
            assert not name or f"def {name}(" in source.read_text(encoding="utf-8"), (number, name)
