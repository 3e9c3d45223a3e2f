"""Native decoding of the eviction methods: budgets that hold for long, and slow twins of every step."""

from fractions import Fraction
from typing import cast

import pytest
import torch
from torch import Tensor

from baselines.h2o import H2O
from baselines.rocketkv import Paged, RocketKV
from baselines.streamingllm import StreamingLLM
from baselines.vatp import VATP
from selkv.errors import UserError
from selkv.method import DecodeState, NativeMethod
from selkv.rotary import rotate
from selkv.state import LayerState
from selkv.window import attention_logits
from tests.baselines.layers import random_layer

HEADS, KV_HEADS, D = 4, 2, 16
EVICTING = [
    H2O(decode="native"),
    H2O(decode="native", count_next=True),
    VATP(decode="native"),
    VATP(decode="native", queries=16, recent=4),
    StreamingLLM(decode="native"),
    StreamingLLM(decode="native", reembed=True),
]
evicting = pytest.mark.parametrize("method", EVICTING, ids=str)


def tokens(count: int, seed: int = 7) -> tuple[Tensor, Tensor, Tensor]:
    draw = torch.Generator().manual_seed(seed)
    queries, keys, values = (torch.randn(count, h, D, generator=draw) for h in (HEADS, KV_HEADS, KV_HEADS))
    return queries, keys, values


def row_of(method: NativeMethod, state: DecodeState, query: Tensor, key: Tensor) -> Tensor:
    """Attention (H, m + 1) of one token, as the decoder computes it."""
    keys = torch.cat([state.kept.keys, key[:, None]], 1)
    logits = attention_logits(query[:, None], keys, D**-0.5)[:, 0].unflatten(0, (KV_HEADS, -1))
    chosen = method.select(state, query, key)
    if chosen is not None:
        logits = logits.masked_fill(~chosen[:, None], float("-inf"))
    return logits.softmax(-1).flatten(0, 1)


def decode(method: NativeMethod, layer: LayerState, budget: int, count: int) -> list[DecodeState]:
    states = [method.start(layer, budget)]
    for query, key, value in zip(*tokens(count), strict=True):
        states.append(method.step(states[-1], query, key, value, row_of(method, states[-1], query, key)))
    return states


@evicting
def test_the_cache_stays_at_its_budget_for_500_tokens(method: NativeMethod) -> None:
    layer = random_layer(80)
    for i, state in enumerate(decode(method, layer, KV_HEADS * 20, 500)):
        kept = state.kept
        assert kept.entries == KV_HEADS * 20 and kept.positions.shape == kept.bias.shape == (KV_HEADS, 20)
        assert (kept.positions.diff(dim=1) > 0).all() and kept.positions.max() < 80 + i
        assert i == 0 or (kept.positions[:, -1] == 79 + i).all()  # the newest token is recent


@evicting
@pytest.mark.parametrize("kept", [1, 2, 5])
def test_tiny_budgets(method: NativeMethod, kept: int) -> None:
    for state in decode(method, random_layer(9), KV_HEADS * kept, 12):
        assert state.kept.positions.shape == (KV_HEADS, kept)


@evicting
def test_a_step_leaves_the_state_before_alone(method: NativeMethod) -> None:
    first, again = (decode(method, random_layer(40), KV_HEADS * 10, count)[0] for count in (0, 5))
    for x, y in zip(first.kept[:4], again.kept[:4], strict=True):
        assert torch.equal(x, y)


@pytest.mark.parametrize("method", [H2O(decode="native"), VATP(decode="native", sinks=3)], ids=str)
def test_running_scores_against_a_loop_over_heads(method: H2O | VATP) -> None:
    layer, size, recent = random_layer(60), 16, 8
    states = decode(method, layer, KV_HEADS * size, 40)
    scores = method.scores(layer, size)
    queries, keys, values = tokens(40)
    for head in range(KV_HEADS):
        known = {j: (float(scores[head, j]), layer.keys[head, j], layer.values[head, j]) for j in range(60)}
        for step in range(41):
            old = sorted(list(known)[: len(known) - recent], key=lambda j: -known[j][0])[: size - recent]
            known = {j: entry for j, entry in known.items() if j in old or j in list(known)[-recent:]}
            assert states[step].kept.positions[head].tolist() == list(known), (head, step)
            if step == 40:
                break
            known[60 + step] = (0.0, keys[step, head], values[step, head])
            cached = torch.stack([entry[1] for entry in known.values()])
            attention = (queries[step, 2 * head : 2 * head + 2] @ cached.T / 4).softmax(-1).mean(0)
            for weight, j in zip(attention.tolist(), list(known), strict=True):
                norm = float(known[j][2].abs().sum()) if isinstance(method, VATP) else 1.0
                known[j] = (known[j][0] + weight * norm, *known[j][1:])


