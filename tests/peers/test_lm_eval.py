"""lm-eval's own command line over compressed caches, offline, on tasks and a tiny model from local files."""

import json
import os
import subprocess
import sys
from fractions import Fraction
from pathlib import Path

import pytest
import torch
from lm_eval import simple_evaluate
from lm_eval.api.instance import Instance
from lm_eval.models.huggingface import HFLM
from lm_eval.tasks import TaskManager

from selkv.compression import Job, compressed_cache
from selkv.decode import Stop, greedy
from selkv.errors import UserError
from selkv.lm_eval.model import SelKVLM
from selkv.prefill import forward, prefill
from selkv.selkv import SelKV
from tests.models import build, tokens
from tests.tokenizer import end_early, words

ROOT = Path(__file__).resolve().parents[2]

TASKS = {
    "tiny_text": """
task: tiny_text
dataset_path: json
dataset_kwargs: {data_files: {test: FOLDER/data.jsonl}, cache_dir: FOLDER/cache}
test_split: test
output_type: generate_until
doc_to_text: "{{context}}"
doc_to_target: "{{answer}}"
generation_kwargs: {until: ["w77"], max_gen_toks: 6, do_sample: false}
metric_list: [{metric: exact_match, aggregation: mean, higher_is_better: true}]
""",
    "tiny_choice": """
task: tiny_choice
dataset_path: json
dataset_kwargs: {data_files: {test: FOLDER/data.jsonl}, cache_dir: FOLDER/cache}
test_split: test
output_type: multiple_choice
doc_to_text: "{{context}}"
doc_to_choice: "{{choices}}"
doc_to_target: 0
metric_list: [{metric: acc, aggregation: mean, higher_is_better: true}]
""",
}


def text(n, seed):
    return words().decode(tokens(n, seed)[0].clamp(min=6))


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A folder with a saved model, two tasks and their data."""
    folder = tmp_path_factory.mktemp("lm_eval")
    model = build("llama")
    end_early(model, words()(text(40, 0), return_tensors="pt")["input_ids"])
    model.save_pretrained(folder / "model")
    words().save_pretrained(folder / "model")
    rows = [
        {"context": text(40 + i, i), "answer": text(2, 50 + i), "choices": [text(1 + i % 3, 90 + i), text(3, 70 + i)]}
        for i in range(5)
    ]
    (folder / "data.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "tasks").mkdir()
    for name, task in TASKS.items():
        (folder / "tasks" / f"{name}.yaml").write_text(task.replace("FOLDER", str(folder)))
    return folder


def command(files, out, arguments, tasks):
    """Run lm-eval's command line with our model registered; the finished process."""
    line = [sys.executable, "-m", "selkv.lm_eval", "--model", "selkv", "--include_path", str(files / "tasks")]
    line += ["--model_args", f"pretrained={files / 'model'},dtype=float32,{arguments}", "--device", "cpu"]
    line += ["--tasks", tasks, "--batch_size", "3", "--output_path", str(out), "--log_samples"]
    offline = {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "PYTHONPATH": str(ROOT), "HF_HOME": str(files / "hf")}
    return subprocess.run(line, cwd=files, env={**os.environ, **offline}, capture_output=True, text=True, check=False)


def responses(files, model, **arguments):
    """What a model answers to each document of both tasks, in this process."""
    tasks = TaskManager(include_path=str(files / "tasks"), include_defaults=False)
    found = simple_evaluate(
        model, {"pretrained": str(files / "model"), "dtype": "float32", **arguments}, list(TASKS),
        task_manager=tasks, batch_size=2, device="cpu", bootstrap_iters=0,
    )  # fmt: skip
    return {(task, row["doc_id"]): row["filtered_resps"] for task in TASKS for row in found["samples"][task]}


def numbers(pairs):
    return [(float(likelihood), str(greedy) == "True") for likelihood, greedy in pairs]


def test_command_line(files, tmp_path):
    done = command(files, tmp_path, "method=selkv,ratio=0.25,method.alpha=0.5", ",".join(TASKS))
    assert done.returncode == 0, done.stderr
    assert "exact_match" in done.stdout
    expected = responses(files, "selkv", **{"ratio": 0.25, "method.alpha": 0.5})
    for task in TASKS:
        (path,) = tmp_path.rglob(f"samples_{task}_*.jsonl")
        rows = [json.loads(line) for line in path.read_text().splitlines()]
        assert len(rows) == 5
        for row in rows:
            answer = expected[task, row["doc_id"]]
            if task == "tiny_text":
                assert row["filtered_resps"] == answer
            else:
                assert numbers(row["filtered_resps"]) == [pytest.approx(pair, abs=1e-4) for pair in numbers(answer)]


