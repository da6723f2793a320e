"""A browser for tests of pages, where there is one."""

import shutil

import pytest

FLAGS = """
    --headless=new --no-sandbox --disable-gpu --disable-quic --no-first-run
    --disable-background-networking --disable-component-update --disable-sync
""".split()


@pytest.fixture(scope="session")
def driver(tmp_path_factory):
    """Chromium without a window; tests are skipped where it is not installed."""
    webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
    paths = {name: shutil.which(name) for name in ("chromium", "chromedriver")}
    if missing := [name for name, path in paths.items() if path is None]:
        pytest.skip(f"no {' and no '.join(missing)} here")
    options = webdriver.ChromeOptions()
    options.binary_location = paths["chromium"]
    for flag in (*FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('profile')}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    service = webdriver.ChromeService(paths["chromedriver"])
    driver = webdriver.Chrome(options, service)
    yield driver
    driver.quit()
