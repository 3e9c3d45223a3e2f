"""Needle in a haystack: the grid, the needle's place, and the heat map of a run."""

import numpy as np
import pytest

from eval import needle
from eval.app import plan_of
from eval.benchmarks import load_benchmark
from eval.needle import Place, place_of, spaced
from eval.plots import needles
from eval.plots.measures import numbers
from eval.prompts import render
from eval.ruler import texts
from selkv.errors import UserError
from tests.eval.benchmark_runs import finished
from tests.eval.runs import save_model


def rows(**options):
    return needle.load(**options).samples["needle"]


def test_the_grid_has_every_length_and_depth():
    drawn = rows(lengths=[500, 1500], depths=5, repeats=2)
    places = [place_of(row.id) for row in drawn]
    assert len(drawn) == 20 and len({row.id for row in drawn}) == 20
    assert set(places) == {Place(n, d) for n in (500, 1500) for d in (0.0, 25.0, 50.0, 75.0, 100.0)}
    assert [row.index for row in drawn] == list(range(20))
    assert spaced(4) == [0.0, 33.3, 66.7, 100.0]
    assert drawn != rows(lengths=[500, 1500], depths=5, repeats=2, seed=1)


def test_the_needle_is_where_its_id_says_and_the_text_as_long():
    drawn = needle.load(lengths=[1000, 8000], depths=11)
    for row in drawn.samples["needle"]:
        place, (answer,) = place_of(row.id), row.answers
        before, _, after = row.context.partition(answer)
        depth = 100 * len(before) / (len(before) + len(after))
        assert depth == pytest.approx(place.depth, abs=6), row.id
        assert row.context.count(answer) == 1 and answer not in row.input
        total = texts.size(render(row, drawn.prompts["needle"])) + drawn.prompts["needle"].max_new_tokens
        assert 0.95 * place.tokens < total <= place.tokens


def test_a_limit_spreads_over_the_lengths():
    some = rows(lengths=[500, 1000, 2000], depths=11, limit=3)
    assert [place_of(row.id).tokens for row in some] == [500, 1000, 2000]
    assert len(rows(lengths=[500, 1000], depths=3, limit=2, first=True)) == 2
    assert needle.load(lengths=[500], depths=3, limit=2).expected == {"needle": 3}


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("data.lengths=[10]", r"data\.lengths=\[10\]: 10 is not between 256"),
        ("data.lengths=[]", r"data\.lengths=\[\] must be a list that is not empty"),
        ("data.depths=1", r"data\.depths=1 must be at least 2"),
        ("data.repeats=0", r"data\.repeats=0 must be at least 1"),
    ],
)
def test_a_grid_that_is_none_is_refused(option, message):
    with pytest.raises(UserError, match=message):
        load_benchmark(plan_of(["data=needle", option]))


def test_the_heat_map_shows_means_by_place():
    panels = {
        "full": {Place(500, 0.0): 100.0, Place(500, 50.0): 50.0, Place(900, 0.0): 0.0},
        "snapkv  0.1": {Place(500, 0.0): 25.0},
    }
    figure = needles.heat_maps(panels)
    first, second = (axes.collections[0].get_array().reshape(2, 2) for axes in figure.axes[:2])
    assert first.filled(np.nan) == pytest.approx(np.array([[100, 0], [50, np.nan]]), nan_ok=True)
    assert second.filled(np.nan) == pytest.approx(np.array([[25, np.nan], [np.nan, np.nan]]), nan_ok=True)
    assert [axes.get_title(loc="left") for axes in figure.axes[:2]] == ["full", "snapkv  0.1"]
    assert [text.get_text() for text in figure.axes[0].get_yticklabels()] == ["0", "50"]
    low, high = sorted(figure.axes[0].get_ylim())
    assert figure.axes[0].get_ylim() == (high, low), "the start of the text stands on top"


def test_a_run_through_the_runner_draws_it(tmp_path):
    model = save_model(tmp_path / "model")
    view = finished(
        model, tmp_path, "data=needle", "data.lengths=[300,500]", "data.depths=3", "model.max_prompt_tokens=3900"
    )
    assert len(view.records) == 3 * 6
    by_arm = needles.found(numbers(view).cells)
    assert set(by_arm) == {0, 1, 2} and all(len(scores) == 6 for scores in by_arm.values())
    drawn = sorted(path.name for path in view.folder.rglob("needles.*"))
    assert drawn == ["needles.png", "needles.svg"]
    assert "Retrieval" in (view.folder / "table.md").read_text()
