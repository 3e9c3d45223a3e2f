"""Exported runs are read by LongBench's scorer (ours, which equals it) and give the same numbers as the table."""

import json

from eval.export_cli import main
from eval.score_cli import main as score
from eval.scores import frame, official
from tests.eval.simulate import simulate


def test_export_scores_like_the_run(tmp_path, capsys):
    view = simulate(
        tmp_path / "results" / "run" / "model",
        ["hotpotqa", "trec"],
        6,
        [("full", "1", 0.0), ("selkv alpha=0.5", "0.25", -0.1)],
    )
    assert main([str(view.folder), "--out", str(tmp_path)]) == 0
    folder = tmp_path / "pred" / f"{view.manifest['model']}-selkv_alpha=0.5-0.25"
    rows = [json.loads(text) for text in (folder / "hotpotqa.jsonl").read_text(encoding="utf-8").splitlines()]
    assert [list(row) for row in rows] == [["pred", "answers", "all_classes", "length"]] * 6
    capsys.readouterr()
    assert score([str(folder), "--json"]) == 0
    cells = frame(view)
    cells = cells[cells.arm == 1]
    expected = {name: official(rows.share.to_numpy()) for name, rows in cells.groupby("dataset")}
    assert json.loads(capsys.readouterr().out)["scores"] == expected


def test_a_folder_that_is_no_run_is_one_line(tmp_path, capsys):
    assert main([str(tmp_path)]) == 2
    assert capsys.readouterr().err.count("\n") == 1
