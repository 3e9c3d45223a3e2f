"""What a run consists of: units of work (a sample with the arms that it still misses) and the keys of its cells."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from eval.arms import Arm
from eval.prompts import render
from eval.records import cell_key
from eval.sample import Benchmark, Sample, TaskPrompt
from selkv.method import Method, hyperparameters

# Part of every key: raised when the engine changes what is generated.
ENGINE = 1


@dataclass(frozen=True)
class Unit:
    """Work that shares one prefill: a sample and the indices of the arms that have no record yet.

    `traced` units record which positions they keep.
    """

    dataset: str
    sample: Sample
    prompt: TaskPrompt
    arms: tuple[int, ...]
    keys: tuple[str, ...]
    traced: bool = False


def sample_parts(sample: Sample, prompt: TaskPrompt) -> dict[str, Any]:
    """What a sample adds to the key of its cells: row, rendered prompt, generation settings."""
    row = "\x1f".join([sample.id, *sample.answers, *(sample.all_classes or ()), str(sample.length)])
    text = render(sample, prompt)
    return {
        "row": hashlib.sha256(row.encode()).hexdigest(),
        "prompt": hashlib.sha256(text.encode()).hexdigest(),
        "max_new_tokens": prompt.max_new_tokens,
        "chat": prompt.chat,
        "stop_at_newline": prompt.stop_at_newline,
    }


def arm_parts(arm: Arm, method: Method) -> dict[str, Any]:
    """What an arm adds: method, all hyperparameters, version, ratio."""
    return {
        "method": arm.target,
        "params": hyperparameters(method),
        "version": method.version,
        "ratio": str(arm.ratio),
    }


def keys_of(
    benchmark: Benchmark, arms: Sequence[Arm], methods: Sequence[Method], common: Mapping[str, Any]
) -> dict[str, list[list[str]]]:
    """Key of every cell: for each dataset, each sample, each arm."""
    by_arm = [arm_parts(arm, method) for arm, method in zip(arms, methods, strict=True)]
    return {
        dataset: [
            [cell_key({"engine": ENGINE, **common, **sample_parts(sample, prompt), **parts}) for parts in by_arm]
            for sample in samples
        ]
        for dataset, samples in benchmark.samples.items()
        for prompt in [benchmark.prompts[dataset]]
    }


def units_of(
    benchmark: Benchmark, keys: Mapping[str, Sequence[Sequence[str]]], done: Mapping[str, set[str]]
) -> list[Unit]:
    """Units that still have something to do; the first sample of all is traced."""
    units = []
    first = next((samples[0] for samples in benchmark.samples.values() if samples), None)
    for dataset, samples in benchmark.samples.items():
        for sample, row in zip(samples, keys[dataset], strict=True):
            missing = tuple(i for i, key in enumerate(row) if key not in done[dataset])
            if missing:
                units.append(Unit(dataset, sample, benchmark.prompts[dataset], missing, tuple(row), sample is first))
    return units
