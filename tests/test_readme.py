"""The README's Python runs, and what it promises exists."""

import re
from pathlib import Path

from nobackfill.core.seeding import seeded

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_its_python_runs(capsys):
    blocks = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    assert len(blocks) == 2
    names = {}
    with seeded(0):
        for block in blocks:
            exec(compile(block, "README.md", "exec"), names)
    out = capsys.readouterr().out
    assert out.startswith("Undecided: ")
    assert "new/old " in out


def test_its_links_lead_somewhere():
    prose = re.sub(r"```.*?```", "", README, flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)#:]+)\)", prose):
        assert (ROOT / target).exists(), target


def test_its_commands_exist():
    from nobackfill.cli.main import COMMANDS

    used = set(re.findall(r"^nobackfill (\w+)", README, re.MULTILINE))
    assert used <= set(COMMANDS)
    assert len(used) > 5
    makefile = (ROOT / "Makefile").read_text()
    assert all(f"\n{target}:" in makefile for target in ("demo", "test"))


def test_its_numbers_are_those_of_the_benchmark():
    results = (ROOT / "benchmarks" / "RESULTS.md").read_text(encoding="utf-8")
    glyphs = results[results.index("(`glyphs`)") :]
    old, free = re.search(r"Old/old ([\d.]+), independent new/new ([\d.]+)\.", glyphs).groups()

    def row(way):
        name = rf"\| (?:\*\*)?`{way}`(?:\*\*)?(?: \(maps queries\))? \|"
        cells = re.search(rf"{name}(.*)", glyphs)[1].split("|")
        return [f"{float(cells[place].split()[0]):.1f}" for place in (1, 4)]

    cross, own = row("member_contrast")
    assert f"| {float(old):.1f} |" in README
    assert f"**{cross}**" in README
    assert f"| {own} |" in README
    words = f"reaches {float(free):.1f} on its own gallery, and {row('independent')[0]} on the old"
    assert words in README.replace("\n", " ")
