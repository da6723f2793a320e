"""RESULTS.md of invented lines: what stands in which cell."""

import json
from xml.etree import ElementTree

import pytest

from nobackfill_bench import SUITES
from nobackfill_bench.quality.page import references, render, render_page, values_table
from nobackfill_bench.quality.paired import EARLIER, OURS, Compared

OTHERS = {
    OURS: {0: (0.4, 0.6, 0.8), 1: (0.4, 0.62, 0.8), 2: (0.4, 0.64, 0.8)},
    "prototype_alignment": {0: (0.4, 0.5, 0.7), 1: (0.4, 0.51, 0.7), 2: (0.4, 0.52, 0.7)},
    "ndpp": {0: (0.4, 0.39, 0.7), 2: (0.4, 0.41, 0.7)},
}
OUR_ROW = f"**`{OURS}`** (maps queries)"
CEILING = {0: (0.4, 0.1, 0.8), 1: (0.4, 0.1, 0.8), 2: (0.4, 0.1, 0.8)}


@pytest.fixture
def glyphs(lines_of):
    lines = [line for way, numbers in OTHERS.items() for line in lines_of(way, numbers)]
    return [*lines, *lines_of("independent", CEILING)]


@pytest.fixture
def page(tmp_path):
    """The page by its headings, each with the lines below it."""

    def make(**found):
        text = render({name.replace("_", "-"): one for name, one in found.items()}, tmp_path)
        sections, now = {}, ""
        for line in text.splitlines():
            if line.startswith("#"):
                now = line.lstrip("# ")
            sections.setdefault(now, []).append(line)
        return sections

    return make


def section(page, name):
    return page[f"{SUITES[name].title} (`{name}`)"]


def tables(lines):
    """The tables of a section, each a list of its lines."""
    found, inside = [], False
    for line in lines:
        if line.startswith("|"):
            found = found if inside else [*found, []]
            found[-1].append(line)
        inside = line.startswith("|")
    return found


def test_every_way_has_its_row_the_best_first(page, glyphs, cells):
    table = cells(tables(section(page(glyphs=glyphs), "glyphs"))[0])
    assert list(table) == [
        "way", OUR_ROW, "`prototype_alignment`", "`ndpp`", "`independent`",
    ]  # fmt: skip
    shown = dict(zip(table["way"], table[OUR_ROW], strict=True))
    assert shown == {
        "seeds": "3",
        "new/old": "62.00 ± 4.97",  # 4.303 * 2 / √3
        "gain": "+22.00 ± 4.97",
        "recovered": "55 %",
        "new/new": "80.00 ± 0.00",
        "P_up": "50.0",
        "P_comp": "63.4",
        "P_1": "55.91 ± 1.12",
        "lost": "5.0",
        "compatible": "3/3",
        "s/epoch": "0.5",
    }
    assert dict(zip(table["way"], table["`ndpp`"], strict=True))["compatible"] == "1/2"


def test_differences_are_to_the_baseline_and_to_the_best_other(page, glyphs, cells):
    table = cells(tables(section(page(glyphs=glyphs), "glyphs"))[1])
    ours, baseline, ndpp = (table[name] for name in (OUR_ROW, "`prototype_alignment`", "`ndpp`"))
    assert ours[:2] == ["+11.00 ± 2.48", "+10.00 ± 0.00"]  # +10, +11 and +12
    assert ours[3:6] == ["`prototype_alignment`", *ours[:2]]
    assert baseline[:4] == ["–", "–", "–", f"`{OURS}`"]
    assert baseline[4:6] == ["-11.00 ± 2.48", "-10.00 ± 0.00"]
    assert ndpp[0] == "-11.00 ± 0.00"  # on seeds 0 and 2 alone
    assert ndpp[3] == f"`{OURS}`"


