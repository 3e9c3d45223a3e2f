"""RULER-style tasks: the published rules on the drawn texts, lengths, scoring, and a run."""

import random
import re
from collections import Counter

import pytest

from eval import ruler
from eval.app import plan_of
from eval.benchmarks import load_benchmark
from eval.prompts import render
from eval.ruler import texts
from eval.ruler.needles import VARIANTS
from eval.ruler.tasks import TASKS
from eval.scoring import Scoring, score_row
from eval.tasks import TASKS as LONGBENCH
from eval.tasks import others, task_of
from selkv.errors import UserError
from tests.eval.benchmark_runs import finished
from tests.eval.runs import save_model

SECRET = re.compile(r"One secret of (\S+) is (\S+)\.")


def rows(task, tokens=2048, limit=4):
    return ruler.load([task], limit, 0, tokens).samples[task]


def test_rows_depend_on_seed_and_index_alone():
    drawn = ruler.load(list(TASKS), 3, 0, 700)
    assert ruler.load(list(TASKS), 2, 0, 700).samples == {task: found[:2] for task, found in drawn.samples.items()}
    assert ruler.load(["vt"], 2, 1, 700).samples["vt"][0].context != drawn.samples["vt"][0].context
    ids = [row.id for found in drawn.samples.values() for row in found]
    assert len(set(ids)) == len(ids) == 3 * 11
    assert drawn.expected == dict.fromkeys(TASKS, 500)


@pytest.mark.parametrize(
    ("task", "queries", "secrets"),
    [
        ("niah_single_1", 1, 1), ("niah_single_2", 1, 1), ("niah_single_3", 1, 1), ("niah_multikey_1", 1, 4),
        ("niah_multivalue", 1, 4), ("niah_multiquery", 4, 4),
    ],
)  # fmt: skip
def test_needles_follow_the_settings(task, queries, secrets):
    places = []
    for row in rows(task):
        hidden = SECRET.findall(row.context)
        asked = {key for key, _ in hidden if key in row.input}
        assert len(hidden) == secrets and len(asked) == queries
        assert sorted(row.answers) == sorted(value for key, value in hidden if key in asked)
        assert len(set(row.answers)) == (4 if task in ("niah_multivalue", "niah_multiquery") else 1)
        places.append(row.context.index(hidden[0][1]) / len(row.context))
    assert max(places) - min(places) > 0.1, "the needle must not stay at one depth"


@pytest.mark.parametrize("task", ["niah_multikey_2", "niah_multikey_3"])
def test_a_haystack_of_needles_holds_nothing_else(task):
    for row in rows(task):
        hidden = SECRET.findall(row.context)
        assert SECRET.sub("", row.context).strip() == ""
        assert len({key for key, _ in hidden}) == len(hidden) > 15
        assert row.answers == tuple(value for key, value in hidden if key in row.input)


def test_what_is_scattered_keeps_its_order_and_all_of_the_filler():
    filler, inserted = [str(n) for n in range(20)], list("abcde")
    for seed in range(5):
        mixed = texts.scatter(random.Random(seed), filler, inserted)
        assert [text for text in mixed if text in inserted] == inserted
        assert [text for text in mixed if text not in inserted] == filler


def test_values_are_of_their_kind():
    assert re.fullmatch(r"\d{7}", rows("niah_single_2")[0].answers[0])
    for task in ("niah_single_3", "niah_multikey_3"):
        assert re.fullmatch(
            r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}", rows(task)[0].answers[0]
        )
    assert set(VARIANTS) == {name for name in TASKS if name.startswith("niah")}


def test_variables_are_assigned_in_a_chain_of_four_hops():
    for row in rows("vt"):
        pairs = re.findall(r"VAR ([A-Z]{5}) = (?:VAR )?(\w+)", row.context)
        assert [name for name, _ in pairs] == list(row.answers) and len(pairs) == 5
        assert [value for _, value in pairs[1:]] == list(row.answers[:-1])
        assert pairs[0][1] in row.input


