"""Index files are opened in a process of their own first."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from nobackfill.errors import GalleryError
from nobackfill.gallery.stores import open_store, trial

faiss = pytest.importorskip("faiss")
usearch = pytest.importorskip("usearch.index")
DIM, ITEMS = 8, 50
ROWS = np.random.default_rng(0).normal(size=(ITEMS, DIM)).astype(np.float32)
ROWS /= np.linalg.norm(ROWS, axis=1, keepdims=True)


@pytest.fixture(params=["Flat", "HNSW8,Flat", "IVF2,Flat", "IDMap,SQfp16"])
def index(request, tmp_path):
    """A faiss index, and its path."""
    made = faiss.index_factory(DIM, request.param, faiss.METRIC_INNER_PRODUCT)
    made.train(np.tile(ROWS, (4, 1)))
    if request.param.startswith("IDMap"):
        made.add_with_ids(ROWS, np.arange(ITEMS))
    else:
        made.add(ROWS)
    path = tmp_path / "a.faiss"
    faiss.write_index(made, str(path))
    return made, path


def test_a_whole_index_is_opened(index):
    with open_store(f"faiss://{index[1]}") as store:
        assert store.count(store.main) == ITEMS


@pytest.mark.parametrize("place", [0.3, 0.9])
def test_a_cut_index_is_a_sentence(index, place):
    data = index[1].read_bytes()
    index[1].write_bytes(data[: int(place * len(data))])
    with pytest.raises(GalleryError, match=r"a\.faiss.*write the index again"):
        open_store(f"faiss://{index[1]}")


def test_links_beyond_the_last_item_are_refused(tmp_path):
    made = faiss.index_factory(DIM, "HNSW8,Flat", faiss.METRIC_INNER_PRODUCT)
    made.add(ROWS)
    links = faiss.vector_to_array(made.hnsw.neighbors)
    links[0] = 10**9
    faiss.copy_array_to_vector(links, made.hnsw.neighbors)
    faiss.write_index(made, str(tmp_path / "a.faiss"))
    with pytest.raises(GalleryError, match="write the index again"):
        open_store(f"faiss://{tmp_path}/a.faiss")


def test_a_damaged_usearch_index_is_a_sentence(tmp_path):
    made = usearch.Index(ndim=DIM, metric="cos", dtype="f32")
    made.add(np.arange(ITEMS), ROWS)
    path = tmp_path / "a.usearch"
    made.save(str(path))
    open_store(f"usearch://{path}").close()
    data = bytearray(path.read_bytes())
    data[0:8] = (2**40).to_bytes(8, "little")
    path.write_bytes(data)
    with pytest.raises(GalleryError, match=r"a\.usearch.*write the index again"):
        open_store(f"usearch://{path}")


ENDS = {
    "segfault": "import os, signal\ndef try_index(path): os.kill(os.getpid(), signal.SIGSEGV)\n",
    "memory": "def try_index(path): bytearray(10**13)\n",
    "silence": "def try_index(path): raise SystemExit(0)\n",
    "hang": "import time\ndef try_index(path): time.sleep(60)\n",
}


@pytest.mark.parametrize("end", ENDS)
def test_however_the_process_ends_this_one_goes_on(tmp_path, monkeypatch, end):
    (tmp_path / "engine.py").write_text(ENDS[end])
    code = trial.CODE.replace(
        "main()", f"import sys, importlib; sys.modules['nobackfill.gallery.stores.engine_trial'] = "
        f"(sys.path.insert(0, {str(tmp_path)!r}), importlib.import_module('engine'))[1]; main()"
    )  # fmt: skip
    monkeypatch.setattr(trial, "CODE", code)
    monkeypatch.setattr(trial, "PATIENCE", 5)
    path = tmp_path / "a"
    path.write_bytes(b"x")
    with pytest.raises(GalleryError, match=r"Cannot read .*/a "):
        trial.try_first("engine", str(path))


@pytest.mark.parametrize("engine", ["faiss", "usearch"])
def test_the_process_imports_nothing_large(engine):
    """It starts whenever a gallery is opened."""
    code = (
        f"import sys, nobackfill.gallery.stores.{engine}_trial; assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_nothing_is_imported_from_where_one_happens_to_be(tmp_path, monkeypatch, index):
    """A file `faiss.py` in the folder of an index is not run."""
    mark = tmp_path / "was run"
    (tmp_path / "faiss.py").write_text(f"open({str(mark)!r}, 'w')\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", ["", *sys.path])
    trial.try_first("faiss", str(index[1]))
    assert not mark.exists()
    assert Path(os.getcwd()) == tmp_path