def test_vatp_counts_the_last_queries_only_when_asked() -> None:
    layer = random_layer(50)
    attention = layer.window_attention(16).sum(1).unflatten(0, (2, 2)).mean(1) / 16
    expected = attention * layer.values.abs().sum(-1)
    torch.testing.assert_close(VATP(queries=16, sinks=0).scores(layer, 10), expected)
    assert VATP(queries=16).needs(50, 10).column_mass is False
    assert VATP().needs(50, 10).column_mass is True


def test_streamingllm_renumbers_like_a_cache_of_unrotated_keys() -> None:
    """Authors' cache: keys before rotation, turned at each step by their slot, the query by the slot after them."""
    layer, method = random_layer(30), StreamingLLM(decode="native", reembed=True, sinks=4)
    assert layer.inv_freq is not None
    states = decode(method, layer, KV_HEADS * 12, 25)
    plain = decode(StreamingLLM(decode="native", sinks=4), layer, KV_HEADS * 12, 25)
    query = tokens(1, seed=3)[0][0][:, None]  # (H, 1, d), rotated for its true position
    for step, (state, unmoved) in enumerate(zip(states, plain, strict=True)):
        assert torch.equal(state.kept.positions, unmoved.kept.positions)
        positions, now = state.kept.positions, 30 + step
        raw = rotate(unmoved.kept.keys, -positions, layer.inv_freq)
        by_slot = rotate(raw, torch.arange(12).expand_as(positions), layer.inv_freq)
        query_by_slot = rotate(query, torch.full((HEADS, 1), 12 - now), layer.inv_freq)
        expected = attention_logits(query_by_slot, by_slot, 0.25)
        torch.testing.assert_close(attention_logits(query, state.kept.keys, 0.25), expected, rtol=1e-3, atol=1e-3)


def test_renumbering_without_fixed_frequencies_is_refused() -> None:
    with pytest.raises(UserError, match="reembed=false"):
        StreamingLLM(reembed=True).compress(random_layer(30, inv_freq=None), 20)


def naive_estimate(query: Tensor, keys: Tensor, page: int, used: int) -> Tensor:
    """Stage 2 in loops over heads, pages and entries."""
    result = []
    for head in range(KV_HEADS):
        group = query[2 * head : 2 * head + 2]
        dims = group.abs().mean(0).sort(descending=True).indices[:used]
        rows = []
        for q in group:
            logits = []
            for j in range(keys.shape[1]):
                low = j // page * page
                part = keys[head, low : low + page][:, dims]
                bound = torch.where(group.sum(0)[dims] > 0, part.amax(0), part.amin(0))
                logits.append((q[dims] * bound).sum())
            temperature = (D * q[dims].abs().sum() / q.abs().sum()).sqrt()
            rows.append((torch.stack(logits) / temperature).softmax(0))
        result.append(torch.stack(rows).mean(0))
    return torch.stack(result)


@pytest.mark.parametrize("compression, page, used", [(1.0, 1, 16), (1.5, 1, 10), (4.7, 3, 10), (9.0, 3, 5)])
def test_pages_against_loops(compression: float, page: int, used: int) -> None:
    method, layer = RocketKV(decode="native", compression=compression), random_layer(58)
    query = tokens(1)[0][0]
    assert method.page == page
    found = method.estimate(query, layer.keys, layer.scale)
    torch.testing.assert_close(found, naive_estimate(query, layer.keys, page, used), rtol=1e-4, atol=1e-6)


def test_rocketkv_reads_the_same_number_while_its_cache_grows() -> None:
    method, budget = RocketKV(decode="native", window=8, kernel=7, compression=4.7), KV_HEADS * 40
    states = decode(method, random_layer(90), budget, 100)
    assert states[0].kept.entries == KV_HEADS * 30  # pages of 3 cost a third more
    for i, state in enumerate(states):
        assert state.kept.entries == KV_HEADS * (30 + i)
        chosen = method.select(cast(Paged, state), *(x[0] for x in tokens(1)[:2]))
        assert chosen.shape == (KV_HEADS, 31 + i) and (chosen.sum(1) == 15).all()


def test_rocketkv_never_reads_padding() -> None:
    method, layer = RocketKV(decode="native", reads=21), random_layer(40)
    state = method.start(layer, KV_HEADS * 20 + 1)  # 21 entries and 20 with padding
    chosen = method.select(state, *(x[0] for x in tokens(1)[:2]))
    assert (chosen.sum(1) == 21).all()
    assert not chosen[:, :-1][state.kept.positions < 0].any()


@pytest.mark.parametrize("method", [*EVICTING, RocketKV(decode="native")], ids=str)
def test_start_is_the_one_shot_selection(method: NativeMethod) -> None:
    layer = random_layer(50)
    budget = KV_HEADS * int(50 * Fraction(1, 4))
    for x, y in zip(method.start(layer, budget).kept[:4], method.compress(layer, budget)[:4], strict=True):
        assert torch.equal(x, y)
