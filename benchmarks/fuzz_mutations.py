"""Ways to damage a file: its bytes, the values inside it, or what its header says.

A change of bytes alone rarely gets past the checksums and lengths of a format, so containers are
also opened, damaged inside and closed again. All choices come from one `random.Random`.
"""

import io
import json
import re
import sqlite3
import struct
import zipfile
from collections.abc import Callable
from contextlib import closing, suppress
from copy import deepcopy
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

Mutator = Callable[[bytes, Random], bytes]

HUGE = (2**31 - 1, 2**31, 2**32, 10**9, 10**12, 2**53 + 1, 2**63 - 1, 2**63, 2**64, -1, -(2**63), 0)
WORDS = (
    "NaN",
    "Infinity",
    "-Infinity",
    "nan",
    "inf",
    "1e309",
    "1e-400",
    "null",
    "true",
    '""',
    '"\\ud800"',
    "[]",
    "{}",
    "[[]]",
    "9" * 400,
    "9" * 5000,
    "1." + "0" * 5000,
    "[" * 100_000,
    '{"a":' * 2000,
    '"\\u0000"',
    '"\\u001b[31m"',
    "-0",
    "'",
    '"',
    "\x00",
    "\ufeff",
    "[1,2",
    "1_000",
    "0x10",
)
VALUES: tuple[Any, ...] = (
    None,
    True,
    False,
    0,
    -1,
    1.5,
    1e308,
    10**400,
    10**18,
    2**63,
    "",
    "x",
    "\x00",
    "\x1b[31m",
    "NaN",
    [],
    {},
    [[]],
    [None],
    ["x"],
    {"a": 1},
    {"": None},
    [1, "x"],
    "a" * 100_000,
    list(range(1000)),
    float("nan"),
    float("inf"),
    "2026-13-45T99:99",
    "../../x",
    "/",
)
NUMBER = re.compile(rb"-?\d+(?:\.\d+)?")
JSON_MOST = 200_000  # bytes of a document that is damaged by its values


def mutate(data: bytes, suffix: str, random: Random) -> bytes:
    """Damages the contents of a file in a way that its suffix suggests, or its bytes."""
    inner = [mutator for ending, mutator in INSIDE if suffix.endswith(ending) or not ending]
    if inner and random.random() < 0.6:
        with suppress(Exception):  # what is damaged already cannot be opened
            return random.choice(inner)(data, random)
    damaged = data
    for _ in range(random.choice((1, 1, 1, 2, 4))):
        damaged = random.choice(BYTES)(damaged, random)
    return damaged


# bytes


def flip_bits(data: bytes, random: Random) -> bytes:
    """Flips some bits, mostly of the beginning or the end, where formats have their headers."""
    changed = bytearray(data)
    for _ in range(random.choice((1, 1, 2, 8, 64))):
        if changed:
            changed[_place(len(changed), random)] ^= 1 << random.randrange(8)
    return bytes(changed)


def truncate(data: bytes, random: Random) -> bytes:
    """Keeps the beginning, or the end."""
    place = _place(len(data) + 1, random)
    return data[:place] if random.random() < 0.8 else data[place:]


def splice(data: bytes, random: Random) -> bytes:
    """Removes, repeats or moves a part."""
    start, end = sorted((_place(len(data) + 1, random), _place(len(data) + 1, random)))
    other = _place(len(data) + 1, random)
    ways = (
        data[:start] + data[end:],
        data[:end] + data[start:],
        data[:other] + data[start:end] + data[other:],
        data[:start] + data[start:end] * random.choice((2, 50)) + data[end:],
    )
    return random.choice(ways)[: 4 * len(data) + 2**16]


