"""The plan of a run: what the config's choices expand to."""

from fractions import Fraction
from pathlib import Path

import pytest
import yaml

from eval.app import plan_of
from eval.arms import Arm, instantiate
from eval.choices import choices, configs, describe, groups, known_keys
from eval.config import RunPlan, tasks_of
from eval.tasks import ENGLISH, ROWS_E, TASKS
from selkv.budget import parse_ratio
from selkv.errors import UserError


def rows(plan: RunPlan) -> list[tuple[str, str]]:
    return [(arm.label, arm.ratio_text) for arm in plan.arms]


@pytest.mark.parametrize("group", groups())
def test_every_choice_says_what_it_is(group: str) -> None:
    assert choices(group)
    for name in choices(group):
        assert 10 < len(describe(group, name)) < 120, f"{group}={name}"


@pytest.mark.parametrize("name", choices("method"))
def test_every_method_can_be_planned_and_built(name: str) -> None:
    plan = plan_of([f"method={name}"])
    assert {arm.method for arm in plan.arms} == {"full", name}
    if name != "evolkv" and not name.startswith("kvpress"):  # they need a budget file, and the package kvpress
        instantiate(plan.arms[-1])


@pytest.mark.parametrize(
    ("model", "data"),
    [
        *((model, None) for model in choices("model")),
        ("llama31", "mini"),
        ("smollm2", "longbench"),
        ("hf", "longbench_e"),
    ],
)
def test_every_model_and_data_can_be_planned(model: str, data: str | None) -> None:
    place = ["model.path=somewhere"] if model == "hf" else []
    plan = plan_of([f"model={model}", *([f"data={data}"] if data else []), *place, "method=snapkv"])
    assert plan.data["name"] == (data or ("mini" if model == "smollm2" else "longbench"))
    assert plan.fidelity == (plan.data["name"] == "mini")
    assert plan.limit == (3 if plan.data["name"] == "mini" else None)
    assert plan.data["tasks"] == list(ENGLISH if plan.data["name"] != "longbench_e" else ROWS_E)


@pytest.mark.parametrize("name", choices("experiment"))
@pytest.mark.parametrize("model", ["smollm2", "gemma2"])
def test_every_experiment_can_be_planned(name: str, model: str) -> None:
    plan = plan_of([f"experiment={name}", f"model={model}"])
    assert plan.name == name
    assert plan.data["name"] == ("mini" if model == "smollm2" else "longbench")
    assert plan.protocol["truncation"] == "official"
    assert plan.arms[0].method == "full" and len(plan.arms) > 4


@pytest.mark.parametrize(("model", "limit"), [("llama31", 3500), ("gemma2", 3500), ("longchat", 31500)])
def test_papers_prompt_limits_belong_to_the_experiment(model: str, limit: int) -> None:
    run = ["method=snapkv", f"model={model}"]
    own = yaml.safe_load((configs() / f"model/{model}.yaml").read_text())["max_prompt_tokens"]
    assert plan_of([*run, "experiment=table1"]).model["max_prompt_tokens"] == limit
    assert plan_of(run).model["max_prompt_tokens"] == own
    assert plan_of([*run, "protocol=official"]).model["max_prompt_tokens"] == own
    assert plan_of([*run, "experiment=table1", "model.max_prompt_tokens=2000"]).model["max_prompt_tokens"] == 2000


def test_default_is_four_methods_at_a_quarter() -> None:
    plan = plan_of([])
    assert rows(plan) == [("full", "1"), ("selkv", "0.25"), ("snapkv", "0.25"), ("streamingllm", "0.25")]
    assert (plan.name, plan.results, plan.prefill) == ("default", Path("results"), {"mode": "one_pass", "chunk": None})


def test_full_is_added_once_and_has_one_row() -> None:
    assert rows(plan_of(["method=snapkv"])) == [("full", "1"), ("snapkv", "0.25")]
    assert rows(plan_of(["method=[snapkv,full]", "ratio=[0.1,1]"])) == [
        ("snapkv", "0.1"),
        ("snapkv", "1"),
        ("full", "1"),
    ]


