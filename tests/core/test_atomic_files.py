import hashlib
import os
import stat
import subprocess
import sys

import pytest

from nobackfill.core.atomic_files import replacing, sha256, write_text


def test_what_was_written_takes_the_place_of_the_old_file(tmp_path):
    path = tmp_path / "note.txt"
    path.write_text("old")
    with replacing(path) as unfinished:
        unfinished.write_text("new")
        assert path.read_text() == "old"
        assert unfinished.parent == path.parent
    assert path.read_text() == "new"
    assert os.listdir(tmp_path) == ["note.txt"]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_an_error_leaves_the_old_file_and_nothing_else(tmp_path, error):
    path = tmp_path / "note.txt"
    path.write_text("old")

    def stop_half_way():
        with replacing(path) as unfinished:
            unfinished.write_text("ne")
            raise error

    with pytest.raises(error):
        stop_half_way()
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["note.txt"]


def test_an_error_before_anything_was_written_is_the_one_that_is_seen(tmp_path):
    with pytest.raises(ValueError, match="mine"), replacing(tmp_path / "note.txt"):
        raise ValueError("mine")
    assert os.listdir(tmp_path) == []


def test_a_kill_leaves_the_old_file(tmp_path):
    path = tmp_path / "note.txt"
    path.write_text("old")
    code = (
        "import os, sys; from nobackfill.core.atomic_files import replacing\n"
        "with replacing(sys.argv[1]) as unfinished:\n"
        "    unfinished.write_text('ne'); os.kill(os.getpid(), 9)"
    )
    assert subprocess.run([sys.executable, "-c", code, str(path)], check=False).returncode == -9
    assert path.read_text() == "old"


def test_the_contents_are_on_the_disk_before_the_name_changes(tmp_path, monkeypatch):
    calls = []
    fsync, replace = os.fsync, os.replace
    monkeypatch.setattr(os, "fsync", lambda file: (calls.append("fsync"), fsync(file)))
    monkeypatch.setattr(os, "replace", lambda *paths: (calls.append("replace"), replace(*paths)))
    write_text(tmp_path / "note.txt", "new")
    assert calls == ["fsync", "replace"]


def test_a_missing_folder_is_made(tmp_path):
    write_text(tmp_path / "a" / "b" / "note.txt", "ß\n")
    assert (tmp_path / "a" / "b" / "note.txt").read_bytes() == "ß\n".encode()


def test_a_link_stays_a_link(tmp_path):
    write_text(tmp_path / "here.txt", "old")
    (tmp_path / "link.txt").symlink_to(tmp_path / "here.txt")
    write_text(tmp_path / "link.txt", "new")
    assert (tmp_path / "link.txt").is_symlink()
    assert (tmp_path / "here.txt").read_text() == "new"


def test_others_may_read_what_they_could_read_of_an_ordinary_file(tmp_path):
    (tmp_path / "plain.txt").write_text("")
    write_text(tmp_path / "ours.txt", "")
    plain, ours = ((tmp_path / f"{name}.txt").stat().st_mode for name in ("plain", "ours"))
    assert stat.S_IMODE(ours) == stat.S_IMODE(plain)


def test_nor_does_it_matter_whom_a_library_lets_read(tmp_path):
    with open(tmp_path / "ordinary", "w"):
        pass
    with replacing(tmp_path / "ours") as unfinished:
        unfinished.touch(mode=0o600)
    ours, ordinary = ((tmp_path / name).stat().st_mode for name in ("ours", "ordinary"))
    assert stat.S_IMODE(ours) == stat.S_IMODE(ordinary)


def test_sha256_is_that_of_the_contents(tmp_path):
    (tmp_path / "abc").write_bytes(b"abc")
    assert sha256(tmp_path / "abc") == hashlib.sha256(b"abc").hexdigest()