def test_without_an_independent_model_p_scores_are_dashes(page, lines_of, cells):
    lines = lines_of("ndpp", {0: (0.4, 0.5, 0.7)}, seconds=None)
    lines += lines_of("bct", {0: (0.4, 0.6, 0.7)})
    values, differences = map(cells, tables(section(page(glyphs=lines), "glyphs")))
    shown = dict(zip(values["way"], values["`ndpp`"], strict=True))
    dashes = ("recovered", "P_up", "P_comp", "P_1", "s/epoch")
    assert [shown[name] for name in dashes] == ["–"] * 5
    assert shown["new/old"] == "50.00"  # and one seed has no interval
    assert differences["`ndpp`"] == ["–"] * 7
    assert list(values) == ["way", "`bct`", "`ndpp`"]  # by new/old


def test_what_rows_are_compared_with_stands_above_them(page, lines_of):
    lines = lines_of("ndpp", {0: (0.4, 0.5, 0.7), 1: (0.5, 0.5, 0.7)}, raw_old=0.41, raw_new=0.66)
    lines += lines_of("independent", {0: (0.4, 0.1, 0.9)}, device="H200")
    said = references(Compared.of(lines))
    assert said == (
        "Old/old 45.00, raw old/old 41.00, raw new/new 66.00, independent new/new 90.00. "
        "Run on H200, cpu."
    )
    assert said in section(page(glyphs=lines), "glyphs")


def test_old_old_is_not_that_of_cores_own_old_model(lines_of):
    lines = lines_of("ndpp", {0: (0.4, 0.5, 0.7)}) + lines_of("cores", {0: (0.2, 0.3, 0.6)})
    assert references(Compared.of(lines)).startswith("Old/old 40.00")


def test_a_study_with_other_options_or_changes_is_no_part_of_the_suite(page, glyphs, lines_of):
    numbers = {0: (0.4, 0.9, 0.99)}
    more = lines_of("ndpp:neighbors=1", numbers) + lines_of("bct", numbers, changes=["a.b=1"])
    assert page(glyphs=glyphs + more) == page(glyphs=glyphs)


def test_suites_without_lines_are_left_out(page, glyphs):
    found = page(glyphs=glyphs, omniglot=[])
    assert [name for name in found if "(`" in name] == [f"{SUITES['glyphs'].title} (`glyphs`)"]
    assert not [name for name in page(glyphs=[]) if name != "Results"]


def test_the_first_paragraph_is_of_ours(page, glyphs, lines_of):
    first = page(glyphs=glyphs)["Results"][2]
    assert first.startswith(f"Our default, `{OURS}`, was run on 1 upgrades.")
    assert "does not hold" not in first
    without = page(glyphs=lines_of("ndpp", {0: (0.4, 0.5, 0.7)}))["Results"]
    assert not [line for line in without if "was run on" in line]


def test_every_suite_in_view_when_ours_was_chosen_is_named(page):
    said = "\n".join(page(glyphs=[])["Results"])
    named = ", ".join(f"`{name}`" for name, one in SUITES.items() if one.was_seen)
    assert f"`{EARLIER}`, the earlier default, was chosen when the numbers of {named}" in said
    assert f"`{OURS}` was chosen on classes that no table searches" in said


def test_a_section_says_what_was_trained_and_how_to_run_it(page, glyphs):
    lines = section(page(glyphs=glyphs), "glyphs")
    assert set(SUITES["glyphs"].text) <= set(lines)
    assert "    nobackfill bench quality --suite glyphs" in lines


def test_the_plane_is_drawn_with_every_way(page, glyphs, tmp_path):
    lines = section(page(glyphs=glyphs), "glyphs")
    assert "![new/new against new/old](figures/glyphs.svg)" in lines
    picture = (tmp_path / "glyphs.svg").read_text()
    assert "background: white" in picture
    texts = "".join(ElementTree.fromstring(picture).itertext())
    for way in (*OTHERS, "independent"):
        assert way in texts