def huge_binary(data: bytes, random: Random) -> bytes:
    """Writes a huge number where a number may be."""
    form = random.choice(("<i", "<q", ">i", "<h", "<Q", "<I", "<f", "<d"))
    value: float = random.choice(HUGE)
    if form[1] in "fd":
        raw = struct.pack(form, random.choice((float("nan"), float("inf"), 1e30, -1e-40)))
    else:
        size = struct.calcsize(form)
        raw = (int(value) % 256**size).to_bytes(size, "little" if form[0] == "<" else "big")
    place = _place(max(1, len(data) - len(raw)), random)
    return data[:place] + raw + data[place + len(raw) :]


def huge_digits(data: bytes, random: Random) -> bytes:
    """Replaces a number in text, such as that of a shape in a header."""
    found = list(NUMBER.finditer(data[: 2**20]))
    if not found:
        return flip_bits(data, random)
    match = random.choice(found[:50] if random.random() < 0.5 else found)
    words = (*map(str, HUGE), "9" * 400, "9" * 5000, "NaN", "Infinity", "1e999", "-1", "0.5", "")
    return data[: match.start()] + random.choice(words).encode() + data[match.end() :]


def insert_word(data: bytes, random: Random) -> bytes:
    """Inserts something that parsers of text stumble over."""
    place = _place(len(data) + 1, random)
    return data[:place] + random.choice(WORDS).encode("utf-8", "surrogatepass") + data[place:]


def noise(data: bytes, random: Random) -> bytes:
    """Replaces a part, or everything, by random bytes."""
    start, end = sorted((_place(len(data) + 1, random), _place(len(data) + 1, random)))
    if random.random() < 0.1:
        return random.randbytes(random.choice((0, 1, 8, 1000)))
    end = min(end, start + 256)
    return data[:start] + random.randbytes(end - start) + data[end:]


def _place(length: int, random: Random) -> int:
    """A position, half of the time near the beginning or the end."""
    if length <= 1:
        return 0
    if random.random() < 0.5:
        near = random.randrange(min(length, 256))
        return near if random.random() < 0.6 else length - 1 - near
    return random.randrange(length)


BYTES: tuple[Mutator, ...] = (
    flip_bits,
    flip_bits,
    truncate,
    splice,
    huge_binary,
    huge_digits,
    insert_word,
    noise,
)


# values


def change_value(document: Any, random: Random) -> Any:
    """Replaces, removes or adds a value somewhere within a JSON document."""
    places: list[tuple[Any, Any]] = []
    level = [document]
    while level and len(places) < 5000:
        level, outer = [], level
        for part in outer:
            keys = part.keys() if isinstance(part, dict) else range(len(part))
            for key in list(keys)[:50]:
                places.append((part, key))
                if isinstance(part[key], dict | list):
                    level.append(part[key])
    if not places or random.random() < 0.03:
        return deepcopy(random.choice(VALUES))
    part, key = random.choice(places)
    way = random.random()
    if way < 0.7:
        part[key] = deepcopy(random.choice(VALUES))
    elif way < 0.85:
        del part[key]
    elif isinstance(part, dict):
        part[random.choice(("unknown", "", "id", "\x1b[31m"))] = deepcopy(random.choice(VALUES))
    else:
        part.insert(key, deepcopy(random.choice(VALUES)))
    return document


def in_json(data: bytes, random: Random) -> bytes:
    """Damages a value of a JSON document."""
    document = json.loads(data[:JSON_MOST] if len(data) <= JSON_MOST else b"")
    for _ in range(random.choice((1, 1, 2))):
        document = change_value(document, random)
    return _dump(document).encode("utf-8", "surrogatepass")


def in_lines(data: bytes, random: Random) -> bytes:
    """Damages a value of a line of JSON."""
    lines = data.split(b"\n")
    filled = [number for number, line in enumerate(lines) if line.strip()]
    number = random.choice(filled)
    lines[number] = in_json(lines[number], random)
    return b"\n".join(lines)


def in_cells(data: bytes, random: Random) -> bytes:
    """Damages cells of a table in text, or of a recipe's values."""
    lines = data.split(b"\n")
    number = _place(len(lines), random)
    mark = next((mark for mark in (b"\t", b" = ", b",") if mark in lines[number]), b",")
    cells = lines[number].split(mark)
    cells[random.randrange(len(cells))] = random.choice(WORDS).encode("utf-8", "surrogatepass")
    lines[number] = mark.join(cells)
    return b"\n".join(lines)


