"""The report in a real browser: what a reader does with it, and what a hostile prediction cannot do to it."""

import json
import shutil
from dataclasses import replace

import numpy as np
import pytest

from eval.plots.measures import numbers
from eval.report import write_report
from eval.report.page import page as html
from eval.report.payload import block
from tests.eval.hostile import ARMS, HOSTILE, hostile_run
from tests.eval.simulate import simulate

FLAGS = (
    "headless no-sandbox disable-gpu disable-quic no-first-run disable-background-networking "
    "disable-component-update disable-sync disable-dev-shm-usage"
)


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


def show(browser, path, width, height, scheme="light"):
    screen = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", screen)
    media = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
    browser.get(path.as_uri())
    assert browser.execute_script("return document.documentElement.dataset.ready") == "true"


def js(browser, code, *arguments):
    return browser.execute_script(f"return {code}", *arguments)


def column(browser, index):
    """Text of a column of the table's body; 0 is the method."""
    return js(browser, "[...$('table').tBodies[0].rows].map(row => row.cells[arguments[0]].textContent)", index)


def choose(browser, name, value):
    js(browser, "$(arguments[0]).value = arguments[1]", name, value)
    js(browser, "$(arguments[0]).dispatchEvent(new Event('change', {bubbles: true}))", name)


def search_for(browser, text):
    from selenium.webdriver.support.ui import WebDriverWait

    js(browser, "browser.page = -1")  # until the search, which waits for the last key
    js(browser, "$('filter-text').value = arguments[0]", text)
    js(browser, "$('filter-text').dispatchEvent(new Event('input'))")
    WebDriverWait(browser, 5).until(lambda _: js(browser, "browser.page === 0"))


def count(browser):
    text = js(browser, "$('count').textContent")
    return int(text.rpartition(" ")[2].replace(",", "")) if " of " in text else 0


def test_sorting_by_a_column_and_back(page):
    button = "document.querySelector('#table button[data-sort=Avg]')"
    before = column(page, 1)
    js(page, f"{button}.click()")
    values = [float(text) for text in column(page, 1)]
    assert values == sorted(values, reverse=True) and values != [float(text) for text in before]
    assert js(page, f"{button}.parentElement.getAttribute('aria-sort')") == "descending"
    assert js(page, f"document.activeElement === {button}")
    js(page, f"{button}.click()")
    assert [float(text) for text in column(page, 1)] == sorted(values)
    assert js(page, f"{button}.parentElement.getAttribute('aria-sort')") == "ascending"


def test_table_filters_by_ratio_and_shows_groups_of_columns(page):
    choose(page, "table-ratio", "0.25")
    assert column(page, 0) == ["full", "snapkv0.25", "selkv0.25"]
    assert "KL divergence, nats" not in js(page, "$('table').tHead.textContent")
    js(page, "[...document.querySelectorAll('#groups button')].find(b => b.textContent === 'Fidelity').click()")
    assert "KL divergence, nats" in js(page, "$('table').tHead.textContent")


def test_rows_go_by_ratio_with_a_rule_between_ratios_and_marks_as_in_the_data(browser, tmp_path):
    arms = [("full", "1", 0.0), *((name, ratio, 0.0) for name in ("a", "b", "c") for ratio in ("0.25", "0.1"))]
    of = numbers(simulate(tmp_path / "x" / "m", ["qasper"], 3, arms))
    show(browser, write_report([of], tmp_path), 1280, 900)
    assert column(browser, 0) == ["full", "a0.1", "b0.1", "c0.1", "a0.25", "b0.25", "c0.25"]
    rules = "[...$('table').tBodies[0].rows].map(row => row.className)"
    assert js(browser, rules) == ["last", "", "", "last", "", "", ""]
    best = "[...$('table').tBodies[0].rows].map(row => row.cells[4].classList.contains('best'))"
    ranked = [block(of)["rows"][arm]["marks"].get("rank") == "best" for arm in (0, 2, 4, 6, 1, 3, 5)]
    assert js(browser, best) == ranked and any(ranked)


