"""Generates a page for each method, and their index, from the docstrings.

    python docs/make_pages.py

To change a sentence about a method, change its docstring and generate the pages again.
"""

import inspect
import re
import sys
from pathlib import Path

from nobackfill.methods import METHODS, Method
from nobackfill.methods.old_space import MEANING
from nobackfill.methods.pairs import PAIR_METHODS, CompatiblePairs

FOLDER = Path(__file__).parent / "methods"

# Markdown removes a backslash before punctuation, so TeX would not get it.
IN_WORDS = {r"\,": r"\thinspace", r"\;": r"\enspace", r"\{": r"\lbrace", r"\}": r"\rbrace"}


def main():
    """Writes all pages and removes those of former methods."""
    FOLDER.mkdir(exist_ok=True)
    pages = make_pages()
    for path in FOLDER.glob("*.md"):
        if path.name not in pages:
            path.unlink()
    for name, text in pages.items():
        (FOLDER / name).write_text(text, encoding="utf-8")


def make_pages():
    """Returns every page by its file name."""
    pages = {f"{name}.md": make_page(name, method) for name, method in METHODS.items()}
    return {"README.md": make_index(METHODS), "pairs.md": make_pairs_page(), **pages}


def make_pairs_page():
    """The page of pairs of a query and a document."""
    paragraphs = inspect.cleandoc(sys.modules[CompatiblePairs.__module__].__doc__).split("\n\n")
    sentence, body, sections = split_docstring(CompatiblePairs.__doc__)
    arguments = split_arguments(sections.pop("Args"))
    methods = [[f"`{name}`", meaning] for name, meaning in PAIR_METHODS.items()]
    parts = [
        "# Pairs",
        *(to_markdown(paragraph) for paragraph in paragraphs),
        "## What it does",
        to_markdown(sentence),
        to_markdown(body),
        table(["method", "what it trains"], methods),
        *(f"## {head}\n\n{to_markdown(text)}" for head, text in sections.items()),
        "## Options",
        list_options(CompatiblePairs, arguments),
        "## Where to use it",
        "In your own training loop, use `nobackfill.methods.pairs.CompatiblePairs`. In "
        "sentence-transformers, use [`CompatibleLoss`](../sentence-transformers.md).",
        "---",
        "Generated from the docstrings by `python docs/make_pages.py`. [All methods](README.md).",
    ]
    return "\n\n".join(parts) + "\n"


