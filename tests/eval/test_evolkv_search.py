"""EvolKV's search: CMA-ES by groups on a known function, training samples, scores, and the way from file to run."""

import json
import sys
from dataclasses import replace
from fractions import Fraction

import pytest

import eval.worker
from eval.app import plan_of
from eval.benchmarks import load_benchmark
from eval.evolkv.search import HIGH, LOW, Search, Undecoded, groups, search
from eval.evolkv.training import trainer_of, training_benchmark
from eval.evolkv_cli import arm_of, main, options_of
from eval.runner import run
from eval.scoring import score_row
from selkv.errors import UserError
from tests.eval.runs import cells, overrides, plan, save_model

TARGET = (2.0, 0.5, 1.5, 0.2, 3.0, 1.0, 0.7)


def closeness(candidates):
    return [-sum((a - b) ** 2 for a, b in zip(w, TARGET, strict=True)) for w in candidates]


def test_the_search_finds_a_known_optimum_group_by_group():
    found = list(search(closeness, 7, Search(iterations=40, group=4)))
    assert len(found) == 1 + 2 * 40
    assert found[0].weights == (1.0,) * 7 and found[0].score == found[0].uniform == closeness([(1.0,) * 7])[0]
    assert found[40].weights[4:] == (1.0,) * 3, "a group that was not searched yet must stay at 1"
    assert found[-1].weights == pytest.approx(TARGET, abs=0.05)
    scores = [state.score for state in found]
    assert scores == sorted(scores), "the best is kept over the whole run"


def test_the_search_is_seeded_bounded_and_counts():
    asked: list[tuple[float, ...]] = []

    def evaluate(candidates):
        asked.extend(candidates)
        return closeness(candidates)

    one = list(search(evaluate, 7, Search(iterations=5, group=7)))[-1]
    assert one.evaluations == len(asked) == 1 + 5 * 9  # 4 + floor(3 ln 7) = 9
    assert all(LOW <= weight <= HIGH for candidate in asked for weight in candidate)
    assert one == list(search(closeness, 7, Search(iterations=5, group=7)))[-1]
    assert one != list(search(closeness, 7, Search(iterations=5, group=7, seed=2)))[-1]


def test_a_flat_score_leaves_the_uniform_budgets():
    found = list(search(lambda candidates: [50.0] * len(candidates), 4, Search(iterations=3)))[-1]
    assert found.weights == (1.0,) * 4


def test_groups_cover_all_layers_and_none_is_a_single_one():
    assert groups(32, 8) == [range(0, 8), range(8, 16), range(16, 24), range(24, 32)]
    assert groups(30, 8)[-1] == range(24, 30)
    assert groups(17, 8) == [range(0, 8), range(8, 17)]
    for layers in range(2, 40):
        parts = groups(layers, 8)
        assert [i for part in parts for i in part] == list(range(layers)) and min(map(len, parts)) > 1
    with pytest.raises(UserError, match="1 layer"):
        groups(1, 8)
    assert Search().size(8) == 10


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return save_model(tmp_path_factory.mktemp("model"))


def test_training_samples_are_never_the_reported_ones(model, tmp_path):
    of = plan(model, tmp_path, "method=[evolkv]")
    reported = {row.id for rows in load_benchmark(of).samples.values() for row in rows}
    trained = training_benchmark(of, 3, 5)
    ids = {row.id for rows in trained.samples.values() for row in rows}
    assert all(len(rows) == 3 for rows in trained.samples.values()) and not ids & reported
    assert {row.context for rows in trained.samples.values() for row in rows}.isdisjoint(
        row.context for rows in load_benchmark(of).samples.values() for row in rows
    )
    with pytest.raises(UserError, match=r"search\.seed=0 is the seed of the reported samples"):
        training_benchmark(of, 3, 0)


def test_rows_of_a_file_that_are_reported_are_left_out(shared):
    data = next(iter(sorted(shared.glob("longbench/**/trec.jsonl"))), None)
    if data is None:
        pytest.skip("no trec.jsonl in the reference data")
    common = ["method=[evolkv]", "model=llama31", "data=longbench", "data.tasks=[trec]", f"data.path={data.parent}"]
    for limit in ("limit=6", "limit.first=6"):
        of = plan_of([*common, limit])
        reported = {row.id for row in load_benchmark(of).samples["trec"]}
        trained = training_benchmark(of, 5, 1).samples["trec"]
        assert len(reported) == 6 and len(trained) == 5 and not reported & {row.id for row in trained}
    with pytest.raises(UserError, match="none is left to train on; add limit=N"):
        training_benchmark(plan_of([*common, "limit=null"]), 5, 1)


