"""From a row to token ids: render the task's template, cut the middle, wrap in the chat format, check the BOS token."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from eval.chat import wrap
from eval.sample import Sample, TaskPrompt
from selkv.errors import UserError, unknown

TRUNCATIONS = ("ids", "official")
CHATS = ("auto", "vicuna", "none")

# Stands for the prompt where only the text around it matters; no template changes it.
_MARK = "PROMPT0000"
# Tokens that may straddle the border between context and question.
_BORDER = 8


@dataclass(frozen=True)
class Protocol:
    """How a prompt becomes token ids.

    Attributes
    ----------
    truncation : str
        ``ids``: the ids of the finished prompt lose their middle, chat format and limit included, nothing is encoded
        again. ``official``: as LongBench's pred.py does it, the bare prompt is cut, decoded, wrapped and encoded
        again; its length can then differ by some tokens from the limit, and the chat format comes on top.
    max_prompt_tokens : int
        The limit.
    chat : str
        ``auto``, ``vicuna``, ``none``, or a format string with ``{prompt}`` (see `eval.chat.wrap`).
    system : str or None
        System text for ``auto``.
    enable_thinking : bool or None
        For templates that know it (Qwen3).
    """

    truncation: str = "ids"
    max_prompt_tokens: int = 31500
    chat: str = "auto"
    system: str | None = None
    enable_thinking: bool | None = None

    def __post_init__(self) -> None:
        if self.truncation not in TRUNCATIONS:
            raise unknown("truncation", self.truncation, TRUNCATIONS)
        if self.chat not in CHATS and "{prompt}" not in self.chat:
            raise unknown("chat", self.chat, [*CHATS, "a format with {prompt}"])
        if self.max_prompt_tokens < 2:
            raise UserError(f"max_prompt_tokens={self.max_prompt_tokens}: must be at least 2 (half and half is kept)")

    def wrap(self, text: str, prompt: TaskPrompt, tokenizer: Any) -> str:
        """`text` in the chat format, or as it is for tasks that LongBench leaves bare."""
        return wrap(text, tokenizer, self.chat, self.system, self.enable_thinking) if prompt.chat else text


class Prompt(NamedTuple):
    """One row, ready for the model.

    Attributes
    ----------
    text : str
        The rendered template before any cut: LongBench's official bytes.
    ids : list of int
        What the model gets, BOS and chat format included.
    n_before : int
        Number of ids without the cut.
    question_cut : bool
        Whether part of what follows the context was cut (the limit cannot hold it).
    context : int
        Number of ids up to the end of the context; the question and the end of the chat format follow.
    """

    text: str
    ids: list[int]
    n_before: int
    question_cut: bool = False
    context: int = 0

    @property
    def truncated(self) -> bool:
        """Whether anything was cut."""
        return len(self.ids) < self.n_before


def render(sample: Sample, prompt: TaskPrompt) -> str:
    """The task's template with the row's texts, white space untouched."""
    return prompt.template.format(context=sample.context, input=sample.input)


def encode(sample: Sample, prompt: TaskPrompt, tokenizer: Any, protocol: Protocol) -> Prompt:
    """Token ids of one row under a protocol.

    Parameters
    ----------
    sample : Sample
        The row.
    prompt : TaskPrompt
        Template of its task, and whether the chat format applies.
    tokenizer : PreTrainedTokenizer
        The model's.
    protocol : Protocol
        Cut, limit and chat format.

    Raises
    ------
    UserError
        Where the BOS token is missing or doubled, or the limit leaves no room beside the chat format.
    """
    text = render(sample, prompt)
    wrapped = protocol.wrap(text, prompt, tokenizer)
    full = _ids(wrapped, tokenizer)
    cut = _cut_official if protocol.truncation == "official" else _cut_ids
    ids, question_cut = cut(full, text, sample, prompt, tokenizer, protocol)
    _check_bos(ids, wrapped, text, tokenizer, sample)
    asked = _question_tokens(sample, prompt, tokenizer)[1] + _margins(prompt, tokenizer, protocol)[1]
    return Prompt(text, ids, len(full), question_cut, max(1, len(ids) - asked))


def check_room(prompts: Mapping[str, TaskPrompt], tokenizer: Any, protocol: Protocol, window: int) -> None:
    """Refuse a limit that leaves no room for the generation in the model's window.

    Parameters
    ----------
    prompts : mapping of str to TaskPrompt
        The tasks of the run.
    window : int
        Positions that the model was made for.

    Raises
    ------
    UserError
        Naming the task that needs most, and the largest limit that fits.
    """
    outside = protocol.truncation == "official"
    needs = {
        task: prompt.max_new_tokens + (sum(_margins(prompt, tokenizer, protocol)) if outside else 0)
        for task, prompt in prompts.items()
    }
    task = max(needs, key=lambda name: needs[name])
    if protocol.max_prompt_tokens + needs[task] > window:
        raise UserError(
            f"max_prompt_tokens={protocol.max_prompt_tokens} and the {needs[task]} tokens that {task} needs besides "
            f"exceed the model's window of {window}; add model.max_prompt_tokens={max(2, window - needs[task])}"
        )


def _ids(text: str, tokenizer: Any) -> list[int]:
    """Ids with the tokenizer's special tokens, unless the text brings its own BOS (templates of Llama-3, Gemma)."""
    own = bool(tokenizer.bos_token) and text.startswith(tokenizer.bos_token)
    return list(tokenizer(text, add_special_tokens=not own, verbose=False)["input_ids"])


