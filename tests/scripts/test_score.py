"""The scorer's command line: JSON, table, warnings, and one clear line for each kind of bad input."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from scripts.score import main

ROOT = Path(__file__).resolve().parents[2]


def row(pred="Paris", answers=("Paris",), all_classes=None, length=100):
    return {"pred": pred, "answers": list(answers), "all_classes": all_classes, "length": length}


def write(path, rows):
    path.write_text("".join(json.dumps(item) + "\n" for item in rows), encoding="utf-8")


def test_json(tmp_path, capsys):
    write(tmp_path / "hotpotqa.jsonl", [row(length=i) for i in range(199)] + [row("x")])
    write(tmp_path / "passage_count.jsonl", [row("5", ["5"], length=i) for i in range(200)])
    (tmp_path / "notes.jsonl").write_text("not read")
    assert main([str(tmp_path), "--json"]) == 0
    out = capsys.readouterr().out
    assert json.loads(out) == {
        "scores": {"hotpotqa": 99.5, "passage_count": 100.0},
        "categories": {"Multi-Doc QA": 99.5, "Synthetic": 100.0},
        "average": 99.75,
        "counts": {"hotpotqa": 200, "passage_count": 200},
    }


def test_buckets_in_json_and_table(tmp_path, capsys):
    write(tmp_path / "hotpotqa_e.jsonl", [row(length=3999), row("x", length=4000), row(length=4001)])
    assert main([str(tmp_path), "--longbench-e", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["scores"] == {"hotpotqa": {"0-4k": 100.0, "4-8k": 50.0, "8k+": None}}
    assert result["average"] == result["categories"]["Multi-Doc QA"] == 75.0
    assert main([str(tmp_path), "--longbench-e"]) == 0
    out = capsys.readouterr().out
    assert "nan" in out
    assert "3/300" in out


def test_repeats_and_counts_are_reported_and_the_official_number_given(tmp_path, capsys):
    rows = [row(length=i) for i in range(200)]
    write(tmp_path / "hotpotqa.jsonl", [*rows, row("x", length=0), row("x", length=1)])
    assert main([str(tmp_path)]) == 0
    out, err = capsys.readouterr()
    assert "99.01" in out
    assert "202/200, 2 repeated" in out
    assert "official scoring" in out
    assert "difflib" in out
    assert "hotpotqa.jsonl: 202 rows, 200 expected" in err
    assert "2 rows repeat" in err
    assert "without them it is 100.0" in err


def test_rows_that_look_alike_in_longbench_itself_are_no_duplicates(tmp_path, capsys):
    rows = [row(length=i) for i in range(198)]
    write(tmp_path / "qasper.jsonl", rows + rows[:2])
    assert main([str(tmp_path)]) == 0
    assert capsys.readouterr().err == ""


def test_options_reach_the_scorer(tmp_path, capsys):
    write(tmp_path / "lcc.jsonl", [row("aaaa", ["abaab"])])
    averages = []
    for options in ([], ["--code-sim", "levenshtein"], ["--scoring", "strict"]):
        assert main([str(tmp_path), "--json", *options]) == 0
        averages.append(json.loads(capsys.readouterr().out)["average"])
    assert averages == [44.0, 67.0, 66.67]
    assert main([str(tmp_path), "--scoring", "strict"]) == 0
    assert "strict scoring" in capsys.readouterr().out


GOOD = json.dumps(row())


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("hotpotqa.jsonl", GOOD + "\n{oops}\n", "hotpotqa.jsonl:2: not a line of JSON"),
        ("hotpotqa.jsonl", GOOD + "\n" + GOOD[:20], "hotpotqa.jsonl:2: .*cut off"),
        ("hotpotqa.jsonl", "[" * 100_000 + "\n", "hotpotqa.jsonl:1: not a line of JSON"),
        ("passage_count.jsonl", GOOD + "\n", "passage_count.jsonl:1: answers must be whole numbers"),
        ("hotpotqa.jsonl", "[1]\n", "hotpotqa.jsonl:1: a JSON object .* not list"),
        (
            "hotpotqa.jsonl",
            '{"prediction": "x"}\n',
            "hotpotqa.jsonl:1: pred, answers missing; the line has: prediction",
        ),
        ("hotpotqa.jsonl", '{"pred": null, "answers": []}\n', "hotpotqa.jsonl:1: pred must be text, not None"),
        ("hotpotqa.jsonl", '{"pred": "x", "answers": "x"}\n', "hotpotqa.jsonl:1: answers must be a list of texts"),
        ("trec.jsonl", GOOD + "\n", "trec.jsonl:1: all_classes must be a list of texts, not None"),
        ("passage_retrieval_en.jsonl", GOOD + "\n", "passage_retrieval_en.jsonl:1: answers must name a paragraph"),
        ("hotpotqa.jsonl", "", "hotpotqa.jsonl:1: no predictions"),
        ("hotpotqa.jsonl", "version https://git-lfs.github.com/spec/v1\n", "hotpotqa.jsonl:1: a Git LFS pointer"),
        ("my_task.jsonl", GOOD, "no file is named after a LongBench dataset .* it holds my_task.jsonl"),
    ],
)
def test_bad_files(tmp_path, capsys, name, text, says):
    (tmp_path / name).write_text(text, encoding="utf-8")
    fails(capsys, [str(tmp_path)], says)


def test_bad_folders(tmp_path, capsys):
    fails(capsys, [str(tmp_path / "nowhere")], "nowhere: a folder .* is missing")
    fails(capsys, [str(tmp_path)], "it holds nothing")
    write(tmp_path / "hotpotqa.jsonl", [row()])
    fails(capsys, [str(tmp_path / "hotpotqa.jsonl")], "a file; give its folder")
    write(tmp_path / "hotpotqa_e.jsonl", [row()])
    fails(capsys, [str(tmp_path)], "hotpotqa is also in hotpotqa.jsonl")


def test_text_that_is_not_utf8(tmp_path, capsys):
    (tmp_path / "hotpotqa.jsonl").write_bytes(b'{"pred": "\xff"}\n')
    fails(capsys, [str(tmp_path)], "hotpotqa.jsonl: cannot be read as UTF-8")


def test_longbench_e_needs_lengths(tmp_path, capsys):
    (tmp_path / "hotpotqa.jsonl").write_text('{"pred": "x", "answers": ["x"], "all_classes": null}\n')
    fails(capsys, [str(tmp_path), "--longbench-e"], "hotpotqa.jsonl:1: length missing")
    write(tmp_path / "hotpotqa.jsonl", [row(length="100")])
    fails(capsys, [str(tmp_path), "--longbench-e"], "length must be a whole number, not '100'")


def fails(capsys, argv, says):
    assert main(argv) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert re.search(says, err), err


def test_help_teaches_from_a_checkout_anywhere(tmp_path):
    run = subprocess.run(
        [sys.executable, str(ROOT / "scripts" / "score.py"), "--help"], cwd=tmp_path, capture_output=True, text=True
    )
    assert run.returncode == 0
    for word in ("--longbench-e", "--code-sim", "--scoring", "--json", "examples:", "exit status"):
        assert word in run.stdout
