"""Rows and files: real data untouched, every kind of bad file told in one line, the order of places."""

import hashlib
import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from eval import longbench
from eval.longbench import files
from eval.longbench.official import HUB_IDS
from eval.longbench.rows import parse
from eval.longbench.templates import Templates
from eval.tasks import CATEGORIES, ENGLISH, ROWS_E, TASKS, base_name
from selkv.errors import UserError


def row(index: int = 0, **changes: Any) -> dict[str, Any]:
    fields = {
        "input": "Who?",
        "context": f"Text {index}.\r\n\n",
        "answers": ["Ada"],
        "length": 100 + index,
        "dataset": "hotpotqa",
        "language": "en",
        "all_classes": None,
        "_id": f"id{index}",
    }
    return fields | changes


def lines(*rows: dict[str, Any]) -> bytes:
    return "".join(json.dumps(item, ensure_ascii=False) + "\n" for item in rows).encode()


def without(name: str) -> dict[str, Any]:
    return {key: value for key, value in row(1).items() if key != name}


@pytest.fixture(autouse=True)
def nothing_outside(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SELKV_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("SELKV_LONGBENCH", raising=False)
    monkeypatch.setattr(
        longbench, "read_templates", lambda names, _: Templates(dict.fromkeys(names, "{context}{input}"), "test")
    )


GOOD = lines(row(0), row(1))
BAD = {
    "empty file": (b"", 1, "empty"),
    "only white space": (b"\n \n", 1, "empty"),
    "lfs pointer": (b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 9\n", 1, "Git LFS pointer"),
    "truncated last line": (GOOD + lines(row(2))[:40], 3, "truncated last line"),
    "cut inside a character": (GOOD + '{"input": "é'.encode()[:-1], 3, "truncated last line"),
    "not json": (b"<html>\n" + GOOD, 1, "not a JSON object"),
    "not utf-8": (GOOD + b'{"input": "\xff"}\n', 3, "not UTF-8 at byte 11"),
    "half a character": (GOOD + rb'{"input": "\ud83d"}' + b"\n", 3, "half a character"),
    "not an object": (GOOD + b"[1]\n", 3, "not list"),
    "duplicate ids": (GOOD + b"\n" + lines(row(0)), 4, "duplicate _id 'id0', first seen on line 1"),
    "question": (lines(row(question="Question: Who?")), 1, "pre-formatted mirror (field question)"),
    "answer prefix": (lines(without("input") | {"answer_prefix": "Answer:"}), 1, "pre-formatted mirror"),
    "other task": (lines(row(dataset="qasper")), 1, "dataset must be 'hotpotqa', not \"qasper\""),
    "e suffix": (lines(row(dataset="hotpotqa_e")), 1, "dataset must be 'hotpotqa'"),
    "input": (lines(row(), row(1, input=None)), 2, "input must be a string, not null"),
    "context": (lines(row(context=["a"])), 1, "context must be a string"),
    "length text": (lines(row(length="100")), 1, 'length must be a whole number, not "100"'),
    "length bool": (lines(row(length=True)), 1, "length must be a whole number, not true"),
    "length negative": (lines(row(length=-1)), 1, "length must be a whole number"),
    "answers text": (lines(row(answers="Ada")), 1, "answers must be a list"),
    "answers empty": (lines(row(answers=[])), 1, "answers must be a list of at least one string"),
    "answers number": (lines(row(answers=[1])), 1, "answers must be a list"),
    "classes": (lines(row(all_classes=["a"])), 1, "all_classes must be null"),
    "id": (lines(row(_id=7)), 1, "_id must be a string or null, not 7"),
} | {
    f"missing {name}": (lines(row(0), without(name)), 2, f"missing field {name}")
    for name in ("input", "context", "answers", "length", "dataset", "language", "all_classes", "_id")
}


@pytest.mark.parametrize("kind", BAD)
def test_a_bad_file_is_one_clear_line_with_file_and_line_number(kind: str, tmp_path: Path) -> None:
    content, number, words = BAD[kind]
    file = tmp_path / "hotpotqa.jsonl"
    file.write_bytes(content)
    with pytest.raises(UserError) as caught:
        longbench.load("hotpotqa", path=str(tmp_path))
    message = str(caught.value)
    assert message.startswith(f"{file}:{number}: ") and words in message and "\n" not in message, message
    assert "data.zip again" not in message, "the user's own file is in no zip"


def test_the_fix_is_that_of_the_file_s_owner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bad = lines(row(answers="Ada"))
    (tmp_path / "hotpotqa.jsonl").write_bytes(bad)
    with pytest.raises(UserError, match=r"Correct that row: .* answers \(a list of texts\)"):
        longbench.load("hotpotqa", path=str(tmp_path))
    with pytest.raises(UserError, match=r"LongBench's data\.zip again"):
        monkeypatch.setenv("SELKV_LONGBENCH", str(tmp_path))
        longbench.load("hotpotqa")


@pytest.mark.parametrize(
    ("dataset", "answer"),
    [("passage_retrieval_en", "12"), ("passage_retrieval_zh", "Paragraph 3"), ("passage_count", "twelve")],
)
def test_answers_that_the_metric_cannot_read_are_told_before_the_run(dataset: str, answer: str) -> None:
    with pytest.raises(UserError, match=f"f:1: field answers must .*, not '{answer}'"):
        parse(lines(row(dataset=dataset, answers=[answer])), dataset, "f")


def test_classification_tasks_need_their_classes() -> None:
    assert parse(lines(row(dataset="trec", all_classes=["a", "b"])), "trec", "f")[0].all_classes == ("a", "b")
    for classes in (None, [], [1]):
        with pytest.raises(UserError, match="f:1: field all_classes must be a list of class names"):
            parse(lines(row(dataset="trec", all_classes=classes)), "trec", "f")


def test_texts_are_untouched_and_only_newline_ends_a_line() -> None:
    odd = "\r\n tab\t\u2028line separator\u0085next\x0b\x0c end \n"
    content = lines(row(context=odd, input="Answer:\n")).replace(b"}\n", b"}\r\n")
    (sample,) = parse(content, "hotpotqa", "f")
    assert (sample.context, sample.input) == (odd, "Answer:\n")


def test_null_ids_are_named_by_position_and_are_no_duplicates() -> None:
    samples = parse(lines(row(_id=None), row(1), row(2, _id=None)), "hotpotqa", "f")
    assert [sample.id for sample in samples] == ["hotpotqa-0", "id1", "hotpotqa-2"]
    assert [sample.index for sample in samples] == [0, 1, 2]


def test_a_whole_last_row_without_newline_is_whole() -> None:
    assert len(parse(GOOD.rstrip(b"\n"), "hotpotqa", "f")) == 2


@pytest.mark.parametrize("e", [False, True])
def test_real_rows_are_read_as_they_are(shared: Path, e: bool) -> None:
    folder = shared / "longbench" / "data"
    names = [name for name in (ROWS_E if e else TASKS) if (folder / f"{name}{'_e' * e}.jsonl").exists()]
    benchmark = longbench.load(names, path=str(folder), e=e)
    assert len(benchmark.samples) == (12 if e else 21)
    for dataset, samples in benchmark.samples.items():
        raw = (folder / f"{dataset}.jsonl").read_bytes()
        rows = [json.loads(line) for line in raw.decode().split("\n") if line]
        assert [(s.input, s.context, list(s.answers), s.length, s.language) for s in samples] == [
            (r["input"], r["context"], r["answers"], r["length"], r["language"]) for r in rows
        ]
        assert benchmark.sources[dataset] == hashlib.sha256(raw).hexdigest()
        assert benchmark.expected[dataset] == (ROWS_E if e else {t: TASKS[t].rows for t in TASKS})[base_name(dataset)]
        assert any(f"{dataset}: the file has {len(rows)} rows" in note for note in benchmark.notes)


def as_file(folder: Path) -> Path:
    (folder / "hotpotqa.jsonl").write_bytes(GOOD)
    return folder / "hotpotqa.jsonl"


def as_folder(folder: Path) -> Path:
    return as_file(folder).parent


def as_data_folder(folder: Path) -> Path:
    (folder / "data").mkdir()
    return as_file(folder / "data").parent.parent


def as_zip(folder: Path, member: str = "data/hotpotqa.jsonl") -> Path:
    with zipfile.ZipFile(folder / "data.zip", "w") as archive:
        archive.writestr(member, GOOD)
    return folder / "data.zip"


def as_flat_zip(folder: Path) -> Path:
    return as_zip(folder, "hotpotqa.jsonl")


def as_folder_with_zip(folder: Path) -> Path:
    return as_zip(folder).parent


PLACES = [as_file, as_folder, as_data_folder, as_zip, as_flat_zip, as_folder_with_zip]


@pytest.mark.parametrize("make", PLACES)
def test_places_that_hold_a_file(make: Callable[[Path], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = make(tmp_path)
    assert files.read(files.locate(["hotpotqa"], str(place)).path, "hotpotqa").data == GOOD
    monkeypatch.setenv("SELKV_LONGBENCH", str(place))
    assert files.locate(["hotpotqa"]).path == place


def test_the_cache_comes_before_the_hub(tmp_path: Path) -> None:
    cache = tmp_path / "cache" / "longbench"
    cache.mkdir(parents=True)
    as_file(cache)
    assert files.locate(["hotpotqa"]).path == cache


def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, owner: str) -> list[tuple[str, Any]]:
    """A hub that knows one repository at one commit; returns the list of its calls."""
    import huggingface_hub

    folder = tmp_path / "snapshots" / "c0ffee"
    folder.mkdir(parents=True)
    as_zip(folder)
    calls: list[tuple[str, Any]] = []

    def download(repo_id: str, filename: str, repo_type: str, revision: str | None, local_files_only: bool) -> str:
        calls.append((repo_id, revision))
        assert (filename, repo_type, local_files_only) == ("data.zip", "dataset", repo_id == HUB_IDS[1])
        if not repo_id.startswith(owner):
            raise huggingface_hub.errors.LocalEntryNotFoundError("offline")
        return str(folder / filename)

    monkeypatch.setattr(huggingface_hub, "hf_hub_download", download)
    return calls


def test_the_hub_is_asked_in_order_and_its_commit_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = hub(tmp_path, monkeypatch, "THUDM")
    first, second = files.locate(["hotpotqa"]), files.locate(["hotpotqa"])
    assert first == second and first.note == "data: data.zip of THUDM/LongBench at c0ffee"
    zai, thudm = HUB_IDS
    assert calls == [(zai, None), (thudm, None), (zai, None), (thudm, "c0ffee")]
    files.locate(["hotpotqa"], revision="v1")
    assert calls[-1] == (thudm, "v1")


def test_nothing_found_names_the_places_and_the_fix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hub(tmp_path, monkeypatch, "nobody")
    with pytest.raises(
        UserError, match=r"tried: .*longbench; zai-org/LongBench .*; THUDM/LongBench .*data\.path="
    ) as e:
        files.locate(["hotpotqa"])
    assert "\n" not in str(e.value)


def test_a_path_is_final(tmp_path: Path) -> None:
    as_file(tmp_path)
    with pytest.raises(UserError, match=r"no file for qasper .*data\.tasks=\[hotpotqa\]"):
        files.locate(["qasper", "hotpotqa"], str(tmp_path))
    (tmp_path / "hotpotqa_e.jsonl").write_bytes(GOOD)
    with pytest.raises(UserError, match=r"no file for qasper_e .*data\.tasks=\[hotpotqa\]"):
        files.locate(["qasper_e", "hotpotqa_e"], str(tmp_path))
    with pytest.raises(UserError, match="does not exist"):
        files.locate(["qasper"], str(tmp_path / "nowhere"))
    with pytest.raises(UserError, match=r"single task's file, but 2 tasks .*data\.tasks=\[hotpotqa\]"):
        files.locate(["qasper", "hotpotqa"], str(tmp_path / "hotpotqa.jsonl"))
    with pytest.raises(UserError, match="no file for qasper"):
        files.locate(["qasper"], str(as_zip(tmp_path)))


@pytest.mark.parametrize(
    ("content", "words"),
    [(b"version https://git-lfs.github.com/spec/v1\n", "LFS pointer"), (b"PK\x03\x04half", "not a whole zip file")],
)
@pytest.mark.parametrize("tasks", [["hotpotqa"], ["hotpotqa", "qasper"]])
def test_a_bad_zip_is_told(content: bytes, words: str, tasks: list[str], tmp_path: Path) -> None:
    (tmp_path / "data.zip").write_bytes(content)
    for place in (tmp_path, tmp_path / "data.zip"):
        with pytest.raises(UserError, match=words):
            files.locate(tasks, str(place))


def mirror(folder: Path, rows: list[dict[str, Any]]) -> str:
    import pandas

    pandas.DataFrame(rows).to_parquet(folder / "hotpotqa.parquet")
    config = "configs:\n- config_name: hotpotqa\n  data_files:\n  - split: test\n    path: hotpotqa.parquet\n"
    (folder / "README.md").write_text(f"---\n{config}---\n")
    return str(folder)


def test_a_parquet_mirror_gives_the_same_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import datasets

    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", str(tmp_path / "datasets"))
    raw = mirror(tmp_path, [row(0), row(1)])
    assert longbench.load("hotpotqa", mirror=raw).samples["hotpotqa"] == parse(GOOD, "hotpotqa", "f")
    with pytest.raises(UserError, match="cannot load qasper"):
        longbench.load("qasper", mirror=raw)
    with pytest.raises(UserError, match="exclude each other"):
        longbench.load("hotpotqa", mirror=raw, path=raw)
    (tmp_path / "formatted").mkdir()
    formatted = mirror(tmp_path / "formatted", [row(0, question="Question: Who?", answer_prefix="Answer:")])
    with pytest.raises(UserError, match="hotpotqa:1: pre-formatted mirror"):
        longbench.load("hotpotqa", mirror=formatted)


def test_selections() -> None:
    assert longbench.select("en") == list(ENGLISH)
    assert longbench.select("all") == list(TASKS)
    assert longbench.select("all", e=True) == longbench.select("en", e=True) == list(ROWS_E)
    assert longbench.select("Single-Doc QA") == ["narrativeqa", "qasper", "multifieldqa_en"]
    assert longbench.select(["code", "dureader", "qasper"]) == ["qasper", "dureader", "lcc", "repobench-p"]
    assert longbench.select(["qasper_e", "lcc"], e=True) == ["qasper", "lcc"]
    assert [name for category in CATEGORIES for name in longbench.select(category)] == list(ENGLISH)
    for tasks, e in (("hotpot", False), ("qasper_e", False), (["narrativeqa"], True), ([], False)):
        with pytest.raises(UserError):
            longbench.select(tasks, e)


def test_limit_draws_one_row_from_each_stratum_of_length() -> None:
    rows = parse(lines(*(row(index, length=(index * 37) % 100) for index in range(100))), "hotpotqa", "f")
    drawn = longbench.draw(rows, 10, seed=0)
    assert [sample.index for sample in drawn] == sorted(sample.index for sample in drawn)
    assert sorted(sample.length // 10 for sample in drawn) == list(range(10))
    assert drawn == longbench.draw(rows, 10, seed=0) != longbench.draw(rows, 10, seed=1)
    assert longbench.draw(rows, 100, 0) == longbench.draw(rows, 1000, 0) == rows
    for limit in (1, 3, 7, 99):
        assert len({sample.id for sample in longbench.draw(rows, limit, 0)}) == limit


def test_limits(tmp_path: Path) -> None:
    (tmp_path / "hotpotqa.jsonl").write_bytes(lines(*(row(index) for index in range(9))))
    benchmark = longbench.load("hotpotqa", path=str(tmp_path), limit=2, first=True)
    assert [sample.index for sample in benchmark.samples["hotpotqa"]] == [0, 1]
    assert benchmark.expected == {"hotpotqa": 200}
    assert len(longbench.load("hotpotqa", path=str(tmp_path), limit=2).samples["hotpotqa"]) == 2
    with pytest.raises(UserError, match="limit=0"):
        longbench.load("hotpotqa", path=str(tmp_path), limit=0)
