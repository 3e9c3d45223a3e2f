"""Compensation: what a kept entry's logit gains for the mass that it absorbed. An operator of its own."""

import torch
from torch import Tensor

from selkv.merge import scatter_sum

FLOOR = 1e-8


def attention_ratio(attention: Tensor, target: Tensor, weight: Tensor, floor: float = FLOOR) -> Tensor:
    """Ratio of attention after and before absorbing (SelKV, Eq. 6): R_i = 1 + sum_j g_j a_j / a_i.

    Parameters
    ----------
    attention : Tensor, (Hkv, n), float32
        Window attention a of each entry.
    target : Tensor, (Hkv, n), int64
    weight : Tensor, (Hkv, n)
        g_j in [0, 1]; 0 where nothing is merged.
    floor : float
        Least a_i in the denominator.

    Returns
    -------
    Tensor, (Hkv, n)
        At least 1; exactly 1 where nothing arrived.
    """
    return 1 + scatter_sum(weight * attention, target) / attention.clamp(min=floor)


def votes(target: Tensor, weight: Tensor) -> Tensor:
    """Number of entries behind each one (KeepKV): p_i = 1 + sum_j g_j; its log is the bias; (Hkv, n)."""
    return 1 + scatter_sum(weight, target)


def compensation(kind: str, alpha: float, attention: Tensor, target: Tensor, weight: Tensor) -> Tensor:
    """Logit bias of every entry: alpha * log of the chosen ratio.

    Parameters
    ----------
    kind : str
        ``none``, ``attention`` (`attention_ratio`) or ``votes``.
    alpha : float
        Strength; 1 restores the absorbed mass, SelKV uses 0.5.
    attention, target, weight
        As in `attention_ratio`.

    Returns
    -------
    Tensor, (Hkv, n), float32
    """
    if kind == "none":
        return torch.zeros_like(weight, dtype=torch.float32)
    ratio = attention_ratio(attention, target, weight) if kind == "attention" else votes(target, weight)
    return alpha * ratio.log()
