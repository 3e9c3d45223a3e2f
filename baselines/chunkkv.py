"""ChunkKV: keep whole chunks of consecutive tokens, the same for all heads of a layer."""

from dataclasses import dataclass
from fractions import Fraction

import torch
import torch.nn.functional as F
from torch import Tensor

from selkv.budget import kept_per_head
from selkv.method import PrefillView
from selkv.observation import ObservationMethod, with_recent
from selkv.scores import keep_best, rank, top
from selkv.state import Kept, LayerState, keep, keep_all
from selkv.values import Positive


@dataclass(frozen=True)
class ChunkKV(ObservationMethod):
    """ChunkKV (Liu et al. 2025, arXiv 2502.00299; NVIDIA/kvpress 8bb29b9, by the paper's first author).

    The prompt before the protected window is cut into chunks, whose score is the mean of their tokens' SnapKV scores.
    Whole chunks are taken by falling score while they fit; the best tokens of the next one fill what is left.

    Attributes
    ----------
    chunk : int
        Tokens a chunk; 10 in the paper as secondary sources give it, 20 in kvpress.
    reuse : int
        Blocks of this many consecutive layers use the choice of their first layer (the paper's index reuse); 1: none.
    kvpress_exact : bool
        kvpress's own rules: chunks cover the window too, a share of all chunks is kept whole, so the number of entries
        is approximate; prompts shorter than a chunk are treated as in SnapKV.
    window, kernel, pooling, reduce, pool_first
        See `ObservationMethod`.
    """

    chunk: Positive = 10
    reuse: Positive = 1
    kvpress_exact: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "exact", not self.kvpress_exact)  # hides the class's own

    def leader(self, layer: int) -> int:
        """First layer of the block."""
        return layer - layer % self.reuse

    def budgets(self, prefill: PrefillView, ratio: Fraction) -> list[int]:
        """Uniform; under `kvpress_exact` a whole number of chunks, at least one."""
        if not self.kvpress_exact:
            return super().budgets(prefill, ratio)
        return [layer.kv_heads * self._whole_chunks(layer.n, ratio) for layer in prefill.layers]

    def compress(self, layer: LayerState, budget: int) -> Kept:
        """Whole chunks, and the protected last entries."""
        if budget >= layer.kv_heads * layer.n:
            return keep_all(layer)
        source = layer.leader if layer.leader is not None and layer.leader.n == layer.n else layer
        if self.kvpress_exact:
            return self._kvpress(layer, source, budget // layer.kv_heads)
        recent = self.recent(layer.n, budget // layer.kv_heads)
        scores = self.scores(source, recent).mean(0)
        chunk_rank = rank(chunk_means(scores, self.chunk)).argsort()
        order = rank(scores)  # tokens by falling score, then stably by their chunk's rank
        order = order[chunk_rank[order // self.chunk].sort(stable=True).indices]
        preference = torch.empty_like(scores).scatter(0, order, -torch.arange(len(order), device=order.device).float())
        return keep_best(layer, with_recent(preference, recent), budget)

    def _whole_chunks(self, n: int, ratio: Fraction) -> int:
        if n < self.chunk:
            return kept_per_head(n, ratio)
        return min(n, self.chunk * kept_per_head(-(-n // self.chunk), ratio))

    def _kvpress(self, layer: LayerState, source: LayerState, kept: int) -> Kept:
        scores = self.token_scores(source)
        if layer.n < self.chunk:
            return keep(layer, top(scores, kept))
        chunks = top(chunk_means(scores.sum(0), self.chunk), -(-kept // self.chunk))
        index = (chunks[:, None] * self.chunk + torch.arange(self.chunk, device=chunks.device)).flatten()
        return keep(layer, index[index < layer.n])

    def token_scores(self, layer: LayerState) -> Tensor:
        """Token scores of kvpress, (Hkv, n): those of the window are the largest one plus 1."""
        recent = min(self.window, layer.n - 1)
        scores = self.scores(layer, recent)
        return F.pad(scores, (0, recent), value=scores.max().item() + 1)


def chunk_means(scores: Tensor, chunk: int) -> Tensor:
    """Mean of each chunk of a row of scores, (n,) to (ceil(n / chunk),); the last chunk may be shorter."""
    n = scores.shape[0]
    padded = F.pad(scores, (0, -n % chunk)).view(-1, chunk)
    sizes = torch.full_like(padded[:, 0], chunk)
    sizes[-1] -= -n % chunk
    return padded.sum(1) / sizes