def _dump(document: Any) -> str:
    limited = document
    with suppress(ValueError):
        return json.dumps(limited)
    import sys

    before = sys.get_int_max_str_digits()
    sys.set_int_max_str_digits(0)
    try:
        return json.dumps(limited)
    finally:
        sys.set_int_max_str_digits(before)


# containers


def in_safetensors(data: bytes, random: Random) -> bytes:
    """Damages the header, and corrects its length."""
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    own = header.get("__metadata__", {})
    if own and random.random() < 0.3:  # our records within the metadata
        name = random.choice(list(own))
        own[name] = in_json(own[name].encode(), random).decode("utf-8", "replace")
    elif random.random() < 0.3:
        names = [name for name in header if name != "__metadata__"]
        kinds = ("F8_E4M3", "F8_E5M2", "F64", "BF16", "BOOL", "I8", "U64", "C64", "F4", "I64")
        header[random.choice(names)]["dtype"] = random.choice(kinds)
    else:
        header = change_value(header, random)
    text = _dump(header).encode()
    return len(text).to_bytes(8, "little") + text + data[8 + length :]


def in_npy(data: bytes, random: Random) -> bytes:
    """Damages the header of an array, and corrects its length."""
    length = int.from_bytes(data[8:10], "little")
    header = data[10 : 10 + length].decode("latin1")
    ways = [
        lambda: re.sub(r"\((\d+)", f"({random.choice(HUGE)}", header),
        lambda: re.sub(r"(\d+),? ?\)", f"{random.choice(HUGE)})", header),
        lambda: re.sub(
            r"'[<|>]\w\d+'",
            random.choice(
                (
                    "'O'",
                    "'<f2'",
                    "'<f16'",
                    "'<c8'",
                    "'<U1000000000'",
                    "'|S0'",
                    "'<M8[D]'",
                    "'|V4'",
                    "'<i8'",
                    "'>f4'",
                    "[('a','<f4')]",
                    "'|b1'",
                    "'junk'",
                )
            ),
            header,
        ),
        lambda: header.replace("False", random.choice(("True", "None", "1", "'x'"))),
        lambda: header.replace("shape", "shap"),
        lambda: header.replace("{", "[" * random.choice((1, 100, 9000))),
        lambda: re.sub(
            r"\(.*?\)", random.choice(("()", "(1,)", "(0, 4)", "(-1, 4)", "(4, 0)")), header
        ),
        lambda: insert_word(header.encode(), random).decode("latin1"),
    ]
    text = random.choice(ways)().encode("latin1", "replace")[:65000]
    return data[:8] + len(text).to_bytes(2, "little") + text + data[10 + length :]


