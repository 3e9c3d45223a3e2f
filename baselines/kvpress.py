"""Any press of kvpress (https://github.com/NVIDIA/kvpress) as a method, compressed by kvpress's own hooks.

The one method that is not pure: `KVPress.bound` runs a prefill of its own. Its budget is approximate, so the measured
number of entries is what records and tables show.
"""

import ast
import contextlib
import dataclasses
import importlib.util
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar, Literal, NamedTuple

import torch
from torch import Tensor
from transformers.cache_utils import Cache, DynamicLayer

from selkv.errors import UserError, unknown
from selkv.method import Method, PrefillView
from selkv.state import Kept, LayerState, Needs, keep_all, take

# Presses that go on while tokens are generated, or move the positions of what follows: not a method of one prompt.
REFUSED = ("DecodingPress", "PrefillDecodingPress", "DMSPress", "KeyRerotationPress", "FinchPress", "RestoreKVPress")
WEIGHED = "ObservedAttentionPress"


@dataclass(frozen=True)
class KVPress(Method):
    """A press as a method: kvpress removes ``compression_ratio = 1 - ratio`` of the prompt.

    Attributes
    ----------
    press : str
        Name of a class of kvpress, or an expression of such names with literal arguments:
        ``AdaKVPress(SnapKVPress(window_size=32))``.
    attention : str
        Attention of its prefill: ours by default; ``eager`` for presses that look at all attention weights.
    """

    press: str = "ExpectedAttentionPress"
    attention: Literal["selkv", "eager"] = "selkv"

    exact: ClassVar[bool] = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if importlib.util.find_spec("kvpress") is None:
            raise UserError(f"press={self.press} needs the package kvpress; run: pip install kvpress")
        if WEIGHED in self.press and self.attention != "eager":
            raise UserError(f"press={self.press} looks at all attention weights; add attention=eager (slow)")
        press_of(self.press, Fraction(1))

    def needs(self, n: int, budget: int) -> Needs:
        """Nothing is recorded."""
        return Needs(window=0)

    def compress(self, layer: LayerState, budget: int) -> Kept:
        """Not possible from a recorded layer: see `bound`."""
        raise TypeError("a press compresses in a prefill of its own: call bound(model, prompt, ratio) first")

    @torch.no_grad()
    def bound(self, model: Any, prompt: Tensor, ratio: Fraction) -> Method:
        """Run the prompt under the press's hooks and hold what it leaves in the cache."""
        layers = [WitnessLayer() for _ in range(model.config.get_text_config().num_hidden_layers)]
        press = press_of(self.press, ratio)
        with _attention(model, self.attention), press(model):
            model.model(input_ids=prompt.reshape(1, -1).to(model.device), past_key_values=Cache(layers=list(layers)))
        masked = _masked_entries(model)
        return Held(tuple(_left(layer, masked.get(i)) for i, layer in enumerate(layers)))


class Left(NamedTuple):
    """What a press left of a layer: keys, values (Hkv, m, d), prompt positions and whether they count (Hkv, m)."""

    keys: Tensor
    values: Tensor
    positions: Tensor
    alive: Tensor

    def within(self, layer: LayerState) -> Tensor:
        """Entries that count and that the layer can still see (kvpress keeps all of a sliding layer); (Hkv, m) bool."""
        return self.alive & (self.positions >= layer.positions[0])


@dataclass(frozen=True)
class Held(Method):
    """A method that returns what a press has left."""

    layers: Sequence[Left]

    exact: ClassVar[bool] = False

    def budgets(self, prefill: PrefillView, ratio: Fraction) -> list[int]:
        """The measured numbers."""
        return [int(self.layers[layer.layer].within(layer).sum()) for layer in prefill.layers]

    def compress(self, layer: LayerState, budget: int) -> Kept:
        """What was left of this layer, ascending by position, padding last."""
        if budget == layer.kv_heads * layer.n:
            return keep_all(layer)
        left = self.layers[layer.layer]
        alive = left.within(layer)
        order = left.positions.masked_fill(~alive, torch.iinfo(torch.int64).max).argsort(dim=1, stable=True)
        order = order[:, : int(alive.sum(1).max())]
        alive = take(alive, order)
        return Kept(
            keys=take(left.keys, order),
            values=take(left.values, order),
            bias=torch.zeros(alive.shape, device=alive.device).masked_fill(~alive, float("-inf")),
            positions=take(left.positions, order).masked_fill(~alive, -1),
        )


