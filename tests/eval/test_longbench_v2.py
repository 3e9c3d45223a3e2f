"""LongBench v2: rows from a list or lines, choices read from predictions, mistakes told with the row, and a run."""

import json

import pytest

from eval import longbench_v2
from eval.app import plan_of
from eval.benchmarks import load_benchmark
from eval.longbench_v2.tasks import TASKS
from eval.prompts import render
from eval.scoring import Scoring, score_row
from selkv.errors import UserError
from tests.eval.benchmark_runs import finished
from tests.eval.runs import save_model


def question(number, length="short", difficulty="easy", **changes):
    return {
        "_id": f"q{number}", "domain": "Single-Document QA", "sub_domain": "Literary", "difficulty": difficulty,
        "length": length, "question": f"What is {number}?", "choice_A": "one", "choice_B": "two", "choice_C": "{three}",
        "choice_D": "four", "answer": "ABCD"[number % 4], "context": f"Text {number}. " * 40,
    } | changes  # fmt: skip


ROWS = [
    question(number, length, difficulty)
    for number, (length, difficulty) in enumerate(
        [("short", "easy")] * 3 + [("short", "hard"), ("medium", "easy"), ("long", "hard")]
    )
]


@pytest.fixture(params=["list", "lines"])
def file(request, tmp_path):
    path = tmp_path / "data.json"
    path.write_text(json.dumps(ROWS) if request.param == "list" else "\n".join(map(json.dumps, ROWS)) + "\n")
    return path


def test_rows_are_read_by_length_and_difficulty(file):
    drawn = longbench_v2.load(list(TASKS), path=str(file))
    assert {task: len(rows) for task, rows in drawn.samples.items()} == {
        "short_easy": 3, "short_hard": 1, "medium_easy": 1, "long_hard": 1,
    }  # fmt: skip
    row = drawn.samples["short_easy"][2]
    assert (row.id, row.answers, row.index, row.length) == ("q2", ("C",), 2, 80)
    text = render(row, drawn.prompts["short_easy"])
    assert row.context in text and "Question: What is 2?\n(A) one\n(B) two\n(C) {three}\n(D) four\n" in text
    assert any("6 questions, LongBench v2 has 503" in note for note in drawn.notes)
    assert len(longbench_v2.load(["short_easy"], limit=2, path=str(file)).samples["short_easy"]) == 2
    first = longbench_v2.load(["short_easy"], limit=1, first=True, path=str(file))
    assert first.samples["short_easy"][0].id == "q0" and first.expected == {"short_easy": 3}


@pytest.mark.parametrize(
    ("prediction", "letter"),
    [
        ("The answer is (B)", "B"), ("The correct answer is B.", "B"), ("**Answer: C**", "C"),
        ("The answer is **D**", "D"), ("D", "D"),
        ("(A) one", "A"),
        ("B) two, because A is wrong", "B"), ("A man said so. The answer is (D).", "D"), ("I think (C) fits", "C"),
        ("A man walked by", None), ("the answer is a matter of taste", None), ("none", None), ("", None),
    ],
)  # fmt: skip
def test_the_choice_is_read_from_the_text(prediction, letter):
    for scoring in (Scoring(), Scoring("strict")):
        for gold in "ABCD":
            assert score_row("long_hard", prediction, [gold], None, scoring) == float(gold == letter)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[1]", "question 1: a JSON object is needed, not int"),
        (json.dumps([ROWS[0], question(1, answer="E")]), "question 2: answer is 'E'; it must be one of A, B, C, D"),
        (json.dumps([question(1, length="huge")]), "question 1: length is 'huge'; it must be one of short"),
        (json.dumps([{"question": "?"}]), "question 1: no text in field context, choice_A"),
        ("[{", "not a JSON list"),
        (" \n", "the file is empty; a question is a JSON object"),
        (json.dumps(ROWS[0]) + "\n{", r"data\.json:2: not a line of JSON"),
        (json.dumps(ROWS[4:5]), "none of its 1 questions belongs to short_easy"),
    ],
)
def test_mistakes_name_file_and_row(tmp_path, content, message):
    path = tmp_path / "data.json"
    path.write_text(content)
    with pytest.raises(UserError, match=message):
        longbench_v2.load(["short_easy"], path=str(path))


def test_options_choose_and_refuse(file):
    plan = plan_of(["data=longbench_v2", f"data.path={file}", "data.tasks=[short]", "limit.first=1"])
    assert plan.data["tasks"] == ["short_easy", "short_hard"]
    assert [row.id for rows in load_benchmark(plan).samples.values() for row in rows] == ["q0", "q3"]
    with pytest.raises(UserError, match=r"data.path is not set; give the file of LongBench v2"):
        load_benchmark(plan_of(["data=longbench_v2"]))
    empty = file.parent / "empty"
    empty.mkdir()
    with pytest.raises(
        UserError,
        match=r"empty/data\.json cannot be read \(No such file or directory\); give the file of LongBench v2 or",
    ):
        load_benchmark(plan_of(["data=longbench_v2", f"data.path={empty}"]))
    assert load_benchmark(plan_of(["data=longbench_v2", f"data.path={file.parent}"])).samples
    with pytest.raises(UserError, match=r"data.path=/no/where does not exist"):
        plan_of(["data=longbench_v2", "data.path=/no/where"])


def test_a_run_through_the_runner(file, tmp_path):
    view = finished(save_model(tmp_path / "model"), tmp_path, "data=longbench_v2", f"data.path={file}")
    assert len(view.records) == 6 * 3
    table = (view.folder / "table.md").read_text()
    assert r"short\_easy" in table and "Medium" in table and "LongBench v2 has 503" in table