def in_zip(data: bytes, random: Random) -> bytes:
    """Damages a member of an archive, or says another size or compression of it."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    name = random.choice(list(members))
    member = members[name]
    way = random.random()
    if way < 0.5 and name.endswith(".npy"):
        members[name] = in_npy(member, random)
    elif way < 0.6:
        members.pop(name)
    elif way < 0.65:  # a bomb
        members[name] = member[:256] + bytes(3 * 2**30 if random.random() < 0.02 else 2**26)
    else:
        members[name] = random.choice(BYTES)(member, random)
    file = io.BytesIO()
    kind = random.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2))
    with zipfile.ZipFile(file, "w", kind if way < 0.9 else zipfile.ZIP_LZMA) as archive:
        for part, contents in members.items():
            archive.writestr(part, contents)
    made = bytearray(file.getvalue())
    if random.random() < 0.15:  # the directory at the end lies
        return huge_binary(bytes(made[-200:]), random).join((bytes(made[:-200]), b""))
    if random.random() < 0.05:  # encrypted, as it says
        place = made.rfind(b"PK\x01\x02")
        made[place + 8] |= 1
    return bytes(made)


def in_parquet(data: bytes, random: Random) -> bytes:
    """Damages our records in the metadata of a table, its columns or its values."""
    table = pq.read_table(pa.BufferReader(data))
    notes = dict(table.schema.metadata or {})
    ours = [name for name in notes if name.startswith(b"nobackfill")]
    if ours and random.random() < 0.6:
        name = random.choice(ours)
        notes[name] = (in_json if random.random() < 0.8 else insert_word)(notes[name], random)
        table = table.replace_schema_metadata(notes)
    else:
        table = _other_columns(table, random)
    file = io.BytesIO()
    pq.write_table(table, file, compression=random.choice(("zstd", "none", "gzip", "snappy")))
    return file.getvalue()


def _other_columns(table: pa.Table, random: Random) -> pa.Table:
    """Damages a column of a table: its name, its type or its values."""
    place = random.randrange(table.num_columns)
    name, rows = table.column_names[place], table.num_rows
    long = ["x"] * (rows - 1) + ["y" * 1_000_000]
    ways = (
        lambda: table.remove_column(place),
        lambda: table.rename_columns(
            [
                random.choice(("id", "vector", "", "\x1b[31m", "x")) if n == place else old
                for n, old in enumerate(table.column_names)
            ]
        ),
        lambda: table.set_column(place, name, pa.array([None] * rows)),
        lambda: table.set_column(place, name, pa.array(long)),
        lambda: table.set_column(place, name, pa.array([random.choice(VALUES[3:9])] * rows)),
        lambda: table.set_column(place, name, pa.array([b"\xff\xfe"] * rows)),
        lambda: table.set_column(place, name, pa.array([[float("nan")] * 3] * rows)),
        lambda: table.set_column(place, name, pa.array([[1.0] * (n % 3) for n in range(rows)])),
        lambda: table.set_column(place, name, pa.array([{"a": [1.0]}] * rows)),
        lambda: table.set_column(place, name, pa.array(["a\0", "\x1b[31m"] * rows)[:rows]),
        lambda: table.slice(0, random.choice((0, 1, 2))),
        lambda: pa.concat_tables([table, table]),
    )
    return random.choice(ways)()


def in_arrow(data: bytes, random: Random) -> bytes:
    """Damages a column of a file of Arrow."""
    with pa.ipc.open_file(pa.BufferReader(data)) as reader:
        table = _other_columns(reader.read_all(), random)
    file = io.BytesIO()
    with pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table)
    return file.getvalue()


def in_notes(data: bytes, random: Random) -> bytes:
    """Damages a note of a gallery, or a stored vector, in its SQLite file."""
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "notes")
        path.write_bytes(data)
        with closing(sqlite3.connect(path)) as connection, connection:
            if random.random() < 0.8:
                rows = connection.execute("select key, text from notes").fetchall()
                key, text = random.choice(rows)
                way = in_json if random.random() < 0.8 else insert_word
                changed = way(text.encode(), random).decode("utf-8", "replace")
                connection.execute("update notes set text = ? where key = ?", (changed, key))
            else:
                blob = random.choice((b"", b"abc", bytes(16), b"\xff" * 64, "text", None, 7))
                with suppress(sqlite3.Error):
                    connection.execute(
                        "update vectors set vector = ? where rowid % 2 or 1", (blob,)
                    )
        return path.read_bytes()


INSIDE: tuple[tuple[str, Mutator], ...] = (
    (".json", in_json),
    (".jsonl", in_lines),
    (".csv", in_cells),
    (".tsv", in_cells),
    (".toml", in_cells),
    (".safetensors", in_safetensors),
    (".npy", in_npy),
    (".npz", in_zip),
    (".pt", in_zip),
    (".parquet", in_parquet),
    (".feather", in_arrow),
    (".arrow", in_arrow),
    (".nobackfill", in_notes),
)
