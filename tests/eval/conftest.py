"""The report of a hostile run, open in a real browser."""

import json
import shutil

import pytest

from eval.plots.measures import numbers
from eval.report import write_report
from eval.report.payload import block
from tests.eval.browser import show
from tests.eval.hostile import hostile_run


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return hostile_run(tmp_path_factory.mktemp("run"))


@pytest.fixture(scope="module")
def data(run):
    return block(numbers(run, "snapkv"))


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    binary, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if not binary or not driver:
        pytest.skip("needs Chromium and ChromeDriver (Debian: chromium, chromium-driver)")
    selenium = pytest.importorskip("selenium.webdriver", reason="needs the package selenium")
    from selenium.webdriver.chrome.service import Service

    options = selenium.ChromeOptions()
    options.binary_location = binary
    flags = "headless no-sandbox disable-gpu disable-quic no-first-run disable-background-networking"
    flags += (
        f" disable-component-update disable-sync disable-dev-shm-usage user-data-dir={tmp_path_factory.mktemp('user')}"
    )
    for flag in flags.split():
        options.add_argument(f"--{flag}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    chrome = selenium.Chrome(options=options, service=Service(driver))
    chrome.get("about:blank")
    chrome.get_log("performance")  # what the browser's own start page asked for
    yield chrome
    chrome.quit()


@pytest.fixture(scope="module")
def path(run, tmp_path_factory):
    return write_report([numbers(run, "snapkv")], tmp_path_factory.mktemp("report"))


@pytest.fixture
def page(browser, path):
    """The page as a desktop shows it; afterwards: nothing on the console, nothing requested."""
    show(browser, path, 1280, 900)
    yield browser
    assert browser.get_log("browser") == []
    events = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    urls = [e["params"]["request"]["url"] for e in events if e["method"] == "Network.requestWillBeSent"]
    assert urls and all(url.startswith(("file://", "data:")) for url in urls), urls
    assert browser.execute_script("return window.broken") is None
