"""Tables in all formats: content, marks, counts, escaping, and the same bytes for the same records."""

import csv
import random
import shutil
import subprocess
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from rich.console import Console

from eval.aggregate import tables
from eval.grid import BEST, SECOND, marks, number, scores_grid
from eval.notes import notes
from eval.records import cells_file
from eval.tables import Options, console, write_tables
from eval.tasks import ENGLISH
from eval.view import load
from tests.eval.simulate import simulate

ARMS = [
    ("full", "1", 0.0),
    ("selkv", "0.25", -0.05),
    ("snapkv", "0.25", -0.2),
    ("pyramidkv", "0.25", -0.1),
    ("selkv", "1/3", 0.0),
]


@pytest.fixture
def view(tmp_path):
    return simulate(tmp_path / "r/x/m", ["qasper", "trec", "lcc"], 4, ARMS, failed=[("snapkv", "trec", 1)])


def printed(view, options=None, width=200):
    screen = Console(width=width, no_color=True)
    with screen.capture() as capture:
        screen.print(console(view, options))
    return capture.get()


def files(view, folder, options=None, others=()):
    return {path.name: path.read_bytes() for path in write_tables(view, folder, options, others)}


def test_writes_four_files(view, tmp_path):
    assert sorted(files(view, tmp_path / "new")) == ["scores.csv", "table.csv", "table.md", "table.tex"]


def test_csv_holds_numbers_counts_and_blanks(tmp_path):
    missing = [("selkv", "trec", i) for i in range(3)]
    view = simulate(tmp_path / "r/x/m", ["qasper", "trec"], 3, ARMS[:4], missing=missing)
    rows = list(csv.DictReader(files(view, tmp_path / "out")["table.csv"].decode().splitlines()))
    full, selkv = rows[:2]
    assert [row["label"] for row in rows] == ["full", "selkv", "snapkv", "pyramidkv"]
    assert (selkv["trec"], selkv["Avg"], selkv["Δ to full"], selkv["Avg rank"]) == ("", "", "", "")
    assert float(selkv["qasper"]) >= 0
    assert (selkv["scored"], selkv["selected"], selkv["expected"]) == ("3", "6", "400")
    assert float(full["Avg"]) == pytest.approx((float(full["qasper"]) + float(full["trec"])) / 2, abs=0.006)
    assert full["Δ to full"] == full["Avg rank"] == ""


def test_scores_csv_has_a_line_a_cell_in_the_manifests_order(view, tmp_path):
    rows = list(csv.DictReader(files(view, tmp_path / "out")["scores.csv"].decode().splitlines()))
    assert len(rows) == 3 * 4 * len(ARMS)
    assert [row["label"] for row in rows[:5]] == [label for label, *_ in ARMS]
    failed = [row for row in rows if row["state"] != "scored"]
    assert [(row["label"], row["dataset"], row["sample"], row["score"]) for row in failed] == [
        ("snapkv", "trec", "1", "")
    ]


def test_best_and_second_are_marked_among_the_methods_only(view):
    table = tables(view)[0]
    for points, expected in {
        (9, 9, 5, 1): ("", BEST, SECOND, ""),
        (5, 9, 5, 5): ("", BEST, SECOND, SECOND),
        (0, 7.001, 7.002, 3): ("", BEST, BEST, SECOND),
        (9, 4, 4, 4): ("", "", "", ""),
        (9, 3, 0, 0): ("", BEST, "", ""),
        (9, 0, 0, 0): ("", "", "", ""),
        (9, np.nan, 2, 1): ("", "", BEST, SECOND),
    }.items():
        rows = tuple(replace(row, average=score, rank=score) for row, score in zip(table.rows, points, strict=True))
        columns = {column.name: column for column in scores_grid(replace(table, rows=rows)).columns}
        assert tuple(cell.mark for cell in columns["Avg"].cells) == expected
    assert [cell.mark for cell in columns["Avg rank"].cells] == ["", "", SECOND, BEST], "a low rank is good"


def test_a_zero_is_marked_only_where_it_is_no_score():
    assert marks([5, 0, -1], scale=False) == (BEST, SECOND, "")
    assert marks([0.0, 0.1, 0.2], better=-1) == (BEST, SECOND, "")
    assert marks([1, 2], better=0) == ("", "")


def test_markdown_is_rectangular_and_marks(view, tmp_path):
    text = files(view, tmp_path / "out", Options("snapkv", intervals=True))["table.md"].decode()
    lines = text.splitlines()
    for above, below in pairwise(lines):
        if above.startswith("|") and below.startswith("|"):
            assert above.count("|") == below.count("|")
    assert "**" in text and "<u>" in text
    assert text.index("ratio 0.25") < text.index("ratio 1/3")
    assert "| *expected* | 200 | 200 | 500 | 900 |" in text and "| *scored* | 4 | 3 | 4 | 11 |" in text
    assert "vs full" in text and "vs snapkv" in text


def test_notes_tell_scoring_protocol_limit_and_holes(view, tmp_path):
    text = files(view, tmp_path / "out")["table.md"].decode()
    assert "code similarity by difflib" in text
    assert "truncation ids, compress prompt" in text
    assert "limit: 4 samples per task" in text
    assert "1 cells failed and left out, never counted as 0: snapkv (0.25) trec 1." in text
    assert printed(view).count("limit: 4 samples per task") == 1


