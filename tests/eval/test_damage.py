"""Damaged runs and places that cannot be written: one line that names the file and the fix, from every command."""

import json
from dataclasses import fields
from typing import Any

import pytest

from eval import compare_cli, export_cli
from eval.outputs import claim
from eval.records import Record, cells_file, line_of, read
from eval.report import cli as report_cli
from eval.scores import frame
from eval.view import MANIFEST, Manifest, load
from selkv.errors import UserError
from tests.eval.simulate import simulate

COMMANDS = {"report": report_cli.main, "export": export_cli.main, "compare": compare_cli.main}
ARMS = [("full", "1", 0.0), ("selkv", "0.25", -0.1)]


@pytest.fixture
def run(tmp_path):
    return simulate(tmp_path / "results" / "x" / "m", ["qasper", "trec"], 3, ARMS)


def fails(capsys, command: str, arguments: list[Any], *says: str) -> None:
    """The command exits with 2 and one line that says all of this."""
    try:
        status = COMMANDS[command]([str(argument) for argument in arguments])
    except SystemExit as exit:  # argparse's own
        status = exit.code
    error = capsys.readouterr().err
    assert status == 2 and error.startswith("error: ") and error.count("\n") == 1, error
    for text in says:
        assert text in error, error


def edited(run, **changes: Any) -> None:
    """Write the manifest with other values; None takes a key away."""
    content = {key: value for key, value in (run.manifest | changes).items() if value is not None}
    (run.folder / MANIFEST).write_text(json.dumps(content))


# The manifest.


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize(
    ("text", "says"),
    [
        (b"", "not JSON"),
        (b'{"experiment": "x", "mo', "not JSON"),
        (b"\xff\xfe", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b"[]", "manifest must be a mapping"),
        (b"null", "manifest must be a mapping"),
        (b"{}", "is missing"),
    ],
)
def test_a_broken_manifest_is_one_line(run, capsys, command, text, says):
    (run.folder / MANIFEST).write_bytes(text)
    fails(capsys, command, [run.folder], f"{run.folder / MANIFEST} is damaged", says, "run the same command again")


@pytest.mark.parametrize("name", sorted(Manifest.__required_keys__))
@pytest.mark.parametrize("value", [None, 5, ["x"], {"x": 1}], ids=str)
def test_every_part_of_the_manifest_is_checked(run, capsys, name, value):
    fitting = {("protocol", "{'x': 1}"), ("notes", "['x']")}
    if (name, str(value)) not in fitting:
        edited(run, **{name: value})
        fails(capsys, "report", [run.folder], f"{MANIFEST} is damaged ({name}")


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"arms": []}, "must not be empty"),
        ({"tasks": {}}, "must not be empty"),
        ({"tasks": {"qasper": {"rows": 200, "selected": 3}}}, "must name the same datasets"),
        ({"cells": {"qasper": [["a"]], "trec": [["a", "b"]]}}, "cells.qasper must have 2 keys a sample"),
        ({"cells": {"qasper": [["a", 2]], "trec": []}}, "cells.qasper[0][1] must be text, not 2"),
        ({"cells": {"qasper": [], "trec": [["a", "b"]]}}, "cells.qasper must have a sample"),
        ({"scoring": {"name": "official"}}, "scoring.code_sim is missing"),
        ({"tasks": {"qasper": {"rows": "200", "selected": 3}, "trec": 1}}, "tasks.qasper.rows must be a whole number"),
    ],
)
def test_contradictions_of_the_manifest_are_told(run, capsys, changes, says):
    edited(run, **changes)
    fails(capsys, "export", [run.folder], says)


@pytest.mark.parametrize("ratio", ["x", "1/0", "0", ""])
def test_a_ratio_that_is_no_number(run, capsys, ratio):
    edited(run, arms=[arm | {"ratio": ratio} for arm in run.manifest["arms"]])
    fails(capsys, "report", [run.folder], f"the ratio {ratio!r} is no number")


def test_unknown_scoring_and_dataset_name_the_choices(run, capsys):
    edited(run, scoring={"name": "mine", "code_sim": "difflib"})
    fails(capsys, "report", [run.folder], "unknown scoring 'mine'; choose from: official, strict")
    renamed = {name: {f"{key}x": value for key, value in run.manifest[name].items()} for name in ("tasks", "cells")}
    edited(run, **renamed)
    fails(capsys, "report", [run.folder], "unknown dataset 'qasperx'")


def test_a_manifest_may_hold_more(run):
    edited(run, anything=[1, {"b": None}])
    assert load(run.folder).manifest["anything"] == [1, {"b": None}]


