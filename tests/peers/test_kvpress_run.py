"""kvpress's presses in a run: the same grid, records and tables as every other method, marked as approximate."""

import pytest

from eval.runner import run
from tests.eval.runs import cells, plan, save_model


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return save_model(tmp_path_factory.mktemp("model"))


def test_presses_stand_beside_the_other_methods(model, tmp_path, capsys):
    press = "methods.kvpress.press='ExpectedAttentionPress(n_sink=2)'"
    arguments = (model, tmp_path, "method=[snapkv,kvpress,kvpress_knorm,kvpress_adakv]", press, "ratio=[0.25,0.5]")
    assert run(plan(*arguments)) == 0
    records = list(cells(tmp_path).values())
    assert len(records) == 4 * (1 + 4 * 2) and not [record.error for record in records if record.error]
    by_method = {}
    for record in records:
        by_method.setdefault(record.method, []).append(record)
        share = float(record.ratio) if record.method != "full" else 1
        assert sum(record.kept) == pytest.approx(share * sum(record.total), abs=2 * len(record.kept))
        assert record.fidelity["kl"] >= 0
    assert {name for name, found in by_method.items() if not found[0].exact} == {
        "kvpress", "kvpress_knorm", "kvpress_adakv",
    }  # fmt: skip
    assert by_method["kvpress"][0].params == {"press": "ExpectedAttentionPress(n_sink=2)", "attention": "selkv"}
    table = (tmp_path / "default" / "tiny" / "table.md").read_text()
    approximate = next(line for line in table.splitlines() if "approximately" in line)
    assert "kvpress_knorm" in approximate and "snapkv" not in approximate
    assert run(plan(*arguments)) == 0
    assert "0.25" in capsys.readouterr().out


def test_ratio_1_is_the_full_cache(model, tmp_path):
    assert run(plan(model, tmp_path, "method=[kvpress,kvpress_tova]", "ratio=1", "compress=context")) == 0
    records = list(cells(tmp_path).values())
    full = {(record.dataset, record.index): record.prediction for record in records if record.method == "full"}
    for record in records:
        assert record.prediction == full[record.dataset, record.index]
        assert record.fidelity["kl"] < 1e-6


def test_a_press_that_fails_takes_no_other_cell_along(model, tmp_path):
    # its window is longer than the prompts
    arguments = ("method=[snapkv,kvpress]", "methods.kvpress.press='SnapKVPress(window_size=5000)'")
    assert run(plan(model, tmp_path, *arguments)) == 1
    failed = {record.method for record in cells(tmp_path).values() if record.error}
    assert failed == {"kvpress"}