def test_grid_rows_are_labelled_and_keep_the_other_hyperparameters() -> None:
    plan = plan_of(
        ["method=[snapkv,h2o]", "grid.snapkv.window=[8,16]", "grid.snapkv.kernel=[5,7]", "methods.h2o.decode=native"]
    )
    assert rows(plan)[1:] == [
        ("snapkv window=8 kernel=5", "0.25"),
        ("snapkv window=8 kernel=7", "0.25"),
        ("snapkv window=16 kernel=5", "0.25"),
        ("snapkv window=16 kernel=7", "0.25"),
        ("h2o", "0.25"),
    ]
    assert plan.arms[2].params["window"] == 8 and plan.arms[2].params["kernel"] == 7
    assert plan.arms[2].method == "snapkv"
    assert plan.arms[5].params["decode"] == "native"


def test_experiment_yields_to_the_command_line() -> None:
    plan = plan_of(["experiment=table1", "method=[full,h2o]", "ratio=0.5", "data.tasks=[lcc]", "limit=2"])
    assert rows(plan) == [("full", "1"), ("h2o", "0.5")]
    assert (plan.data["tasks"], plan.limit) == (["lcc"], 2)


def test_settings_reach_the_plan() -> None:
    plan = plan_of(
        ["prefill=two_pass", "prefill.chunk=512", "engine=ray", "engine.workers=2", "limit.first=7", "method=h2o"]
    )
    assert plan.prefill == {"mode": "two_pass", "chunk": 512}
    assert (plan.engine["name"], plan.engine["workers"]) == ("ray", 2)
    assert (plan.limit, plan.first) == (7, True)
    assert plan.config["prefill"] == plan.prefill and "hydra" not in plan.config


@pytest.mark.parametrize(
    ("written", "exact"),
    [
        (0.25, "1/4"),
        (0.1, "1/10"),
        ("0.1", "1/10"),
        (1, "1"),
        ("1/3", "1/3"),
        (1e-05, "1/100000"),
        (0.58, "29/50"),
        (" .5 ", "1/2"),
    ],
)
def test_ratio_is_exact(written: object, exact: str) -> None:
    assert parse_ratio(written) == Fraction(exact)


@pytest.mark.parametrize("text", ["0.25", "0.1", "1", "1/3", "0.123456789", "0.001", "1/7"])
def test_ratio_is_shown_as_written(text: str) -> None:
    assert Arm("m", "m", "t", {}, Fraction(text)).ratio_text == text


def test_repeated_ratios_make_one_row() -> None:
    assert rows(plan_of(["method=snapkv", "ratio=[0.3,0.30,3/10]"])) == [("full", "1"), ("snapkv", "0.3")]


def test_tasks_by_name_and_category_in_longbench_order() -> None:
    every = tuple(TASKS)
    assert tasks_of("english", every) == list(ENGLISH)
    assert tasks_of("all", every) == list(TASKS)
    assert tasks_of(["lcc", "Single-Doc QA"], every) == ["narrativeqa", "qasper", "multifieldqa_en", "lcc"]
    assert tasks_of("few-shot", every) == ["trec", "triviaqa", "samsum"]
    assert tasks_of("lsht", every) == ["lsht"]
    with pytest.raises(UserError, match="lsht"):
        tasks_of("lsht", ENGLISH)


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"windo": 8}, "windo.*window"),
        ({"window": -1}, "window=-1"),
        ({"window": "wide"}, "window"),
    ],
)
def test_wrong_hyperparameter_names_method_and_choices(params: dict[str, object], message: str) -> None:
    with pytest.raises(UserError, match=f"snapkv.*{message}"):
        instantiate(Arm("snapkv", "snapkv", "baselines.snapkv.SnapKV", params, Fraction(1, 4)))


@pytest.mark.parametrize("target", ["nowhere.Method", "baselines.snapkv.Missing", "SnapKV"])
def test_wrong_target_is_named(target: str) -> None:
    with pytest.raises(UserError, match=f"method mine.*{target}"):
        instantiate(Arm("mine", "mine", target, {}, Fraction(1, 4)))


def test_known_keys_name_the_choice_that_brings_them() -> None:
    keys = known_keys()
    assert keys["ratio"] == keys["method"] == keys["limit.first"] == ""
    assert keys["engine.workers"] == "engine=ray"
    assert keys["methods.snapkv.window"] == "method=snapkv"
    assert "methods.snapkv._target_" not in keys
