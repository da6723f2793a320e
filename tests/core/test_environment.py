"""`nobackfill doctor` reports what is installed, and copes with what is missing."""

import json
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from nobackfill.cli.doctor import remedy
from nobackfill.cli.main import app
from nobackfill.core import environment as doctor


@pytest.fixture
def package(tmp_path, monkeypatch):
    """Installs a package of one module, with the version 1.2, for a while."""

    def install(name, code):
        (tmp_path / f"{name}.py").write_text(code)
        (tmp_path / f"{name}-1.2.dist-info").mkdir()
        (tmp_path / f"{name}-1.2.dist-info" / "METADATA").write_text(f"Name: {name}\nVersion: 1.2")
        monkeypatch.syspath_prepend(tmp_path)
        monkeypatch.setitem(doctor.OPTIONAL, name, ("more", "trying"))
        monkeypatch.delitem(sys.modules, name, raising=False)
        assert metadata.version(name) == "1.2"

    return install


def test_a_package_that_can_be_imported_works(package):
    package("sound_package", "answer = 42")
    found = doctor.check_package("sound_package")
    assert found == doctor.Package("sound_package", "more", "trying", "1.2")
    assert found.works
    assert remedy(found) == ""


@pytest.mark.parametrize(
    ("code", "problem"),
    [
        ("raise RuntimeError('operator is unknown\\nand more')", "operator is unknown"),
        ("import a_module_that_is_not_there", "No module named 'a_module_that_is_not_there'"),
        ("raise KeyError", "KeyError"),
    ],
)
def test_a_package_that_cannot_be_imported_says_why(package, code, problem):
    package("broken_package", code)
    found = doctor.check_package("broken_package")
    assert found.version == "1.2"
    assert found.problem == problem
    assert not found.works
    assert problem in remedy(found)


def test_a_package_that_is_installed_under_another_name_is_found(package, tmp_path):
    package("sound_package_cpu", "answer = 42")
    (tmp_path / "sound_package_cpu-1.2.dist-info" / "top_level.txt").write_text("sound_part\n")
    (tmp_path / "sound_part.py").write_text("answer = 42")
    assert doctor.installed_version("sound_part") == "1.2"


def test_a_package_that_is_not_there_says_how_to_get_it(monkeypatch):
    monkeypatch.setitem(doctor.OPTIONAL, "absent_package", ("more", "trying"))
    found = doctor.check_package("absent_package")
    assert found.version is None
    assert not found.works
    assert "nobackfill[more]" in remedy(found)


def test_every_extra_that_is_named_exists():
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    extras = {extra for extra, _ in doctor.OPTIONAL.values()}
    assert extras <= project["optional-dependencies"].keys()


def test_the_data_folder_is_told_with_whether_it_is_there(monkeypatch, tmp_path):
    monkeypatch.delenv("NOBACKFILL_DATA", raising=False)
    assert doctor.check_environment([]).data is None
    for folder, exists in ((tmp_path, True), (tmp_path / "gone", False)):
        monkeypatch.setenv("NOBACKFILL_DATA", str(folder))
        assert doctor.check_environment([]).data == (str(folder), exists)
        assert doctor.check_environment([]).summary()["data"] == {
            "folder": str(folder),
            "exists": exists,
        }


def test_the_last_device_is_the_cpu():
    assert doctor.devices()[-1].startswith("cpu (")
    assert len(doctor.devices()) == 1 + torch.cuda.device_count()


def test_the_command_prints_one_object_or_a_table(monkeypatch):
    monkeypatch.setattr(doctor, "OPTIONAL", {"scipy": doctor.OPTIONAL["scipy"]})
    answer = CliRunner().invoke(app, ["doctor", "--json"])
    assert answer.exit_code == 0
    found = json.loads(answer.stdout)
    assert found["torch"] == torch.__version__
    assert [one["name"] for one in found["packages"]] == ["scipy"]
    text = CliRunner().invoke(app, ["doctor"]).stdout
    assert f"torch {torch.__version__}" in text
    assert "scipy" in text


def test_what_a_package_loads_later_is_imported_too(package, monkeypatch):
    code = """
        def __getattr__(name):
            try:
                import a_module_that_is_not_there
            except ImportError as error:
                raise ModuleNotFoundError(f"Could not import {name}.") from error
        """
    package("lazy_package", "\n".join(line[8:] for line in code.splitlines()))
    assert doctor.check_package("lazy_package").works
    monkeypatch.setitem(doctor.PARTS, "lazy_package", "Model")
    found = doctor.check_package("lazy_package")
    assert found.problem == "No module named 'a_module_that_is_not_there'"


def test_a_torchvision_of_another_build_has_its_remedy(package):
    package("built_for_cuda", "raise RuntimeError('operator torchvision::nms does not exist')")
    told = remedy(doctor.check_package("built_for_cuda"))
    assert "the same build as torch, or uninstall torchvision and timm" in told
    assert "Training by nobackfill works." in told
