"""A person judges changed queries by keyboard, and the answers give a verdict."""

import json
import time

import numpy as np
import pytest
import torch
from PIL import Image

import nobackfill as nb

pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
from selenium.webdriver.common.action_chains import ActionChains  # noqa: E402
from selenium.webdriver.common.by import By  # noqa: E402
from selenium.webdriver.common.keys import Keys  # noqa: E402

CLASSES = np.arange(240) % 60  # known to the person, not to the files
KEYS = ["12345", "67890"]  # of the left and of the right results


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Vectors without labels, by a better new model: with pictures, with texts, with neither."""
    folder = tmp_path_factory.mktemp("judging")
    pictures = [folder / f"{row}.png" for row in range(240)]
    for path, number in zip(pictures, CLASSES, strict=True):
        Image.new("RGB", (48, 30 + number), (4 * int(number), 90, 160)).save(path)
    columns = {
        "pictures": {"path": np.array(list(map(str, pictures)))},
        "texts": {"text": np.array([f"a text about {number} <b>" for number in CLASSES])},
        "ids": {},
    }
    centre = torch.randn(60, 16, generator=torch.Generator().manual_seed(0))[CLASSES]
    for seed, noise, side in ((1, 1.4, "old"), (2, 0.6, "new")):
        values = torch.randn(centre.shape, generator=torch.Generator().manual_seed(seed))
        for kind, values_of in columns.items():
            vectors = nb.Vectors(np.arange(240), centre + noise * values, columns=values_of)
            vectors.save(folder / f"{kind} {side}.parquet")
    return folder


@pytest.fixture
def command(nobackfill, folder):
    """Runs `nobackfill evaluate` on the files of a kind."""

    def run(kind, *arguments, command="evaluate"):
        sides = ["--old", folder / f"{kind} old.parquet", "--new", folder / f"{kind} new.parquet"]
        return nobackfill(command, *sides, "--device", "cpu", *arguments)

    return run


@pytest.fixture
def open_page(command, driver, folder):
    """Opens the page that the command wrote, with nothing judged."""

    def write_and_open(kind, width=1280, height=900):
        page = folder / f"{kind}.html"
        if not page.exists():
            code, _, _ = command(kind, "--report", page)
            assert code == 3
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        downloads = {"behavior": "allow", "downloadPath": str(folder)}
        driver.execute_cdp_cmd("Browser.setDownloadBehavior", downloads)
        driver.get(page.as_uri())
        driver.execute_script("localStorage.clear()")
        driver.get_log("browser")
        driver.refresh()
        return driver

    yield write_and_open
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "screen", "features": []})
    driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def press(browser, *keys):
    """Presses keys, whatever has the focus."""
    ActionChains(browser).send_keys(*keys).perform()


def one(browser, selector):
    return browser.find_element(By.CSS_SELECTOR, selector)


def shown(browser):
    """Ids of the query and of the results on the left and on the right."""
    return browser.execute_script("""
        const ids = (root) => [...root.querySelectorAll("[title]")].map((part) => part.title);
        const [left, right] = document.querySelectorAll(".judge-sides ol");
        return [ids(document.querySelector(".judge-query"))[0], ids(left), ids(right)];
    """)


def count(browser):
    return one(browser, ".judge-count").text


def marked(browser):
    return browser.execute_script("""
        return [...document.querySelectorAll(".judge-sides [aria-pressed=true]")]
            .map((button) => button.dataset.key).join("");
    """)


def judge_by_classes(browser):
    """Marks the results of the query's class and chooses the side with more; returns the choice."""
    query, *sides = shown(browser)
    hits = [[CLASSES[int(item)] == CLASSES[int(query)] for item in side] for side in sides]
    right = {}
    for side, keys, marks in zip(sides, KEYS, hits, strict=True):
        right |= {item: key for item, key, mark in zip(side, keys, marks, strict=True) if mark}
    gain = sum(hits[1]) - sum(hits[0])
    arrow = Keys.ARROW_RIGHT if gain > 0 else Keys.ARROW_LEFT if gain < 0 else "="
    press(browser, *right.values(), arrow)
    preferred = sides[int(gain > 0)] if gain else None
    return {"query": query, "relevant": set(right), "preferred": preferred}


