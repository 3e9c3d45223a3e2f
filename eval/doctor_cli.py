"""Command line of the doctor: is everything there that a run needs, and does each prompt look as it should?"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from rich.console import Console
from rich.markup import escape

from eval.config import RunPlan
from eval.sample import Benchmark
from selkv.errors import UserError, command

HELP = """\
Usage: selkv doctor [KEY=VALUE ...]      the same options as python run.py

Checks, in green or red with the fix: options and hyperparameters; data files, their hashes and row counts; prompt
templates; the model's revision and tokenizer; for one row of each task the BOS token, the stop ids and the rendered
prompt (its first and last 200 characters); device memory against the estimated need. Loads no weights.

examples:
  selkv doctor
  selkv doctor model=llama31 data=longbench data.path=LongBench/data experiment=table1
exit status: 0 all green, 1 something is red, 2 bad options"""

EDGE = 200


class Check(NamedTuple):
    """One line of the doctor: `problem` is the fix where it is red."""

    name: str
    detail: str
    problem: str = ""


@command
def main(arguments: list[str]) -> int:
    """Check and print; returns the exit status."""
    if {"-h", "--help"} & set(arguments):
        print(HELP)
        return 0
    from eval.app import plan_of

    plan = plan_of(arguments)
    console, red = Console(soft_wrap=True), 0
    for check in checks(plan):
        red += bool(check.problem)
        mark, text = ("[red]✗[/red]", check.problem) if check.problem else ("[green]✓[/green]", check.detail)
        console.print(f"{mark} [bold]{check.name}[/bold]  {escape(text)}", highlight=False)
    console.print(f"[red]{red} to fix[/red]" if red else "[green]ready: python run.py with the same options[/green]")
    return 1 if red else 0


def checks(plan: RunPlan) -> Iterator[Check]:
    """All checks of a plan, each as soon as it is known; one that fails does not hide the others."""
    from eval.arms import instantiate
    from eval.benchmarks import load_benchmark
    from eval.identity import identity_of, load_options, model_path

    yield Check("options", f"{len(plan.arms)} rows: " + ", ".join(f"{a.label} at {a.ratio_text}" for a in plan.arms))
    _, check = tried("hyperparameters", lambda: [instantiate(arm) for arm in plan.arms], "all accepted")
    yield check
    benchmark, check = tried("data", lambda: load_benchmark(plan), "found")
    yield check
    if benchmark is not None:
        yield from data_checks(benchmark)
    identity, check = tried("model", lambda: identity_of(plan), "")
    yield check if identity is None else Check("model", f"{identity['id']} at revision {identity['revision']}")
    options, check = tried("model options", lambda: load_options(plan), "accepted")
    yield check
    if identity is None or options is None:
        return
    path = model_path(plan)
    tokenizer, check = tried("tokenizer", lambda: tokenizer_of(path, options), "loaded")
    yield check
    if tokenizer is not None and benchmark is not None:
        _, check = tried("room", lambda: room(plan, benchmark, tokenizer, path, options), "prompts and texts fit")
        yield check
        for dataset in benchmark.samples:
            yield from prompt_checks(plan, benchmark, dataset, tokenizer, path)
    yield memory_check(plan, path, options)


def tried(name: str, work: Callable[[], Any], detail: str) -> tuple[Any, Check]:
    """Result of the work and its check; None and a red check where it raises a UserError."""
    try:
        return work(), Check(name, detail)
    except UserError as error:
        return None, Check(name, "", str(error))


def room(plan: RunPlan, benchmark: Benchmark, tokenizer: Any, path: str, options: dict[str, Any]) -> None:
    """Raise UserError where the longest prompt and its text exceed the model's window."""
    from transformers import AutoConfig

    from eval.identity import protocol_of
    from eval.prompts import check_room

    config = AutoConfig.from_pretrained(path, revision=options["revision"]).get_text_config()
    check_room(benchmark.prompts, tokenizer, protocol_of(plan), config.max_position_embeddings)


def tokenizer_of(path: str, options: dict[str, Any]) -> Any:
    """The model's tokenizer."""
    from selkv.load import load_tokenizer

    return load_tokenizer(path, **{k: v for k, v in options.items() if k in ("revision", "trust_remote_code")})


def data_checks(benchmark: Benchmark) -> Iterator[Check]:
    """Rows and hash of each file."""
    for dataset, samples in benchmark.samples.items():
        digest = benchmark.sources.get(dataset, "")[:12]
        yield Check(f"data {dataset}", f"{len(samples)} of {benchmark.expected[dataset]} rows, sha256 {digest}…")
    for note in benchmark.notes:
        yield Check("note", note)


def prompt_checks(plan: RunPlan, benchmark: Benchmark, dataset: str, tokenizer: Any, path: str) -> Iterator[Check]:
    """One rendered prompt of a task: BOS, length, stop ids, both ends."""
    from transformers import GenerationConfig

    from eval.identity import protocol_of
    from eval.prompts import encode
    from eval.stopping import stopping

    prompt = benchmark.prompts[dataset]
    name = f"prompt {dataset}"
    encoded, check = tried(
        name, lambda: encode(benchmark.samples[dataset][0], prompt, tokenizer, protocol_of(plan)), ""
    )
    if encoded is None:
        yield check
        return
    try:
        generation = GenerationConfig.from_pretrained(path)
    except OSError:
        generation = None
    stops = sorted(stopping(tokenizer, generation, prompt, prompt.chat).ids)
    text = tokenizer.decode(encoded.ids)
    opening = tokenizer.convert_ids_to_tokens(encoded.ids[:1])[0]
    yield Check(
        name,
        f"{len(encoded.ids)} of {encoded.n_before} tokens, opens with {opening!r}, "
        f"stops at {', '.join(map(repr, tokenizer.convert_ids_to_tokens(stops)))}, at most {prompt.max_new_tokens} new",
        "part of the question is cut; raise model.max_prompt_tokens" if encoded.question_cut else "",
    )
    yield Check("  starts", repr(text[:EDGE]))
    yield Check("  ends", repr(text[-EDGE:]))


def memory_check(plan: RunPlan, path: str, options: dict[str, Any]) -> Check:
    """Estimated need (weights, longest full cache, one batch) against the device's free memory."""
    from accelerate import init_empty_weights
    from transformers import AutoConfig, AutoModelForCausalLM

    from eval.dry_run import model_shape
    from eval.identity import default_device
    from eval.memory import free_bytes

    shape = model_shape(plan)
    if shape is None:
        fix = "no config.json on this machine that transformers can read; download the model, or update transformers"
        return Check("memory", "", fix)
    config = AutoConfig.from_pretrained(path, revision=options["revision"])
    try:
        with init_empty_weights():
            model = AutoModelForCausalLM.from_config(config)
    except ValueError as problem:  # no causal language model
        return Check("memory", "", " ".join(str(problem).split()))
    weights = sum(p.numel() for p in model.parameters()) * shape["bytes"]
    longest = (
        2 * shape["layers"] * shape["kv_heads"] * shape["head_dim"] * shape["bytes"] * plan.model["max_prompt_tokens"]
    )
    need, free = weights + 2 * longest, free_bytes(default_device(plan.model["device"]))
    text = (
        f"weights {weights / 2**30:.2f} GiB, two full caches {2 * longest / 2**30:.2f} GiB, free {free / 2**30:.1f} GiB"
    )
    fix = f"{text}: lower model.max_prompt_tokens, use model.dtype=bfloat16 or model.device_map=auto"
    return Check("memory", text, fix if need > free else "")
