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
from selkv.errors import UserError

# Pure Python modules of every version from 3.11 to 3.13, long enough for a prompt.
_MODULES = listed(
    "argparse ast asyncio.base_events asyncio.coroutines asyncio.events asyncio.exceptions asyncio.futures "
    "asyncio.locks asyncio.protocols asyncio.queues asyncio.runners asyncio.selector_events asyncio.sslproto "
    "asyncio.streams asyncio.subprocess asyncio.tasks asyncio.transports asyncio.unix_events base64 bdb cProfile "
    "calendar cmd code codeop collections compileall concurrent.futures.process concurrent.futures.thread "
    "configparser contextlib contextvars copy csv dataclasses decimal difflib dis doctest email.encoders email.header "
    "email.message email.utils enum filecmp fractions ftplib functools getopt getpass gettext glob gzip hashlib heapq "
    "hmac http.client http.cookiejar http.cookies http.server imaplib importlib.resources inspect ipaddress "
    "json.decoder json.encoder keyword linecache locale logging logging.config logging.handlers mailbox mimetypes "
    "multiprocessing.connection multiprocessing.context multiprocessing.managers multiprocessing.pool "
    "multiprocessing.process multiprocessing.queues multiprocessing.reduction multiprocessing.util netrc nturl2path "
    "numbers opcode operator optparse pathlib pdb pickle pickletools plistlib poplib pprint profile pstats py_compile "
    "pyclbr pydoc queue quopri random re reprlib rlcompleter sched secrets selectors shelve shlex shutil signal "
    "smtplib socket socketserver ssl statistics string subprocess symtable sysconfig tabnanny tarfile tempfile "
    "textwrap threading timeit tokenize trace traceback tty turtle types typing unittest.case unittest.loader "
    "unittest.main unittest.mock unittest.result unittest.runner unittest.suite unittest.util urllib.parse "
    "urllib.request urllib.response urllib.robotparser uuid warnings wave weakref wsgiref.handlers "
    "wsgiref.simple_server wsgiref.util xml.dom.minidom xml.sax.handler xml.sax.saxutils xmlrpc.client xmlrpc.server "
    "zipapp zipfile zoneinfo"
)
_BY_SHORT_NAME = {module.rpartition(".")[2]: module for module in _MODULES}
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
    """An indented statement all of whose names stand in the text before: what is left is to find them."""
    names = _identifiers(line)
    plain = (
        line.startswith("    ")
        and not set(line) & set("#`\"'")
        and 20 <= len(line.strip()) <= 70
        and ("=" in line or "(" in line)
    )
    follows = before.rstrip(" \n").endswith((":", ")", "]", '"', "'"))
    return plain and follows and len(names) >= 3 and all(re.search(rf"\b{name}\b", before) for name in set(names))


def _cut(lines: list[str], end: int, chars: int) -> str:
    """Whole lines before line `end`, as many as fit."""
    start, used = end, 0
    while start > 0 and used + len(lines[start - 1]) <= chars:
        start -= 1
        used += len(lines[start])
    return "".join(lines[start:end])


@functools.cache
def _statements(module: str) -> list[int]:
    """Line numbers (from 0) on which a whole statement stands."""
    source = _source(module)
    return sorted(
        {
            node.lineno - 1
            for node in ast.walk(ast.parse(source))
            if isinstance(node, ast.Assign | ast.Return | ast.Expr | ast.AugAssign) and node.lineno == node.end_lineno
        }
    )


def _asked(rng: random.Random, module: str, chars: int) -> tuple[str, str] | None:
    """Text before a line worth asking for, and the line."""
    lines = _source(module).splitlines(keepends=True)
    numbers = _statements(module)
    for number in rng.sample(numbers, len(numbers)):
        before = _cut(lines, number, chars)
        if len(before) > 0.9 * chars and _worth_asking(lines[number], before):
            return before, lines[number].rstrip("\n")
    return None


def lcc(rng: random.Random, tokens: int) -> Draft:
    """The next line of one file."""
    chars = round(tokens * _CHARS_PER_TOKEN)
    for module in rng.sample(_MODULES, len(_MODULES)):
        found = _asked(rng, module, chars)
        if found:
            return Draft("", found[0].removesuffix("\n"), (found[1],), language="python")
    raise _too_long("lcc", tokens)


def _uses(module: str) -> Iterator[tuple[int, str, str]]:
    """Statements of a module that use another one of the list: line number, module, name."""
    source = _source(module)
    lines = source.splitlines()
    imported = {name for line in re.findall(r"\bimport (.+)", source) for name in _identifiers(line)}
    for number in _statements(module):
        for short, name in re.findall(r"\b([a-z_]+)\.([A-Za-z_]\w+)", lines[number]):
            other = _BY_SHORT_NAME.get(short, module)
            if short in imported and other != module:
                yield number, other, name


def _definition(module: str, name: str, chars: int) -> str:
    """A function or class from its first line on, as many whole lines as fit; empty where there is none."""
    lines = _source(module).splitlines(keepends=True)
    first = re.compile(rf"(def|class) {name}\b")
    start = next((number for number, line in enumerate(lines) if first.match(line)), len(lines))
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
                text = f"# {module}.py\nimport {other}\n\n{before}".removesuffix("\n")
                return Draft(text, context, (lines[number].rstrip("\n"),), language="python")
    raise _too_long("repobench-p", tokens)


def _too_long(task: str, tokens: int) -> UserError:
    return UserError(
        f"data.tokens={tokens} does not suit {task}: no module of the standard library gives such a prompt; "
        "choose 200 to 16000, or tasks without code"
    )


# The last line end is left to the model: in most vocabularies it is one token with the indentation that follows.
TASKS = {
    "lcc": Recipe(TaskPrompt("{context}{input}", 32, chat=False, stop_at_newline=True), lcc),
    "repobench-p": Recipe(TaskPrompt("{context}\n{input}", 32, chat=False, stop_at_newline=True), repobench_p),
}
