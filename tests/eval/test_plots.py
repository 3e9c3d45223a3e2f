"""Plots and the numbers behind them: by hand on small cases, the same bytes twice, files that open as pictures."""

import dataclasses
import xml.etree.ElementTree as ElementTree
from dataclasses import replace

import numpy as np
import pytest
from matplotlib.figure import Figure

from eval.kept import pack, unpack
from eval.plots import write_plots
from eval.plots.curves import cap
from eval.plots.heatmaps import _density
from eval.plots.measures import FIDELITY, Fidelity, budgets, by_arm, fidelity, intervals, layer_values, numbers, scores
from eval.plots.style import FULL, PALETTE, styles
from eval.view import View
from tests.eval.simulate import simulate

ARMS = [("full", "1", 0.0), ("selkv", "0.25", -0.05), ("pyramidkv", "0.25", -0.1), ("selkv", "0.5", 0.0)]
TASKS = ["qasper", "trec", "lcc"]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return simulate(tmp_path_factory.mktemp("run") / "sweep" / "smollm2", TASKS, 6, ARMS, missing=[("selkv", "lcc", 0)])


@pytest.fixture(scope="module")
def plots(run, tmp_path_factory):
    folder = tmp_path_factory.mktemp("plots")
    kept = pack([np.arange(25)[None] + layer for layer in range(4)], 100)
    records = {
        key: replace(record, positions=kept) if (record.dataset, record.index) == ("qasper", 0) else record
        for key, record in run.records.items()
    }
    return write_plots(numbers(replace(run, records=records), "pyramidkv"), folder)


def known(values):
    """The values, none of which is missing."""
    assert all(value is not None for value in values)
    return values


def test_every_plot_that_the_records_can_fill_is_written_as_png_and_svg(plots):
    names = {path.stem for path in plots}
    assert names == {
        *("score_by_ratio", "score_by_category", "kl_by_ratio", "agreement_by_ratio", "perplexity_ratio_by_ratio"),
        *("same_by_ratio", "attention_error_by_ratio", "difference_to_full", "difference_to_baseline"),
        *("budget_by_layer", "layers", "gate_histogram", "kept_positions"),
    }
    for path in plots:
        if path.suffix == ".png":
            assert path.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
        else:
            assert ElementTree.parse(path).getroot().tag.endswith("svg")


def test_titles_name_sample_and_ratios(run, plots, monkeypatch):
    titles = {}

    def keep(figure, folder, name):
        titles[name] = figure.get_suptitle()
        return []

    monkeypatch.setattr("eval.plots.save", keep)
    key = run.manifest["cells"]["trec"][2][1]
    kept = pack([np.arange(25)[None]] * 4, 100)
    view = replace(run, records=run.records | {key: replace(run.records[key], positions=kept)})
    write_plots(numbers(view), run.folder)
    assert titles["kept_positions"] == "Positions that are kept of sample trec-2 (trec), ratio 0.25"
    assert titles["layers"] == "Means by layer at ratio 0.25 (the lowest; report.html shows 0.5, too)"


@pytest.mark.parametrize(("values", "ends"), [([1, 1], (None, 1)), ([0, 0], (0, None)), ([-1, 2], (None, None))])
def test_axes_end_where_a_share_does(values, ends):
    axes = Figure().subplots()
    axes.plot(values)
    before = axes.get_ylim()
    cap(axes, 1)
    assert axes.get_ylim() == tuple(was if end is None else end for was, end in zip(before, ends, strict=True))


def test_same_records_same_bytes(run, plots, tmp_path):
    again = write_plots(numbers(run, "pyramidkv"), tmp_path)
    before = {path.name: path.read_bytes() for path in plots}
    assert again and all(path.read_bytes() == before[path.name] for path in again)


def test_a_run_without_sweep_fidelity_or_counters_draws_its_differences_only(tmp_path):
    view = simulate(tmp_path / "x" / "m", ["qasper"], 4, [("full", "1", 0.0), ("snapkv", "0.25", -0.1)], fidelity=False)
    assert {path.stem for path in write_plots(numbers(view), tmp_path)} == {"difference_to_full"}


