"""The contract of a method: a frozen dataclass of hyperparameters with pure functions."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, fields
from fractions import Fraction
from typing import Any, ClassVar, Literal, Protocol, get_type_hints

from torch import Tensor

from selkv.budget import kept_per_head
from selkv.state import Kept, LayerState, Needs
from selkv.values import checked


class PrefillView(Protocol):
    """What `Method.budgets` may look at: the recorded layers of one prompt."""

    @property
    def layers(self) -> Sequence[LayerState]:
        """Layers in order."""


@dataclass(frozen=True)
class Method(ABC):
    """Base of every method: uniform exact budgets, append-only decoding.

    A subclass is a frozen dataclass whose fields are its hyperparameters, and overrides `compress`. A field's type says
    what its value may be (see `selkv.values`); a ``__post_init__`` that calls this one may check more.

    Raises
    ------
    ValueError
        For a value that is not of its field's type, with what it must be.
    """

    version: ClassVar[int] = 1
    """Part of the key of a cell: raised when outputs change."""
    exact: ClassVar[bool] = True
    """Whether the sum of kept entries equals the common budget exactly."""
    label: ClassVar[str] = ""
    """What a table adds to the method's name (e.g. that details are unconfirmed)."""

    def __post_init__(self) -> None:
        kinds = get_type_hints(type(self), include_extras=True)
        for name in (field.name for field in fields(self)):
            value = getattr(self, name)
            try:
                object.__setattr__(self, name, checked(value, kinds[name]))  # 0 and 0.0 are one cell
            except ValueError as reason:
                raise ValueError(f"{name}={value!r} of {type(self).__name__}; {reason}") from None

    @property
    def trained_on(self) -> frozenset[str]:
        """Ids of the samples that hyperparameters were fitted to: a run refuses to report them."""
        return frozenset()

    def needs(self, n: int, budget: int) -> Needs:
        """What prefill must record; `n` prompt tokens, `budget` entries per KV head."""
        return Needs()

    def budgets(self, prefill: PrefillView, ratio: Fraction) -> list[int]:
        """Entries per layer, summed over its KV heads; uniform by default.

        Parameters
        ----------
        prefill : PrefillView
        ratio : Fraction
            Fraction of the entries that is kept, in (0, 1].

        Returns
        -------
        list of int
            One a layer; the sum is exactly sum over layers of Hkv * max(1, floor(ratio * n)).
        """
        return [layer.kv_heads * kept_per_head(layer.n, ratio) for layer in prefill.layers]

    def bound(self, model: Any, prompt: Tensor, ratio: Fraction) -> "Method":
        """The method for one prompt: itself.

        The one exception to purity: a peer behind an adapter (`baselines.kvpress`) runs its own prefill of the prompt,
        (n,) int64, here and returns a method that holds what it kept. Such a method says ``exact = False``.
        """
        return self

    def leader(self, layer: int) -> int:
        """Index of the layer whose selection layer `layer` reuses; itself by default."""
        return layer

    @abstractmethod
    def compress(self, layer: LayerState, budget: int) -> Kept:
        """Compress one layer to `budget` entries, summed over its KV heads. Pure.

        Parameters
        ----------
        layer : LayerState
        budget : int
            Between Hkv and Hkv * n.

        Returns
        -------
        Kept
            Exactly `budget` true entries, at least one a head; equal to the input where budget = Hkv * n.
        """


class DecodeState(Protocol):
    """State of native decoding: a NamedTuple of a method's own that holds the entries to attend to."""

    @property
    def kept(self) -> Kept:
        """Entries before the next token."""


@dataclass(frozen=True)
class NativeMethod(Method):
    """A method that can also keep evicting or merging while it generates.

    Attributes
    ----------
    decode : str
        ``one_shot`` (default: compress after prefill, then append) or ``native``. Native cells run outside the
        ragged batch, one token at a time.
    """

    decode: Literal["one_shot", "native"] = "one_shot"

    @abstractmethod
    def start(self, layer: LayerState, budget: int) -> DecodeState:
        """State before the first generated token is fed."""

    @abstractmethod
    def step(self, state: Any, query: Tensor, key: Tensor, value: Tensor, attention_row: Tensor) -> DecodeState:
        """State after one generated token. Pure.

        Parameters
        ----------
        state : DecodeState
            What this method returned last.
        query : Tensor, (H, d)
            The token's query after RoPE.
        key, value : Tensor, (Hkv, d)
            The token's key and value.
        attention_row : Tensor, (H, m + 1), float32
            Its attention on the m entries of the state and on itself (last column).
        """

    def select(self, state: Any, query: Tensor, key: Tensor) -> Tensor | None:
        """Entries that this step attends to, (Hkv, m + 1) bool with the new token last; None for all.

        `query` (H, d) and `key` (Hkv, d) are the new token's (RocketKV's stage 2 reads some entries a step). Pure.
        """
        return None


def hyperparameters(method: Method) -> dict[str, object]:
    """Fields of a method by name, for records and keys; a method among them with its own and its version."""
    values = {f.name: getattr(method, f.name) for f in fields(method)}
    return {name: _described(value) if isinstance(value, Method) else value for name, value in values.items()}


def _described(method: Method) -> dict[str, object]:
    return {"method": type(method).__name__, "version": method.version, **hyperparameters(method)}
