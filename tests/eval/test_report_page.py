"""The report in a real browser: what a reader does with it, and what a hostile prediction cannot do to it."""

from dataclasses import replace

import numpy as np
import pytest

from eval.plots.measures import numbers
from eval.report import write_report
from eval.report.page import page as html
from eval.report.payload import block
from tests.eval.browser import choose, column, js, show
from tests.eval.hostile import ARMS, HOSTILE
from tests.eval.simulate import simulate


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
