"""Scores of whole files against LongBench's own, and of real predictions against what their authors published."""

import json
import math

import pytest

from eval.predictions import read_folder
from eval.scoring import Scoring, score_buckets, score_dataset, score_row
from selkv.errors import UserError

OFFICIAL = Scoring()
# Published by a scorer that keeps the first line on every dataset; the official scorer gives these.
OCEANS = {"hotpotqa": 7.19, "musique": 3.25}


def rows_of(case):
    # LongBench pairs lists and stops at the shorter one; a row without answers scores 0 and counts as well.
    count = len(case["predictions"])
    answers = case["answers"] + [[]] * (count - len(case["answers"]))
    rows = [
        {"pred": pred, "answers": gold, "all_classes": case["all_classes_used"]}
        for pred, gold in zip(case["predictions"], answers, strict=True)
    ]
    for row, length in zip(rows, case["lengths"] or [], strict=False):
        row["length"] = length
    return rows


def test_dataset_goldens(shared):
    cases = json.loads((shared / "longbench/goldens/eval_goldens.json").read_text())
    assert len(cases) == 22
    for case in cases:
        rows = rows_of(case)
        if "exception" in case:
            with pytest.raises(ZeroDivisionError, match=case["exception"].partition(": ")[2]):
                score_dataset(case["dataset"], rows, OFFICIAL)
        elif isinstance(case["official"], dict):
            scores = score_buckets(case["dataset"], rows, OFFICIAL)
            assert {k: None if math.isnan(v) else v for k, v in scores.items()} == case["official"], case["name"]
        else:
            assert score_dataset(case["dataset"], rows, OFFICIAL) == case["official"], case["name"]


@pytest.mark.parametrize(
    ("folder", "code_sim", "buckets", "edited"),
    [
        ("viridis__llama2-7b-chat-4k", "difflib", False, {}),
        ("rwkv__pred_e__rwkv_5_7b_v2", "levenshtein", True, {}),
        ("oceans__gated_deltanet", "difflib", False, OCEANS),
    ],
)
def test_real_predictions_get_their_official_score(shared, folder, code_sim, buckets, edited):
    path = shared / "longbench/preds" / folder
    published = json.loads((path / "result.json").read_text()) | edited
    score = score_buckets if buckets else score_dataset
    scores = {
        file.dataset: score(file.dataset, file.rows, Scoring(code_sim=code_sim)) for file in read_folder(path, buckets)
    }
    assert scores == published


def test_edited_scorer_explains_the_published_value(shared):
    """The oceans numbers follow from keeping the first line, so the difference is theirs and not ours."""
    path = shared / "longbench/preds/oceans__gated_deltanet"
    published = json.loads((path / "result.json").read_text())
    for file in read_folder(path):
        rows = [{**row, "pred": row["pred"].lstrip("\n").split("\n")[0]} for row in file.rows]
        assert score_dataset(file.dataset, rows, OFFICIAL) == published[file.dataset]


def test_row_takes_the_best_answer_and_the_suffix():
    assert score_row("hotpotqa_e", "Paris", ["London", "Paris"], None, OFFICIAL) == 1.0
    assert score_row("hotpotqa", "Paris", [], None, OFFICIAL) == 0.0


def test_first_line_drops_newlines_only_unless_strict():
    labels = ["City", "Country"]
    assert score_row("trec", "\n\nCity\nCountry", ["City"], labels, OFFICIAL) == 1.0
    assert score_row("trec", " \nCity", ["City"], labels, OFFICIAL) == 0.0
    assert score_row("trec", " \nCity", ["City"], labels, Scoring("strict")) == 1.0


def test_labels_of_the_last_row_serve_the_file():
    rows = [
        {"pred": "City, Country", "answers": ["City"], "all_classes": ["City", "Country"]},
        {"pred": "City", "answers": ["City"], "all_classes": ["City"]},
    ]
    assert score_dataset("trec", rows, OFFICIAL) == 100.0


def test_halves_round_as_in_the_official_scorer():
    """Its buckets go through numpy, which rounds 2.675 up; its datasets through Python, which rounds it down."""
    rows = [{"pred": "5 " * 107 + "6 " * 3893, "answers": ["5"], "all_classes": None, "length": 1}]
    assert score_dataset("passage_count", rows, OFFICIAL) == 2.67
    assert score_buckets("passage_count", rows, OFFICIAL)["0-4k"] == 2.68


def test_percent_comes_before_the_mean():
    rows = [{"pred": "5", "answers": ["5"] * (i < 23), "all_classes": None} for i in range(160)]
    assert score_dataset("passage_count", rows, OFFICIAL) == 14.38  # 23 / 160 * 100 rounds to 14.37


def test_code_similarity_is_chosen_not_found():
    arguments = ("lcc", "aaaa", ["abaa"], None)
    assert score_row(*arguments, Scoring(code_sim="difflib")) == 0.5
    assert score_row(*arguments, Scoring(code_sim="levenshtein")) == 0.75


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: Scoring("oficial"), r"scoring 'oficial'; choose from: official, strict. Did you mean 'official'"),
        (lambda: Scoring(code_sim="fuzzy"), r"code_sim.*'fuzzy'; choose from: difflib, levenshtein"),
        (lambda: score_row("hotpot", "", [], None, OFFICIAL), r"dataset 'hotpot'.*Did you mean 'hotpotqa'"),
    ],
)
def test_unknown_names_list_the_choices(make, says):
    with pytest.raises(UserError, match=says):
        make()
