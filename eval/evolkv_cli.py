"""Command line of EvolKV's search: from training samples to a budget file."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from eval.arguments import yaml_options
from eval.evolkv.search import Found, Search, Undecoded, groups, library, search
from eval.outputs import claim, writing
from selkv.errors import UserError, command, unknown

if TYPE_CHECKING:
    from eval.arms import Arm
    from eval.config import RunPlan

HELP = """\
Usage: selkv search [KEY=VALUE ...]      the same options as python run.py, one ratio, and:

  search.samples=2         training samples a task (the paper's searches use about 30 in all)
  search.seed=1            of the training samples and of the search; not the seed of the run that reports
  search.iterations=10     generations a group
  search.population=null   candidates a generation; null is CMA-ES's own, 10 for a group of 8
  search.group=8           consecutive layers that are searched together
  search.sigma=0.3         first step size, in units of the uniform budget
  search.output=null       budget file; null is results/budgets/<model>-<data>-<ratio>.json

Layer budgets for method=evolkv, found by CMA-ES on the task metric over samples that the run with the same options
does not report. One prefill a sample serves all candidates; those of a generation are decoded together.

examples:
  selkv search ratio=0.25
  selkv search model=llama31 data=longbench limit=50 ratio=0.1 search.iterations=20
exit status: 0 written, 2 bad options (one line says what is wrong), 130 interrupted, 1 failed (the best is written)"""


@dataclass(frozen=True)
class Options(Search):
    """All of ``search.*``: the search, how many samples a task it trains on, and where the budget file goes."""

    samples: int = 2
    output: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.samples, int) or isinstance(self.samples, bool) or self.samples < 1:
            raise UserError(f"search.samples={self.samples} is not a whole number of at least 1")
        if self.output is not None and (not isinstance(self.output, str) or not self.output.strip()):
            raise UserError(f"search.output={self.output} is no file; give search.output=FILE.json, or null")


@command
def main(arguments: list[str]) -> int:
    """Search and write the budget file; returns the exit status."""
    if {"-h", "--help"} & set(arguments):
        print(HELP)
        return 0
    return _search(arguments)


def _search(arguments: Sequence[str]) -> int:
    from eval.app import plan_of
    from eval.evolkv.budget_file import content_of, write
    from eval.evolkv.training import trainer_of, training_benchmark

    given, rest = yaml_options(arguments, lambda key: key.startswith("search."))
    options = options_of(given)
    plan = plan_of(["method=[evolkv]", *rest])
    arm = arm_of(plan)
    benchmark = training_benchmark(plan, options.samples, options.seed)
    path = Path(options.output or plan.results / "budgets" / f"{_stem(plan, arm)}.json").expanduser()
    samples = sum(map(len, benchmark.samples.values()))
    print(f"{samples} training samples of {len(benchmark.samples)} tasks; budget file: {path}", file=sys.stderr)
    if plan.dry_run:
        return 0
    library()
    claim(path.parent, [path.name], "give search.output=FILE.json")
    trainer = trainer_of(plan, benchmark, arm)
    found, status = watched(trainer, trainer.layers, options)
    if found is None:
        return status
    with writing(path, "give search.output=FILE.json"):
        write(path, content_of(plan, arm, benchmark, options, found, interrupted=bool(status)))
    print(
        f"score on the training samples: {found.score:.2f} with the found budgets, {found.uniform:.2f} with uniform "
        f"ones, after {found.evaluations} evaluations (what they are worth shows on other samples only).\nUse them:  "
        f"python run.py 'method=[snapkv,evolkv]' methods.evolkv.budget_file={path} ratio={arm.ratio_text} "
        "baseline=snapkv"
    )
    return status


def options_of(given: Mapping[str, Any]) -> Options:
    """Check the ``search.*`` options, by their whole keys."""
    known = {f"search.{field.name}": field.name for field in fields(Options)}
    for key in given:
        if key not in known:
            raise unknown("option", key, known)
    return Options(**{known[key]: value for key, value in given.items()})


def arm_of(plan: "RunPlan") -> "Arm":
    """EvolKV's row of the plan; there must be one, as a budget file is for one ratio."""
    arms = [arm for arm in plan.arms if arm.method == "evolkv"]
    if len(arms) != 1 or len({arm.method for arm in plan.arms}) != 2:
        rows = ", ".join(f"{arm.label} at {arm.ratio_text}" for arm in plan.arms)
        raise UserError(f"a search is for evolkv at one ratio, without method= and grid, not for: {rows}")
    return arms[0]


def watched(trainer: Any, layers: int, options: Options) -> tuple[Found | None, int]:
    """Run the search under a progress bar (a line a generation in a log file).

    Returns
    -------
    found : Found or None
        The best so far; None where not even the uniform budgets were scored.
    status : int
        0; 130 where Ctrl-C ended the search, 1 where a sample could not be decoded.
    """
    total, console = 1 + len(groups(layers, options.group)) * options.iterations, Console(stderr=True)
    bar = Progress(
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("generations"),
        TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn(elapsed_when_finished=False),
        console=console, disable=not console.is_terminal,
    )  # fmt: skip
    found = None
    with bar:
        task = bar.add_task("uniform budgets", total=total)
        try:
            for done, found in enumerate(search(trainer, layers, options), 1):
                layer = f"layers {found.layers.start}-{found.layers.stop - 1}: " if found.layers else ""
                text = f"{layer}best {found.score:.2f}, uniform {found.uniform:.2f}"
                bar.update(task, completed=done, description=text)
                if bar.disable:
                    print(f"{done}/{total} generations, {text}", file=sys.stderr, flush=True)
        except KeyboardInterrupt:
            return found, 130
        except Undecoded as problem:
            print(f"error: {problem}", file=sys.stderr)
            return found, 1
    return found, 0


def _stem(plan: "RunPlan", arm: "Arm") -> str:
    return f"{plan.model['name']}-{plan.data['name']}-{arm.ratio_text.replace('/', '_')}"
