"""One model replica at work: a unit in, its records out. Knows no files, no progress, no other worker."""

import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from typing import Any, NamedTuple

import torch

from eval.arms import Arm
from eval.batches import plan_batches
from eval.cells import Unit
from eval.outcome import Cell, record_of
from eval.prompts import Protocol, encode
from eval.records import Record
from eval.stopping import stopping
from selkv.cache import CompressedCache
from selkv.compression import Job, compressed_cache, is_native, layer_budgets, native_cache
from selkv.decode import Stop, ask, choose, greedy
from selkv.fidelity import first_divergence, measure, measure_native
from selkv.method import Method
from selkv.prefill import Prefill, prefill
from selkv.rotary import refuse_rotation
from selkv.state import Kept, Needs


class Settings(NamedTuple):
    """What a run asks of every unit.

    `limit_bytes` bounds the K/V of a decode batch; `prefill` holds mode and chunk; the rest as in the config.
    """

    protocol: Protocol
    prefill: Mapping[str, Any]
    limit_bytes: int
    sliding_layers: str = "compress"
    compress: str = "prompt"
    deterministic: bool = False
    fidelity: bool = False


class Task(NamedTuple):
    """A unit after prefill: its compressed ids, their state, the question that is asked afterwards, when to stop."""

    unit: Unit
    ids: Sequence[int]
    state: Prefill
    question: Sequence[int]
    stop: Stop

    @property
    def room(self) -> int:
        """Tokens that a cache must take besides what it keeps."""
        return len(self.question) + self.unit.prompt.max_new_tokens


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
        self.memory: dict[int, list[torch.Tensor]] = {}  # of the decode batches; see `_memory`
        if any(method.needs(1, 1).rotation for method in methods):
            refuse_rotation(model)  # one line now instead of an error in every cell

    def run(self, unit: Unit, advance: Callable[[int], None] = lambda cells: None) -> list[Record]:
        """Records of the unit's missing arms; a failure becomes an error record, the others go on.

        Parameters
        ----------
        unit : Unit
        advance : callable
            Told the number of cells that have been finished, batch by batch.
        """
        started = time.perf_counter()
        try:
            task = self.prefill(unit)
        except Exception:  # whatever a sample does to a model must not end a run of thousands: it is recorded
            return self._apart(unit, advance, traceback.format_exc())
        cells: list[Cell] = []
        for batch in self.batches(unit.arms, task):
            for cell in in_halves([Cell(arm) for arm in batch], lambda cells: self.decode(cells, task)):
                cells.append(cell)
                advance(1)
        if self.settings.fidelity:
            cells = self._with_fidelity(cells, task)
        share = (time.perf_counter() - started) / len(cells)
        return [self._record(unit, cell, task.state, share) for cell in sorted(cells, key=lambda cell: cell.arm)]

    def _apart(self, unit: Unit, advance: Callable[[int], None], failure: str) -> list[Record]:
        """Records after a failed prefill: of the arms in halves, unless the sample fails without any of them, too."""
        if len(unit.arms) > 1:
            with suppress(Exception):  # `failure` is what is recorded
                self.prefill(replace(unit, arms=()))
                middle = len(unit.arms) // 2
                halves = [replace(unit, arms=arms) for arms in (unit.arms[:middle], unit.arms[middle:])]
                return [record for half in halves for record in self.run(half, advance)]
        advance(len(unit.arms))
        return [self._record(unit, Cell(arm, error=failure), None, 0.0) for arm in unit.arms]

    def prefill(self, unit: Unit) -> Task:
        """One prefill that serves every missing arm; of the context alone where the question comes afterwards."""
        prompt = encode(unit.sample, unit.prompt, self.tokenizer, self.settings.protocol)
        border = prompt.context if self.settings.compress == "context" else len(prompt.ids)
        ids, question = prompt.ids[:border], prompt.ids[border:]
        needs = Needs(window=0)
        for arm in unit.arms:
            job = self.jobs[arm]
            needs = needs.union(job.method.needs(len(ids), max(1, int(job.ratio * len(ids)))))
        options = self.settings.prefill
        state = prefill(self.model, torch.tensor(ids), needs, chunk=options["chunk"], mode=options["mode"])
        stop = Stop(*stopping(self.tokenizer, self.model.generation_config, unit.prompt, unit.prompt.chat))
        return Task(unit, ids, state, question, stop)

    def batches(self, arms: Sequence[int], task: Task) -> list[list[int]]:
        """Arms that decode together: native ones alone, the others in ragged batches that memory allows."""
        alone = [arm for arm in arms if self.settings.deterministic or is_native(self.jobs[arm].method)]
        together = [arm for arm in arms if arm not in alone]
        layers = task.state.layers
        entry = 2 * layers[0].keys.shape[2] * layers[0].keys.element_size()
        room = sum(layer.kv_heads for layer in layers) * task.room
        sliding = self.settings.sliding_layers
        sizes = [entry * (room + sum(layer_budgets(self.jobs[arm], task.state, sliding))) for arm in together]
        batches = plan_batches(sizes, self.weight_bytes, self.settings.limit_bytes)
        # largest first: the others fit into its memory
        return [[arm] for arm in alone] + [[together[i] for i in batch] for batch in reversed(batches)]

    def decode(self, cells: Sequence[Cell], task: Task) -> list[Cell]:
        """Texts of some cells, decoded in one ragged batch."""
        started = time.perf_counter()
        cache, summaries = self._cache([cell.arm for cell in cells], task)
        logits = ask(self.model, cache, task.question) if task.question else task.state.logits
        texts = greedy(self.model, cache, logits, task.unit.prompt.max_new_tokens, task.stop)
        seconds = time.perf_counter() - started
        return [
            cell._replace(summary=summary, text=text, seconds=seconds, rows=len(cells))
            for cell, summary, text in zip(cells, summaries, texts, strict=True)
        ]

    def _cache(self, arms: Sequence[int], task: Task) -> tuple[CompressedCache, list[list[Kept]]]:
        jobs = self._bound(arms, task)
        if is_native(jobs[0].method):
            return native_cache(jobs[0], task.state, self.settings.sliding_layers)
        return compressed_cache(jobs, task.state, task.room, self.settings.sliding_layers, memory=self._memory())

    def _memory(self) -> dict[int, list[torch.Tensor]]:
        """Buffers of the batch before, or none where they take more than half of the budget.

        Each layer's grow to its largest of several batches, and so their sum beyond the largest batch.
        """
        held = sum(buffer.nbytes for layer in self.memory.values() for buffer in layer)
        if 2 * held > self.settings.limit_bytes:
            self.memory.clear()
        return self.memory

    def _bound(self, arms: Sequence[int], task: Task) -> list[Job]:
        """The arms' jobs for this prompt: peers behind an adapter run their own prefill here."""
        ids, jobs = torch.tensor(task.ids), [self.jobs[arm] for arm in arms]
        return [Job(job.method.bound(self.model, ids, job.ratio), job.ratio) for job in jobs]

    def _with_fidelity(self, cells: Sequence[Cell], task: Task) -> list[Cell]:
        """Cells with their agreement to the full cache, whose own text is decoded here if it is not among them."""
        by_arm = {cell.arm: cell for cell in cells}
        good = [cell.arm for cell in cells if cell.error is None]
        full = by_arm[0].text if 0 in good else self.decode([Cell(0)], task)[0].text
        for batch in self.batches(good, task):
            measured = in_halves([by_arm[arm] for arm in batch], lambda cells: self._measure(cells, task, full))
            by_arm.update((cell.arm, cell) for cell in measured)
        return list(by_arm.values())

    def _measure(self, cells: Sequence[Cell], task: Task, full: Sequence[int]) -> list[Cell]:
        jobs = self._bound([cell.arm for cell in cells], task)
        # a text that ended at once is forced by the token that would have come without a stop
        text = list(full) or [int(choose(task.state.logits[None], task.stop, 0))]
        if is_native(jobs[0].method):
            cache, _ = self._cache([cells[0].arm], task)
            results = [measure_native(self.model, cache, task.state, text, task.question)]
        else:
            sliding = self.settings.sliding_layers
            results = measure(self.model, jobs, task.state, text, sliding, task.question, self._memory())
        return [
            cell._replace(fidelity={**result._asdict(), "divergence": first_divergence(full, cell.text)})
            for cell, result in zip(cells, results, strict=True)
        ]

    def _record(self, unit: Unit, cell: Cell, state: Prefill | None, seconds: float) -> Record:
        text = self.tokenizer.decode(cell.text, skip_special_tokens=True)
        arm, method = self.arms[cell.arm], self.jobs[cell.arm].method
        return record_of(unit, cell, arm, method, self.place, text, state, seconds)


def in_halves(cells: Sequence[Cell], work: Callable[[Sequence[Cell]], list[Cell]]) -> Iterator[Cell]:
    """Work on a batch; what fails is tried in halves, down to single cells, whose failure is recorded.

    Out of memory and a bad row end the same way: neighbours are not taken along.
    """
    try:
        finished = work(cells)
    except Exception:  # see above; a run of thousands of cells must not end here
        finished = [cells[0]._replace(error=traceback.format_exc())]
    if finished[0].error is None or len(cells) == 1:
        yield from finished
        return
    middle = len(cells) // 2
    for part in (cells[:middle], cells[middle:]):
        yield from in_halves(part, work)


def settings_fields(settings: Settings) -> dict[str, Any]:
    """Settings that change a prediction, for the key of a cell."""
    return {
        "protocol": asdict(settings.protocol),
        "prefill": settings.prefill["mode"],
        "sliding_layers": settings.sliding_layers,
        "compress": settings.compress,
    }
