"""The charts of the report in a real browser: legends, keyboard, scales, names."""

import pytest

from eval.plots.measures import numbers
from eval.report import write_report
from tests.eval.browser import choose, js, show
from tests.eval.simulate import simulate


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
