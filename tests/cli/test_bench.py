"""`nobackfill bench` without the package `nobackfill_bench`, which the wheel does not contain."""

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import typer

from nobackfill.cli import bench
from nobackfill.cli.exit_codes import COULD_NOT_RUN, exit_code_of

ROOT = Path(__file__).parents[2]
WITHOUT_BENCH = """
import sys
sys.modules["nobackfill_bench"] = None  # find_spec returns None, an import fails
from nobackfill.cli.main import main
main()
"""


def run_without_bench(*arguments):
    command = [sys.executable, "-c", WITHOUT_BENCH, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("arguments", [[], ["quality"], ["speed", "--only", "ndpp"]])
def test_without_the_package_bench_prints_how_to_get_it(monkeypatch, capsys, arguments):
    monkeypatch.setitem(sys.modules, "nobackfill_bench", None)
    command = typer.main.get_command(bench.bench_commands())
    assert exit_code_of(lambda: command(arguments)) == COULD_NOT_RUN == 2
    output = capsys.readouterr()
    assert output.err == f"nobackfill: {bench.MISSING}\n"
    assert output.out == ""
    assert "pip install -e ." in bench.MISSING


def test_without_the_package_the_whole_command_line_works():
    result = run_without_bench("bench", "quality")
    assert (result.returncode, result.stdout) == (2, "")
    assert bench.MISSING in result.stderr
    result = run_without_bench("--help")
    assert (result.returncode, result.stderr) == (0, "")
    assert "bench" in result.stdout


def test_the_wheel_contains_only_the_package_and_its_recipes():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    wheel = project["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert wheel["packages"] == ["src/nobackfill"]
    assert wheel["force-include"] == {"recipes": "nobackfill/recipes"}