def test_intervals_appear_on_hover_and_on_focus_and_arrow_keys_move(page, data):
    from selenium.webdriver.common.action_chains import ActionChains
    from selenium.webdriver.common.keys import Keys

    cell = page.find_element("css selector", "#table tbody tr:nth-child(2) td:nth-child(2)")
    ActionChains(page).move_to_element(cell).perform()
    mean, low, high, _ = data["rows"][1]["average"]
    assert f"Avg: {mean:.2f} [{low:.2f}, {high:.2f}]" in js(page, "$('tip').textContent")
    stops = js(page, "document.querySelectorAll('#table tbody [tabindex=\"0\"]').length")
    assert stops == 1
    js(page, "document.querySelector('#table tbody [tabindex=\"0\"]').focus()")
    ActionChains(page).send_keys(Keys.ARROW_DOWN, Keys.ARROW_RIGHT, Keys.ARROW_RIGHT).perform()
    assert js(page, "document.activeElement.cellIndex") == 3
    assert "paired interval" in js(page, "$('tip').textContent") and not js(page, "$('tip').hidden")
    ActionChains(page).send_keys(Keys.ESCAPE).perform()
    assert js(page, "$('tip').hidden")


def test_a_scroll_hides_the_tip_of_the_pointer_but_not_that_of_the_focus(page):
    """Focus scrolls its element into view: the event comes a frame later, as does a move of the resting pointer."""
    from selenium.webdriver.common.action_chains import ActionChains
    from selenium.webdriver.common.keys import Keys

    scroll = "document.dispatchEvent(new Event('scroll'))"
    first, other = (
        page.find_element("css selector", f"#table tbody tr:nth-child({row}) td:nth-child(2)") for row in (1, 3)
    )
    ActionChains(page).move_to_element(other).perform()
    assert js(page, f"{scroll} && $('tip').hidden")
    js(page, "arguments[0].focus()", first)
    ActionChains(page).send_keys(Keys.ARROW_DOWN).perform()
    text = js(page, "$('tip').textContent")
    rest = "new PointerEvent('pointermove', {bubbles: true, screenX: 5, screenY: 5})"
    js(page, f"document.body.dispatchEvent({rest}) && arguments[0].dispatchEvent({rest})", other)
    js(page, "arguments[0].dispatchEvent(new PointerEvent('pointerleave'))", other)
    assert js(page, f"{scroll} && !$('tip').hidden") and js(page, "$('tip').textContent") == text


def test_plots_are_drawn_and_answer_to_legend_and_keyboard(page):
    from selenium.webdriver.common.action_chains import ActionChains
    from selenium.webdriver.common.keys import Keys

    for host in ("forest", "sweep", "layers-chart", "budget"):
        assert js(page, "$(arguments[0]).querySelectorAll('svg').length", host) == 1, host
    assert js(page, "$('multiples').querySelectorAll('svg').length") == 4
    lines = js(page, "document.querySelectorAll('#sweep g .mark').length")
    js(page, "[...document.querySelectorAll('#plots .legend button')].find(b => b.textContent === 'selkv').click()")
    page.execute_async_script("requestAnimationFrame(() => requestAnimationFrame(arguments[0]))")
    assert js(page, "document.querySelectorAll('#sweep g .mark').length") == lines - 2
    js(page, "document.querySelector('#sweep svg').focus()")
    ActionChains(page).send_keys(Keys.ARROW_RIGHT).perform()
    assert js(page, "$('live').textContent").startswith("snapkv\nratio 0.1")


def test_legends_have_a_full_button_only_where_full_has_a_line(page):
    shown = "[...$(arguments[0]).querySelectorAll('.legend button:not([hidden])')].map(b => b.textContent)"
    assert js(page, shown, "plots") == ["full", "snapkv", "selkv"] and js(page, shown, "layers") == ["snapkv", "selkv"]
    choose(page, "measure", "1")  # a fidelity: the full cache has none
    assert js(page, shown, "plots") == ["snapkv", "selkv"]


