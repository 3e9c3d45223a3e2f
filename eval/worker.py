"""One model replica at work: a unit in, its records out. Knows no files, no progress, no other worker."""

import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any, NamedTuple

import torch

from eval.arms import Arm
from eval.batches import plan_batches
from eval.cells import Unit
from eval.memory import out_of_memory
from eval.prompts import Protocol, encode
from eval.records import Record
from eval.stopping import stopping
from selkv.cache import CompressedCache
from selkv.compression import Job, compressed_cache, is_native, layer_budgets, native_cache
from selkv.decode import Stop, choose, greedy
from selkv.fidelity import first_divergence, loops, measure, measure_native
from selkv.method import Method, hyperparameters
from selkv.prefill import Prefill, prefill
from selkv.state import Kept, Needs


class Settings(NamedTuple):
    """What a run asks of every unit.

    `limit_bytes` bounds the K/V of a decode batch; `prefill` holds mode and chunk; the rest as in the config.
    """

    protocol: Protocol
    prefill: Mapping[str, Any]
    limit_bytes: int
    sliding_layers: str = "compress"
    deterministic: bool = False
    fidelity: bool = False


class Cell(NamedTuple):
    """A cell in work: its arm, what it keeps a layer, what it generated, and the batch that it was in."""

    arm: int
    summary: Sequence[Kept] = ()
    text: Sequence[int] = ()
    seconds: float = 0.0
    rows: int = 1
    fidelity: dict[str, Any] | None = None
    error: str | None = None


