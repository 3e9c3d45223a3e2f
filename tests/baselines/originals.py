"""Cases that original implementations of the eviction methods produced, and how to compare with them."""

import json
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor

from selkv.state import Kept, LayerState
from tests.baselines.layers import layer_of

POOLING = {"avgpool": "avg", "maxpool": "max"}


class Fixture(SimpleNamespace):
    """One case: `tensors`, parameters `p`, and its origin."""

    tensors: dict[str, Tensor]
    p: dict[str, Any]
    origin: str

    def __getitem__(self, name: str) -> Tensor:
        return self.tensors[name]

    def layer(self, **options: Any) -> LayerState:
        return layer_of(self["q"], self["k"], self["v"], **options)

    def same(self, found: Tensor, name: str) -> None:
        torch.testing.assert_close(
            found, self[name].to(found.dtype), rtol=1e-4, atol=1e-7, msg=lambda m: f"{name}: {m}\n{self.origin}"
        )

    def same_sets(self, kept: Kept, name: str) -> None:
        assert kept.positions.tolist() == self[name].tolist(), f"{name} of {self.origin}"


@cache
def read(folder: Path, name: str) -> Fixture:
    facts = json.loads((folder / f"{name}.json").read_text())
    tensors = folder / f"{name}.safetensors"
    source = facts.get("source", {})
    origin = " ".join([name, *(str(source.get(key)) for key in ("repo", "commit", "file")), str(facts.get("routine"))])
    return Fixture(
        facts=facts, p=facts.get("params", {}), tensors=load_file(tensors) if tensors.exists() else {}, origin=origin
    )


def observation(p: dict[str, Any]) -> dict[str, Any]:
    names = {"window": "window_size", "kernel": "kernel_size"}
    options: dict[str, Any] = {ours: p[theirs] for ours, theirs in names.items() if theirs in p}
    return options | ({"pooling": POOLING[p["pooling"]]} if "pooling" in p else {})


def between(kept: Tensor, must: Tensor, may: Tensor) -> bool:
    """must_keep is in the kept set (n,), which is in must_keep and may_keep."""
    return bool((must <= kept).all() and (kept <= must | may).all())


def mask(kept: Kept, n: int) -> Tensor:
    """Kept positions as a boolean (heads, n); padding is left out."""
    return torch.zeros(len(kept.positions), n + 1).scatter(1, kept.positions % (n + 1), 1.0)[:, :n] > 0