def sequence(way, seed, matrix, ac, am):
    return {
        "suite": "omniglot-sequence", "way": way, "seed": seed, "changes": [], "device": "cpu",
        "matrix": matrix, "ac": ac, "am": am,
    }  # fmt: skip


def test_a_sequence_has_the_mean_of_its_matrices(page, cells):
    lines = [
        sequence("ndpp", 0, [[0.1], [0.2, 0.3], [0.4, 0.5, 0.6]], 1.0, 0.35),
        sequence("ndpp", 1, [[0.3], [0.2, 0.3], [0.4, 0.5, 0.8]], 0.0, 0.41),
        sequence(OURS, 0, [[0.1], [0.2, 0.3], [0.4, 0.5, 0.9]], 1.0, 0.40),
    ]
    table = cells(section(page(omniglot_sequence=lines), "omniglot-sequence"))
    assert table == {
        "way": ["seeds", "1/1", "2/1", "2/2", "3/1", "3/2", "3/3", "AC", "AM"],
        OUR_ROW: ["1", "10.0", "20.0", "30.0", "40.0", "50.0", "90.0", "1.00", "0.400"],
        "`ndpp`": ["2", "20.0", "20.0", "30.0", "40.0", "50.0", "70.0", "0.50", "0.380"],
    }
    assert list(table)[1] == OUR_ROW  # the higher AM first
    assert not [one for one in page(omniglot_sequence=lines)["Results"] if "was run on" in one]


def test_other_tests_of_a_suite_have_tables_of_their_own(page, lines_of, cells):
    there = {"old_old": 0.1, "new_old": 0.2, "new_new": 0.3, "lost": 0.01, "verdict": "compatible"}
    tests = {name: there for name in ("roxford", "roxford_hard", "roxford_medium")}
    lines = lines_of("ndpp", {0: (0.4, 0.5, 0.7)}, suite="landmarks-roxford", tests=tests)
    found = page(landmarks_roxford=lines)
    assert [name for name in found if name.startswith("Searched")] == [
        "Searched in roxford, medium",
        "Searched in roxford, hard",
    ]
    (table,) = tables(found["Searched in roxford, hard"])
    assert cells(table)["`ndpp`"][1] == "20.00"
    assert found["Searched in roxford, hard"][2].startswith("Old/old 10.00.")


def test_the_table_is_of_the_runs_it_is_given(lines_of, cells):
    compared = Compared.of(lines_of("ndpp", {0: (0.4, 0.5, 0.7)}, epochs=None))
    assert cells(values_table(compared))["`ndpp`"][-1] == "–"


def test_the_page_is_written_from_the_lines_beside_it(tmp_path, glyphs):
    (tmp_path / "quality").mkdir()
    text = "".join(json.dumps(line) + "\n" for line in glyphs)
    (tmp_path / "quality" / "glyphs.jsonl").write_text(text)
    path = render_page(tmp_path)
    assert path == tmp_path / "RESULTS.md"
    assert path.read_text() == render({"glyphs": glyphs}, tmp_path / "figures")
    assert (tmp_path / "figures" / "glyphs.svg").exists()


def test_every_row_of_a_method_that_maps_queries_says_so(page, glyphs, lines_of, cells):
    mapped = ("rm", "prototype_alignment_mapped", "ndpp_mapped", "odpp_mapped")
    lines = [line for way in mapped for line in lines_of(way, OTHERS["ndpp"])]
    made = section(page(glyphs=[*glyphs, *lines]), "glyphs")
    for table in tables(made):
        names = list(cells(table))[1:]
        marked = {name.split("`")[1] for name in names if name.endswith("(maps queries)")}
        assert marked == {OURS, *mapped}


def test_runs_of_studies_have_no_table_of_their_own(page, glyphs, lines_of):
    made = page(**{"glyphs-studies": lines_of("independent", CEILING)}, glyphs=glyphs)
    assert not any("glyphs-studies" in heading for heading in made)
