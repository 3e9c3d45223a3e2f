"""A prompt in a model's chat format: the tokenizer's template, Vicuna's conversation, a format string, or none.

Rendered text must be the same every day and for every caller, so templates that print a date get a fixed one.
"""

import datetime
import hashlib
import importlib.util
import re
from functools import cache
from typing import Any

from selkv.errors import UserError

# What Llama-3.1's template prints where it is told no date.
DATE = datetime.date(2024, 7, 26)
INSTALL_VICUNA = "pip install --no-deps fschat==0.2.36"

# sha256 of Vicuna v1.1's prompt with the user text "{prompt}", as fschat 0.2.36 renders it.
_VICUNA_SHA256 = "421fa446cae76ad94752ed45f1926dd348fb2058ea083c197f6f70efeed70b9e"


def wrap(text: str, tokenizer: Any, chat: str, system: str | None = None, enable_thinking: bool | None = None) -> str:
    """`text` as the user's turn, followed by the start of the assistant's.

    Parameters
    ----------
    text : str
        The prompt.
    tokenizer : PreTrainedTokenizer
        Holds the template of ``auto``.
    chat : str
        ``auto`` (the tokenizer's template), ``vicuna``, ``none``, or a format string with ``{prompt}``.
    system : str, optional
        System text of ``auto``; where a template has no system role it opens the user's turn.
    enable_thinking : bool, optional
        Handed to the template where given (Qwen3).

    Raises
    ------
    UserError
        Where the tokenizer has no template, or fschat is missing or renders another text.
    """
    if chat == "auto":
        return _from_template(text, tokenizer, system, enable_thinking)
    form = _vicuna() if chat == "vicuna" else "{prompt}" if chat == "none" else chat
    return form.replace("{prompt}", text)


def _from_template(text: str, tokenizer: Any, system: str | None, enable_thinking: bool | None) -> str:
    from jinja2.exceptions import TemplateError

    if not tokenizer.chat_template:
        raise UserError(
            f"{tokenizer.name_or_path}: the tokenizer has no chat template; add model.chat=none for a base model, or "
            "give a format such as model.chat='[INST]{prompt}[/INST]'"
        )
    template = _dated(tokenizer.get_chat_template(), tokenizer.name_or_path)
    options: dict[str, Any] = {"chat_template": template, "date_string": DATE.strftime("%d %b %Y")}
    if enable_thinking is not None:
        options["enable_thinking"] = enable_thinking

    def render(messages: list[dict[str, str]]) -> str:
        return str(tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True, **options))

    user = {"role": "user", "content": text}
    if system is None:
        return render([user])
    try:
        rendered = render([{"role": "system", "content": system}, user])
    except TemplateError:
        rendered = ""
    # Some templates refuse the system role (Gemma-2), others drop it in silence.
    return rendered if system.strip() in rendered else render([user | {"content": f"{system}\n\n{text}"}])


def _dated(template: str, name: str) -> str:
    """The template with the fixed date in place of today's: `apply_chat_template` takes no function of the caller's."""
    fixed = re.sub(
        r"strftime_now\(\s*(['\"])(.*?)\1\s*\)",
        lambda call: repr(DATE.strftime(call.group(2))),
        template,
        flags=re.DOTALL,
    )
    if "strftime_now(" in fixed:
        raise UserError(
            f"{name}: its chat template prints today's date in a way that cannot be fixed, so prompts would change "
            "from day to day; give a format such as model.chat='[INST]{prompt}[/INST]'"
        )
    return fixed


@cache
def _vicuna() -> str:
    if importlib.util.find_spec("fastchat") is None:
        raise UserError(
            f"chat=vicuna takes the conversation from fschat, which is not installed; run: {INSTALL_VICUNA}"
        )
    # This module imports without the package's dependencies.
    from fastchat.conversation import get_conv_template

    conversation = get_conv_template("vicuna_v1.1")
    conversation.append_message(conversation.roles[0], "{prompt}")
    conversation.append_message(conversation.roles[1], None)
    form = str(conversation.get_prompt())
    if hashlib.sha256(form.encode()).hexdigest() != _VICUNA_SHA256:
        raise UserError(f"chat=vicuna: the installed fschat renders another conversation; run: {INSTALL_VICUNA}")
    return form
