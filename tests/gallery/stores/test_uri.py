"""Where a gallery is: every form, and no credentials shown."""

from urllib.parse import quote

import pytest

from nobackfill.errors import ConfigError
from nobackfill.gallery.stores import STORES, open_store
from nobackfill.gallery.stores.uri import (
    PASSWORD_FILE,
    Uri,
    check_options,
    read_uri,
    secrets_of,
    without_secrets,
)

SECRET = "pa%3Ass"


@pytest.mark.parametrize(
    ("text", "host", "user", "path", "options"),
    [
        ("flat://items.safetensors", "", "", "items.safetensors", {}),
        ("flat:///data/items.npy", "", "", "/data/items.npy", {}),
        ("faiss://a/b.faiss", "", "", "a/b.faiss", {}),
        ("usearch://../b.usearch", "", "", "../b.usearch", {}),
        ("lancedb://galleries/photos?id=key", "", "", "galleries/photos", {"id": "key"}),
        ("lancedb:///data/galleries/photos", "", "", "/data/galleries/photos", {}),
        ("qdrant://db:6333/photos", "db:6333", "", "/photos", {}),
        ("qdrant://db/photos", "db", "", "/photos", {}),
        ("qdrant:stored?collection=photos", "", "", "stored", {"collection": "photos"}),
        ("qdrant:/data/stored", "", "", "/data/stored", {}),
        ("pgvector://ann:pw@db:5433/shop/items", "db:5433", "ann", "/shop/items", {}),
        ("pgvector:///shop/items", "", "", "/shop/items", {}),
        ("milvus:items.db", "", "", "items.db", {}),
    ],
)
def test_every_form(text, host, user, path, options):
    uri = read_uri(text)
    assert uri.scheme == text.partition(":")[0]
    assert (uri.host, uri.user, uri.path, dict(uri.options)) == (host, user, path, options)


def test_every_kind_has_a_form():
    for scheme, engine in STORES.items():
        assert all(form.startswith(f"{scheme}:") for form in engine.form.split(" or "))
        assert (engine.client is None) == (scheme == "flat")


@pytest.mark.parametrize(
    "text",
    [
        "flat:///data/items.npy",
        "lancedb://galleries/photos?id=key",
        "qdrant://db:6333/photos",
        "qdrant:stored?collection=photos",
        "milvus:items.db",
        "pgvector://ann@db:5433/shop/items",
    ],
)
def test_what_is_shown_leads_to_the_same_place(text):
    assert read_uri(text).shown == text
    assert read_uri(read_uri(text).shown) == read_uri(text)


@pytest.mark.parametrize(
    "text",
    [
        f"pgvector://ann:{SECRET}@db/shop/items",
        f"pgvector://ann@db/shop/items?password={SECRET}",
        f"pgvector://ann@db/shop/items?sslpassword={SECRET}",
        f"qdrant://db/photos?api_key={SECRET}",
        f"qdrant://db/photos?API_KEY={SECRET}",
        f"milvus:items.db?token={SECRET}",
    ],
)
def test_credentials_are_kept_and_never_shown(text):
    uri = read_uri(text)
    assert "pa:ss" in (uri.password, *uri.options.values())
    for told in (uri.shown, repr(uri), str(uri), f"{uri}", repr([uri]), repr({"uri": uri})):
        assert SECRET not in told
        assert "pa:ss" not in told
        assert "***" in told


@pytest.mark.parametrize(
    "text", ["qdrnt://db/x", "photos", "", ":", "http://ann:pa%3Ass@db/x", "s3://bucket/x"]
)
def test_an_unknown_kind(text):
    with pytest.raises(ConfigError, match="Use one of flat://") as told:
        read_uri(text)
    assert SECRET not in str(told.value)


def test_a_close_miss_is_told():
    with pytest.raises(ConfigError, match="qdrant"):
        read_uri("qdrnt://db/x")


@pytest.mark.parametrize("port", ["no", "99999", "-1", "63 33"])
def test_a_port_is_a_number(port):
    with pytest.raises(ConfigError, match="port") as told:
        read_uri(f"qdrant://ann:{SECRET}@db:{port}/photos")
    assert SECRET not in str(told.value)