@pytest.mark.parametrize(("tokens", "common", "others_"), [(4096, 30, 3), (1024, 7, 1)])
def test_common_words_stand_more_often(tokens, common, others_):
    for row in rows("cwe", tokens, 2):
        words = re.findall(r"\d+\. (\S+)", row.context)
        counts = Counter(words)
        assert {counts.pop(word) for word in row.answers} == {common} and len(row.answers) == 10
        assert set(counts.values()) == {others_}
        assert [int(n) for n in re.findall(r"(\d+)\.", row.context)] == list(range(1, len(words) + 1))


def test_coded_words_follow_a_zeta_distribution():
    for row in rows("fwe", 4096, 2):
        counts = Counter(row.context.split()).most_common()
        assert counts[0][0] == "...." and tuple(word for word, _ in counts[1:4]) == row.answers
        assert counts[3][1] > counts[4][1], "the third word must not tie with the fourth"
        assert counts[1][1] / counts[0][1] == pytest.approx(1 / 4, abs=0.01)
        assert counts[2][1] / counts[0][1] == pytest.approx(1 / 9, abs=0.01)


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("tokens", [512, 4096, 131_072])
def test_prompt_and_answer_take_the_estimated_length(task, tokens):
    drawn = ruler.load([task], 1, 3, tokens)
    text = render(drawn.samples[task][0], drawn.prompts[task])
    coded = len(re.findall(r"\b[a-z]{6}\b", text)) if task == "fwe" else 0  # of random letters: more tokens a word
    total = texts.size(text.replace("....", ".")) + 3 * coded + drawn.prompts[task].max_new_tokens
    assert 0.85 * tokens < total <= 1.12 * tokens, total


def test_the_score_is_the_share_of_the_answers_found():
    def score(prediction, answers):
        return score_row("niah_multivalue", prediction, answers, None, Scoring())

    assert score("they are 1234567 and 7654321.", ["1234567", "7654321", "1111111", "2222222"]) == 0.5
    assert score("1234567", ["1234567"]) == 1.0 and score("", ["1234567"]) == 0.0 and score("x", []) == 0.0
    assert score_row("cwe", "Copper-Lantern", ["copper-lantern", "a-b"], None, Scoring("strict")) == 0.5


def test_tasks_of_all_benchmarks_have_names_of_their_own():
    names = [*LONGBENCH, *(name for tasks in others().values() for name in tasks)]
    assert len(set(names)) == len(names)
    assert task_of("vt").category == "Multi-hop Tracing" and task_of("hotpotqa_e").metric == "qa_f1"
    with pytest.raises(UserError, match=r"unknown dataset 'vtt'.*Did you mean 'vt'"):
        task_of("vtt")


def test_options_choose_and_refuse():
    plan = plan_of(["data=ruler", "data.tasks=[retrieval,vt]", "limit=1", "data.tokens=600"])
    assert plan.data["tasks"] == [name for name in TASKS if name.startswith("niah")] + ["vt"]
    assert list(load_benchmark(plan).samples) == plan.data["tasks"]
    with pytest.raises(UserError, match=r"unknown task 'hotpotqa'"):
        plan_of(["data=ruler", "data.tasks=hotpotqa"])
    for tokens, fault in ((100, "is not between 512"), (200_000, "is not between 512"), ("long", "must be a whole")):
        with pytest.raises(UserError, match=rf"data\.tokens={tokens} {fault}"):
            load_benchmark(plan_of(["data=ruler", f"data.tokens={tokens}"]))


def test_a_run_through_the_runner(tmp_path):
    model = save_model(tmp_path / "model")
    tasks = ["niah_multivalue", "vt", "cwe"]
    view = finished(
        model, tmp_path, "data=ruler", f"data.tasks=[{','.join(tasks)}]", "data.tokens=512", "limit=1",
        "model.max_prompt_tokens=3900",
    )  # fmt: skip
    assert len(view.records) == 3 * 3 and {record.dataset for record in view.records.values()} == set(tasks)
    table = (view.folder / "table.md").read_text()
    for text in (r"niah\_multivalue", "Retrieval", "Multi-hop Tracing", "Aggregation", "arXiv 2404.06654"):
        assert text in table
    assert (view.folder / "report.html").exists()
