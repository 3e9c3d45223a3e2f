"""The report as one file: data, styles and scripts inside, nothing to load; the same bytes for the same records."""

import base64
import hashlib
import html
import json
import re
from collections.abc import Sequence
from importlib.resources import files
from typing import Any

from eval.plots.style import BLUE, PALETTE

SCRIPTS = ("base.js", "diff.js", "charts.js", "table.js", "plots.js", "samples.js", "main.js")
ON_DARK = {BLUE: "#3D9BE0"}  # the palette's blue is too dark for a dark page


def page(blocks: Sequence[dict[str, Any]], title: str) -> str:
    """HTML of the report.

    Parameters
    ----------
    blocks : sequence of dict
        One a run (`eval.report.payload.block`).
    title : str
        Heading of the page.

    Notes
    -----
    The policy allows this file's own style and script by their hashes and nothing else: no request leaves the page,
    and a script that hides in a model's text could not run even if it escaped its text node.
    """
    style = _palette() + _asset("style.css")
    script = "".join(_asset(name) for name in SCRIPTS)
    policy = (
        f"default-src 'none'; style-src '{_hash(style)}'; script-src '{_hash(script)}'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
    parts = {
        "policy": policy,
        "title": html.escape(title),
        "style": style,
        "script": script,
        "data": embedded({"blocks": list(blocks)}),
    }
    return re.sub(r"\{\{(\w+)\}\}", lambda match: parts[match[1]], _asset("template.html"))


def embedded(data: dict[str, Any]) -> str:
    """JSON that cannot end its script element: every ``<`` is written as an escape, as are ``>`` and ``&``."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def _asset(name: str) -> str:
    return (files("eval.report") / "assets" / name).read_text(encoding="utf-8")


def _palette() -> str:
    light = "".join(f".c{i}{{--c:{color}}}" for i, color in enumerate(PALETTE))
    dark = "".join(f'[data-theme="dark"] .c{PALETTE.index(c)}{{--c:{shade}}}' for c, shade in ON_DARK.items())
    return f"\n{light}{dark}\n"


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
