"""The Python examples of docs/integrations.md run as they stand, on a tiny model in the place of the named one."""

import re
from pathlib import Path

from tests.models import build
from tests.tokenizer import words

PAGE = Path(__file__).resolve().parents[2] / "docs" / "integrations.md"


def test_examples_run(tmp_path):
    build("llama").save_pretrained(tmp_path)
    words().save_pretrained(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL)
    assert len(blocks) == 6
    code = "\n".join(blocks).replace("HuggingFaceTB/SmolLM2-135M-Instruct", str(tmp_path))
    # the tiny tokenizer knows no English
    code = re.sub(r'"(A long|And who|Who wrote| Who wrote)[^"]*"', '"w9 w10 w11 w40 w41 w42 w50 w51"', code)
    found: dict[str, object] = {}
    exec(compile(code, str(PAGE), "exec"), found)
    assert found["output"].shape[1] > 8