@pytest.mark.parametrize("text", ["baseline: [", "baseline: [a]", "baseline: 5", "- a", "words", "\t"])
def test_a_broken_config_is_one_line(run, capsys, text):
    (run.folder / "config.yaml").write_text(text)
    fails(capsys, "report", [run.folder], "config.yaml is damaged", "run the same command again")


def test_folders_that_are_no_run(run, tmp_path, capsys):
    (tmp_path / "datei ü").write_text("x")
    for place in (tmp_path / "nowhere", tmp_path, tmp_path / "datei ü", tmp_path / "datei ü" / "m"):
        fails(capsys, "report", [place], f"no run in {place}: manifest.json is missing")
    fails(capsys, "report", [tmp_path / ("x" * 300)], "cannot be read (File name too long)")
    (run.folder / MANIFEST).unlink()
    (run.folder / MANIFEST).mkdir()
    fails(capsys, "report", [run.folder], "cannot be read (Is a directory)")


def test_a_run_moved_away_from_its_cells_is_told(run, tmp_path, capsys):
    moved = run.folder.rename(tmp_path / "moved")
    fails(capsys, "report", [moved], "a run without its cells", "is missing")


def test_a_run_is_found_from_inside_its_folder(run, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(run.folder)
    assert export_cli.main([".", "--out", str(tmp_path)]) == 0
    assert frame(load(run.folder.relative_to(run.folder))).state.eq("scored").all()


# Records.


WRONG: dict[str, Any] = {
    **{each.name: 5 for each in fields(Record) if each.type is str},
    **{each.name: "5" for each in fields(Record) if each.type in (int, float, bool)},
    "all_classes": ["a", 1],
    "answers": "x",
    "counters": {"routed": [0.5, "x"]},
    "error": 5,
    "exact": 1,
    "fidelity": {"kl": "small"},
    "index": True,
    "kept": [1, 2.5],
    "length": 3.5,
    "params": [],
    "positions": {"n": 5},
    "total": None,
}


def test_every_field_has_a_wrong_value_here():
    assert WRONG.keys() == {each.name for each in fields(Record)}


@pytest.mark.parametrize("name", sorted(WRONG))
def test_a_field_of_another_type_is_no_record(run, capsys, name):
    path = cells_file(run.folder.parents[1], "m", "mini", "qasper")
    lines = path.read_bytes().splitlines()
    lines[1] = json.dumps(json.loads(lines[1]) | {name: WRONG[name]}).encode()
    path.write_bytes(b"\n".join([*lines, b""]))
    fails(capsys, "report", [run.folder], f"{path}:2 is not a record ({name}", "remove that line to redo its cell")


@pytest.mark.parametrize(
    ("line", "says"),
    [
        (b"{}", "key is missing"),
        (b"[1]", "must be a mapping, not [1]"),
        (b"\x00\x00", "is not a record"),
        (b"\xff", "is not a record"),
        (b'{"surprise": 1}', "is missing"),
        (b"[" * 100_000, "is not a record"),
    ],
)
def test_lines_that_are_no_record(run, capsys, line, says):
    path = cells_file(run.folder.parents[1], "m", "mini", "trec")
    whole = path.read_bytes()
    path.write_bytes(line + b"\n" + whole)
    fails(capsys, "export", [run.folder], f"{path}:1", says)
    path.write_bytes(whole + line)  # without a newline it was being written: redone, not refused
    assert len(list(read(path))) == 6


def test_half_a_character_is_no_text(run, capsys):
    path = cells_file(run.folder.parents[1], "m", "mini", "trec")
    whole = path.read_bytes()
    path.write_bytes(whole.replace(b"Which", rb"\ud83d\ude00", 1))  # a pair is one character
    assert any(record.question.startswith("\N{GRINNING FACE}") for record in read(path))
    path.write_bytes(whole.replace(b"Which", rb"\ud83d", 1))
    fails(capsys, "export", [run.folder], f"{path}:1 is not a record (Invalid JSON")


@pytest.mark.parametrize("value", ["NaN", "Infinity"])
def test_numbers_that_are_not_finite_are_null_in_the_report(run, value):
    path = cells_file(run.folder.parents[1], "m", "mini", "trec")
    rows = [json.loads(line) for line in path.read_bytes().splitlines()]
    for row in rows:
        row["fidelity"] = dict.fromkeys(("kl", "agreement", "perplexity_ratio"), float(value)) | {"divergence": None}
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert report_cli.main([str(run.folder)]) == 0


def test_a_record_reads_back_as_it_was_written(run):
    records = list(run.records.values())
    path = run.folder / "again.jsonl"
    path.write_bytes(b"".join(map(line_of, records)))
    assert list(read(path)) == records


def test_cells_that_are_a_folder(run, capsys):
    path = cells_file(run.folder.parents[1], "m", "mini", "trec")
    path.unlink()
    path.mkdir()
    fails(capsys, "report", [run.folder], f"{path} cannot be read (Is a directory)")


@pytest.mark.parametrize(("dataset", "changes"), [("passage_retrieval_en", {"answers": ["seven"]}), ("trec", {})])
def test_answers_that_no_metric_can_read(tmp_path, capsys, dataset, changes):
    run = simulate(tmp_path / "x" / "m", [dataset], 2, ARMS)
    path = cells_file(tmp_path, "m", "mini", dataset)
    rows = [json.loads(line) | {"all_classes": None} | changes for line in path.read_bytes().splitlines()]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    fails(capsys, "report", [run.folder], f"{dataset} {dataset}-0 cannot be scored", "choose other data.tasks")


def test_a_run_without_any_finished_cell(tmp_path, capsys):
    everywhere = [(label, "qasper", i) for label, *_ in ARMS for i in range(2)]
    run = simulate(tmp_path / "x" / "m", ["qasper"], 2, ARMS, missing=everywhere)
    assert report_cli.main([str(run.folder)]) == 0
    assert "not computed" in (run.folder / "table.md").read_text()
    assert export_cli.main([str(run.folder), "--out", str(tmp_path)]) == 1
    assert "not written, 2 missing" in capsys.readouterr().out and not (tmp_path / "pred").exists()


# Places that cannot be written.


@pytest.mark.parametrize("place", ["/proc/selkv", "file/inside", "file"])
@pytest.mark.parametrize("command", ["report", "export"])
def test_output_that_cannot_be_written(run, tmp_path, capsys, monkeypatch, command, place):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("kept")
    option = {"report": "--output", "export": "--out"}[command]
    fails(capsys, command, [run.folder, option, place], "cannot be written (", f"{option} FOLDER")
    assert (tmp_path / "file").read_text() == "kept"


@pytest.mark.parametrize(
    "name", ["report.html", "table.md", "table.csv", "table.tex", "scores.csv", "plots/layers.png"]
)
def test_a_folder_in_place_of_a_file(run, capsys, name):
    (run.folder / name).mkdir(parents=True)
    fails(capsys, "report", [run.folder], f"{name} cannot be written (Is a directory)", "no finished cell is lost")


def test_a_place_is_tried_before_the_work(tmp_path):
    claim(tmp_path / "new" / "deep", ["a"], "give another")
    assert list((tmp_path / "new" / "deep").iterdir()) == []
    (tmp_path / "a").mkdir()
    with pytest.raises(UserError, match=r"a cannot be written \(Is a directory\); give another"):
        claim(tmp_path, ["b", "a"], "give another")


def test_two_runs_that_would_write_one_file(run, tmp_path, capsys):
    other = simulate(tmp_path / "results" / "y" / "m", ["qasper"], 2, ARMS)
    fails(capsys, "export", [run.folder, other.folder, "--out", tmp_path], "would get other rows", "another --out")
    assert not (tmp_path / "pred").exists()
    assert export_cli.main([str(run.folder), str(run.folder), "--out", str(tmp_path)]) == 0


# What the commands say of their arguments.


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize(
    ("arguments", "says"), [([], "required: RUN"), (["x", "--colour"], "unrecognized arguments: --colour")]
)
def test_bad_arguments_are_one_line(capsys, command, arguments, says):
    fails(capsys, command, arguments, says, "see --help")


@pytest.mark.parametrize("command", COMMANDS)
def test_help_teaches(capsys, command):
    with pytest.raises(SystemExit, match="0"):
        COMMANDS[command](["--help"])
    text = capsys.readouterr().out
    assert "Command line of" not in text
    for word in ("usage:", "RUN", "examples:", "exit status:", f"selkv {command}"):
        assert word in text


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ("score,m,full,,1,qasper,many,,published,here", ":2: value is 'many'; it must be a number"),
        ("score,m,full,,half,qasper,1.5,,published,here", ":2: ratio is 'half'"),
        ("score,m,full,,1,qasper,1.5,,published,here,more", ":2: 10 fields are needed"),
        ("score,m,full", ":2: 10 fields are needed"),
        ("score,m,full,,1,qasper,1.5,,published,\udcff", "cannot be read as CSV in UTF-8"),
    ],
)
def test_bad_reference_files(run, tmp_path, capsys, row, says):
    file = tmp_path / "mine.csv"
    head = "quantity,model,method,minus,ratio,task,value,max_prompt_tokens,status,source\n"
    file.write_bytes((head + row).encode(errors="surrogateescape"))
    fails(capsys, "compare", [run.folder, "--reference", file], says)
