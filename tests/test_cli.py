"""What a user meets first: help, mistakes told in one line, and commands that work outside the checkout."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from eval import app, choices
from eval.config import RunPlan
from selkv import __version__, cli
from selkv.errors import UserError
from tests.stub_runner import install_runner, recorder

ROOT = Path(__file__).resolve().parents[1]


def python(code: str, folder: Path) -> tuple[subprocess.CompletedProcess[str], float]:
    """Run Python in a fresh process, in an empty folder; also the seconds it took."""
    start = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    return done, time.perf_counter() - start


CALL = "import sys; from eval.app import main; code = main({}); print('torch' in sys.modules, code)"


def test_help_is_quick_and_lists_every_choice(tmp_path: Path) -> None:
    done, seconds = python(CALL.format(["--help"]), tmp_path)
    assert done.stdout.splitlines()[-1] == "False 0"
    for group in ("method", "model", "data", "experiment", "engine", "protocol", "prefill"):
        for name in choices.choices(group):
            assert f"\n  {name} " in done.stdout, f"{group}={name}"
    for option in ("ratio=0.25", "limit=auto", "sliding_layers=compress", "dry_run=false"):
        assert option in done.stdout
    assert seconds < 2


@pytest.mark.parametrize("argument", ["ratio=abc", "method=[foo]", "rato=0.5"])
def test_wrong_option_is_quick_and_leaves_nothing_behind(argument: str, tmp_path: Path) -> None:
    done, seconds = python(CALL.format([argument]), tmp_path)
    assert done.stdout.split() == ["False", "2"], "torch must not be imported before the config is known to be right"
    assert len(done.stderr.splitlines()) == 1
    assert list(tmp_path.iterdir()) == []
    assert seconds < 2


MISTAKES = {
    "method=foo": ["method 'foo'", "snapkv"],
    "method=[full,snapkw]": ["method 'snapkw'", "Did you mean 'snapkv'?"],
    "method=[]": ["no method", "method=[...]", "snapkv"],
    "method=full,snapkv": ["method=[full,snapkv]", "-m"],
    "model=foo": ["model 'foo'", "smollm2"],
    "model=hf": ["model.path"],
    "data=foo": ["data 'foo'", "longbench"],
    "data.tasks=[hotpotqs]": ["task 'hotpotqs'", "Did you mean 'hotpotqa'?"],
    "data.tasks=[]": ["data.tasks", "english"],
    "data=longbench data.path=absent.zip": ["data.path=absent.zip", "does not exist"],
    "data.path=absent.zip": ["data.path", "data=longbench"],
    "experiment=table": ["experiment 'table'", "Did you mean 'table1'?"],
    "engine=spark": ["engine 'spark'", "local, ray"],
    "engine.workers=2": ["engine.workers", "engine=ray"],
    "engine.memory_fraction=1.5": ["engine.memory_fraction=1.5", "at most 1"],
    "prefill=three": ["prefill 'three'", "one_pass, two_pass"],
    "prefill.mode=three": ["prefill.mode=three", "'one_pass' or 'two_pass'"],
    "prefill.chunk=0": ["prefill.chunk=0", "at least 1"],
    "protocol=mine": ["protocol 'mine'", "official"],
    "rato=0.5": ["option 'rato'", "Did you mean 'ratio'?"],
    "+rato=0.5": ["option 'rato'", "Did you mean 'ratio'?"],
    "metod=snapkv": ["option 'metod'", "Did you mean 'method'?"],
    "methods.snapkv.windo=8": ["methods.snapkv.windo", "Did you mean 'methods.snapkv.window'?"],
    "methods.lookm.merge=pivotal": ["methods.lookm.merge", "method=lookm"],
    "methods.foo.merge=pivotal": ["method 'foo'", "lookm"],
    "grid.snapkv.windo=[8]": ["windo", "Did you mean 'window'?"],
    "grid.lookm.merge=[pivotal]": ["'lookm'", "method=[...,lookm]"],
    "ratio=abc": ["ratio=abc", "(0, 1]", "ratio=0.25"],
    "ratio=0": ["ratio=0", "(0, 1]"],
    "ratio=1.01": ["ratio=1.01", "(0, 1]"],
    "ratio=25%": ["ratio=25%", "(0, 1]"],
    "ratio=nan": ["ratio=nan", "(0, 1]"],
    "ratio=1/0": ["ratio=1/0", "(0, 1]"],
    "ratio=true": ["ratio=True", "(0, 1]"],
    "ratio=[]": ["ratio=[]", "ratio=[0.1,0.25]"],
    "ratio=[0.1": ["ratio=[0.1", "key=[a,b]"],
    "ratio=0.1,0.5": ["ratio=[0.1,0.5]", "-m"],
    "experiment=table1,ablation": ["experiment=table1,ablation", "add -m"],
    "seed=1,2": ["seed=1,2", "add -m"],
    "=3": ["'=3'", "key=value"],
    "method=[[snapkv]]": ["method '[[snapkv]]'", "snapkv"],
    "~ratio": ["~ratio", "another value"],
    "--ratio=0.5": ["'--ratio'", "ratio=0.5"],
    "nonsense": ["'nonsense'", "key=value"],
    "limit=0": ["limit=0", "at least 1"],
    "limit=many": ["limit='many'", "whole number"],
    "limit.frst=2": ["limit.frst", "limit.first"],
    "seed=-1": ["seed=-1", "at least 0"],
    "scoring=fair": ["scoring=fair", "'official' or 'strict'"],
    "fidelity=maybe": ["fidelity=maybe", "'auto'", "true or false"],
    "dry_run=maybe": ["dry_run=maybe", "true or false"],
    "tracking=tensorboard": ["tracking=tensorboard", "'mlflow'", "null"],
    "baseline=snap": ["baseline 'snap'", "snapkv"],
    "name=../up": ["name=../up", "letters"],
    "name=cells": ["name=cells", "another name"],
    "model=null": ["model 'null'", "smollm2"],
    "data=5": ["data '5'", "longbench"],
    "engine=null": ["engine 'null'", "local, ray"],
    "protocol=[paper]": ["protocol '[paper]'", "official"],
    "prefill=null": ["prefill 'null'", "two_pass"],
    "method=null": ["method 'null'", "snapkv"],
    "experiment=5": ["experiment '5'", "table1"],
    "engine={a:1}": ["engine '{a:1}'", "local, ray"],
    "~model": ["~model", "another value"],
    "methods=5": ["methods=5", "methods.selkv.alpha"],
    "methods.snapkv=5": ["methods.snapkv=5", "methods.selkv.alpha"],
    "grid=[1]": ["grid"],
    "grid.selkv=[1]": ["grid.selkv=[1]", "grid.selkv.alpha=[0,0.5,1]"],
    "grid.full.x=[1]": ["method full 'x'", "there is none"],
    "grid.selkv.alpha=[]": ["grid.selkv.alpha=[]", "one or more values"],
    "method=merge grid.merge.selection.kernel=[3,5]": ["grid.merge.selection", "list"],
    "model.path=somewhere": ["model.path=somewhere", "model=hf model.path=somewhere"],
    "model.revision=v2": ["model.revision=v2", "model=hf"],
    "model.attention=eager": ["model.attention"],
    "model.device=5": ["model.device=5", "text"],
    "model.dtype=int4": ["model.dtype=int4", "'bfloat16'"],
    "model.quantization=4bit": ["model.quantization=4bit", "mapping", "null"],
    "model.trust_remote_code=5": ["model.trust_remote_code=5", "true or false"],
    "model.max_prompt_tokens=1.5": ["model.max_prompt_tokens=1.5", "whole number"],
    "model.name=a/b": ["model.name=a/b", "letters"],
    "engine=ray engine.workers=0": ["engine.workers=0", "'auto'", "at least 1"],
    "engine=ray engine.gpus_per_worker=many": ["engine.gpus_per_worker=many", "'auto'", "number"],
    "engine=ray engine.cpus_per_worker=-1": ["engine.cpus_per_worker=-1", "at least 0"],
    "data.tokens=abc": ["data.tokens=abc", "whole number"],
    "data.tokens=null": ["data.tokens=null", "whole number"],
    "data.tokens=-5": ["data.tokens=-5", "at least 1"],
    "data=needle data.lengths=[]": ["data.lengths=[]", "not empty"],
    "data=needle data.lengths=[a]": ["data.lengths=['a']", "whole number"],
    "limit={}": ["limit={}", "limit.first"],
    "results=": ["results=", "text"],
    "results=null": ["results=null", "text"],
    "results=[1]": ["results=[1]", "text"],
    "report=maybe": ["report=maybe", "true or false"],
    "seed=${nope}": ["nope"],
    "hydra.foo=1": ["hydra.foo", "--hydra-help"],
    "--config-dir": ["--config-dir", "method/NAME.yaml"],
    "--config-dir absent": ["absent", "no folder"],
    "method=merge methods.merge.bogus=1": ["methods.merge.bogus"],
}


@pytest.mark.parametrize("line", MISTAKES)
def test_mistake_is_one_line(line: str, plans: list[RunPlan], capsys: pytest.CaptureFixture[str]) -> None:
    assert app.main(line.split()) == 2
    streams = capsys.readouterr()
    assert streams.err.startswith("error: ") and streams.err.count("\n") == 1 and not streams.out
    for word in MISTAKES[line]:
        assert word in streams.err
    assert plans == [] and list(Path.cwd().iterdir()) == []


def test_of_an_option_given_twice_the_last_one_counts_and_that_is_said(
    plans: list[RunPlan], capsys: pytest.CaptureFixture[str]
) -> None:
    assert app.main(["ratio=0.1", "limit=1", "method=selkv", "ratio=0.2", "limit=1"]) == 0
    assert capsys.readouterr().err == "note: ratio is given twice, 0.2 is used; for both write 'ratio=[0.1,0.2]'\n"
    assert plans[0].arms[-1].ratio_text == "0.2"


def test_sweep_runs_one_plan_each_and_returns_the_worst_code(
    plans: list[RunPlan], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    install_runner(monkeypatch, recorder(plans, lambda plan: int(plan.seed == 1)))
    assert app.main(["-m", "seed=0,1,2", "method=snapkv"]) == 1
    assert [plan.seed for plan in plans] == [0, 1, 2]
    assert capsys.readouterr().err.count("replaces the tables of the one before in results/default/smollm2/") == 2
    assert {path.name for path in Path.cwd().iterdir()} == {"results"}


def test_interrupt_ends_a_sweep_with_130(plans: list[RunPlan], monkeypatch: pytest.MonkeyPatch) -> None:
    install_runner(monkeypatch, recorder(plans, lambda plan: 130))
    assert app.main(["-m", "seed=0,1", "method=snapkv"]) == 130
    assert len(plans) == 1


def test_mistake_found_by_the_runner_is_one_line(
    plans: list[RunPlan], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(plan: RunPlan) -> int:
        raise UserError("row 3 is broken")

    install_runner(monkeypatch, run)
    assert app.main(["method=snapkv"]) == 2
    assert capsys.readouterr().err == "error: row 3 is broken\n"


def test_bug_keeps_its_traceback(plans: list[RunPlan], monkeypatch: pytest.MonkeyPatch) -> None:
    def run(plan: RunPlan) -> int:
        raise ZeroDivisionError

    install_runner(monkeypatch, run)
    with pytest.raises(ZeroDivisionError):
        app.main(["method=snapkv"])


def test_command_lists_and_dispatches(plans: list[RunPlan], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([]) == 0
    assert "\n  run  " in capsys.readouterr().out
    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out == f"selkv {__version__}\n"
    assert cli.main(["run", "method=snapkv"]) == 0 and len(plans) == 1
    assert cli.main(["scores"]) == 2
    assert "Did you mean 'score'?" in capsys.readouterr().err


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_every_command_helps(name: str, tmp_path: Path) -> None:
    done, _ = python(f"from selkv.cli import main; main(['{name}', '--help'])", tmp_path)
    assert done.returncode == 0 and len(done.stdout) > 100, done.stderr
