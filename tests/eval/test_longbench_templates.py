"""Templates: lm-eval's route equals the official file on every real row; every source is checked by hash."""

import importlib.util
import json
import sys
from pathlib import Path

import huggingface_hub
import pytest

from eval import longbench
from eval.longbench import templates
from eval.longbench.official import TEMPLATE_SHA256
from eval.prompts import render
from eval.tasks import ROWS_E, TASKS, base_name
from selkv.errors import UserError


@pytest.fixture(autouse=True)
def own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SELKV_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def no_lm_eval(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "lm_eval", None)


@pytest.mark.skipif(importlib.util.find_spec("lm_eval") is None, reason=f"needs {templates.INSTALL}")
@pytest.mark.parametrize("e", [False, True])
def test_lm_eval_prompts_equal_the_official_file_on_every_real_row(shared: Path, e: bool) -> None:
    folder = shared / "longbench" / "data"
    official = json.loads((shared / "longbench" / "dataset2prompt.json").read_text(encoding="utf-8"))
    names = [name for name in (ROWS_E if e else TASKS) if (folder / f"{name}{'_e' * e}.jsonl").exists()]
    benchmark = longbench.load(names, path=str(folder), e=e)
    assert "prompts: lm-eval" in " ".join(benchmark.notes)
    rows = 0
    for dataset, samples in benchmark.samples.items():
        raw = (folder / f"{dataset}.jsonl").read_bytes().decode()
        for line, sample in zip((line for line in raw.split("\n") if line), samples, strict=True):
            expected = official[base_name(dataset)].format(**json.loads(line))
            assert render(sample, benchmark.prompts[dataset]).encode() == expected.encode()
            rows += 1
    assert rows == (239 if e else 265)


def test_facts_equal_the_official_ones(shared: Path) -> None:
    limits = json.loads((shared / "longbench" / "dataset2maxlen.json").read_text())
    assert limits == {name: task.max_new_tokens for name, task in TASKS.items()}
    assert json.loads((shared / "longbench" / "template_sha256.json").read_text()) == TEMPLATE_SHA256


def test_a_prompts_file_of_the_users(shared: Path, tmp_path: Path) -> None:
    file = shared / "longbench" / "dataset2prompt.json"
    official = json.loads(file.read_text(encoding="utf-8"))
    assert templates.read_templates(list(TASKS), str(file)).texts == official
    for content, words in (
        (json.dumps(official | {"lcc": official["lcc"].rstrip()}), "not the official template for lcc "),
        (json.dumps({"qasper": official["qasper"]}), "for lcc "),
        ("{", "not a JSON file"),
        ("[]", "not a JSON file of one template"),
    ):
        (tmp_path / "mine.json").write_text(content)
        with pytest.raises(UserError, match=words) as caught:
            templates.read_templates(["qasper", "lcc"], str(tmp_path / "mine.json"))
        assert "\n" not in str(caught.value)
    with pytest.raises(UserError, match="cannot read"):
        templates.read_templates(["qasper"], str(tmp_path / "none.json"))


@pytest.mark.usefixtures("no_lm_eval")
def test_the_download_is_checked_and_kept(shared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
    official = (shared / "longbench" / "dataset2prompt.json").read_bytes()
    (tmp_path / "bad.json").write_bytes(official.replace(b"Summary", b"summary"))
    with pytest.raises(UserError, match="not official: gov_report"):
        templates.read_templates(["gov_report"], url=(tmp_path / "bad.json").as_uri())
    assert not list((tmp_path / "cache").glob("**/*.json"))
    (tmp_path / "good.json").write_bytes(official)
    found = templates.read_templates(list(TASKS), url=(tmp_path / "good.json").as_uri())
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    assert templates.read_templates(list(TASKS), url="file:///nowhere") == found
    assert found.texts == json.loads(official)


@pytest.mark.usefixtures("no_lm_eval")
@pytest.mark.parametrize("offline", [True, False])
def test_without_any_source_one_line_says_what_to_run(
    offline: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", offline)
    with pytest.raises(UserError) as caught:
        templates.read_templates(["qasper"], url=(tmp_path / "none.json").as_uri())
    message = str(caught.value)
    assert "lm-eval is not installed" in message and f"Run: {templates.INSTALL}" in message and "\n" not in message
    assert ("HF_HUB_OFFLINE is set" if offline else "download of file:") in message


def test_lm_eval_with_other_texts_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "lm_eval" / "tasks" / "longbench"
    folder.mkdir(parents=True)
    (tmp_path / "lm_eval" / "__init__.py").touch()
    (folder / "qasper.yaml").write_text("doc_to_text: '{{context}} {{question}}'\nprocess_results: !function m.f\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "lm_eval", raising=False)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(UserError, match="not official: qasper"):
        templates.read_templates(["qasper"])