def test_full_cache_answers_as_lm_eval_without_us(files):
    stock, full = responses(files, "hf"), responses(files, "selkv", method="full", ratio=1)
    for key, answer in stock.items():
        if key[0] == "tiny_text":
            assert full[key] == answer
        else:
            assert numbers(full[key]) == [pytest.approx(pair, abs=1e-3) for pair in numbers(answer)]
    assert responses(files, "selkv") != full


def test_mistakes_are_told_in_one_line(files, tmp_path):
    done = command(files, tmp_path, "method=selk", "tiny_text")
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].startswith("error: unknown method 'selk'; choose from: ")
    for arguments, expected in (
        ({"ratio": 2}, "ratio=2"),
        ({"method.alfa": 1}, "hyperparameter of method selkv 'alfa'"),
    ):
        with pytest.raises(UserError, match=expected):
            SelKVLM(str(files / "model"), **arguments)


@pytest.fixture(scope="module")
def lm(files):
    return SelKVLM(str(files / "model"), ratio="0.25", dtype="float32", device="cpu", batch_size=4)


def request(kind, *arguments):
    return Instance(request_type=kind, doc={}, arguments=arguments, idx=0)


def test_generation_equals_own_loop(lm):
    contexts = [text(n, n) for n in (50, 30, 44)]
    options = {"until": ["w99999"], "max_gen_toks": 7}
    got = lm.generate_until([request("generate_until", context, options) for context in contexts], disable_tqdm=True)
    stop = Stop({lm.model.generation_config.eos_token_id})
    for context, answer in zip(contexts, got, strict=True):
        state = prefill(lm.model, torch.tensor(lm.tok_encode(context)))
        cache, _ = compressed_cache([Job(SelKV(), Fraction(1, 4))], state, 7)
        assert answer == lm.tok_decode(greedy(lm.model, cache, state.logits, 7, stop)[0])


def test_loglikelihood_equals_tokens_one_by_one(lm):
    for context in (text(50, 3), "w9"):
        continuations = [text(n, 10 + n) for n in (1, 2, 5)]
        got = lm.loglikelihood([request("loglikelihood", context, f" {c}") for c in continuations], disable_tqdm=True)
        *prefix, last = lm.tok_encode(context)
        for continuation, (likelihood, _) in zip(continuations, got, strict=True):
            state = prefill(lm.model, torch.tensor(prefix or [last]))
            cache, _ = compressed_cache([Job(SelKV(), Fraction(1, 4))], state, 6)
            logits, expected = step(lm.model, cache, last) if prefix else state.logits, 0.0
            for token in lm.tok_encode(continuation):
                expected += float(logits.log_softmax(-1)[token])
                logits = step(lm.model, cache, token)
            assert likelihood == pytest.approx(expected, abs=1e-4)


@torch.no_grad()
def step(model, cache, token):
    return forward(model, torch.tensor([[token]]), cache, torch.tensor([[cache.get_seq_length()]]))[0, -1]


def test_greedy_continuation_is_recognised(lm):
    context = text(50, 3)
    *prefix, last = lm.tok_encode(context)
    cache, _ = compressed_cache([Job(SelKV(), Fraction(1, 4))], prefill(lm.model, torch.tensor(prefix)), 6)
    best = greedy(lm.model, cache, step(lm.model, cache, last), 1, Stop())[0]
    for token, expected in ((best[0], True), (best[0] ^ 1, False)):
        answer = lm.loglikelihood([request("loglikelihood", context, f" w{token}")], disable_tqdm=True)
        assert answer[0][1] is expected


def test_compression_shows_in_one_token_answers(lm, files):
    stock = HFLM(str(files / "model"), dtype="float32", device="cpu", batch_size=1)
    requests = [request("loglikelihood", text(50, 3), f" {text(1, 11)}")]
    ours, theirs = (each.loglikelihood(requests, disable_tqdm=True)[0][0] for each in (lm, stock))
    assert abs(ours - theirs) > 1e-3


def test_native_methods_and_sampling(files):
    native = SelKVLM(
        str(files / "model"),
        method="streamingllm",
        ratio=0.5,
        dtype="float32",
        device="cpu",
        **{"method.decode": "native"},
    )
    assert native.method.decode == "native"
    ((likelihood, _),) = native.loglikelihood([request("loglikelihood", text(30, 1), f" {text(3, 2)}")], True)
    assert likelihood < 0
    torch.manual_seed(0)
    options = {"until": [], "max_gen_toks": 5, "do_sample": True, "temperature": 5.0}
    draws = {native.generate_until([request("generate_until", text(30, 1), options)], True)[0] for _ in range(4)}
    assert len(draws) > 1


def test_whole_texts_are_refused(lm):
    with pytest.raises(UserError, match="no prompt to compress"):
        lm.loglikelihood_rolling([request("loglikelihood_rolling", text(30, 1))])