@pytest.fixture
def prefills(monkeypatch):
    counted = []
    original = eval.worker.prefill
    monkeypatch.setattr(eval.worker, "prefill", lambda *a, **k: counted.append(1) or original(*a, **k))
    return counted


def test_scores_are_those_of_the_runner_from_one_prefill_a_sample(model, tmp_path, prefills):
    """The slow twin: the runner itself, one run for each weight vector, on the same samples."""
    weights = [(1.0, 1.0, 1.0, 1.0), (0.2, 2.0, 1.0, 0.8), (3.0, 0.1, 0.1, 1.0)]
    of = plan(model, tmp_path, "method=[evolkv]", "seed=3")
    benchmark = load_benchmark(of)
    trainer = trainer_of(of, benchmark, arm_of(of))
    found = [*trainer(weights[:1]), *trainer(weights[1:])]
    assert len(prefills) == sum(map(len, benchmark.samples.values())) == 4
    assert trainer.layers == 4
    expected, texts = [], []
    for each in weights:
        again = plan(model, tmp_path, "method=[evolkv]", "seed=3", f"methods.evolkv.weights={list(each)}")
        run(again)
        records = [r for r in cells(tmp_path).values() if r.method == "evolkv" and tuple(r.params["weights"]) == each]
        by_task: dict[str, list[float]] = {}
        for r in records:
            score = score_row(r.dataset, r.prediction, r.answers, r.all_classes, trainer.scoring)
            by_task.setdefault(r.dataset, []).append(score)
        expected.append(100 * sum(sum(s) / len(s) for s in by_task.values()) / len(by_task))
        texts.append(sorted((r.id, r.prediction) for r in records))
    assert found == pytest.approx(expected)
    assert texts[0] != texts[2], "the weight vectors must differ in what they generate for this test to mean anything"


def test_prompts_that_do_not_fit_are_prefilled_again(model, tmp_path, prefills):
    of = plan(model, tmp_path, "method=[evolkv]", "data.tasks=[hotpotqa]")
    trainer = trainer_of(of, load_benchmark(of), arm_of(of))
    trainer.room = 0
    assert trainer([(1.0,) * 4]) == trainer([(1.0,) * 4])
    assert len(prefills) == 4


def test_from_the_search_to_a_run_with_its_budgets(model, tmp_path, capsys):
    options = ["search.samples=1", "search.iterations=2", "search.population=4", "search.seed=7", "ratio=0.3"]
    arguments = [*overrides(model, tmp_path), *options]
    assert main(arguments) == 0
    shown, progress = capsys.readouterr()
    assert "1/3 generations, best" in progress and "3/3 generations, layers 0-3: best" in progress
    path = tmp_path / "budgets" / "tiny-mini-0.3.json"
    assert f"methods.evolkv.budget_file={path}" in shown
    content = json.loads(path.read_text())
    expected = {"model": "tiny", "ratio": "0.3", "seed": 7, "data": "mini", "group": 8, "interrupted": False}
    expected |= {"evaluations": 1 + 2 * 4, "sample_ids": ["hotpotqa-7-120-1", "samsum-7-120-1"]}
    assert {key: content[key] for key in expected} == expected
    assert len(content["weights"]) == 4 and content["score"] >= content["uniform"]
    assert main(arguments) == 0
    assert json.loads(path.read_text()) == content, "the same command writes the same file"

    use = plan(model, tmp_path, "method=[snapkv,evolkv]", f"methods.evolkv.budget_file={path}", "ratio=0.3")
    assert run(use) == 0
    records = [record for record in cells(tmp_path).values() if record.method in ("snapkv", "evolkv")]
    totals = {(record.id, sum(record.kept)) for record in records}
    assert len(totals) == 4, "both methods must keep the same number of entries"

    trained = plan(model, tmp_path, "method=[evolkv]", f"methods.evolkv.budget_file={path}", "ratio=0.3", "seed=7")
    with pytest.raises(UserError, match=r"evolkv was trained on 2 of the samples that this run reports \(hotpotqa-7-"):
        run(trained)


def test_ctrl_c_writes_the_best_so_far(model, tmp_path, capsys, monkeypatch):
    calls = []

    def interrupted(trainer, candidates):
        calls.append(candidates)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return [float(i) for i in range(len(candidates))]

    monkeypatch.setattr("eval.evolkv.training.Trainer.__call__", interrupted)
    assert main([*overrides(model, tmp_path), "search.output=" + str(tmp_path / "found.json")]) == 130
    content = json.loads((tmp_path / "found.json").read_text())
    assert content["interrupted"] and tuple(content["weights"]) == calls[1][-1] and content["evaluations"] == 9