def test_budgets_have_one_scale_and_every_name_fits(browser, tmp_path):
    arms = [("full", "1", 0.0), *(("selkv a_name_that_is=much_too_long", ratio, 0.0) for ratio in ("0.1", "0.25"))]
    show(browser, write_report([numbers(simulate(tmp_path / "x" / "m", ["qasper"], 3, arms))], tmp_path), 1280, 900)
    drawn = "execute => requestAnimationFrame(() => requestAnimationFrame(execute))"
    shade = "Number(document.querySelector('#budget rect').getAttribute('fill-opacity'))"
    shades = []
    for ratio in ("0.1", "0.25"):
        choose(browser, "layers-ratio", ratio)
        browser.execute_async_script(f"({drawn})(arguments[0])")
        shades.append(js(browser, shade))
    assert shades == pytest.approx([0.06 + 0.94 * 0.1, 0.06 + 0.94 * 0.25], abs=2e-3)
    for width in (1280, 420):
        show(browser, tmp_path / "report.html", width, 900)
        browser.execute_async_script(f"({drawn})(arguments[0])")
        left = "[...document.querySelectorAll('#budget .name, #forest .name')].map(n => n.getBoundingClientRect().left)"
        edge = js(browser, "$('budget').getBoundingClientRect().left")
        assert min(js(browser, left)) >= edge - 1, width


def test_long_ids_that_differ_at_their_end_look_different(browser, run, tmp_path):
    records = {key: replace(r, id=f"{'x' * 80}{r.index:03d}") for key, r in run.records.items()}
    show(browser, write_report([numbers(replace(run, records=records))], tmp_path), 1280, 900)
    ends = "[...document.querySelectorAll('#list .end')].map(end => end.textContent)"
    assert js(browser, ends)[:2] == ["xxxxxxx000", "xxxxxxx001"]
    inside = "end => end.scrollWidth <= end.clientWidth + 1 || getComputedStyle(end).display === 'inline'"
    assert js(browser, f"[...document.querySelectorAll('#list .end')].every({inside})")


def test_samples_filter_by_task_method_ratio_and_loss(page, data):
    assert count(page) == 80
    choose(page, "filter-task", "0")
    assert count(page) == 20
    choose(page, "filter-task", "")
    choose(page, "filter-method", "2")  # selkv
    choose(page, "filter-ratio", "0.25")
    js(page, "$('filter-lost').click()")
    score = np.array(data["cells"]["score"], dtype=float).reshape(80, len(ARMS))
    change = score[:, 4] - score[:, 0]
    lost = np.flatnonzero(change < 0)
    assert count(page) == len(lost) > 0
    choose(page, "filter-order", "loss")
    worst = int(np.nanargmin(change))
    assert js(page, "Number(document.querySelector('#list button').dataset.sample)") == worst
    cards = js(page, "[...document.querySelectorAll('.answers h3')].map(h => h.firstChild.textContent)")
    assert cards == ["full", "selkv · 0.25"]


def test_failed_cells_can_be_found_and_show_their_error(page):
    js(page, "$('filter-failed').click()")
    assert count(page) == 1
    assert "simulated failure" in js(page, "document.querySelector('.answers .error').textContent")


def test_search_looks_into_questions_and_predictions(page):
    search_for(page, "case 7 of trec")
    assert count(page) == 1
    search_for(page, "ONERROR=")
    assert count(page) == 1
    search_for(page, "no such text")
    assert count(page) == 0 and "Nothing matches" in js(page, "$('detail').textContent")


def test_hostile_text_is_shown_as_text(page):
    search_for(page, "onerror")
    js(page, "document.querySelector('#show-diff').click()")
    shown = js(page, "[...document.querySelectorAll('.prediction')].map(p => p.textContent)")
    assert HOSTILE in shown
    assert js(page, "document.querySelector('.text-block').textContent") == HOSTILE
    assert js(page, "document.querySelectorAll('#detail script, #detail img, #list script, #list img').length") == 0
    js(page, "document.querySelector('#show-diff').click()")
    kept = "[...document.querySelectorAll('.prediction')[1].childNodes].filter(node => node.nodeName !== 'DEL')"
    assert js(page, f"{kept}.map(node => node.textContent).join('')") == HOSTILE


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ("one two three", "one two three", [["=", "one two three"]]),
        ("one two three", "one 2 three", [["=", "one "], ["-", "two"], ["+", "2"], ["=", " three"]]),
        ("", "new", [["+", "new"]]),
        ("a b c d", "x y c d", [["-", "a b"], ["+", "x y"], ["=", " c d"]]),
        ("他在北京", "她在北京", [["-", "他"], ["+", "她"], ["=", "在北京"]]),
    ],
)
def test_differences_by_word(page, before, after, expected):
    assert js(page, "difference(arguments[0], arguments[1])", before, after) == expected