def make_page(name, method):
    """The page of one method."""
    paragraphs = inspect.cleandoc(sys.modules[method.__module__].__doc__).split("\n\n")
    sentence, body, sections = split_docstring(method.__doc__)
    arguments = explain_arguments(method)
    sections = {**shared_sections(method), **sections}
    sections.pop("Args", None)
    recipe = f"recipes/glyphs/{name}.toml"
    parts = [
        f"# {name}",
        *(to_markdown(paragraph) for paragraph in paragraphs),
        "## What it does",
        to_markdown(sentence),
        to_markdown(body),
        "## Needs",
        list_needs(method),
        f"The method {'uses' if method.supervised else 'does not use'} labels.",
        tell_cost(method),
        *(f"## {head}\n\n{to_markdown(text)}" for head, text in sections.items()),
        "## Options",
        list_options(method, arguments),
        "## Recipe",
        f'```toml\n[method]\nname = "{name}"\n```',
        f"A complete recipe: [{recipe}](../../{recipe}).",
        "---",
        "Generated from the docstrings by `python docs/make_pages.py`. [All methods](README.md).",
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def make_index(methods):
    """All methods, grouped by the last part that they need."""
    parts = [
        "# Methods",
        "Use this page to choose a training method by what you still have of the old model. The "
        "groups are ordered, and each method is in the group of the last part that it needs. It "
        "may need parts of earlier groups, too; see the column *needs*.",
        "The page of a method has its formula and its options. There, *New classes* describes how "
        "the method treats classes that the old model was not trained on. *Old view* says whether "
        "old vectors are stored before training, or computed from the augmented image.",
        "Methods for pairs of a query and a document, without classes: [pairs](pairs.md).",
    ]
    heads = {None: "Nothing", "independent": "Independent model"}
    for need, meaning in {None: "nothing of the old model", **MEANING}.items():
        rows = [
            [
                f"[`{name}`]({name}.md)",
                to_markdown(split_docstring(method.__doc__)[0]),
                ", ".join(part for part in MEANING if part in method.needs) or "nothing",
                ", ".join(str(part) for part in (method.paper, method.year) if part),
            ]
            for name, method in methods.items()
            if last_need(method) == need
        ]
        parts += [
            f"## {heads.get(need) or need.capitalize()}",
            f"{meaning.capitalize()}.",
            table(["method", "what it does", "needs", "paper"], rows),
        ]
    parts += ["---", "Generated from the docstrings by `python docs/make_pages.py`."]
    return "\n\n".join(parts) + "\n"


def last_need(method):
    """The last part in `MEANING` that a method needs; None if it needs nothing."""
    return ([None] + [need for need in MEANING if need in method.needs])[-1]


def split_docstring(text):
    """A docstring's first sentence, what follows it, and its sections by their heads."""
    sentence, _, rest = inspect.cleandoc(text).partition("\n\n")
    body, *pairs = re.split(r"^([A-Z][\w ]*):\n(?=    )", rest, flags=re.MULTILINE)
    heads, texts = pairs[::2], (inspect.cleandoc(f"\n{part}") for part in pairs[1::2])
    return sentence, body.strip(), dict(zip(heads, texts, strict=True))


def split_arguments(text):
    """The meaning of each argument of an `Args` section."""
    pairs = re.split(r"^(\w+): ", text, flags=re.MULTILINE)[1:]
    return {name: one_line(meaning) for name, meaning in zip(pairs[::2], pairs[1::2], strict=True)}


def explain_arguments(method):
    """The meaning of each argument: from the docstrings of the method, its bases and its parts."""
    meanings = {}
    for kind in reversed(method.__mro__):
        if issubclass(kind, Method):
            part = getattr(kind.__init__, "part", None)  # receives options, see `passes_on`
            for documented in (part, kind) if part else (kind,):
                sections = split_docstring(documented.__doc__)[2]
                meanings |= split_arguments(sections.get("Args", ""))
    return meanings


def shared_sections(method):
    """The sections that each page has, from the nearest base class with such a section."""
    if not method.needs:
        return {"Old view": "Nothing of the old model is used."}
    found = {}
    for kind in reversed(method.__mro__):
        if issubclass(kind, Method):
            sections = split_docstring(kind.__doc__)[2]
            found |= {
                head: sections[head] for head in sections.keys() & {"New classes", "Old view"}
            }
    return {head: found[head] for head in ("New classes", "Old view")}


def keyword_options(method):
    """The options of a method and their defaults: its keyword-only arguments."""
    parameters = inspect.signature(method).parameters.values()
    return {p.name: p.default for p in parameters if p.kind is p.KEYWORD_ONLY}


def to_markdown(text):
    """Docstring text as Markdown: formulas, addresses, and class names as links to pages."""
    parts = []
    for block in re.split(r"\n\n+", text.strip()):
        if block.startswith(".. math::"):
            formula = inspect.cleandoc(block.removeprefix(".. math::"))
            parts.append(f"$$\n{to_tex(formula)}\n$$")
        else:
            parts.append(link_names(one_line(block)))
    return "\n\n".join(parts)


def link_names(line):
    """One line with formulas and addresses in Markdown, and methods linked by name."""
    line = re.sub(r":math:`([^`]+)`", lambda found: f"${to_tex(found[1])}$", line)
    line = re.sub(r"(https?://\S+\w)", r"<\1>", line)
    for name, method in METHODS.items():
        line = line.replace(f"`{method.__name__}`", f"[`{name}`]({name}.md)")
    return line


def to_tex(formula):
    """A formula that Markdown leaves unchanged."""
    for sign, word in IN_WORDS.items():
        formula = formula.replace(f"{sign} ", sign).replace(sign, f"{word} ")
    return re.sub(r"(?<=\W)_(?=\S)", "_ ", formula.strip())  # else `}_` may open an emphasis


def one_line(text):
    """Lines of a paragraph joined."""
    return " ".join(text.split())


def list_needs(method):
    """What a method needs of the old model, with its meaning."""
    needs = [f"- `{need}`: {MEANING[need]}" for need in MEANING if need in method.needs]
    return "\n".join(needs) or "Nothing of the old model."


def tell_cost(method):
    """What a query costs at inference."""
    if method.at_inference == "nothing":
        return "A query costs no more than its embedding by the new model."
    return f"Cost of a query, in addition to its embedding by the new model: {method.at_inference}."


def list_options(method, arguments):
    """A table of options, their defaults and meaning."""
    rows = [
        [f"`{name}`", f"`{to_toml(default)}`" if default is not None else "not given", meaning]
        for name, default in keyword_options(method).items()
        for meaning in [link_names(arguments.get(name, ""))]
    ]
    return table(["option", "default", "meaning"], rows) if rows else "None."


def to_toml(value):
    """A default in the form of a recipe."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return f'"{value}"'
    if isinstance(value, tuple):
        return f"[{', '.join(to_toml(item) for item in value)}]"
    return repr(float(f"{value:.4g}") if isinstance(value, float) else value)


def table(head, rows):
    """A table in Markdown."""
    rows = [[cell.replace("|", r"\|") for cell in row] for row in rows]
    return "\n".join(
        [
            f"| {' | '.join(head)} |",
            f"|{'|'.join('---' for _ in head)}|",
            *(f"| {' | '.join(row)} |" for row in rows),
        ]
    )


if __name__ == "__main__":
    main()
