"""PostgreSQL behind TLS: the options of a line reach the client, and it refuses what it should."""

import importlib.util
import shutil
import socket
import ssl
import subprocess
import threading
from contextlib import closing, suppress
from pathlib import Path

import numpy as np
import pytest

from nobackfill.errors import GalleryError
from nobackfill.gallery.stores import open_store

PATH = Path(__file__).parent / "engine_pgvector.py"
spec = importlib.util.spec_from_file_location(PATH.stem, PATH)
engine = importlib.util.module_from_spec(spec)
spec.loader.exec_module(engine)

IDS = [str(number) for number in range(20)]
VECTORS = np.random.default_rng(0).normal(size=(20, 4)).astype(np.float32)
REQUEST = bytes.fromhex("0000000804d2162f")  # of PostgreSQL's clients, before any TLS
needs_openssl = pytest.mark.skipif(shutil.which("openssl") is None, reason="wants openssl")


def make_certificate(folder, name):
    """A certificate that vouches for itself, for localhost."""
    certificate, key = folder / f"{name}.pem", folder / f"{name}.key"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2",
         "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost",
         "-keyout", str(key), "-out", str(certificate)],
        check=True, capture_output=True,
    )  # fmt: skip
    return certificate, key


def forward(source, target):
    """What one end says, to the other."""
    with suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
    for end in (source, target):
        with suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)


class Front:
    """Speaks TLS with clients, and plainly with the real server behind it."""

    def __init__(self, certificate, key, behind):
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.load_cert_chain(certificate, key)
        self.behind, self.secured = str(behind), 0
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.listen, daemon=True).start()

    def listen(self):
        with suppress(OSError):
            while True:
                client, _ = self.listener.accept()
                threading.Thread(target=self.serve, args=(client,), daemon=True).start()

    def serve(self, client):
        with suppress(OSError), closing(client):  # as where a client does not like our certificate
            if client.recv(8) != REQUEST:
                return  # it would speak plainly: not here
            client.sendall(b"S")
            with (
                self.context.wrap_socket(client, server_side=True) as secure,
                socket.socket(socket.AF_UNIX) as server,
            ):
                self.secured += 1
                server.connect(self.behind)
                back = threading.Thread(target=forward, args=(server, secure))
                back.start()
                forward(secure, server)
                back.join()


@pytest.fixture
def front(tmp_path):
    certificate, key = make_certificate(tmp_path, "server")
    made = Front(certificate, key, engine.start().pgdata / ".s.PGSQL.5432")
    made.certificate = certificate
    yield made
    made.listener.close()


@pytest.fixture
def table():
    return engine.fill(None, IDS, VECTORS, {"colour": IDS}).partition("?")[0].rpartition("/")[2]


def line(front, table, options):
    return f"pgvector://postgres@localhost:{front.port}/postgres/{table}?{options}"


@needs_openssl
def test_a_gallery_is_searched_through_tls(front, table):
    told = line(front, table, f"sslmode=verify-full&sslrootcert={front.certificate}")
    with open_store(told) as store:
        assert store.count(store.main) == len(IDS)
        assert [one[0] for one in store.search(store.main, VECTORS[:3], 1).ids] == IDS[:3]
    assert front.secured


@needs_openssl
def test_a_stranger_with_another_certificate_is_refused(front, table, tmp_path):
    other, _ = make_certificate(tmp_path, "other")
    told = line(front, table, f"sslmode=verify-full&sslrootcert={other}&connect_timeout=2")
    with pytest.raises(GalleryError, match="certificate"):
        open_store(told)


@needs_openssl
def test_who_wants_no_tls_gets_none(front, table):
    with pytest.raises(GalleryError):
        open_store(line(front, table, "sslmode=disable&connect_timeout=2"))
    assert not front.secured
