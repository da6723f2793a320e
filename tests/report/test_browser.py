"""The page as a person uses it: in a real browser, where there is one."""

import json
import re

import numpy as np
import pytest

from nobackfill.core.page import Figure, Page, Picture, Section, Table
from nobackfill.report.charts import heat_map, step_curves
from nobackfill.report.html import render_html

pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
from selenium.webdriver.common.by import By  # noqa: E402
from selenium.webdriver.common.keys import Keys  # noqa: E402

DOT = "data:image/gif;base64,R0lGODlhAQABAIAAAAAAAP///ywAAAAAAQABAAACAUwAOw=="

# Ten rows, so that there is a filter; for each column the order that it shall be sorted into.
COLUMNS = ["name", "queries", "change", "share", "better"]
ROWS = [
    ["mug", "1,234", "+1.20 (−0.30 to +2.70)", "12.3 %", "yes"],
    ["Hat", "56", "−3.00 (−4.00 to −2.00)", "4.0 %", "no"],
    ["lamp", "–", "–", "–", "–"],
    ["class 10", "7", "+0.05 (−1.00 to +1.10)", "100.0 %", "yes"],
    ["class 2", "12,000", "−0.70 (−0.90 to −0.50)", "0.5 %", "no"],
    ["bag", "890", "+11.00 (+9.00 to +13.00)", "33.3 %", "yes"],
    ["cup", "0", "0.00 (−1.00 to +1.00)", "9.9 %", "no"],
    ["dog", "1", "-12.5", "50 %", "no"],
    ["eel", "–", "+2e-3", "51 %", "yes"],
    ["fox", "901", "+3.1", "52 %", "yes"],
]
SORTED = {
    "name": "bag, class 2, class 10, cup, dog, eel, fox, Hat, lamp, mug",
    "queries": "cup, dog, class 10, Hat, bag, fox, mug, class 2",
    "change": "dog, Hat, class 2, cup, eel, class 10, mug, fox, bag",
    "share": "class 2, Hat, cup, mug, bag, dog, eel, fox, class 10",
}


