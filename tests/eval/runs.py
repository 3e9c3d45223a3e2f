"""Runs of a tiny random model with a tokenizer of its own, saved to a folder: the whole runner in a second."""

import json
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer, models, pre_tokenizers
from tokenizers.decoders import ByteLevel
from transformers import PreTrainedTokenizerFast

from eval.app import plan_of
from eval.records import Record, read
from tests.models import build


def save_model(folder: Path, family: str = "llama", **changes: Any) -> Path:
    """Save a tiny model with a byte tokenizer; returns the folder."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    special = ["<pad>", "<s>", "</s>"]
    tokenizer = Tokenizer(models.BPE({token: i for i, token in enumerate([*special, *alphabet])}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = ByteLevel()
    wrapped = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="<pad>", eos_token="</s>", chat_template=TEMPLATE
    )
    wrapped.save_pretrained(folder)
    build(family, vocab_size=len(alphabet) + 3, **changes).save_pretrained(folder)
    return folder


TEMPLATE = "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}assistant:"

SMALL = ["data=mini", "data.tokens=120", "data.tasks=[hotpotqa,samsum]", "limit=2", "report=false"]


def overrides(model: Path, results: Path, *more: str) -> list[str]:
    """Command line of a small run."""
    fixed = [
        "model=hf",
        f"model.path={model}",
        "model.name=tiny",
        "model.dtype=float32",
        "model.max_prompt_tokens=2000",
    ]
    return [*fixed, f"results={results}", *SMALL, *more]


def plan(model: Path, results: Path, *more: str) -> Any:
    """Plan of a small run."""
    return plan_of(overrides(model, results, *more))


def cells(results: Path) -> dict[str, Record]:
    """All records below a results folder, by key; every key once."""
    records = [record for path in sorted(results.glob("cells/*/*/*.jsonl")) for record in read(path)]
    assert len({record.key for record in records}) == len(records), "a key was written twice"
    return {record.key: record for record in records}


def outcome(record: Record) -> str:
    """A record without the times of its batch."""
    fields = {**vars(record), "batch_seconds": 0, "batch_rows": 0, "seconds": 0}
    return json.dumps(fields, sort_keys=True, default=str)
