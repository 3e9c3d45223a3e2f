"""Metrics against LongBench's own values, and ROUGE against the package it stands for."""

import difflib
import json
import time
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rouge import Rouge

from eval import metrics, metrics_strict
from eval.rouge import lcs_words, rouge_l

# Official values are 0.0 here only because Python's recursion limit was hit; a scorer must not depend on it.
RECURSION_ONLY = {
    ("rouge_score", "one sentence of 1,200 words, the same on both sides"): (24, 0.999999995),
    ("rouge_zh_score", "minutes of 120 clauses without a full stop"): (15, 0.992187495),
}

texts = st.lists(st.sampled_from(["a", "b", "c", "the", "b.", ".", ".c", "  ", "\n"]), max_size=40).map(" ".join)
words = st.lists(st.sampled_from("abcde"), max_size=25)


def cases(shared, name):
    return json.loads((shared / "longbench/goldens/metric_goldens.json").read_text())["cases"][name]


def call(metric, case, **extra):
    if "all_classes" in case:
        extra["all_classes"] = case["all_classes"]
    return metric(case["prediction"], case["ground_truth"], **extra)


@pytest.mark.parametrize(
    "name",
    [
        "qa_f1_score",
        "qa_f1_zh_score",
        "rouge_score",
        "rouge_zh_score",
        "classification_score",
        "retrieval_score",
        "retrieval_zh_score",
        "count_score",
        "code_sim_score",
    ],
)
def test_goldens(shared, name):
    metric = getattr(metrics, name.removesuffix("_score"))
    ours = {index: value for (golden, _), (index, value) in RECURSION_ONLY.items() if golden == name}
    for index, case in enumerate(cases(shared, name)):
        official = case["official"]
        if index in ours:
            assert official["value"] == 0.0
            assert call(metric, case) == ours[index]
        elif "exception" in official:
            with pytest.raises((IndexError, TypeError)) as caught:
                call(metric, case)
            assert type(caught.value).__name__ == official["exception"]
            assert str(caught.value) == official["message"]
        else:
            assert call(metric, case) == official["value"], (name, index, case["prediction"][:80])


def test_code_sim_with_levenshtein_equals_the_scorer_with_python_levenshtein(shared):
    for case in cases(shared, "code_sim_score"):
        value = call(metrics.code_sim, case, percent=metrics.levenshtein_percent)
        assert value == case["official_with_python_Levenshtein"]["value"], case


@given(a=st.text("ab() =", max_size=30), b=st.text("ab() =", max_size=30))
def test_percent_rounds_the_ratio(a, b):
    ratio = difflib.SequenceMatcher(None, a, b).ratio() if a and b else float(a == b)
    assert metrics.difflib_percent(a, b) in ({100} if a == b else {round(100 * ratio)})
    assert metrics.difflib_percent(a, a) == metrics.levenshtein_percent(a, a) == 100
    assert 0 <= metrics.levenshtein_percent(a, b) <= 100


@settings(max_examples=500, deadline=None)
@given(prediction=texts, answer=texts)
def test_rouge_equals_the_package(prediction, answer):
    try:
        expected = Rouge().get_scores([prediction], [answer], avg=True)["rouge-l"]["f"]
    except ValueError:  # the package's way to say that a text is empty; the official scorer makes it 0.0
        expected = 0.0
    assert rouge_l(prediction, answer) == expected


@settings(max_examples=500, deadline=None)
@given(x=words, y=words)
def test_lcs_takes_the_same_path_as_a_table(x, y):
    assert lcs_words(x, y) == slow_lcs_words(x, y)
    assert lcs_words(x, y, cells_kept=0) == slow_lcs_words(x, y)


def slow_lcs_words(x, y):
    table = [[0] * (len(y) + 1) for _ in range(len(x) + 1)]
    for i, a in enumerate(x, start=1):
        for j, b in enumerate(y, start=1):
            table[i][j] = table[i - 1][j - 1] + 1 if a == b else max(table[i - 1][j], table[i][j - 1])
    found, i, j = set(), len(x), len(y)
    while i and j:
        if x[i - 1] == y[j - 1]:
            i, j = i - 1, j - 1
            found.add(x[i])
        elif table[i - 1][j] > table[i][j - 1]:
            i -= 1
        else:
            j -= 1
    return found


def test_lcs_of_long_sentences_is_quick_and_small():
    n = 30_000  # a full table of int64 would take 7 GB, the package's dict 150 GB
    x = [f"w{7 * i % n}" for i in range(n)]
    y = [f"w{11 * i % n}" for i in range(n)]
    tracemalloc.start()
    started = time.perf_counter()
    found = lcs_words(x, y)
    seconds = time.perf_counter() - started
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert found
    assert peak < 2**28, f"{peak / 2**20:.0f} MiB"
    assert seconds < 60, f"{seconds:.1f} s"


def test_missing_package_names_the_command():
    with pytest.raises(metrics.UserError, match="pip install no-such-package"):
        metrics.optional("no_such_package.part")


@pytest.mark.parametrize(
    ("metric", "prediction", "answer", "official", "strict"),
    [
        ("qa_f1", "the", "a", 0.0, 1.0),
        ("qa_f1", "“Paris”", "Paris", 0.0, 1.0),
        ("qa_f1_zh", "《红楼梦", "红楼梦", 2 / 3, 1.0),
        ("rouge", "cat cat cat cat", "cat", 0.999999995, 0.4),
        ("rouge", "The cat.", "the cat", 0.499999995, 1.0),
        ("rouge_zh", "会议讨论了预算。", "会议讨论了预算", 0.888888884, 1.0),
        ("count", "046", "46", 0.0, 1.0),
        ("retrieval", "１２", "Paragraph 12", 0.0, 1.0),
        ("retrieval_zh", "段落012", "段落12", 0.0, 1.0),
        ("code_sim", "return x  # why", "return x", 0.0, 16 / 23),
        ("code_sim", "  \nreturn x", "return x", 0.2, 1.0),
    ],
)
def test_what_strict_mends(metric, prediction, answer, official, strict):
    assert getattr(metrics, metric)(prediction, answer) == pytest.approx(official, abs=1e-8)
    assert getattr(metrics_strict, metric)(prediction, answer) == pytest.approx(strict, abs=1e-12)


def test_strict_classification_takes_off_every_part_of_the_answer():
    labels = ["a", "b", "c", "d", "abcd"]
    assert metrics.classification("abcd", "abcd", labels) == pytest.approx(1 / 3)
    assert metrics_strict.classification("abcd", "abcd", labels) == 1.0
