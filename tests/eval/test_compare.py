"""A run beside published numbers: verdicts that are right, and reasons that are named."""

import dataclasses
import math

import pytest

from eval.compare import INSIDE, NOT, OUTSIDE, Reference, compare, read_references
from eval.compare_cli import main
from eval.tasks import ENGLISH, TASKS
from selkv.errors import UserError
from tests.eval.simulate import simulate

ARMS = [("full", "1", 0.0), ("selkv", "0.25", -0.02), ("snapkv", "0.25", -0.3)]
PROTOCOL = {"name": "paper", "truncation": "official", "compress": "prompt", "max_prompt_tokens": 3500}
SAMPLES = 6


def run(tmp_path, name="llama31", tasks=ENGLISH, data="longbench", protocol=PROTOCOL, missing=(), **manifest):
    """A run whose files have as many rows as were selected, under the paper's protocol."""
    counts = {"tasks": {task: {"rows": SAMPLES, "selected": SAMPLES} for task in tasks}, "protocol": protocol}
    return simulate(
        tmp_path / "r/x" / name, tasks, SAMPLES, ARMS, data=data, missing=missing, manifest=counts | manifest
    )


def reference(value, method="selkv", minus="", task="average", **fields):
    facts = {"quantity": "score", "model": "llama31", "ratio": "0.25", "max_prompt_tokens": "3500"}
    rest = {"status": "published", "source": "here"}
    return Reference(**{**facts, **rest, **fields}, method=method, minus=minus, task=task, value=value)


def verdict(view, published):
    [found] = compare([view], [published])
    return found


def test_inside_and_outside_by_the_runs_own_interval(tmp_path):
    view = run(tmp_path)
    found = verdict(view, reference("50"))
    assert found.low < found.value < found.high
    assert verdict(view, reference(f"{found.value:.2f}")).verdict == INSIDE
    assert verdict(view, reference(f"{found.low + 0.01:.2f}")).verdict == INSIDE
    assert verdict(view, reference(f"{found.low - 0.02:.2f}")).verdict == OUTSIDE
    assert verdict(view, reference(f"{found.high + 0.02:.2f}")).verdict == OUTSIDE


def test_a_coarse_number_is_known_to_half_a_digit_only(tmp_path):
    view = run(tmp_path)
    high = verdict(view, reference("50")).high
    for digits in range(4):
        unit = 10.0**-digits
        for above in range(3):  # printed numbers just above the interval
            value = math.ceil(high / unit) * unit + above * unit
            expected = INSIDE if value - high <= unit / 2 else OUTSIDE
            assert verdict(view, reference(f"{value:.{digits}f}")).verdict == expected


def test_differences_use_the_paired_interval(tmp_path):
    view = run(tmp_path)
    score, paired = verdict(view, reference("50")), verdict(view, reference("-2.0", minus="full"))
    assert paired.value < 0
    assert paired.high - paired.low < score.high - score.low
    assert verdict(view, reference("+9.00", minus="full")).verdict == OUTSIDE


def test_a_task_of_its_own(tmp_path):
    found = verdict(run(tmp_path), reference("50", task="qasper", method="full", ratio="1"))
    assert found.verdict in (INSIDE, OUTSIDE)


@pytest.mark.parametrize(
    ("changes", "published", "reason"),
    [
        ({"name": "gemma2"}, {}, "model not in these runs"),
        ({"data": "mini"}, {}, "other data: mini"),
        ({"scoring": {"name": "strict", "code_sim": "difflib"}}, {}, "other scoring: strict"),
        ({"protocol": PROTOCOL | {"truncation": "ids"}}, {}, "other protocol: truncation ids, not official"),
        ({"protocol": PROTOCOL | {"max_prompt_tokens": 7500}}, {}, "other protocol: max_prompt_tokens 7500, not 3500"),
        ({"tasks": ENGLISH[1:]}, {}, "other samples: without narrativeqa"),
        ({"missing": [("selkv", "lcc", 2)]}, {}, "other samples: 1 of 6 missing in lcc"),
        ({}, {"method": "pyramidkv"}, "pyramidkv at ratio 0.25 was not run"),
        ({}, {"ratio": "0.1"}, "selkv at ratio 0.1 was not run"),
        ({}, {"quantity": "decode tokens/s at 100k"}, "a run measures no speed: selkv efficiency does"),
    ],
)
def test_what_cannot_be_compared_says_why(tmp_path, changes, published, reason):
    found = verdict(run(tmp_path, **changes), dataclasses.replace(reference("39.81"), **published))
    assert (found.verdict, found.reason) == (NOT, reason)


def test_a_sample_of_the_files_is_not_the_files(tmp_path):
    counts = {task: {"rows": TASKS[task].rows, "selected": SAMPLES} for task in ENGLISH}
    view = simulate(
        tmp_path / "r/x/llama31",
        ENGLISH,
        SAMPLES,
        ARMS,
        data="longbench",
        manifest={"protocol": PROTOCOL, "tasks": counts},
    )
    assert verdict(view, reference("39.81")).reason == "other samples: 6 of 200 in narrativeqa"


def test_of_several_runs_the_comparable_one_speaks(tmp_path):
    views = [run(tmp_path / "a", data="mini"), run(tmp_path / "b")]
    assert compare(views, [reference("50")])[0].verdict != NOT


def test_the_shipped_references_are_complete_and_sourced():
    references = read_references()
    assert {found.model for found in references} == {"llama31", "gemma2", "longchat"}
    assert all(found.source and found.status in ("published", "unconfirmed") for found in references)
    assert {found.task for found in references} - {""} <= {"average", *ENGLISH}
    scores = {
        (f.model, f.method, f.ratio, f.task, f.max_prompt_tokens): float(f.value) for f in references if not f.minus
    }
    for found in references:
        if found.minus:  # a difference is that of the two scores beside it
            ratio = "1" if found.minus == "full" else found.ratio
            first = scores[found.model, found.method, found.ratio, found.task, found.max_prompt_tokens]
            second = scores[found.model, found.minus, ratio, found.task, found.max_prompt_tokens]
            assert float(found.value) == pytest.approx(first - second), found
    longchat = [f for f in references if f.model == "longchat" and f.task != "average"]
    assert len(longchat) == 16
    assert sum(float(found.value) for found in longchat) / 16 == pytest.approx(34.22, abs=0.01)


def test_reference_files_are_checked(tmp_path):
    path = tmp_path / "mine.csv"
    with pytest.raises(UserError, match="no reference file"):
        read_references([path])
    path.write_text("model,value\nllama31,3\n")
    with pytest.raises(UserError, match="has the columns"):
        read_references([path])


def test_command_line(tmp_path, capsys):
    view = run(tmp_path)
    assert main([str(view.folder)]) == 0
    out = capsys.readouterr().out
    words = " ".join(out.split())
    assert "selkv - selkv_evict 0.25 average, 0.12 [5]: not comparable: selkv_evict at ratio 0.25 was not run" in words
    assert "unconfirmed: second-hand digest" in words and "…" not in out
    assert "longchat" not in out, "numbers of models that were not run are only counted"
    counts = [int(part.split()[0]) for part in out.splitlines()[-1].split(", ")]
    assert sum(counts) == len(read_references())
    assert main([str(tmp_path / "nothing")]) == 2
    assert "manifest.json is missing" in capsys.readouterr().err