def _cut_official(
    full: list[int], text: str, sample: Sample, prompt: TaskPrompt, tokenizer: Any, protocol: Protocol
) -> tuple[list[int], bool]:
    """LongBench's pred.py, lines of `get_pred`: halves of the bare prompt's ids, decoded, wrapped, encoded again."""
    bare = list(tokenizer(text, verbose=False)["input_ids"])
    if len(bare) <= protocol.max_prompt_tokens:
        return full, False
    half = protocol.max_prompt_tokens // 2
    halves = (tokenizer.decode(part, skip_special_tokens=True) for part in (bare[:half], bare[-half:]))
    ids = _ids(protocol.wrap("".join(halves), prompt, tokenizer), tokenizer)
    return ids, _question_tokens(sample, prompt, tokenizer)[1] > half


def _cut_ids(
    full: list[int], text: str, sample: Sample, prompt: TaskPrompt, tokenizer: Any, protocol: Protocol
) -> tuple[list[int], bool]:
    """Drop ids from the middle of the prompt: half of the room on each side of the cut, the chat format whole.

    Where the question is longer than half the room, the end keeps all of it and the start gets the rest, as long as
    the instruction fits.
    """
    limit = protocol.max_prompt_tokens
    if len(full) <= limit:
        return full, False
    head, tail = _margins(prompt, tokenizer, protocol)
    room = limit - head - tail
    if room < 2:
        raise UserError(
            f"max_prompt_tokens={limit} leaves no room beside the chat format ({head + tail} tokens); raise it"
        )
    instruction, question = (count + _BORDER for count in _question_tokens(sample, prompt, tokenizer))
    half = room // 2
    fits = instruction + question <= room
    end = max(half, question) if fits else half
    start = min(half, room - end)
    ids = full[: head + start] + full[len(full) - end - tail :]
    return ids, not fits and question - _BORDER > half


def _margins(prompt: TaskPrompt, tokenizer: Any, protocol: Protocol) -> tuple[int, int]:
    """Number of ids that BOS and chat format take before and after the prompt."""
    before, _, after = protocol.wrap(_MARK, prompt, tokenizer).partition(_MARK)
    return len(_ids(before, tokenizer)) if before else 0, _count(after, tokenizer)


def _question_tokens(sample: Sample, prompt: TaskPrompt, tokenizer: Any) -> tuple[int, int]:
    """Ids of the template's text before the context, and of what follows the context."""
    before, _, after = prompt.template.partition("{context}")
    return _count(before.format(input=sample.input), tokenizer), _count(after.format(input=sample.input), tokenizer)


def _count(text: str, tokenizer: Any) -> int:
    return len(tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]) if text else 0


def _check_bos(ids: list[int], wrapped: str, text: str, tokenizer: Any, sample: Sample) -> None:
    """Exactly one BOS, at the start, for tokenizers or templates that write one; a row's own text may spell it too."""
    bos, token = tokenizer.bos_token_id, tokenizer.bos_token
    if bos is None:
        return
    adds = bos in tokenizer(_MARK)["input_ids"]
    spelled = text.count(token)
    # ChatML tokenizers without BOS of their own name the turn marker as BOS: more of them are right there.
    written = wrapped.count(token) - spelled
    most = (1 if adds else max(written, 0)) + spelled
    least = 1 if adds or wrapped.startswith(token) else 0
    doubled = ids[:2] == [bos, bos] and not text.startswith(token)
    found = ids.count(bos)
    if doubled or not least <= found <= most or (least and ids[0] != bos):
        raise UserError(
            f"{sample.dataset} row {sample.id}: the prompt has {found} BOS tokens ({token!r}) where exactly one must "
            f"open it (first ids: {ids[:3]}); check the tokenizer's special tokens against its chat template, or "
            "choose another model.chat"
        )