def test_mean_over_tasks_counts_each_task_the_same_and_takes_the_samples_that_an_arm_has():
    tasks = [np.array([[10.0, np.nan], [20.0, 40.0]]), np.array([[0.0, 60.0], [0.0, 80.0], [30.0, 100.0]])]
    first, second = known(intervals(tasks))
    assert first[:1] + first[3:] == (12.5, 5) and first.low < 12.5 < first.high
    assert second.mean == 60.0 and second.samples == 4 and np.isnan(second.low)  # one sample in a task: no interval


def test_an_arm_without_a_sample_in_a_task_has_no_mean():
    assert intervals([np.array([[1.0, np.nan]]), np.array([[1.0, 2.0]])])[1] is None


def test_averages_are_those_of_the_table(run):
    of = numbers(run)
    for arm, interval in enumerate(known(scores(of, of.tasks))):
        assert interval.mean == pytest.approx(of.rows[arm].average, abs=0.005)  # the official mean is rounded


def test_fidelity_is_the_table_s_and_the_ratio_a_geometric_mean(run):
    of = numbers(run)
    for measure in FIDELITY:
        for arm, interval in enumerate(known(fidelity(of, measure))):
            assert interval.mean == pytest.approx(measure.factor * of.rows[arm].fidelity[measure.key])
            assert interval.low <= interval.mean + 1e-9 and interval.high >= interval.mean - 1e-9


def test_fidelity_that_was_not_measured_is_none(tmp_path):
    view = simulate(tmp_path / "x" / "m", ["qasper"], 2, ARMS, fidelity=False)
    assert fidelity(numbers(view), Fidelity("kl", "KL", True, 2)) == [None] * len(ARMS)


def test_budgets_and_counters_by_layer_against_hand_computed_ones(run):
    key = run.manifest["cells"]["qasper"][0][1]
    record = dataclasses.replace(
        run.records[key], kept=[1, 3], total=[10, 10], counters={"routed": [0.5, 1.0]}, fidelity=None
    )
    other = dataclasses.replace(record, kept=[2, 4], total=[30, 10], counters={"routed": [0.7, 0.0]})
    assert known(budgets([[record, other]]))[0].tolist() == [3 / 40, 7 / 20]
    assert budgets([[record], []])[1] is None
    assert known(layer_values([[record, other]])["routed"])[0].tolist() == pytest.approx([0.6, 0.5])
    assert layer_values([[record], []])["routed"][1] is None


def test_failed_cells_count_for_nothing(run):
    key = run.manifest["cells"]["qasper"][0][1]
    broken = dataclasses.replace(run.records[key], error="RuntimeError")
    view = View(run.folder, run.manifest, {**run.records, key: broken})
    assert len(by_arm(view)[1]) == len(by_arm(run)[1]) - 1


def test_density_of_kept_positions_sums_to_what_is_kept():
    layer = np.array([[0, 1, 2, 9, -1], [0, 4, 5, 8, 9]])  # two heads, one padded
    edges = np.linspace(0, 10, 6)
    assert _density(layer, edges).tolist() == [3 / 4, 1 / 4, 2 / 4, 0, 3 / 4]


def test_no_two_series_look_alike_even_where_the_colours_repeat():
    labels = ["full", *(f"method{i}" for i in range(21))]
    chosen = styles(labels)
    assert len(set(chosen.values())) == len(labels) and chosen["full"] == FULL
    assert len({chosen[f"method{i}"].color for i in range(7)}) == len(PALETTE)


def test_kept_positions_survive_packing():
    draw = np.random.default_rng(0)
    layers = [np.sort(draw.permuted(np.tile(np.arange(50), (3, 1)), axis=1)[:, :20], axis=1) for _ in range(4)]
    layers[2][1, 15:] = -1
    assert all((a == b).all() for a, b in zip(unpack(pack(layers, 50)), layers, strict=True))