def test_notes_name_approximate_budgets_strict_scoring_and_idle_merging(tmp_path):
    arms = [*ARMS[:2], ("kvpress", "0.25", 0.0)]
    manifest = {"scoring": {"name": "strict", "code_sim": "difflib"}, "notes": ["built-in data"]}
    view = simulate(tmp_path / "r/x/m", ["qasper"], 2, arms, manifest=manifest)
    for record in view.records.values():
        if record.label == "selkv":
            record.counters["routed"][:] = [0.0] * 4
            record.counters["evicted_first_share"] = [0.0, 0.31]
    text = printed(view)
    assert "strict scoring" in text and "built-in data" in text
    assert "only approximately, the measured share is shown: kvpress." in text
    assert "Nothing was routed, so nothing was merged: selkv (0.25)." in text
    assert "selkv (0.25) up to 31.0 %" in text


def test_mixed_versions_are_warned_of(view, tmp_path):
    other = simulate(
        tmp_path / "r/x/other", ["qasper"], 2, ARMS, manifest={"versions": {"torch": "2.9"}, "device": "cuda"}
    )
    text = files(view, tmp_path / "out", others=[other])["table.md"].decode()
    assert "Warning: runs of different versions or devices are mixed: device cpu / cuda; torch 2.13.0 / 2.9." in text


def test_several_models_have_a_block_each_in_any_order(view, tmp_path):
    other = simulate(tmp_path / "r/x/a_model", ["qasper", "hotpotqa"], 2, ARMS)
    first = files(view, tmp_path / "1", others=[other])
    assert first == files(other, tmp_path / "2", others=[view])
    text = first["table.md"].decode()
    assert text.index("a\\_model on mini") < text.index("m on mini")


@pytest.mark.parametrize("width", [60, 80, 250])
def test_console_fits_its_width_and_cuts_no_number(view, width):
    text = printed(view, Options("snapkv", intervals=True), width)
    assert "…" not in text
    assert max(map(len, text.splitlines())) <= width
    assert "expected" in text and "Rank" in text


def test_longbench_e_has_bucket_columns_and_blocks(tmp_path):
    view = simulate(tmp_path / "r/x/m", ["qasper_e", "trec_e"], 8, ARMS[:3], data="longbench_e")
    rows = list(csv.DictReader(files(view, tmp_path / "out")["table.csv"].decode().splitlines()))
    assert [row["length"] for row in rows[::3]] == ["", "0-4k", "4-8k", "8k+"]
    assert rows[1]["0-4k"] == rows[4]["Avg"]


def test_bytes_do_not_depend_on_the_order_of_lines(tmp_path):
    options = Options("snapkv", intervals=True)
    view = simulate(tmp_path / "r/x/m", ["qasper", "trec"], 5, ARMS, failed=[("selkv", "trec", 2)])
    before = files(view, tmp_path / "out", options), printed(view, options)
    for dataset in ("qasper", "trec"):
        path = cells_file(tmp_path / "r", "m", "mini", dataset)
        lines = path.read_bytes().splitlines(keepends=True)
        random.Random(3).shuffle(lines)
        path.write_bytes(b"".join(lines))
    again = load(view.folder)
    assert (files(again, tmp_path / "out", options), printed(again, options)) == before


def test_a_run_with_nothing_computed_yet_has_an_empty_table(tmp_path):
    everything = [(label, "qasper", i) for label, *_ in ARMS for i in range(2)]
    view = simulate(tmp_path / "r/x/m", ["qasper"], 2, ARMS, missing=everything)
    assert "10 cells not computed" in printed(view, Options(intervals=True))
    assert files(view, tmp_path / "out", Options(intervals=True))


def test_numbers_are_never_negative_zero():
    assert [number(-0.001), number(-0.001, sign=True), number(0.126, sign=True)] == ["0.00", "0.00", "+0.13"]
    assert number(float("nan")) == ""


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="pdflatex is not installed")
def test_latex_compiles_with_any_label(tmp_path):
    arms = [*ARMS, ("snapkv a_b=50%&#{x}^~\\$", "0.25", 0.0), ("kvpress β=Δ<1>", "0.25", -0.1)]
    view = simulate(tmp_path / "r/x/m_1", ENGLISH, 2, arms, failed=[("snapkv", "trec", 1)])
    write_tables(view, tmp_path, Options("snapkv", intervals=True))
    lines = [r"\documentclass{article}", r"\usepackage{booktabs,graphicx}", r"\begin{document}", r"\input{table.tex}"]
    (tmp_path / "page.tex").write_text("\n".join([*lines, r"\end{document}"]))
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "page.tex"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, errors="replace")
    assert done.returncode == 0, done.stdout[-2000:]
    assert (tmp_path / "page.pdf").stat().st_size > 10_000


def test_loops_are_told_by_row(tmp_path):
    view = simulate(tmp_path / "run" / "m", ["hotpotqa"], 4, [("full", "1", 0.0), ("selkv", "0.25", 0.0)])
    loop = next(key for key, record in view.records.items() if record.label == "selkv")
    records = {key: replace(record, looped=key == loop) for key, record in view.records.items()}
    text = " ".join(notes(replace(view, records=records), tables(view)))
    assert "Outputs that end in a loop: selkv (0.25) 25 %; the others none." in text
    assert "loop" not in " ".join(notes(view, tables(view)))