def saved(folder, name):
    """The lines of a file that the browser downloads."""
    for _ in range(100):
        if (path := folder / name).exists() and not list(folder.glob("*.crdownload")):
            return [json.loads(line) for line in path.read_text().splitlines()]
        time.sleep(0.05)
    raise AssertionError(f"{name} was not saved: {sorted(path.name for path in folder.iterdir())}")


def test_a_person_judges_by_keyboard_alone_and_gets_a_verdict(open_page, command, folder):
    browser = open_page("pictures")
    choices = [judge_by_classes(browser) for _ in range(3)]

    # undo: a wrong answer, then a wrong mark
    before = shown(browser)
    press(browser, " ")
    assert count(browser) == "4 of 50 judged"
    press(browser, "z")
    assert (count(browser), shown(browser)) == ("3 of 50 judged", before)
    press(browser, "3")
    assert "3" in marked(browser)
    press(browser, Keys.BACKSPACE)
    assert marked(browser) == ""

    # progress survives a reload
    choices += [judge_by_classes(browser) for _ in range(10)]
    press(browser, "6")
    here = shown(browser)
    browser.refresh()
    assert count(browser) == "13 of 50 judged"
    assert shown(browser) == here
    assert "6" in marked(browser)
    press(browser, "6")

    # the end, and the file
    choices += [judge_by_classes(browser) for _ in range(37)]
    assert count(browser) == "50 of 50 judged"
    assert "Press s to save" in one(browser, ".judge-done").text
    assert not one(browser, ".judge-sides").is_displayed()
    press(browser, "s")
    lines = saved(folder, "pictures.answers.jsonl")
    assert "Saved 50 answers as pictures.answers.jsonl" in one(browser, ".judge-saved").text
    for line, choice in zip(lines, choices, strict=True):
        assert line["query"] == choice["query"]
        assert set(line["relevant"]) == choice["relevant"]
        chosen = None if line["preferred"] == "equal" else line[line["preferred"]]
        assert chosen == choice["preferred"]
    assert browser.get_log("browser") == []

    # the same command gives a verdict, on which the labels agree
    answers = ["--pairs", folder / "pictures.answers.jsonl"]
    code, out, _ = command("pictures", *answers, "--require-compatible", "--json")
    facts = json.loads(out)
    assert (code, facts["verdict"], facts["compatible"]) == (0, "compatible", True)
    assert facts["judgements"]["judged"] == 50
    preferred = [line["preferred"] for line in lines]
    limits = {"better": "after", "worse": "before"}  # dependent queries count once
    assert all(facts["preference"][key] <= preferred.count(limits[key]) for key in limits)
    assert facts["preference"]["better"] > 2 * facts["preference"]["worse"]
    out = command("pictures", *answers)[1]
    assert out.startswith("Compatible: New results are better for ")
    assert len(out.splitlines()) <= 25
    old, new = (nb.load_vectors(folder / f"pictures {side}.parquet") for side in ("old", "new"))
    assert nb.evaluate(old, new, labels=CLASSES).verdict == "compatible"


def test_the_new_model_is_on_a_random_side(open_page, command, folder):
    browser = open_page("ids")
    sides = []
    for change in json.loads((folder / "ids.json").read_text())["sample"]:
        query, left, right = shown(browser)
        before, after = (list(map(str, change[side])) for side in ("before", "after"))
        assert query == str(change["query"])
        assert (left, right) in ((before, after), (after, before))
        sides.append(left == after)
        press(browser, Keys.ARROW_LEFT)
    assert 15 <= sum(sides) <= 35
    # a person who always prefers the left side decides nothing
    press(browser, "s")
    saved(folder, "ids.answers.jsonl")
    code, out, _ = command("ids", "--pairs", folder / "ids.answers.jsonl", "--require-compatible")
    assert (code, out.split(":")[0]) == (3, "Undecided")