PW = "s3cr3t"
ODD = [
    f"pgvector://ann:5432/{PW}@h:1/d/t",
    f"pgvector://ann:12/{PW}@h/t",
    f"pgvector://ann:12?{PW}@h/d/t",
    f"pgvector://ann:12/d/t?id={PW}@h",
    f"pgvector://ann:12#{PW}@h/d/t",
    f"pgvector:ann:{PW}@h//d/t",
    f"pgvector:/ann:{PW}@h/d/t",
    f"pgvector://ann:{PW}@{PW}@h/d/t",
    f"pgvector://ann:a:{PW}@h/d/t",
    f"pgvector://ann:[{PW}@h/d/t/{PW}",
    f"pgvector://ann:{PW}@h]/d/t",
    f"pgvector://ann:{PW}@h:{PW}/d/t",
    f"pgvector://ann@h/d/t?{PW}",
    f"pgvector://ann@h/d/t?{PW}:x=1",
    f"qdrant://{PW}@h/c",
    f"milvus://{PW}@h/c",
    f"lancedb://u:{PW}@h/t",
    f"flat:u:{PW}@h/t",
    f"qdrant:u:{PW}@h/t",
    f"postgresql://ann:{PW}@h/d/t",
    f"{PW}:",
    PW,
]


@pytest.mark.parametrize("text", ODD)
def test_a_uri_that_is_not_understood_is_not_echoed(text, command):
    with pytest.raises(ConfigError) as told:
        open_store(text)
    assert PW not in str(told.value)
    code, output, errors = command("gallery", "status", text)
    assert code == 2
    assert PW not in output + errors
    assert "Traceback" not in errors


def test_brackets_in_a_password_are_a_password():
    assert read_uri("pgvector://ann:p[w@db/shop/items").password == "p[w"
    assert read_uri("qdrant://[::1]:6333/photos").host == "::1:6333"


def test_a_hash_in_the_name_of_a_file_is_part_of_it():
    assert read_uri("flat://old.parquet#x").path == "old.parquet#x"


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("pgvector://ann@db/shop/items", lambda uri: uri.password),
        ("qdrant://db/photos", lambda uri: uri.options["api_key"]),
        ("milvus://db:1/photos", lambda uri: uri.options["token"]),
    ],
)
def test_a_password_may_be_in_a_file(text, part, tmp_path, monkeypatch):
    file = tmp_path / "password"
    file.write_text(f"{PW}\nnot this\n")
    monkeypatch.setenv(PASSWORD_FILE, str(file))
    assert part(read_uri(text)) == PW
    assert PW not in read_uri(text).shown
    own = f"{text.replace('ann@', 'ann:own@')}{'' if 'ann' in text else '?api_key=own'}"
    assert PW not in repr(read_uri(own).options) + read_uri(own).password
    file.write_text("")
    with pytest.raises(ConfigError, match="is empty"):
        read_uri(text)
    file.unlink()
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        read_uri(text)


def test_the_option_of_every_command_names_that_file(tmp_path, monkeypatch, command):
    monkeypatch.setenv(PASSWORD_FILE, "")
    file = tmp_path / "password"
    file.write_text(PW)
    arguments = (
        "gallery",
        "--password-file",
        str(file),
        "status",
        "pgvector://ann@127.0.0.1:1/d/t",
    )
    monkeypatch.setattr("nobackfill.gallery.stores.pgvector.connection.PAUSES", ())
    code, output, errors = command(*arguments)
    assert (code, output) == (2, "")
    assert "pgvector://ann:***@127.0.0.1:1/d/t" in errors
    assert PW not in errors


@pytest.mark.parametrize("secret", [PW, "p w/@", "it's", "ä"])
def test_errors_of_a_client_do_not_repeat_secrets(secret):
    uri = Uri("qdrant", "h", "", secret, "/c", {"api_key": f"k{secret}", "timeout": "3"})
    text = f"{secret} k{quote(secret)} {quote(secret, safe='')} {secret!r} 3"
    shown = without_secrets(text, secrets_of(uri))
    assert secret not in shown
    assert quote(secret) not in shown
    assert shown.endswith(" 3")


def test_unknown_options_are_refused():
    uri = read_uri("lancedb://galleries/photos?vecter=v")
    with pytest.raises(ConfigError, match=r"unknown option `vecter`.*`vector`"):
        check_options(uri, "id", "vector")
    check_options(read_uri("lancedb://galleries/photos?vector=v"), "id", "vector")


@pytest.mark.parametrize("scheme", ["flat", "faiss", "usearch", "lancedb"])
def test_files_refuse_options_that_they_do_not_know(scheme, tmp_path):
    pytest.importorskip(STORES[scheme].client or "numpy")
    with pytest.raises(ConfigError, match="unknown option `colour`"):
        open_store(f"{scheme}://{tmp_path}/items?colour=red")


def test_two_are_alike_by_what_they_say():
    assert read_uri("flat://a") == Uri("flat", "", "", "", "a", {})
    assert read_uri("flat://a") != read_uri("flat://b")
