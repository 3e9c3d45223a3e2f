import ast
import os
import subprocess
import sys

import pytest

from eval.mini import RECIPES, load
from eval.sample import Benchmark, Sample
from eval.scoring import Scoring, score_row
from eval.tasks import ENGLISH, TASKS
from selkv.embedded import INSTALL, gguf_path, resolve_smollm2
from selkv.errors import UserError

QA = ("narrativeqa", "qasper", "multifieldqa_en", "hotpotqa", "2wikimqa", "musique")
SUMMARIES = ("gov_report", "qmsum", "multi_news")


@pytest.fixture(scope="module")
def mini() -> Benchmark:
    return load(ENGLISH, limit=6, seed=3)


def prompt(bench: Benchmark, row: Sample) -> str:
    return bench.prompts[row.dataset].template.format(context=row.context, input=row.input)


def test_every_english_task_is_built_in() -> None:
    assert tuple(sorted(RECIPES)) == tuple(sorted(ENGLISH))


def test_rows_do_not_depend_on_limit_or_on_the_other_tasks(mini: Benchmark) -> None:
    alone = load(["hotpotqa"], limit=2, seed=3)
    assert alone.samples["hotpotqa"] == mini.samples["hotpotqa"][:2]
    assert alone.expected == {"hotpotqa": 2}


def test_seed_index_and_length_make_other_rows(mini: Benchmark) -> None:
    for task in ENGLISH:
        other_seed = load([task], limit=1, seed=4).samples[task][0]
        longer = load([task], limit=1, seed=3, tokens=1600).samples[task][0]
        texts = {row.context + row.input for row in (*mini.samples[task], other_seed, longer)}
        # The standard library holds a limited number of lines that suit repobench-p.
        assert len(texts) >= (5 if task == "repobench-p" else 8), task
        assert len(prompt(mini, longer)) > 1.5 * len(prompt(mini, mini.samples[task][0])), task


@pytest.mark.parametrize("task", ENGLISH)
def test_gold_answers_get_full_marks(task: str, mini: Benchmark) -> None:
    for row in mini.samples[task]:
        classes = list(row.all_classes) if row.all_classes else None
        assert score_row(task, row.answers[0], row.answers, classes, Scoring()) == pytest.approx(1, abs=1e-6)
        assert (row.all_classes is not None) == (task == "trec")


@pytest.mark.parametrize("task", ENGLISH)
def test_rows_follow_the_format(task: str, mini: Benchmark) -> None:
    rows = mini.samples[task]
    assert [row.index for row in rows] == list(range(6))
    assert len({row.id for row in rows}) == 6
    for row in rows:
        assert (row.dataset, row.language) == (task, "python" if TASKS[task].language == "code" else "en")
        assert row.length == len(row.context.split())
    limit = mini.prompts[task].max_new_tokens
    assert limit <= (96 if task in SUMMARIES else 48)


@pytest.mark.parametrize("task", QA)
def test_the_fact_stands_far_from_both_ends(task: str, mini: Benchmark) -> None:
    # What streamingllm keeps at ratio 0.1: a tenth at the end. The answer's last word must stand before it.
    for row in mini.samples[task]:
        text = prompt(mini, row)
        key = row.answers[0].removeprefix("a ").split("(")[0].strip()
        assert row.answers[0].removeprefix("the ") not in text[int(0.9 * len(text)) :]
        assert key in text[: int(0.9 * len(text))]


@pytest.mark.parametrize("task", ("hotpotqa", "2wikimqa", "musique"))
def test_two_hops_stand_in_two_passages(task: str, mini: Benchmark) -> None:
    for row in mini.samples[task]:
        opening, answer = row.input.split("Answer: ")[1], row.answers[0]
        bridge = answer.split(" (")[0]
        passages = [p for p in row.context.split("\n\n") if p.startswith("Passage")]
        (first,) = [p for p in passages if f"{opening} {bridge}." in p]
        (second,) = [p for p in passages if answer.removeprefix("the ") in p]
        assert first != second


def test_gists_stand_in_the_text(mini: Benchmark) -> None:
    for task in SUMMARIES:
        for row in mini.samples[task]:
            for sentence in row.answers[0].split(". "):
                assert sentence.removesuffix(".") in row.context


def test_passages_are_counted_and_found(mini: Benchmark) -> None:
    for row in mini.samples["passage_count"]:
        texts = [p.split(": ", 1)[1] for p in row.context.split("\n")]
        assert len(set(texts)) == int(row.answers[0])
    for row in mini.samples["passage_retrieval_en"]:
        assert f"{row.input} ({row.answers[0]})" in row.context


@pytest.mark.parametrize("task", ("lcc", "repobench-p"))
def test_code_rows_ask_for_a_real_line(task: str, mini: Benchmark) -> None:
    for row in mini.samples[task]:
        (line,) = row.answers
        assert line.startswith("    ")
        assert not prompt(mini, row).endswith("\n")
        ast.parse(line.strip().removeprefix("return "))
        assert not set(line) & set("`#")


@pytest.mark.parametrize("tokens", (400, 800, 8000))
@pytest.mark.skipif(gguf_path() is None, reason=f"needs the embedded model's tokenizer: {INSTALL}")
def test_prompts_are_about_as_long_as_asked(tokens: int) -> None:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(resolve_smollm2())
    bench = load(ENGLISH, limit=4, seed=3, tokens=tokens)
    for task, rows in bench.samples.items():
        lengths = [len(tokenizer(prompt(bench, row)).input_ids) for row in rows]
        assert sum(lengths) / len(lengths) == pytest.approx(tokens, rel=0.25), task


def test_another_process_draws_the_same_bytes(mini: Benchmark) -> None:
    code = "from eval.mini import load, RECIPES; print(load(sorted(RECIPES), 6, 3).sources)"
    env = {**os.environ, "PYTHONHASHSEED": "7", "PYTHONPATH": os.pathsep.join(sys.path)}
    out = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, env=env).stdout
    assert out.strip() == str({task: mini.sources[task] for task in sorted(mini.sources)})


def test_unknown_task_names_the_choices() -> None:
    with pytest.raises(UserError, match=r"unknown task 'hotpot'.*hotpotqa"):
        load(["hotpot"], limit=1)


@pytest.mark.parametrize("tokens", (1, 1_000_000))
def test_a_length_that_no_module_has_is_the_users_mistake(tokens: int) -> None:
    with pytest.raises(UserError, match=rf"data.tokens={tokens} does not suit repobench-p"):
        load(["repobench-p"], limit=1, tokens=tokens)