@pytest.mark.parametrize("kind", ["pictures", "texts", "ids"])
@pytest.mark.parametrize(("width", "height"), [(1280, 800), (400, 800)])
def test_everything_that_a_person_needs_is_in_view(open_page, kind, width, height):
    browser = open_page(kind, width, height)
    press(browser, "1")
    assert browser.execute_script("return document.scrollingElement.scrollWidth") <= width
    for selector in (".judge-count", ".judge-query", ".judge-keys"):
        box = browser.execute_script(
            "return document.querySelector(arguments[0]).getBoundingClientRect()", selector
        )
        assert 0 <= box["top"] < box["bottom"] <= height, selector
    results = browser.find_elements(By.CSS_SELECTOR, ".judge-sides li")
    if (kind, width) != ("texts", 400):  # long texts scroll below the keys
        assert all(part.rect["height"] < height / 4 for part in results)
    images = browser.find_elements(By.CSS_SELECTOR, ".judge img")
    assert len(images) == (11 if kind == "pictures" else 0)
    assert all(image.get_property("naturalWidth") > 20 for image in images)
    if kind == "texts":
        assert "a text about" in results[0].text
        assert "<b>" in results[0].text


def test_each_key_is_shown_and_each_button_works_with_the_focus(open_page):
    browser = open_page("texts")
    keys = "1 2 3 4 5 6 7 8 9 0 ← = → z s".split()
    hints = [part.text for part in browser.find_elements(By.CSS_SELECTOR, ".judge button kbd")]
    assert hints == keys
    # Tab reaches the first result; Enter marks it, and it keeps the focus
    while browser.switch_to.active_element.get_attribute("data-key") != "1":
        press(browser, Keys.TAB)
    outline = browser.switch_to.active_element.value_of_css_property("outline-width")
    assert float(outline.removesuffix("px")) >= 2
    press(browser, Keys.ENTER)
    assert "1" in marked(browser)
    assert browser.switch_to.active_element.get_attribute("data-key") == "1"
    press(browser, " ")
    assert marked(browser) == ""
    assert count(browser) == "0 of 50 judged", "the space bar pressed the button alone"


def test_keys_for_the_browser_are_left_alone(open_page):
    browser = open_page("ids")
    press(browser, "q", "z", Keys.ARROW_DOWN, "s")
    assert count(browser) == "0 of 50 judged"
    assert one(browser, ".judge-saved").text == "Nothing is judged yet."
    press(browser, "=")
    ActionChains(browser).key_down(Keys.CONTROL).send_keys("z").key_up(Keys.CONTROL).perform()
    assert count(browser) == "1 of 50 judged"


def test_dark_where_the_system_is_dark(open_page):
    browser = open_page("ids")

    def colors():
        return [
            one(browser, ".judging").value_of_css_property("background-color"),
            one(browser, ".judge-query").value_of_css_property("color"),
        ]

    light = colors()
    features = [{"name": "prefers-color-scheme", "value": "dark"}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "screen", "features": features})
    assert all(a != b for a, b in zip(light, colors(), strict=True))


def test_an_assessment_is_judged_in_the_same_way(open_page, command, driver, folder):
    page = folder / "assessment.html"
    code, out, _ = command("ids", "--report", page, command="assess")
    assert (code, out.split(":")[0]) == (3, "Inconclusive")
    open_page("ids")
    driver.get(page.as_uri())
    for _ in range(50):
        judge_by_classes(driver)
    press(driver, Keys.ENTER)
    saved(folder, "assessment.answers.jsonl")
    answers = ["--pairs", folder / "assessment.answers.jsonl"]
    code, out, _ = command("ids", *answers, "--json", command="assess")
    assert (code, json.loads(out)["verdict"]) == (0, "upgrade with head")