def test_a_sample_that_cannot_be_decoded_leaves_the_best_so_far(model, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("eval.worker.Worker.decode", lambda of, cells, task: 1 / 0)
    arguments = [*overrides(model, tmp_path), f"search.output={tmp_path / 'found.json'}"]
    assert main(arguments) == 1
    assert "cannot be decoded: ZeroDivisionError" in capsys.readouterr().err and not (tmp_path / "found.json").exists()
    calls = []

    def failing(trainer, candidates):
        calls.append(candidates)
        if len(calls) == 3:
            raise Undecoded("out of memory")
        return [float(i) for i in range(len(candidates))]

    monkeypatch.setattr("eval.evolkv.training.Trainer.__call__", failing)
    assert main(arguments) == 1
    content = json.loads((tmp_path / "found.json").read_text())
    assert content["interrupted"] and tuple(content["weights"]) == calls[1][-1]


@pytest.mark.parametrize(
    ("option", "says"),
    [
        ("search.iterations=[", "cannot read 'search.iterations=['"),
        ("search.iterations={a: b}", "search.iterations={'a': 'b'} is not a whole number"),
        ("search.iterations=2.5", "is not a whole number"),
        ("search.iterations", "search.iterations has no value"),
        ("search.=3", "unknown option 'search.'"),
        ("search.population=true", "search.population=True is not"),
        ("search.population=2", "search.population=2 is not"),
        ("search.sigma=true", "search.sigma=True is not"),
        ("search.sigma=.nan", "search.sigma=nan is not"),
        ("search.sigma=wide", "search.sigma=wide is not"),
        ("search.group=1", "search.group=1 is not"),
        ("search.seed=-1", "search.seed=-1 is not"),
        ("search.samples=0", "search.samples=0 is not"),
        ("search.output=5", "search.output=5 is no file"),
        ("search.output=[a]", "search.output=['a'] is no file"),
        ("search.output=''", "search.output= is no file"),
        ("--samples=3", "unknown flag '--samples'"),
        ("-m", "-m is for python run.py"),
    ],
)
def test_bad_options_of_the_search_are_one_line_before_anything_is_loaded(option, says, capsys):
    assert main(["model=hf", "model.path=nowhere", "model.name=x", option]) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ") and error.count("\n") == 1 and says in error, error


@pytest.mark.parametrize("place", ["/proc/selkv/found.json", "folder", "file/found.json"])
def test_a_budget_file_that_cannot_be_written_is_told_before_the_search(model, tmp_path, capsys, monkeypatch, place):
    monkeypatch.setattr("eval.evolkv.training.Trainer.__call__", lambda *_: pytest.fail("it searched"))
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_text("")
    assert main([*overrides(model, tmp_path), f"search.output={tmp_path / place}"]) == 2
    assert "cannot be written (" in capsys.readouterr().err.splitlines()[-1]


def test_a_search_without_its_library_is_told_before_the_search(model, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("eval.evolkv.training.Trainer.__call__", lambda *_: pytest.fail("it searched"))
    monkeypatch.setitem(sys.modules, "cma", None)
    assert main([*overrides(model, tmp_path)]) == 2
    assert "pip install cma" in capsys.readouterr().err


def test_mistakes_are_told_in_one_line(model, tmp_path, capsys):
    def error(*more):
        assert main([*overrides(model, tmp_path), *more]) == 2
        return capsys.readouterr().err.strip().splitlines()[-1]

    assert "Did you mean 'search.iterations'?" in error("search.iteration=3")
    assert "search.iterations=0 is not a whole number" in error("search.iterations=0")
    assert "search.samples=x" in error("search.samples=x")
    assert "one ratio" in error("ratio=[0.1,0.2]")
    assert "search.seed=0 is the seed" in error("search.seed=0")
    assert "evolkv at one ratio" in error("method=[snapkv]")
    assert "methods.evolkv.windo" in error("methods.evolkv.windo=3")


def test_the_plan_of_a_search_needs_no_model(model, tmp_path, capsys):
    assert main([*overrides(model, tmp_path), "dry_run=true", "search.samples=3"]) == 0
    assert "6 training samples of 2 tasks" in capsys.readouterr().err
    assert not (tmp_path / "budgets").exists()
    assert options_of({"search.population": 6}).population == 6
    assert replace(options_of({}), seed=3).seed == 3
    assert Fraction(arm_of(plan(model, tmp_path, "method=[evolkv]", "ratio=1/3")).ratio) == Fraction(1, 3)
