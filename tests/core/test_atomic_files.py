import hashlib
import os
import socket
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from nobackfill.core.atomic_files import replacing, sha256, write_text
from nobackfill.core.locks import lock_output
from nobackfill.errors import ConfigError, DataError


def test_what_was_written_takes_the_place_of_the_old_file(tmp_path):
    path = tmp_path / "note.txt"
    path.write_text("old")
    with replacing(path) as unfinished:
        unfinished.write_text("new")
        assert path.read_text() == "old"
        assert unfinished.parent.parent == path.parent
        assert unfinished.name == "note.txt"
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
    assert calls == ["fsync", "replace", "fsync"]  # the file, its name, and the folder


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


def test_the_next_write_removes_what_a_killed_one_left(tmp_path):
    path = tmp_path / "note.txt"
    test_a_kill_leaves_the_old_file(tmp_path)
    assert sorted(os.listdir(tmp_path)) == [".note.txt.lock", ".note.txt.part", "note.txt"]
    write_text(path, "new")
    assert os.listdir(tmp_path) == ["note.txt"]
    assert path.read_text() == "new"


WRITER = """
import sys
from nobackfill.core.atomic_files import replacing
with replacing(sys.argv[1]) as unfinished:
    unfinished.write_text("mine")
    print("in", flush=True)
    sys.stdin.readline()
"""


def test_a_second_writer_is_refused(tmp_path):
    path = tmp_path / "note.txt"
    process = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(path)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout.readline() == "in\n"
    for _ in range(2):
        with pytest.raises(ConfigError, match="Another process is writing .*note.txt. Wait for"):
            write_text(path, "yours")
    process.communicate("go on\n")
    assert path.read_text() == "mine"
    write_text(path, "yours")
    assert os.listdir(tmp_path) == ["note.txt"]


def test_a_second_thread_is_refused_and_the_same_may_lock_again(tmp_path):
    path = tmp_path / "note.txt"
    with lock_output(path), ThreadPoolExecutor(1) as pool:
        write_text(path, "mine")
        with pytest.raises(ConfigError, match="Another process is writing"):
            pool.submit(write_text, path, "yours").result()
    assert path.read_text() == "mine"


def test_permissions_of_a_replaced_file_are_kept(tmp_path):
    secret = tmp_path / "secret"
    write_text(secret, "old")
    secret.chmod(0o600)
    write_text(secret, "new")
    write_text(tmp_path / "secret.record", "of it", like=secret)
    modes = [stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()]
    assert modes == [0o600, 0o600]


def test_nobody_else_reads_an_unfinished_file(tmp_path):
    with replacing(tmp_path / "note.txt") as unfinished:
        unfinished.write_text("not yet")
        assert stat.S_IMODE(unfinished.parent.stat().st_mode) == 0o700


def test_folders_pipes_and_devices_are_not_replaced(tmp_path):
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "socket"))
    (tmp_path / "link").symlink_to("/dev/null")  # never written: only looked at
    kinds = {"folder": "a folder", "pipe": "a pipe", "socket": "a socket", "link": "a device"}
    for name, kind in kinds.items():
        with pytest.raises(DataError, match=f"Cannot write .*{name}: it is {kind}. Choose"):
            write_text(tmp_path / name, "new")
    assert sorted(os.listdir(tmp_path)) == ["folder", "link", "pipe", "socket"]


def test_a_name_that_is_too_long_is_told(tmp_path):
    with pytest.raises(DataError, match="Cannot write .*File name too long"):
        write_text(tmp_path / ("n" * 300), "new")
