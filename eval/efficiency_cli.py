"""Command line of the measured cost: time and memory against prompt length, by phase, beside the roofline."""

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from eval.arguments import yaml_options
from eval.arms import written
from eval.outputs import claim, writing
from selkv.errors import UserError, command
from selkv.values import whole_number

if TYPE_CHECKING:  # --help must not wait for torch
    from eval.config import RunPlan
    from eval.efficiency.rows import Row

HELP = """\
Usage: selkv efficiency [KEY=VALUE ...]      the options of python run.py, and these:

  lengths=[512,1024,...]   prompt lengths in tokens, by default up to 4096; what does not fit is skipped
  repeats=3                timed repeats after one to warm up; the table has the median and half the range
  new_tokens=32            tokens to decode
  model=random             a Llama of random weights, no download; layers=4 heads=32 kv_heads=8 head_dim=128
                           hidden=512 intermediate=1536 vocab=32000 give its shape

Prefill, compression and decoding are measured apart: seconds, tokens/s, time to the first token, exact K/V bytes, peak
memory of each phase, and the share of the least possible time, from memory bandwidth and matmul rate measured in the
same run. Prompts are random tokens. Writes results/efficiency/<model>/efficiency.{csv,md,png,svg} and machine.json.

examples:
  selkv efficiency 'lengths=[512,1024,2048,4096]'
  selkv efficiency model=llama31 'method=[full,selkv,snapkv]' 'ratio=[0.1,0.25]' \\
      'lengths=[512,1024,2048,4096,8192,16384,32768,65536,100000]'
  selkv efficiency model=random layers=4 heads=32 kv_heads=8 'lengths=[8192,32768]' \\
      'method=[full,selkv]'
exit status: 0 measured, 2 bad options or no length fits (one line says why), 130 interrupted"""

NUMBERS = {"repeats": (3, 1), "new_tokens": (32, 2)}  # default, least
SHAPE = ("layers", "heads", "kv_heads", "head_dim", "hidden", "intermediate", "vocab")
NARROW = ("tokens", "method", "ratio", "prefill s", "compress s", "step ms", "x full", "K/V MiB")  # fit 80 columns
FILES = ("efficiency.md", "efficiency.csv", "efficiency.png", "efficiency.svg", "machine.json")
ELSEWHERE = "give results=FOLDER"
LENGTHS = [512, 1024, 2048, 4096]


class Request(NamedTuple):
    """The command line taken apart: lengths, numbers, the random model's shape (None: a configured model), the rest."""

    lengths: list[int]
    numbers: dict[str, int]
    shape: dict[str, int] | None
    overrides: list[str]


def request_of(arguments: Sequence[str]) -> Request:
    """Take the options of this command out; the rest are those of run.py.

    Raises
    ------
    UserError
        For a value that is no positive number, or a shape without ``model=random``.
    """
    own, rest = yaml_options(arguments, {*NUMBERS, *SHAPE, "lengths"}.__contains__)
    random = "model=random" in rest
    shape = {key: whole_number(key, own[key], 1) for key in SHAPE if key in own}
    if shape and not random:
        raise UserError(f"{next(iter(shape))}=... is for model=random; a configured model has its own shape")
    numbers = {key: whole_number(key, own.get(key, default), low) for key, (default, low) in NUMBERS.items()}
    if random:  # to the config it is any model; its weights are made here
        rest = ["model=hf" if argument == "model=random" else argument for argument in rest]
        rest = ["model.path=random", "model.name=random", *rest]
    lengths = _lengths(own.get("lengths", LENGTHS))
    return Request(lengths, numbers, shape if random else None, ["name=efficiency", *rest])


def _lengths(given: Any) -> list[int]:
    """Prompt lengths, ascending, each once."""
    values = given if isinstance(given, list) else [given]
    if not values:
        raise UserError("lengths=[] is empty; give prompt lengths in tokens, e.g. lengths=[512,1024]")
    for n in values:
        if not isinstance(n, int) or isinstance(n, bool) or n < 1:
            raise UserError(f"lengths={written(n)} is not a whole number of at least 1, or a list like [512,1024]")
    return sorted(set(values))


@command
def main(arguments: list[str]) -> int:
    """Measure, show and write; returns the exit status."""
    if {"-h", "--help"} & set(arguments):
        print(HELP)
        return 0
    from eval.app import plan_of

    request = request_of(arguments)
    plan = plan_of(request.overrides)
    try:
        measure(plan, request)
    except KeyboardInterrupt:
        print("\ninterrupted; the lengths measured so far are written.", file=sys.stderr)
        return 130
    return 0


def measure(plan: "RunPlan", request: Request) -> None:
    """Measure every length and write after each, so that an interruption loses one length."""
    from eval.arms import instantiate
    from eval.efficiency import report
    from eval.efficiency.models import Shape, model_of
    from eval.efficiency.phases import Arms, Options, measure_length, unfit
    from eval.efficiency.plot import plot
    from eval.efficiency.roofline import measured_rates
    from selkv.compression import Job

    folder = plan.results / plan.name / plan.model["name"]
    arms = Arms(plan.arms, [Job(instantiate(arm), arm.ratio) for arm in plan.arms])
    if plan.dry_run:
        named = ", ".join(f"{arm.label} at {arm.ratio_text}" for arm in plan.arms)
        print(f"would measure {named}, on prompts of {request.lengths} tokens, and write to {folder}/")
        return
    claim(folder, FILES, ELSEWHERE)
    numbers, how = request.numbers, plan.prefill
    options = Options(numbers["repeats"], numbers["new_tokens"], how["chunk"], how["mode"], plan.sliding_layers)
    shape = None if request.shape is None else Shape(**request.shape)
    model = model_of(plan, shape, max(request.lengths) + options.new_tokens)
    skipped = {n: reason for n in request.lengths if (reason := unfit(model, n, options))}
    for n, reason in skipped.items():
        print(f"{n} tokens: skipped, {reason}", file=sys.stderr)
    if len(skipped) == len(request.lengths):
        raise UserError(
            f"no length fits, of lengths={request.lengths}: {reason}; give shorter ones. Nothing is written"
        )
    rates = measured_rates(model.device, model.dtype)
    place = report.machine(model.device, model, rates)
    rows: list[Row] = []
    for n in (n for n in request.lengths if n not in skipped):
        rows += measure_length(model, arms, n, options, rates)
        print(f"{n} tokens: measured", file=sys.stderr)
        with writing(folder, ELSEWHERE):
            report.write(folder, rows, skipped, place, options.new_tokens)
    _show(rows)
    with writing(folder, ELSEWHERE):
        plot(rows, folder)
    print(f"\n{folder}/: {', '.join(FILES)}")


def _show(rows: "Sequence[Row]") -> None:
    from rich.console import Console
    from rich.table import Table

    from eval.efficiency.report import HEAD, table

    shown = Table(*NARROW, header_style="bold", box=None, pad_edge=False)
    for row in table(rows):
        named = dict(zip(HEAD, row, strict=True))
        shown.add_row(*(named[column].partition(" ±")[0] for column in NARROW))
    Console().print(shown)
