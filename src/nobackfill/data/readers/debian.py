"""Debian's package descriptions: a synopsis is the query, the long description its document."""

import lzma
import re
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

import numpy as np
import pyarrow as pa

from nobackfill.data.listing import invalid
from nobackfill.data.texts import TextDataset, Texts
from nobackfill.errors import DataError

APT_LISTS = "/var/lib/apt/lists"
SHORTEST_SYNOPSIS, SHORTEST_TEXT = 15, 80  # characters
TRAINING_SHARE = 60  # of 100 source packages
REMEDY = (
    "Run `apt-get -o Acquire::Languages=en update`, or pass a folder that holds Translation-en and "
    "Packages files of a mirror."
)


def read_debian(root: Path) -> Texts:
    """Reads the descriptions of an apt mirror, of one binary package per source package.

    Binary packages of one source share much of their text, so a source is a group: the package of
    the same name represents it, or else the first that has a synopsis of 15 characters and a long
    description of 80. The synopsis is the query and the long description the document. A hash of
    the source's name decides the split: 60 % "train", the others "validation". Columns are
    `package`, `section`, and `tags` (debtags, separated by spaces).

    Args:
        root: A file, or a folder of files whose names contain `Translation-en` or `Packages`, as
            apt stores them. They may be compressed (.lz4, .gz, .xz, .bz2, .zst).
    """
    translations, packages = find_lists(root)
    descriptions: dict[str, tuple[str, str]] = {}
    facts: dict[str, dict[str, str]] = {}
    for path in (*packages, *translations):
        for paragraph in read_paragraphs(path):
            if not (name := paragraph.get("Package", "")):
                continue
            if "Section" in paragraph or "Source" in paragraph or "Version" in paragraph:
                facts.setdefault(name, paragraph)
            synopsis, text = split_description(
                paragraph.get("Description-en") or paragraph.get("Description", "")
            )
            if len(synopsis) >= SHORTEST_SYNOPSIS and len(text) >= SHORTEST_TEXT:
                descriptions.setdefault(name, (synopsis, text))
    if not descriptions:
        raise DataError(f"There are no long descriptions in English in {root}. {REMEDY}")
    return _texts(descriptions, facts)


def _texts(descriptions: dict[str, tuple[str, str]], facts: dict[str, dict[str, str]]) -> Texts:
    """Returns one query and one document for each source package, in alphabetical order."""
    chosen: dict[str, str] = {}  # the package that represents each source
    for name in sorted(descriptions):
        source = facts.get(name, {}).get("Source", name).split(" ")[0]
        if name == source or source not in chosen:
            chosen[source] = name
    sources = sorted(chosen)
    names = [chosen[source] for source in sources]
    texts = [text for name in names for text in descriptions[name]]
    values = {
        "split": [split_of(source) for source in sources],
        "package": names,
        "section": [facts.get(name, {}).get("Section", "") for name in names],
        "tags": [
            " ".join(re.split(r"[,\s]+", facts.get(name, {}).get("Tag", ""))) for name in names
        ],
    }
    is_query = np.tile([True, False], len(sources))
    return Texts(
        [f"{source}#{part}" for source in sources for part in ("synopsis", "description")],
        texts,
        np.repeat(np.array(sources), 2),
        {
            **{name: np.repeat(np.array(column), 2) for name, column in values.items()},
            "is_query": is_query,
            "is_gallery": ~is_query,
        },
        notes=(
            f"{len(descriptions) - len(sources):,} further packages of the same sources are left "
            f"out",
        ),
    )


def split_of(source: str) -> str:
    """Returns the split of a source package, which depends on its name alone.

    Example:
        >>> [split_of(source) for source in ("bash", "coreutils", "nano")]
        ['train', 'train', 'validation']
    """
    place = int(sha256(source.encode()).hexdigest(), 16) % 100
    return "train" if place < TRAINING_SHARE else "validation"


def split_description(description: str) -> tuple[str, str]:
    r"""Returns the synopsis and the long description, each with single spaces.

    Example:
        >>> split_description("a shell\n It reads\n lines.\n .\n * one")
        ('a shell', 'It reads lines. * one')
    """
    first, _, rest = description.partition("\n")
    lines = [line.strip() for line in rest.splitlines()]
    text = " ".join(line for line in lines if line != ".")
    return " ".join(first.split()), " ".join(text.split())


def find_lists(root: Path) -> tuple[list[Path], list[Path]]:
    """Returns the translations and the lists of packages at a path, sorted by name."""
    try:
        inside = sorted(p for p in root.rglob("*") if p.is_file()) if root.is_dir() else [root]
    except OSError as error:
        raise DataError(f"Cannot read {root}: {error.strerror or error}. {REMEDY}") from None
    translations = [path for path in inside if "Translation-en" in path.name]
    packages = [path for path in inside if re.search(r"Packages(\.\w+)?$", path.name)]
    if not translations and not packages:
        raise DataError(f"There is no Translation-en and no Packages file at {root}. {REMEDY}")
    return translations, packages


def read_paragraphs(path: Path) -> Iterator[dict[str, str]]:
    """Yields the fields of each paragraph of a control file, with the line breaks within them."""
    fields: dict[str, str] = {}
    key = ""
    for line in read_lines(path):
        if not line.strip():
            if fields:
                yield fields
            fields, key = {}, ""
        elif line[0] in " \t":
            if not key:
                raise invalid(path, f"a line continues no field: {line[:60]!r}", REMEDY)
            fields[key] += f"\n{line}"
        else:
            key, colon, value = line.partition(":")
            if not colon:
                raise invalid(path, f"a line has no field: {line[:60]!r}", REMEDY)
            fields[key] = value.strip()
    if fields:
        yield fields


def read_lines(path: Path) -> Iterator[str]:
    """Yields the lines of a file that may be compressed."""
    try:
        if path.suffix == ".xz":
            with lzma.open(path, "rt", encoding="utf-8") as text:
                yield from (line.rstrip("\n") for line in text)
            return
        with pa.input_stream(str(path), compression="detect") as stream:
            data = stream.read()
        yield from bytes(data).decode("utf-8").split("\n")
    except FileNotFoundError:
        raise DataError(f"No file at {path}. {REMEDY}") from None
    except UnicodeDecodeError:
        raise invalid(path, "it is not UTF-8 text", REMEDY) from None
    except (OSError, EOFError, lzma.LZMAError, pa.ArrowException) as error:
        raise invalid(path, f"it cannot be read ({str(error).rstrip('.')})", REMEDY) from None


DEBIAN = TextDataset(
    description="Debian's package descriptions: the synopsis asks for the long description",
    layout=(
        f"{APT_LISTS}/…_main_i18n_Translation-en (or .lz4, .gz, .xz, .bz2; any folder)\n"
        f"{APT_LISTS}/…_main_binary-amd64_Packages (for source packages, sections and debtags)\n"
        "on Debian, get them by: apt-get -o Acquire::Languages=en update"
    ),
    read=read_debian,
    counts={},
    place=APT_LISTS,
)
