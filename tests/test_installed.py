"""Constraints for all extras, the bill of materials, and the check against advisories."""

import importlib.util
import json
import re
import subprocess
import sys
import tomllib
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import SimpleNamespace

import pytest

ROOT = Path(__file__).parents[1]


def load(name):
    spec = importlib.util.spec_from_file_location(name, ROOT / "tools" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


installed, advisories = load("installed"), load("advisories")
PINS = dict(
    line.split("==")
    for line in (ROOT / "constraints-all.txt").read_text().splitlines()
    if not line.startswith("#")
)


def part(name, release="1.0", license=None):
    return SimpleNamespace(metadata={"Name": name, "License-Expression": license}, version=release)


def test_every_line_is_one_release_from_an_index():
    for name, release in PINS.items():
        assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", name)
        assert re.fullmatch(r"[0-9][0-9A-Za-z.]*", release)
    assert "nobackfill" not in PINS


def test_what_every_install_needs_is_the_same_in_both_files():
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    always = dict(line.split("==") for line in lines if line and line[0] != "#")
    assert always.items() <= PINS.items()


def test_every_extra_that_is_installed_here_is_there():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = [*project["dependencies"], *sum(project["optional-dependencies"].values(), [])]
    for requirement in wanted:
        name = re.sub(r"[-_.]+", "-", re.split(r"[\[><=;]", requirement)[0]).lower()
        try:
            version(name)
        except PackageNotFoundError:
            continue
        assert name in PINS, f"{name} is missing: run `make constraints`, and commit the file"


def test_constraints_leave_out_builds_and_the_package_itself():
    parts = [part("Torch", "2.0+cpu"), part("nobackfill"), part("a_b.C", "3")]
    lines = list(installed.constraints(parts, "# why\nvision==9\ntorch==2.0\n"))
    assert lines[1:] == ["a-b-c==3", "torch==2.0", "vision==9"]


def test_a_bill_of_materials_names_every_package_once():
    made = installed.sbom([part("a_b", "2", "MIT"), part("nobackfill", "0.1"), part("c", "3+cu1")])
    assert made["metadata"]["component"]["name"] == "nobackfill"
    assert [one["purl"] for one in made["components"]] == ["pkg:pypi/a-b@2", "pkg:pypi/c@3"]
    assert made["components"][0]["licenses"] == [{"expression": "MIT"}]
    done = subprocess.run(
        [sys.executable, ROOT / "tools" / "installed.py", "sbom"], capture_output=True, check=True
    )
    own = json.loads(done.stdout)
    assert (own["bomFormat"], own["specVersion"]) == ("CycloneDX", "1.5")
    assert {"numpy", "rich", "torch"} <= {one["name"] for one in own["components"]}


@pytest.mark.parametrize(
    ("found", "code", "says"),
    [
        ([{"name": "a", "version": "1", "vulns": []}], 0, ""),
        ([{"name": "a", "version": "1", "vulns": [{"id": "X", "fix_versions": []}]},
          {"name": "b", "skip_reason": "none"}], 1, "a 1: X, mended in no release yet"),
        ([{"name": "a", "vulns": []}, {"name": "b", "skip_reason": ""}], 3, "1 of 2"),
        ([], 3, ""),
    ],
)  # fmt: skip
def test_what_was_not_looked_up_is_not_clean(found, code, says, capsys):
    assert advisories.tell(found) == code
    assert says in capsys.readouterr().out


def test_without_the_tool_nothing_was_looked_up(tmp_path, monkeypatch, capsys):
    (tmp_path / "pins.txt").write_text("a==1\n")
    monkeypatch.setattr(sys, "argv", ["advisories.py", str(tmp_path / "pins.txt")])
    monkeypatch.setattr(sys, "executable", "/bin/false")
    assert advisories.main() == 3
    assert "Not looked up" in capsys.readouterr().out
