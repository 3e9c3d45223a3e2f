"""The report's data and its command: the table's numbers, every cell in its place, runs side by side."""

import json
import re
import sys
from dataclasses import replace

import pytest

from eval.grid import scores_grid
from eval.plots.measures import numbers
from eval.report import write_report
from eval.report.cli import configured_baseline, main
from eval.report.merge import merge
from eval.report.page import embedded
from eval.report.payload import block
from eval.scores import scoring_text
from eval.statistics import compare
from eval.tasks import task_of
from eval.view import View
from tests.eval.hostile import ARMS, HOSTILE, TASKS
from tests.eval.simulate import simulate

# What the page is made of.


def test_same_records_same_bytes_and_no_address_of_another_host(run, tmp_path):
    first = write_report([numbers(run, "snapkv")], tmp_path / "a").read_bytes()
    assert first == write_report([numbers(run, "snapkv")], tmp_path / "b").read_bytes()
    assert set(re.findall(rb"https?://[^\s\"']+", first)) == {b"http://www.w3.org/2000/svg"}  # a name, never fetched


def test_embedded_json_cannot_end_its_element_and_reads_back():
    text = embedded({"text": HOSTILE})
    assert "<" not in text and json.loads(text) == {"text": HOSTILE}


def test_rows_hold_the_table_s_numbers_and_paired_intervals(run, data):
    of = numbers(run, "snapkv")
    for arm, row in enumerate(data["rows"]):
        assert row["average"][0] == pytest.approx(of.rows[arm].average, abs=1e-4)
        assert row["average"][1] < row["average"][0] < row["average"][2]
    score = {
        name: of.cells[of.cells.dataset == name].pivot(index="sample", columns="arm", values="score") for name in TASKS
    }
    arms = [3, 4]  # ratio 0.25
    expected = compare([score[name][arms].to_numpy() for name in TASKS], [score[name][0].to_numpy() for name in TASKS])
    for arm, pair in zip(arms, expected, strict=True):
        assert data["rows"][arm]["delta"][1:] == pytest.approx([pair.low, pair.high], rel=1e-5)
        assert data["rows"][arm]["p"] == pytest.approx(pair.adjusted, rel=1e-5)


def test_page_and_text_tables_mark_the_same_cells(run, data):
    of = numbers(run, "snapkv")
    names = {"Avg": "average", "Category avg": "category_average", "Δ to full": "delta", "Avg rank": "rank"}
    names |= {name: f"tasks{place}" for place, name in enumerate(TASKS)}
    fidelity = ["KL to full", "Top-1 agreement %", "Perplexity ratio", "Same text %", "Attention error"]
    names |= {name: f"fidelity{place}" for place, name in enumerate(fidelity)}
    for table in of.tables:
        columns = {column.name: column.cells for column in scores_grid(table).columns}
        for name, key in names.items():
            page = [data["rows"][row.arm]["marks"].get(key, "") for row in table.rows]
            assert page == [cell.mark for cell in columns[name]], name


def test_cells_line_up_with_samples_and_arms(run, data):
    width = len(ARMS)
    assert len(data["samples"]) == 80 and all(
        len(column) == 80 * width for name, column in data["cells"].items() if name != "more"
    )
    position = 0
    for dataset in TASKS:
        for keys in run.manifest["cells"][dataset]:
            for key in keys:
                record = run.records.get(key)
                text = None if record is None or record.error else record.prediction
                assert data["cells"]["prediction"][position] == text
                assert (data["cells"]["score"][position] is None) == (text is None)
                position += 1


def test_findings_say_what_is_a_difference(data):
    text = " ".join(data["findings"])
    assert "Ratio 0.1: selkv has the best average" in text
    assert re.search(r"\d of 2 methods differ from the full cache beyond noise: .*snapkv", text)
    assert "probability 0.8" in text


def test_findings_name_all_that_share_the_best_average(tmp_path):
    view = simulate(tmp_path / "x" / "m", ["trec"], 1, [("full", "1", 0.0), ("a", "0.5", 9.0), ("b", "0.5", 9.0)])
    assert block(numbers(view))["findings"][0].startswith("Ratio 0.5: a, b share the best average, 100.00")


@pytest.mark.parametrize(("samples", "shown"), [(4, False), (60, True)])
def test_findings_do_not_promise_what_few_samples_cannot_show(tmp_path, samples, shown):
    """4 samples: p is 2 / 2 ** 4 at best; and a difference of more than 100 points does not exist."""
    view = simulate(tmp_path / "x" / "m", ["trec"], samples, [("full", "1", 0.0), ("a", "0.5", -0.4)])
    text = " ".join(block(numbers(view))["findings"])
    assert ("probability 0.8" in text) is shown
    assert ("These few samples cannot show any difference: add samples" in text) is not shown


def test_identical_texts_are_called_identical(tmp_path):
    view = simulate(tmp_path / "x" / "m", ["qasper"], 8, [("full", "1", 0.0), ("a", "0.5", -0.4), ("b", "0.5", 0.0)])
    full = {record.index: record for record in view.records.values() if record.label == "full"}
    records = {
        key: replace(record, prediction=full[record.index].prediction) if record.label == "b" else record
        for key, record in view.records.items()
    }
    page = block(numbers(replace(view, records=records)))
    assert "b has the best average" in page["findings"][0] and "(texts identical to full)" in page["findings"][0]
    assert [row["identical"] for row in page["rows"]] == [False, False, True]
    assert ["Samples", "8 of 200 in 1 task"] in page["facts"]


