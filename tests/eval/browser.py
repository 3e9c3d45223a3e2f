"""What the tests of the report's page do in a browser."""


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
