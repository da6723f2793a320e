"""Files of an apt mirror, in small; and the ways in which they can be broken."""

import bz2
import gzip
import lzma

import pyarrow as pa
import pytest

from nobackfill.data.readers.debian import read_debian, read_paragraphs, split_description
from nobackfill.errors import DataError

LONG = "A long description that says what the package is good for, in more than eighty characters."
PACKAGES = """\
Package: foo
Version: 1.2-1
Section: utils
Tag: role::program, interface::commandline,
 works-with::file
Description: shell of the foo family

Package: foo-doc
Source: foo
Version: 1.2-1
Section: doc

Package: a-foo
Source: foo
Version: 1.2-1
Section: libs

Package: bar-bin
Source: bar (3.4)
Version: 3.4+b1
Section: net

Package: bar-dev
Source: bar (3.4)
Version: 3.4
Section: libdevel

Package: short
Version: 1
Section: misc
"""
TRANSLATION = f"""\
Package: foo
Description-md5: 00
Description-en: shell of the foo family
 {LONG}
 .
  * one  item
 ü

Package: foo-doc
Description-en: documents of the foo family
 {LONG}

Package: a-foo
Description-en: library of the foo family
 {LONG}

Package: bar-bin
Description-en: program of the bar family
 {LONG} (program)

Package: bar-dev
Description-en: headers of the bar family
 {LONG} (headers)

Package: short
Description-en: too short
 {LONG}

Package: empty
Description-en: a package without a long text
 Short.

Package: alone
Description-en: a package that no list names
 {LONG} (alone)
"""


@pytest.fixture
def root(tmp_path):
    (tmp_path / "mirror_main_i18n_Translation-en").write_text(TRANSLATION, encoding="utf-8")
    (tmp_path / "mirror_main_binary-amd64_Packages").write_text(PACKAGES, encoding="utf-8")
    (tmp_path / "mirror_InRelease").write_text("not read")
    return tmp_path


def rows(texts):
    return {item: text for item, text in zip(texts.ids, texts.texts, strict=True)}


def test_one_package_stands_for_each_source(root):
    texts = read_debian(root)
    assert rows(texts) == {
        "alone#synopsis": "a package that no list names",
        "alone#description": f"{LONG} (alone)",
        "bar#synopsis": "program of the bar family",  # the first, as none is called bar
        "bar#description": f"{LONG} (program)",
        "foo#synopsis": "shell of the foo family",  # of the same name, not a-foo
        "foo#description": f"{LONG} * one item ü",
    }
    assert texts.groups.tolist() == ["alone", "alone", "bar", "bar", "foo", "foo"]
    assert texts.columns["is_query"].tolist() == [True, False] * 3
    assert texts.columns["is_gallery"].tolist() == [False, True] * 3
    assert any(note.startswith("3 further packages") for note in texts.notes)


def test_sections_and_debtags_are_columns(root):
    columns = read_debian(root).columns
    assert columns["package"].tolist()[::2] == ["alone", "bar-bin", "foo"]
    assert columns["section"].tolist()[::2] == ["", "net", "utils"]
    tags = "role::program interface::commandline works-with::file"
    assert columns["tags"].tolist()[::2] == ["", "", tags]


def test_a_source_is_in_one_split_whatever_else_the_mirror_has(root, tmp_path):
    def split(texts):
        return dict(zip(texts.groups.tolist(), texts.columns["split"].tolist(), strict=True))

    whole = split(read_debian(root))
    more = "\n".join(
        f"Package: p{number}\nDescription-en: a package of many others\n {LONG} {number}\n"
        for number in range(300)
    )
    (root / "other_Translation-en").write_text(more)
    larger = split(read_debian(root))
    assert whole.items() <= larger.items()
    share = sum(value == "train" for value in larger.values()) / len(larger)
    assert 0.5 < share < 0.7
    assert set(larger.values()) == {"train", "validation"}


def test_both_texts_of_a_source_make_a_pair(root):
    texts = read_debian(root)
    pairs = [*texts.pairs("train"), *texts.pairs("validation")]
    assert {(p.query, p.document, p.group) for p in pairs} == {
        ("a package that no list names", f"{LONG} (alone)", "alone"),
        ("program of the bar family", f"{LONG} (program)", "bar"),
        ("shell of the foo family", f"{LONG} * one item ü", "foo"),
    }


@pytest.mark.parametrize(
    ("suffix", "compress"),
    [
        (".gz", gzip.compress),
        (".xz", lzma.compress),
        (".bz2", bz2.compress),
        (".lz4", lambda data: pa.compress(data, "lz4", asbytes=True)),
        (".zst", lambda data: pa.compress(data, "zstd", asbytes=True)),
    ],
)
def test_compressed_files_are_read_alike(root, tmp_path, suffix, compress):
    plain = rows(read_debian(root))
    for file in list(root.glob("mirror_main*")):
        if suffix == ".lz4":  # apt writes frames
            with pa.output_stream(str(file) + suffix, compression="lz4") as stream:
                stream.write(file.read_bytes())
        else:
            file.with_name(file.name + suffix).write_bytes(compress(file.read_bytes()))
        file.unlink()
    assert rows(read_debian(root)) == plain


def test_a_packages_file_with_long_descriptions_is_enough(tmp_path):
    file = tmp_path / "Packages"
    file.write_text(f"Package: foo\nVersion: 1\nDescription: shell of foo family\n {LONG}\n")
    assert rows(read_debian(file))["foo#description"] == LONG


def test_a_folder_without_lists_says_how_to_get_them(tmp_path):
    with pytest.raises(DataError, match="apt-get -o Acquire::Languages=en update"):
        read_debian(tmp_path)
    with pytest.raises(DataError, match="no Translation-en and no Packages"):
        read_debian(tmp_path / "absent")


def test_lists_without_long_descriptions_say_so(root):
    (root / "mirror_main_i18n_Translation-en").unlink()
    with pytest.raises(DataError, match="no long descriptions"):
        read_debian(root)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"Package: a\n\nno field here\n", "has no field"),
        (b" continued\n", "continues no field"),
        (b"Package: \xff\n", "not UTF-8"),
    ],
)
def test_a_damaged_file_is_named(tmp_path, content, message):
    file = tmp_path / "x_Translation-en"
    file.write_bytes(content)
    with pytest.raises(DataError, match=message) as error:
        read_debian(tmp_path)
    assert str(file) in str(error.value)


def test_a_file_that_is_not_compressed_as_its_name_says(tmp_path):
    for suffix in (".gz", ".xz", ".lz4"):
        file = tmp_path / f"Packages{suffix}"
        file.write_text("Package: a\n")
        with pytest.raises(DataError, match="cannot be read"):
            read_debian(file)


def test_paragraphs_end_at_blank_lines_and_at_the_end(tmp_path):
    file = tmp_path / "Packages"
    file.write_text("A: 1\nB: x\n y\n\n\nA: 2")
    assert list(read_paragraphs(file)) == [{"A": "1", "B": "x\n y"}, {"A": "2"}]


def test_a_description_has_single_spaces():
    assert split_description("one  two\n a\n .\n   b  c") == ("one two", "a b c")
    assert split_description("") == ("", "")
