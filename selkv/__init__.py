"""SelKV: selective KV-cache merging after prefill, and the plumbing that every other method shares."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from selkv.api import compress as compress
    from selkv.errors import UserError as UserError
    from selkv.full import Full as Full
    from selkv.generation import generate as generate
    from selkv.load import load_model as load_model
    from selkv.load import load_tokenizer as load_tokenizer
    from selkv.load import prepare as prepare
    from selkv.method import Method as Method
    from selkv.named import method_named as method_named
    from selkv.pipeline import Chat as Chat
    from selkv.pipeline import SelKVPipeline as SelKVPipeline
    from selkv.selkv import SelKV as SelKV
    from selkv.state import Kept as Kept
    from selkv.state import LayerState as LayerState
    from selkv.state import Needs as Needs

__version__ = "0.1.0"

# Public names and their modules: torch and transformers are imported when one of them is first used.
_PUBLIC = {
    "compress": "api",
    "UserError": "errors",
    "Full": "full",
    "generate": "generation",
    "load_model": "load",
    "load_tokenizer": "load",
    "prepare": "load",
    "Method": "method",
    "method_named": "named",
    "Chat": "pipeline",
    "SelKVPipeline": "pipeline",
    "SelKV": "selkv",
    "Kept": "state",
    "LayerState": "state",
    "Needs": "state",
}


__all__ = list(_PUBLIC)


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module 'selkv' has no attribute {name!r}; public names: {', '.join(_PUBLIC)}")
    return getattr(importlib.import_module(f"selkv.{_PUBLIC[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_PUBLIC])