def test_longbench_s_scorer_and_lengths_are_named_for_its_own_data_only(tmp_path):
    def page(name, task):
        return block(numbers(simulate(tmp_path / name / "m", [task], 2, ARMS[:2], data=name, fidelity=False)))

    longbench, own = page("longbench", "qasper"), page("mini", "qasper")
    assert longbench["counted"] == "LongBench's count" and own["counted"] == "the data's own count"
    assert dict(longbench["facts"])["Scoring"].startswith("official scoring (rouge")
    view = View(tmp_path, {"scoring": {"name": "official", "code_sim": "difflib"}, "tasks": {"needle": {}}}, {})
    assert scoring_text(view) == f"metrics of this benchmark: {task_of('needle').metric}"


def test_longbench_e_shows_its_length_buckets(tmp_path):
    view = simulate(tmp_path / "x" / "m", ["qasper_e"], 12, ARMS[:2], data="longbench_e")
    of = numbers(view)
    page = block(of)
    assert page["buckets"] == ["0-4k", "4-8k", "8k+"] and len(page["rows"]) == 2
    assert page["rows"][1]["buckets"] == pytest.approx(list(of.rows[1].buckets))


# Merging runs.


def two_runs(folder, **second):
    first = simulate(folder / "a" / "m", ["qasper", "trec"], 4, ARMS[:3], fidelity=False)
    other = simulate(folder / "b" / "m", ["qasper"], 6, [ARMS[0], ARMS[3], ARMS[1]], fidelity=False, **second)
    return first, other


def test_merged_runs_share_samples_and_arms(tmp_path):
    first, second = two_runs(tmp_path)
    (merged,) = merge([first, second])
    assert [(arm["label"], arm["ratio"]) for arm in merged.manifest["arms"]] == [
        *(("full", "1"), ("snapkv", "0.1"), ("selkv", "0.1"), ("snapkv", "0.25"))
    ]
    assert merged.manifest["tasks"]["qasper"]["selected"] == 6 and merged.manifest["tasks"]["trec"]["selected"] == 4
    assert merged.manifest["cells"]["qasper"][0] == [
        *first.manifest["cells"]["qasper"][0],
        second.manifest["cells"]["qasper"][0][1],
    ]
    assert merged.cell("qasper", 5, 2) is None and merged.cell("qasper", 5, 3) is not None
    assert merged.cell("trec", 0, 3) is None


def test_runs_of_another_protocol_stay_apart(tmp_path):
    first, second = two_runs(tmp_path, manifest={"protocol": {"name": "paper"}})
    assert len(merge([first, second])) == 2
    assert merge([first]) == [first]


def test_runs_of_other_versions_are_merged_with_a_warning(tmp_path):
    first, second = two_runs(tmp_path, manifest={"versions": {"torch": "9.9"}})
    (merged,) = merge([first, second])
    assert any("torch 2.13.0 / 9.9" in note for note in merged.manifest["notes"])


# The command line.


def test_command_rebuilds_everything_in_the_run_without_torch(tmp_path, capsys, monkeypatch):
    view = simulate(tmp_path / "x" / "m", ["qasper"], 3, ARMS[:3])
    monkeypatch.setitem(sys.modules, "torch", None)  # importing it would fail
    assert main([str(view.folder)]) == 0
    written = capsys.readouterr().out
    for name in ("report.html", "table.md", "table.csv", "table.tex", "scores.csv", "plots/difference_to_full.png"):
        assert (view.folder / name).stat().st_size > 0 and name in written


def test_command_compares_with_the_baseline_of_the_run_s_config(tmp_path):
    view = simulate(tmp_path / "x" / "m", ["qasper"], 3, ARMS[:3])
    (view.folder / "config.yaml").write_text("baseline: snapkv\n")
    assert configured_baseline(view) == "snapkv"
    assert main([str(view.folder)]) == 0
    assert (view.folder / "plots" / "difference_to_baseline.png").exists()
    assert "Wins vs snapkv" in (view.folder / "report.html").read_text()


def test_unknown_baseline_is_told_with_the_choices(tmp_path, capsys):
    view = simulate(tmp_path / "x" / "m", ["qasper"], 3, ARMS[:3])
    assert main([str(view.folder), "--baseline", "snapvk"]) == 2
    assert "unknown baseline 'snapvk'; choose from: full, selkv, snapkv" in capsys.readouterr().err


def test_command_merges_runs_into_one_folder(tmp_path):
    first, second = two_runs(tmp_path)
    other = simulate(tmp_path / "a" / "other", ["qasper"], 3, ARMS[:2], fidelity=False)
    assert main([str(run.folder) for run in (first, second, other)]) == 0
    assert (tmp_path / "merged" / "report.html").exists()
    assert {path.name for path in (tmp_path / "merged" / "plots").iterdir()} == {"m-mini", "other-mini"}


def test_command_tells_a_wrong_folder_in_one_line(tmp_path, capsys):
    assert main([str(tmp_path)]) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: no run in") and error.count("\n") == 1


def test_output_does_not_depend_on_the_order_of_cells_in_their_file(tmp_path):
    view = simulate(tmp_path / "x" / "m", ["qasper"], 3, ARMS[:3])
    shuffled = View(view.folder, view.manifest, dict(reversed(view.records.items())))
    assert block(numbers(view)) == block(numbers(shuffled))