class WitnessLayer(DynamicLayer):
    """A cache layer that remembers the prompt's keys and values when a press replaces them."""

    keys: Tensor
    values: Tensor
    whole: tuple[Tensor, Tensor] | None = None

    def update(self, key_states: Tensor, value_states: Tensor, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
        """Append (1, Hkv, n, d)."""
        keys, values = super().update(key_states, value_states)
        if self.whole is None:
            self.whole = keys[0], values[0]
        return keys, values


def press_of(text: str, ratio: Fraction) -> Any:
    """The press of an expression, set to keep `ratio`; nothing but names of kvpress and literals is evaluated.

    Raises
    ------
    UserError
        For another expression, an unknown press, or one that is not a method of one prompt with a ratio.
    """
    try:
        press = _built(ast.parse(text.strip(), mode="eval").body)
    except (SyntaxError, ValueError, TypeError, AssertionError) as error:
        raise UserError(f"press={text} is no press: {error}; e.g. SnapKVPress(window_size=32)") from None
    names = {cls.__name__ for cls in type(press).__mro__}
    settable = {field.name for field in dataclasses.fields(press)} | {
        name for cls in type(press).__mro__ for name, value in vars(cls).items() if getattr(value, "fset", None)
    }
    if names & set(REFUSED) or "compression_ratio" not in settable:
        raise UserError(
            f"press={text} cannot be a method: it must compress the prompt once, by a compression_ratio, and leave "
            "positions alone"
        )
    press.compression_ratio = float(1 - ratio)
    return press


def _built(node: ast.expr) -> Any:
    import kvpress

    match node:
        case ast.Name(id=name) | ast.Call(func=ast.Name(id=name)):
            presses = [each for each in kvpress.__all__ if each.endswith("Press")]
            if name not in presses:
                raise unknown("press", name, presses)
            arguments = node if isinstance(node, ast.Call) else ast.Call(node, [], [])
            options = {word.arg: _built(word.value) for word in arguments.keywords if word.arg}
            return getattr(kvpress, name)(*map(_built, arguments.args), **options)
        case ast.List(elts=elements):
            return [_built(element) for element in elements]
    return ast.literal_eval(node)


@contextlib.contextmanager
def _attention(model: Any, name: str) -> Iterator[None]:
    """Another attention for a while."""
    before = model.config._attn_implementation
    model.set_attn_implementation(name)
    try:
        yield
    finally:
        model.set_attn_implementation(before)


def _masked_entries(model: Any) -> dict[int, tuple[Tensor, Tensor]]:
    """Heads and indices, by layer, that head-wise presses (AdaKV) hide instead of removing; takes the marks away.

    kvpress would replace these keys in every later call of the model's attention.
    """
    masked = {}
    for module in model.modules():
        if getattr(module, "masked_key_indices", None) is not None:
            _, heads, indices = module.masked_key_indices
            masked[module.layer_idx] = heads, indices
            module.masked_key_indices = None
    return masked


def _left(layer: WitnessLayer, masked: tuple[Tensor, Tensor] | None) -> Left:
    assert layer.whole is not None  # the prompt has passed
    keys, values = layer.keys[0], layer.values[0]
    alive = torch.ones(keys.shape[:2], dtype=torch.bool, device=keys.device)
    if masked is not None:
        alive[masked] = False
    n, m = layer.whole[0].shape[1], keys.shape[1]
    # a press may change keys (ThinK) or values (CAM); where it changes both, an entry counts as a recent one
    positions = torch.arange(n - m, n, device=keys.device).expand(alive.shape)
    for part, whole in ((values, layer.whole[1]), (keys, layer.whole[0])):
        origin = origins(part, whole)
        positions = torch.where(origin >= 0, origin, positions)
    return Left(keys, values, positions, alive)


def origins(part: Tensor, whole: Tensor) -> Tensor:
    """Where each vector of `part` (Hkv, m, d) stands in `whole` (Hkv, n, d), -1 where nowhere; (Hkv, m) int64."""
    ordered, index = fingerprints(whole).sort(dim=1, stable=True)
    wanted = fingerprints(part)
    place = torch.searchsorted(ordered, wanted).clamp(max=whole.shape[1] - 1)
    return torch.where(ordered.gather(1, place) == wanted, index.gather(1, place), -1)


def fingerprints(x: Tensor) -> Tensor:
    """A number for the bits of each vector, (Hkv, n, d) to (Hkv, n) int64: exact, unlike a sum of floats."""
    bits = x.contiguous().view({2: torch.int16, 4: torch.int32, 8: torch.int64}[x.element_size()]).long()
    factors = torch.randint(2**62, (x.shape[2],), generator=torch.Generator().manual_seed(0)).to(x.device)
    return (bits * (2 * factors + 1)).sum(-1)