def everything():
    random = np.random.default_rng(0)
    wide = [f"a rather long column head {n}" for n in range(12)]
    found = tuple(Picture(DOT, f"item {n}", right) for n, right in enumerate((True, False, None)))
    return Page(
        title="A title that is rather long, and a-word-that-would-not-fit-on-any-phone-in-one-line",
        summary=["Switch the queries today.", "Nothing else changes."],
        verdict="compatible",
        sections=[
            Section("Groups", "Text.", tables=[Table(COLUMNS, ROWS, frozenset(COLUMNS[1:4]), 1)]),
            Section("Wide", tables=[Table(wide, [["1"] * 12], caption="A wide table")]),
            Section("Found", tables=[Table(["query", "found"], [["q1", found * 5]])]),
            Section(
                "Drawn",
                figures=[
                    Figure(
                        lambda: step_curves({"old": np.arange(9)}, np.arange(10.0), label="cosine"),
                        "H",
                        "It is h.",
                    ),
                    Figure(lambda: heat_map(random.random((2, 2)), "ab", "ab"), "M", "It is m."),
                ],
            ),
        ],
        not_measured=["Speed: it was not asked for."],
        made_of={"old vectors": "0123456789abcdef" * 4},
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("browser")
    (folder / "page.html").write_text(render_html(everything()))
    return folder


@pytest.fixture
def browser(driver, folder):
    """The browser on a fresh page: a large screen, light."""
    look(driver)
    driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    driver.get((folder / "page.html").as_uri())
    return driver


def look(driver, *, media="screen", scheme="light"):
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": media, "features": features})


def all_of(browser, selector):
    return browser.find_elements(By.CSS_SELECTOR, selector)


def shown_names(browser):
    return browser.execute_script("""
        return Array.from(document.querySelectorAll("#part-1 tbody td:first-child"))
            .filter((cell) => cell.checkVisibility()).map((cell) => cell.innerText);
    """)


def head(browser, column):
    return all_of(browser, "#part-1 th")[COLUMNS.index(column)]


def button(browser, column):
    return head(browser, column).find_element(By.TAG_NAME, "button")


def ink(browser):
    """The colours of the paper and of what is written and drawn on it."""
    return browser.execute_script("""
        const style = (selector) => getComputedStyle(document.querySelector(selector));
        return [style("body").backgroundColor, style("body").color,
                style("svg text[style*='--soft']").fill, style("svg path[style*='--card']").stroke];
    """)


def test_it_loads_nothing_and_nothing_goes_wrong(browser):
    browser.get_log("browser")
    browser.get_log("performance")
    browser.refresh()
    assert browser.get_log("browser") == []
    messages = [json.loads(one["message"])["message"] for one in browser.get_log("performance")]
    asked = [
        one["params"]["request"]["url"]
        for one in messages
        if one["method"] == "Network.requestWillBeSent"
    ]
    assert browser.current_url in asked
    assert {url.split(":")[0] for url in asked} <= {"file", "data"}
    assert {url for url in asked if url.startswith("file:")} == {browser.current_url}


def test_it_could_load_nothing_if_it_wanted(browser):
    browser.get_log("browser")
    browser.execute_script("new Image().src = 'https://nobackfill.invalid/x.png'")
    (complaint,) = browser.get_log("browser")
    assert "Content Security Policy" in complaint["message"]


@pytest.mark.parametrize("column", SORTED)
def test_a_head_sorts_up_then_down_and_missing_values_stay_last(browser, column):
    place = COLUMNS.index(column)
    missing = [row[0] for row in ROWS if row[place] == "–"]
    up = SORTED[column].split(", ")
    assert head(browser, column).get_attribute("aria-sort") is None
    button(browser, column).click()
    assert shown_names(browser) == up + missing
    assert head(browser, column).get_attribute("aria-sort") == "ascending"
    button(browser, column).click()
    assert shown_names(browser) == up[::-1] + missing
    assert head(browser, column).get_attribute("aria-sort") == "descending"


@pytest.mark.parametrize("key", [Keys.ENTER, Keys.SPACE], ids=["enter", "space"])
def test_a_head_sorts_by_keyboard(browser, key):
    button(browser, "share").click()
    button(browser, "queries").send_keys(key)
    assert shown_names(browser)[:2] == ["cup", "dog"]
    sorts = [one.get_attribute("aria-sort") for one in all_of(browser, "#part-1 th")]
    assert sorts == [None, "ascending", None, None, None]


def test_rows_take_their_looks_along(browser):
    button(browser, "name").click()
    (strong,) = all_of(browser, "#part-1 tr.strong td:first-child")
    assert strong.text == "Hat"
    assert int(strong.value_of_css_property("font-weight")) > 600


def test_columns_of_pictures_are_not_sorted(browser):
    assert [len(all_of(one, "button")) for one in all_of(browser, "#part-3 th")] == [1, 0]


def test_the_filter_hides_rows_and_counts_them(browser):
    (box,), (count,) = all_of(browser, "#part-1 input"), all_of(browser, "#part-1 output")
    assert count.text == "10 of 10 rows"
    box.send_keys("CLASS")
    assert shown_names(browser) == ["class 10", "class 2"]
    assert count.text == "2 of 10 rows"
    button(browser, "name").click()
    assert shown_names(browser) == ["class 2", "class 10"]
    box.send_keys(" nothing has this")
    assert shown_names(browser) == []
    assert count.text == "0 of 10 rows"
    box.send_keys(Keys.CONTROL + "a", Keys.DELETE)
    assert len(shown_names(browser)) == len(ROWS)
    assert not all_of(browser, "#part-2 input"), "short tables need none"


def test_everything_has_a_name(browser):
    images = all_of(browser, "img")
    assert {image.accessible_name for image in images} == {"item 0", "item 1", "item 2"}
    drawn = [(svg.aria_role, svg.accessible_name) for svg in all_of(browser, "svg")]
    assert drawn == [("image", "It is h."), ("image", "It is m.")]
    for control in all_of(browser, "button, input, table, nav, .scroll"):
        assert control.accessible_name, control.get_attribute("outerHTML")[:80]


def test_right_and_wrong_are_signs_and_not_colours_alone(browser):
    frames = all_of(browser, "#part-3 .picture")[:3]
    assert [frame.text for frame in frames] == ["✓", "✗", ""]
    colors = {all_of(one, "img")[0].value_of_css_property("border-color") for one in frames}
    assert len(colors) == 3
    assert 50 <= frames[0].size["height"] <= 62


@pytest.mark.parametrize("width", [320, 390, 1100])
def test_only_wide_tables_scroll_sideways_and_the_page_never(browser, width):
    size = {"width": width, "height": 844, "deviceScaleFactor": 2, "mobile": True}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    assert browser.execute_script("return document.scrollingElement.scrollWidth") <= width
    (box,) = all_of(browser, "#part-2 .scroll")
    assert int(box.get_property("scrollWidth")) > int(box.get_property("clientWidth"))


def test_dark_where_the_system_is_dark(browser):
    light = ink(browser)
    look(browser, scheme="dark")
    dark = ink(browser)
    assert all(one != other for one, other in zip(light, dark, strict=True))
    brightness = [[sum(map(int, re.findall(r"\d+", c)[:3])) for c in of] for of in (light, dark)]
    paper, text, label, _ = zip(*brightness, strict=True)
    assert paper[0] > text[0]
    assert paper[0] > label[0]
    assert paper[1] < text[1]
    assert paper[1] < label[1]


@pytest.mark.parametrize("system", ["light", "dark"])
def test_the_button_overrides_the_system(browser, system):
    looks = {}
    for scheme in ("light", "dark"):
        look(browser, scheme=scheme)
        looks[scheme] = ink(browser)
    look(browser, scheme=system)
    (toggle,) = all_of(browser, ".theme")
    toggle.click()
    assert ink(browser) == looks["dark" if system == "light" else "light"]
    toggle.click()
    assert ink(browser) == looks[system]


def test_paper_is_light_and_has_every_row_and_no_controls(browser):
    all_of(browser, "#part-1 input")[0].send_keys("class")
    light = ink(browser)
    look(browser, scheme="dark")
    all_of(browser, ".theme")[0].click()
    all_of(browser, ".theme")[0].click()  # dark by choice too
    look(browser, media="print", scheme="dark")
    assert not [one for one in all_of(browser, ".control") if one.is_displayed()]
    assert len(shown_names(browser)) == len(ROWS)
    assert ink(browser)[1:3] == light[1:3]
    assert ink(browser)[0] == "rgb(255, 255, 255)"
    assert {one.value_of_css_property("box-shadow") for one in all_of(browser, "section")} == {
        "none"
    }


def test_complete_without_its_script(browser, folder):
    html = (folder / "page.html").read_text()
    plain = folder / "plain.html"
    plain.write_text(re.sub(r"<script>.*?</script>", "", html, flags=re.DOTALL))
    browser.get(plain.as_uri())
    assert shown_names(browser) == [row[0] for row in ROWS]
    assert not [one for one in all_of(browser, "button, input") if one.is_displayed()]
    text = browser.find_element(By.TAG_NAME, "body").text
    for what in ("compatible", "Switch the queries today.", "query/gallery", "not asked for"):
        assert what in text
