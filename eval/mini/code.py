"""Real Python: the next line of a standard-library module of the running interpreter."""

import ast
import functools
import importlib.util
import itertools
import random
import re
import tokenize
from collections.abc import Iterator

from eval.generated import Draft, Recipe
from eval.mini.words import listed
from eval.sample import TaskPrompt

# Pure Python modules of every version from 3.11 to 3.13, long enough for a prompt.
_MODULES = listed(
    "argparse ast bdb calendar cmd codeop compileall configparser copy csv dataclasses difflib dis doctest enum "
    "filecmp fractions ftplib functools getopt gettext glob gzip heapq imaplib inspect ipaddress linecache locale "
    "mailbox mimetypes netrc optparse pathlib pdb pickle pickletools plistlib poplib pprint profile pstats py_compile "
    "pyclbr pydoc queue random reprlib rlcompleter sched selectors shelve shlex shutil smtplib socketserver "
    "statistics string subprocess symtable tabnanny tarfile tempfile textwrap threading timeit tokenize trace "
    "traceback turtle typing uuid warnings wave weakref zipapp"
)

# Characters a token of Python source, with SmolLM2's tokenizer (3.4 to 4.4).
_CHARS_PER_TOKEN = 3.6


@functools.cache
def _source(module: str) -> str:
    spec = importlib.util.find_spec(module)
    if spec is None or spec.origin is None or not spec.origin.endswith(".py"):
        return ""
    with tokenize.open(spec.origin) as file:
        return file.read()


def _identifiers(text: str) -> list[str]:
    return re.findall(r"[A-Za-z_]\w+", text)


def _worth_asking(line: str, before: str) -> bool:
    """A statement all of whose names stand in the text before: what is left is to find them."""
    names = _identifiers(line)
    plain = not set(line) & set("#`\"'") and 20 <= len(line.strip()) <= 70 and ("=" in line or "(" in line)
    return plain and len(names) >= 3 and set(names) <= set(_identifiers(before))


def _cut(lines: list[str], end: int, chars: int) -> str:
    """Whole lines before line `end`, as many as fit."""
    start, used = end, 0
    while start > 0 and used + len(lines[start - 1]) <= chars:
        start -= 1
        used += len(lines[start])
    return "".join(lines[start:end])


def _statements(source: str) -> list[int]:
    """Line numbers (from 0) on which a one-line statement of a function stands."""
    return sorted(
        {
            node.lineno - 1
            for node in ast.walk(ast.parse(source))
            if isinstance(node, ast.Assign | ast.Return | ast.Expr | ast.AugAssign) and node.lineno == node.end_lineno
        }
    )


def _asked(rng: random.Random, source: str, chars: int) -> tuple[str, str] | None:
    """Text before a line worth asking for, and the line."""
    lines = source.splitlines(keepends=True)
    numbers = _statements(source)
    for number in rng.sample(numbers, len(numbers)):
        before = _cut(lines, number, chars)
        if len(before) > 0.9 * chars and _worth_asking(lines[number], before):
            return before, lines[number].rstrip("\n")
    return None


def lcc(rng: random.Random, tokens: int) -> Draft:
    """The next line of one file."""
    chars = round(tokens * _CHARS_PER_TOKEN)
    for module in rng.sample(_MODULES, len(_MODULES)):
        found = _asked(rng, _source(module), chars)
        if found:
            return Draft("", found[0], (found[1],), language="python")
    raise LookupError(f"no module of the standard library is long enough for {tokens} tokens")


def _uses(module: str) -> Iterator[tuple[int, str, str]]:
    """Lines of a module on which another one of the list is used: line number, module, name."""
    for number, line in enumerate(_source(module).splitlines()):
        for other, name in re.findall(r"\b([a-z]+)\.([a-z_]\w+)\(", line):
            if other in _MODULES and other != module:
                yield number, other, name


def _definition(module: str, name: str, chars: int) -> str:
    """A function from its ``def`` on, as many whole lines as fit; empty where the module has no such function."""
    lines = _source(module).splitlines(keepends=True)
    start = next((number for number, line in enumerate(lines) if line.startswith(f"def {name}(")), len(lines))
    sizes = itertools.accumulate(len(line) for line in lines[start:])
    return "".join(lines[start : start + sum(size <= chars for size in sizes)])


def repobench_p(rng: random.Random, tokens: int) -> Draft:
    """The next line of a file that calls a function of another file, which is shown first."""
    chars = round(tokens * _CHARS_PER_TOKEN)
    for module in rng.sample(_MODULES, len(_MODULES)):
        lines = _source(module).splitlines(keepends=True)
        uses = list(_uses(module))
        for number, other, name in rng.sample(uses, len(uses)):
            shown = _definition(other, name, chars // 3)
            before = _cut(lines, number, chars - len(shown) - 60)
            if shown and len(before) + len(shown) > 0.85 * chars and _worth_asking(lines[number], before + shown):
                context = f"# {other}.py\n{shown}\n"
                text = f"# {module}.py\nimport {other}\n\n{before}"
                return Draft(text, context, (lines[number].rstrip("\n"),), language="python")
    raise LookupError(f"no module of the standard library is long enough for {tokens} tokens")


TASKS = {
    "lcc": Recipe(TaskPrompt("{context}{input}", 32, chat=False, stop_at_newline=True), lcc),
    "repobench-p": Recipe(TaskPrompt("{context}\n{input}", 32, chat=False, stop_at_newline=True), repobench_p),
}
