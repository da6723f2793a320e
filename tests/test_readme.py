"""The README's Python runs, and what it promises exists."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_its_python_runs(capsys):
    blocks = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    assert len(blocks) == 2
    names = {}
    for block in blocks:
        exec(compile(block, "README.md", "exec"), names)
    assert capsys.readouterr().out.split()[0] in ("True", "False")


def test_its_links_lead_somewhere():
    prose = re.sub(r"```.*?```", "", README, flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)#:]+)\)", prose):
        assert (ROOT / target).exists(), target


def test_its_commands_exist():
    from nobackfill.cli.main import app

    known = {command.callback.__name__ for command in app.registered_commands}
    used = set(re.findall(r"^nobackfill (\w+)", README, re.MULTILINE))
    assert used <= known
    makefile = (ROOT / "Makefile").read_text()
    assert all(f"\n{target}:" in makefile for target in ("demo", "test"))


def test_its_numbers_are_those_of_the_benchmark():
    results = (ROOT / "benchmarks" / "RESULTS.md").read_text(encoding="utf-8")
    row = re.search(r"\| `prototype_alignment` \| \d+ \| ([\d.]+) \| ([\d.]+) \| ([\d.]+)", results)
    assert f"| {row[1]} |" in README
    assert f"**{row[2]}**" in README
    assert f"| {row[3]} |" in README
    for method in ("ndpp", "odpp"):
        change = re.search(rf"\| `{method}` \|[^|]*\|[^|]*\|[^|]*\|[^|]*\| ([^|]+) \|", results)[1]
        assert change.replace("-", "−") in README
    free = re.search(r"\| `independent` \| \d+ \| [\d.]+ \| ([\d.]+) \| ([\d.]+)", results)
    assert f"reaches {free[2]} on its own gallery, and {free[1]} on the old one" in README.replace(
        "\n", " "
    )