def test_pages_of_samples_and_arrow_keys_in_the_list(page):
    from selenium.webdriver.common.action_chains import ActionChains
    from selenium.webdriver.common.keys import Keys

    assert js(page, "$('count').textContent") == "1–25 of 80" and js(page, "$('previous').disabled")
    for _ in range(3):
        js(page, "$('next').click()")
    assert js(page, "$('count').textContent") == "76–80 of 80" and js(page, "$('next').disabled")
    js(page, "document.querySelector('#list button').focus()")
    ActionChains(page).send_keys(Keys.ARROW_DOWN, Keys.ENTER).perform()
    assert js(page, "document.activeElement.getAttribute('aria-current')") == "true"
    assert (
        js(page, "document.querySelector('#detail h3').textContent") == "passage_retrieval_en · passage_retrieval_en-16"
    )


def test_dark_follows_the_system_and_the_button(page, path):
    background = "getComputedStyle(document.body).backgroundColor"
    light = js(page, background)
    js(page, "$('theme').click()")
    dark = js(page, background)
    assert js(page, "$('theme').getAttribute('aria-pressed')") == "true" and dark != light
    show(page, path, 1280, 900, scheme="dark")
    assert js(page, background) == dark
    js(page, "$('theme').click()")
    assert js(page, background) == light


def test_a_phone_scrolls_down_only(page, path):
    show(page, path, 390, 844)
    assert js(page, "document.documentElement.scrollWidth") == 390
    assert js(page, "$('table-box').scrollWidth > $('table-box').clientWidth")  # the table scrolls in its own box
    js(page, "document.querySelector('#list button').click()")
    assert js(page, "document.activeElement.id") == "detail"


def test_every_control_has_a_name_and_can_be_reached(page):
    controls = "[...document.querySelectorAll('button, select, input')]"
    unnamed = "!(c.getAttribute('aria-label') || c.textContent.trim() || c.labels?.length)"
    assert js(page, f"{controls}.filter(c => {unnamed}).map(c => c.outerHTML)") == []
    assert js(page, "[...document.querySelectorAll('[tabindex]')].filter(node => node.tabIndex > 0).length") == 0


def test_a_run_can_be_chosen_where_there_are_several(browser, run, tmp_path):
    other = simulate(tmp_path / "x" / "other", ["qasper"], 3, ARMS[:2], fidelity=False)
    show(browser, write_report([numbers(run), numbers(other)], tmp_path), 1280, 900)
    choose(browser, "block", "1")
    assert column(browser, 0) == ["full", "snapkv0.1"] and count(browser) == 3
    assert js(browser, "$('sweep-figure').hidden")
    assert browser.get_log("browser") == []


def test_20_000_records_load_in_three_seconds_and_answer_at_once(browser, data, tmp_path):
    times = 50
    cells = {name: column * times for name, column in data["cells"].items() if name != "more"}
    more = {name: column * times for name, column in data["cells"]["more"].items()}
    large = data | {"samples": data["samples"] * times, "cells": cells | {"more": more}}
    assert len(cells["score"]) == 20_000
    path = tmp_path / "report.html"
    path.write_text(html([large], "large"), encoding="utf-8")
    show(browser, path, 1280, 900)
    assert js(browser, "performance.getEntriesByType('navigation')[0].domContentLoadedEventEnd") < 3000
    browser.execute_script("window.start = performance.now(); $('filter-text').value = 'umbra'; search()")
    assert js(browser, "performance.now() - window.start") < 1000
    assert count(browser) >= 50 and js(browser, "$('list').children.length") == 25
