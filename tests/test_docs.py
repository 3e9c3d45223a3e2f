"""Every command, snippet and link of README and docs works; runs by ``dry_run=true``, snippets on a tiny model."""

import argparse
import importlib
import importlib.util
import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
import torch
import yaml

import baselines
import eval
from eval import app
from selkv import cli
from tests.eval import runs
from tests.eval.simulate import simulate

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
PROGRAMS = ("python", "selkv", "make", "pip", "ray")
HUB_ID = re.compile(r'"[\w.-]+/[\w.-]+"')  # in snippets: stands for the tiny model here
EXECUTED = ("score", "report", "export", "compare", "doctor")  # the other tools measure for minutes: options only
ADDED_DATA = "data=lookup"  # the benchmark of docs/extending.md: has a test of its own
OPTIONAL = ("kvpress", "mlflow", "wandb")  # packages that only the peer environment has
ARMS = [("full", "1", 0.0), ("selkv", "0.25", -0.05), ("snapkv", "0.25", -0.1), ("streamingllm", "0.25", -0.2)]


class Block(NamedTuple):
    """A block of code on a page; `above` is the line of text before it."""

    page: Path
    line: int
    language: str
    text: str
    above: str

    def __str__(self) -> str:
        return f"{self.page.name}:{self.line}"


def blocks(page: Path) -> Iterator[Block]:
    """Fenced and indented blocks."""
    lines, above, i = page.read_text(encoding="utf-8").split("\n"), "", 0
    while i < len(lines):
        fence = re.match(r"```(\w*)$", lines[i])
        start = i + 1 if fence else i
        if fence:
            i = lines.index("```", start)
            yield Block(page, start + 1, fence[1], "\n".join(lines[start:i]), above)
        elif lines[i].startswith("    "):
            while i < len(lines) and (lines[i].startswith("    ") or not lines[i].strip()):
                i += 1
            yield Block(page, start + 1, "", "\n".join(line[4:] for line in lines[start:i]).rstrip(), above)
            continue
        elif lines[i].strip():
            above = lines[i]
        i += 1


BLOCKS = [block for page in PAGES for block in blocks(page)]


def commands() -> dict[str, list[str]]:
    """Words of every command by its text: variables in front and comments behind it dropped."""
    found = {}
    for block in BLOCKS:
        if block.language in ("", "bash", "console"):
            for line in block.text.replace("\\\n", " ").split("\n"):
                for part in line.split(" && "):
                    words = shlex.split(part, comments=True) if part.count("'") % 2 == 0 else []
                    while words and re.match(r"[A-Z_]+=", words[0]):
                        words.pop(0)
                    if words and words[0] in PROGRAMS and "$" not in part:
                        found[shlex.join(words)] = words
    return found


COMMANDS = commands()


def typed(page: Path) -> Iterator[str]:
    """Command lines of a page: those in blocks, and those between backticks in its text."""
    text = page.read_text(encoding="utf-8").replace("\\\n", " ")
    yield from re.findall(r"^(?:    )?((?:[A-Z_]+=\S+ )?(?:python|selkv) .*)$", text, flags=re.MULTILINE)
    yield from (" ".join(line.split()) for line in re.findall(r"`((?:python|selkv) [^`]*)`", text))


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return runs.save_model(tmp_path_factory.mktemp("model"))


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory as the pages assume it: a finished run, a folder of rows, the methods that they add."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["run.py"])
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setenv("SELKV_CONFIGS", "")  # commands set it from --config-dir: it goes when the test ends
    simulate(tmp_path / "results/default/smollm2", ["hotpotqa", "lcc"], 3, ARMS)
    simulate(tmp_path / "results/table1/llama31", ["hotpotqa", "lcc"], 3, ARMS, data="longbench")
    row = {"_id": "1", "dataset": "qasper", "language": "en", "context": "It is blue.", "input": "Which colour?"}
    scored = {"pred": "blue", "answers": ["blue"], "all_classes": None, "length": 9}  # a prediction's fields
    choices = {f"choice_{letter}": letter for letter in "ABCD"}
    question = {"context": "Text.", "question": "Which?", "answer": "A", "difficulty": "easy", "length": "short"}
    (tmp_path / "FOLDER").mkdir()
    (tmp_path / "FOLDER/qasper.jsonl").write_text(json.dumps(row | scored) + "\n")
    (tmp_path / "FOLDER/data.json").write_text(json.dumps([question | choices]))
    for path, text in added_files().items():
        places = (
            [path.removeprefix("configs/")] if "lookup" in path else [path.removeprefix("configs/"), Path(path).name]
        )
        for target in (tmp_path / "mine" / place for place in places):
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text)
    for package in (baselines, eval):
        folder = str(tmp_path / "mine" / package.__name__)
        monkeypatch.setattr(package, "__path__", [*package.__path__, folder])
    return tmp_path