class Worker:
    """A loaded model with its tokenizer, serving units.

    Parameters
    ----------
    model, tokenizer
        From `selkv.load`.
    arms : sequence of Arm
    methods : sequence of Method
        One an arm.
    settings : Settings
    place : mapping
        ``model`` and ``data``: the names that records carry.
    """

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        arms: Sequence[Arm],
        methods: Sequence[Method],
        settings: Settings,
        place: Mapping[str, str],
    ) -> None:
        self.model, self.tokenizer, self.arms, self.settings, self.place = model, tokenizer, arms, settings, place
        self.jobs = [Job(method, arm.ratio) for arm, method in zip(arms, methods, strict=True)]
        self.weight_bytes = sum(p.nbytes for p in model.parameters())

    def run(self, unit: Unit, advance: Callable[[int], None] = lambda cells: None) -> list[Record]:
        """Records of the unit's missing arms; a failure becomes an error record, the others go on.

        Parameters
        ----------
        unit : Unit
        advance : callable
            Told the number of cells that have been finished, batch by batch.
        """
        try:
            prompt = encode(unit.sample, unit.prompt, self.tokenizer, self.settings.protocol)
            state = self._prefill(unit, prompt.ids)
        except Exception:  # whatever a sample does to a model must not end a run of thousands: it is recorded
            failure = traceback.format_exc()
            advance(len(unit.arms))
            return [self._record(unit, Cell(arm, error=failure), None) for arm in unit.arms]
        stop = Stop(*stopping(self.tokenizer, self.model.generation_config, unit.prompt, unit.prompt.chat))
        cells = []
        for cell in self._cells(unit, state, stop):
            cells.append(cell)
            advance(1)
        if self.settings.fidelity:
            cells = self._with_fidelity(cells, state, stop, unit)
        return [self._record(unit, cell, state) for cell in sorted(cells, key=lambda cell: cell.arm)]

    def _prefill(self, unit: Unit, ids: Sequence[int]) -> Prefill:
        """One prefill that serves every missing arm."""
        needs = Needs(window=0)
        for arm in unit.arms:
            job = self.jobs[arm]
            needs = needs.union(job.method.needs(len(ids), max(1, int(job.ratio * len(ids)))))
        options = self.settings.prefill
        return prefill(self.model, torch.tensor(ids), needs, chunk=options["chunk"], mode=options["mode"])

    def _cells(self, unit: Unit, state: Prefill, stop: Stop) -> Iterator[Cell]:
        """Decode the missing arms: native ones alone, the others in ragged batches that memory allows."""
        alone = [arm for arm in unit.arms if is_native(self.jobs[arm].method)]
        together = [arm for arm in unit.arms if arm not in alone]
        for arm in alone:
            yield from self._attempt([arm], state, unit, stop)
        for batch in self._batches(together, state, unit):
            yield from self._attempt(batch, state, unit, stop)

    def _batches(self, arms: Sequence[int], state: Prefill, unit: Unit) -> list[list[int]]:
        if self.settings.deterministic:
            return [[arm] for arm in arms]
        entry = 2 * state.layers[0].keys.shape[2] * state.layers[0].keys.element_size()
        room = sum(layer.kv_heads for layer in state.layers) * unit.prompt.max_new_tokens
        sizes = [
            entry * (room + sum(layer_budgets(self.jobs[arm], state, self.settings.sliding_layers))) for arm in arms
        ]
        return [[arms[i] for i in batch] for batch in plan_batches(sizes, self.weight_bytes, self.settings.limit_bytes)]

    def _attempt(self, batch: Sequence[int], state: Prefill, unit: Unit, stop: Stop) -> Iterator[Cell]:
        """Decode a batch; out of memory splits it, down to single rows; what still fails is recorded."""
        try:
            yield from self._decode(batch, state, unit, stop)
            return
        except Exception as problem:  # a method's or a row's failure is that cell's, never the run's
            failure = traceback.format_exc()
            fatal = len(batch) == 1 or not out_of_memory(problem)
        if fatal and len(batch) == 1:
            yield Cell(batch[0], error=failure)
            return
        middle = len(batch) // 2
        for part in (batch[:middle], batch[middle:]):
            yield from self._attempt(part, state, unit, stop)

    def _decode(self, batch: Sequence[int], state: Prefill, unit: Unit, stop: Stop) -> list[Cell]:
        started = time.perf_counter()
        cache, summaries = self._cache(batch, state, unit.prompt.max_new_tokens)
        texts = greedy(self.model, cache, state.logits, unit.prompt.max_new_tokens, stop)
        seconds = time.perf_counter() - started
        return [
            Cell(arm, summary, text, seconds, len(batch))
            for arm, summary, text in zip(batch, summaries, texts, strict=True)
        ]

    def _cache(self, batch: Sequence[int], state: Prefill, room: int) -> tuple[CompressedCache, list[list[Kept]]]:
        jobs = [self.jobs[arm] for arm in batch]
        if is_native(jobs[0].method):
            return native_cache(jobs[0], state, self.settings.sliding_layers)
        return compressed_cache(jobs, state, room, self.settings.sliding_layers)

    # fidelity

    def _with_fidelity(self, cells: list[Cell], state: Prefill, stop: Stop, unit: Unit) -> list[Cell]:
        """Cells with their agreement to the full cache, whose own text is decoded here if it is not among them."""
        good = {cell.arm: cell for cell in cells if cell.error is None}
        full = good[0].text if 0 in good else self._decode([0], state, unit, stop)[0].text
        # a text that ended at once is forced by the stop token that ended it
        text = list(full) or [int(choose(state.logits[None], stop, 0))]
        measured: dict[int, dict[str, Any]] = {}
        for batch in self._batches([arm for arm in good if not is_native(self.jobs[arm].method)], state, unit):
            results = measure(self.model, [self.jobs[a] for a in batch], state, text, self.settings.sliding_layers)
            measured.update((arm, result._asdict()) for arm, result in zip(batch, results, strict=True))
        for arm in set(good) - set(measured):
            cache, _ = self._cache([arm], state, len(text))
            measured[arm] = measure_native(self.model, cache, state, text)._asdict()
        return [
            cell._replace(fidelity={**measured[cell.arm], "divergence": first_divergence(full, cell.text)})
            if cell.arm in measured
            else cell
            for cell in cells
        ]

    # records

    def _record(self, unit: Unit, cell: Cell, state: Prefill | None) -> Record:
        arm, method, sample = self.arms[cell.arm], self.jobs[cell.arm].method, unit.sample
        layers = [] if state is None else list(state.layers)
        return Record(
            key=unit.keys[cell.arm],
            model=self.place["model"],
            data=self.place["data"],
            dataset=unit.dataset,
            id=sample.id,
            index=sample.index,
            method=arm.method,
            label=arm.label,
            params=hyperparameters(method),
            version=method.version,
            ratio=arm.ratio_text,
            prediction=self.tokenizer.decode(cell.text, skip_special_tokens=True),
            question=sample.input,
            answers=list(sample.answers),
            all_classes=None if sample.all_classes is None else list(sample.all_classes),
            length=sample.length,
            n=0 if state is None else state.n,
            generated=len(cell.text),
            kept=[kept.entries for kept in cell.summary],
            total=[layer.kv_heads * layer.n for layer in layers],
            exact=method.exact,
            counters=_by_layer(cell.summary),
            kv_bytes=_kv_bytes(cell.summary, layers),
            batch_seconds=round(cell.seconds, 4),
            batch_rows=cell.rows,
            fidelity=cell.fidelity,
            looped=loops(cell.text),
            error=cell.error,
        )


def _by_layer(summary: Sequence[Kept]) -> dict[str, list[float]]:
    """Counters by name, one value a layer."""
    names = sorted({name for kept in summary for name in kept.counters})
    return {name: [round(kept.counters.get(name, 0.0), 6) for kept in summary] for name in names}


def _kv_bytes(summary: Sequence[Kept], layers: Sequence[Any]) -> int:
    """Bytes of the true entries: keys, values, and a bias where one is not zero."""
    total = 0
    for kept, layer in zip(summary, layers, strict=False):
        size = layer.keys.element_size()
        biased = bool(kept.bias.masked_fill(kept.positions < 0, 0).any())
        total += kept.entries * (2 * layer.keys.shape[2] * size + size * biased)
    return total


def settings_fields(settings: Settings) -> dict[str, Any]:
    """Settings that change a prediction, for the key of a cell."""
    return {
        "protocol": asdict(settings.protocol),
        "prefill": settings.prefill["mode"],
        "sliding_layers": settings.sliding_layers,
    }