def added_files() -> dict[str, str]:
    """Files that docs/extending.md tells the reader to write, by path."""
    named = [(re.findall(r"`([\w/]+\.(?:py|yaml))`", block.above), block) for block in BLOCKS]
    return {
        paths[-1]: block.text + "\n"
        for paths, block in named
        if paths and block.page.name == "extending.md"
        if block.language in ("python", "yaml") or "# @package methods." in block.text
    }


@pytest.mark.parametrize("line", [line for line, words in COMMANDS.items() if ADDED_DATA not in words])
def test_command(line: str, place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    words = COMMANDS[line]
    if words[:2] in (["python", "run.py"], ["selkv", "run"]):
        check_run(words[2:], capsys)
    elif words == ["selkv", "--help"]:
        assert cli.main(words[1:]) == 0
    elif words[0] == "selkv":
        check_tool(cli.COMMANDS[words[1]][0], words[2:], monkeypatch)
    elif words[0] == "python" and words[1].startswith("scripts/"):
        check_tool(f"scripts.{Path(words[1]).stem}", words[2:], monkeypatch)
    elif words[:2] == ["python", "-c"]:
        compile(words[2], line, "exec")
    elif words[:2] == ["python", "-m"]:
        check_module(words[2], words[3:])
    elif words[0] == "make":
        assert re.search(rf"^{words[1]}:", (ROOT / "Makefile").read_text(), flags=re.MULTILINE)
    elif words[0] == "pip":
        check_pip(words[1:])
    elif words[:2] == ["ray", "start"]:
        check_ray(words[2:])
    else:
        pytest.fail(f"no check for this command: {line}")


def check_run(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    mine = [] if "--help" in arguments or "--config-dir" in arguments else ["--config-dir", "mine"]
    sys.path.insert(0, "mine")  # stands for PYTHONPATH=mine
    try:
        code = app.main([*mine, *arguments, *([] if "--help" in arguments else ["dry_run=true"])])
    finally:
        sys.path.remove("mine")
    absent = [name for name in OPTIONAL if name in " ".join(arguments) and importlib.util.find_spec(name) is None]
    assert code == (2 if absent else 0)
    if absent:
        assert f"pip install {absent[0]}" in capsys.readouterr().err


def check_tool(module: str, arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    main = importlib.import_module(module).main
    name = next((name for name in EXECUTED if cli.COMMANDS[name][0] == module), module)
    if name in EXECUTED:
        files = [
            path for word in arguments for path in (sorted(map(str, Path().glob(word))) if "*" in word else [word])
        ]
        assert main(files) in ((0, 1) if name == "doctor" else (0,)), "a doctor may find a model that is not here"
        return
    # options are read, then it ends: by argparse, or as those of run.py
    monkeypatch.setattr(sys, "argv", [name, *arguments])
    for owner, reader in ((argparse.ArgumentParser, "parse_args"), (app, "plan_of")):
        monkeypatch.setattr(owner, reader, and_end(getattr(owner, reader)))
    with pytest.raises(SystemExit, match=r"^0$"):
        main(arguments) if module.startswith("eval.") else main()


def and_end(read: Callable[..., object]) -> Callable[..., None]:
    def reading(*parts: object, **options: object) -> None:
        read(*parts, **options)
        raise SystemExit(0)

    return reading


def check_module(name: str, arguments: list[str]) -> None:
    assert importlib.util.find_spec(name), name
    if name == "pytest":
        assert all((ROOT / word).exists() for word in arguments if word.startswith("tests/"))


def check_pip(arguments: list[str]) -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert arguments[0] == "install"
    for found in re.findall(r"\[([\w,-]+)\]", " ".join(arguments)):
        assert set(found.split(",")) <= set(extras)


def check_ray(arguments: list[str]) -> None:
    pytest.importorskip("ray", reason="Ray's options are read from the package")
    from ray.scripts.scripts import start

    start.make_context("start", list(arguments), resilient_parsing=False)


def test_snippets(
    model: Path,
    place: Path,
    subtests: pytest.Subtests,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Python blocks of a page run one after another; what a page leaves to its reader is given here.

    What a block prints is the next block.
    """
    from selkv import load_model, load_tokenizer

    monkeypatch.setattr("selkv.embedded.resolve_smollm2", lambda: str(model))
    for page in PAGES:
        given = {
            "__name__": "snippet",
            "model": load_model(str(model)),
            "tokenizer": load_tokenizer(str(model)),
            "input_ids": torch.arange(60).remainder(90)[None] + 3,
        }
        for block, following in zip(BLOCKS, [*BLOCKS[1:], None], strict=True):
            if block.page == page and block.language == "python":
                with subtests.test(str(block)):
                    wanted = re.findall(r"^(?:from|import) (\w+)", block.text, flags=re.MULTILINE)
                    absent = [name for name in wanted if importlib.util.find_spec(name) is None]
                    if absent:
                        pytest.skip(f"{absent[0]} is in the peer environment only")
                    exec(compile(HUB_ID.sub(repr(str(model)), block.text), str(block), "exec"), given)
                    printed = capsys.readouterr().out.strip()
                    assert "print(" not in block.text or (following and printed == following.text)


def test_yaml_and_shell_blocks_parse() -> None:
    for block in BLOCKS:
        if block.language == "yaml":
            assert list(yaml.safe_load_all(block.text)), block
        if block.language == "bash":
            assert subprocess.run(["bash", "-n", "-c", block.text]).returncode == 0, block


@pytest.mark.parametrize("line", [line for page in PAGES for line in typed(page)])
def test_brackets_are_quoted(line: str) -> None:
    """A shell reads [..] and {..} as patterns; zsh stops where no file fits."""
    bare = re.sub(r"'[^']*'|\"[^\"]*\"", "", line)
    assert not re.search(r"=[\[{]", bare), line


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_to_files(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#\s]+)", page.read_text(encoding="utf-8")):
        if "://" not in target:
            assert (page.parent / target).exists(), target


def test_readme_names_every_method_of_a_paper() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    for path in (ROOT / "configs/method").glob("*.yaml"):
        if not re.search(r"_gate|selkv_|kvpress_", path.stem):
            assert f"`{path.stem}`" in text, path.stem


def test_site_builds_without_warnings(tmp_path: Path) -> None:
    pytest.importorskip("mkdocs", reason="the peer environment builds no site")
    build = [sys.executable, "-m", "mkdocs", "build", "--strict", "-d", str(tmp_path)]
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(build, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0 and "WARNING" not in done.stderr, done.stderr
    pages = [path.read_text(encoding="utf-8") for path in tmp_path.glob("*.html")]
    assert len(pages) > len(PAGES) - 1, "a page each, and the one for missing pages"
    for page in pages:
        text = re.sub(r"<[^>]*>", "", page)  # a formula has a tag for each letter
        assert "klzzwxh" not in text, "Markdown took a sign of a formula, such as an escaped bar, for its own"
        assert not re.findall(r'<(?:script|img|link rel="stylesheet")[^>]+(?:src|href)="https?://', page)
