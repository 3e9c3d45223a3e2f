"""What the search trains on: samples that the run with the same options does not report, and the score on them."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from eval.arms import Arm
from eval.benchmarks import load_benchmark
from eval.cells import Unit
from eval.config import RunPlan
from eval.engines.local import load_worker
from eval.evolkv.search import Undecoded, Weights
from eval.longbench import draw
from eval.outcome import Cell
from eval.runner import settings_of
from eval.sample import Benchmark, Sample
from eval.scoring import Scoring, score_row
from eval.worker import Task, Worker, in_halves
from selkv.errors import UserError
from selkv.method import Method
from selkv.named import build
from selkv.prefill import Prefill


def training_benchmark(plan: RunPlan, samples: int, seed: int) -> Benchmark:
    """The plan's tasks with other samples than those that it reports.

    Generated data is drawn with `seed`; of a file, those rows are drawn that the plan's own limit and seed leave.

    Parameters
    ----------
    plan : RunPlan
        The run that will report.
    samples : int
        Samples a task.
    seed : int
        Of the draw; must not be the plan's.

    Raises
    ------
    UserError
        Where the seeds are the same, or the run reports every row there is.
    """
    if seed == plan.seed:
        raise UserError(f"search.seed={seed} is the seed of the reported samples; choose another, e.g. {seed + 1}")
    reported = load_benchmark(plan)
    limit = None if plan.limit is None else plan.limit + samples
    pool = load_benchmark(replace(plan, limit=limit, seed=seed, first=False))
    chosen: dict[str, tuple[Sample, ...]] = {}
    for task, rows in pool.samples.items():
        seen = {row.id for row in reported.samples[task]}
        left = tuple(row for row in rows if row.id not in seen)
        if not left:
            raise UserError(
                f"{task}: all {len(rows)} rows are reported, none is left to train on; add limit=N, "
                "with the same N and seed in the run that reports"
            )
        chosen[task] = draw(left, samples, seed)
    return replace(pool, samples=chosen)


def trainer_of(plan: RunPlan, benchmark: Benchmark, arm: Arm) -> "Trainer":
    """Load the plan's model to train on a benchmark."""
    worker = load_worker(replace(plan, arms=()), benchmark, [], settings_of(plan))
    return Trainer(worker, benchmark, arm, Scoring(plan.scoring, plan.code_sim))


class Trainer:
    """Scores weight vectors on the training samples; a sample is prefilled once for all candidates.

    Parameters
    ----------
    worker : Worker
        A loaded model; its arms are not used.
    benchmark : Benchmark
        The training samples.
    arm : Arm
        EvolKV with its hyperparameters at the ratio of the search.
    scoring : Scoring
    """

    def __init__(self, worker: Worker, benchmark: Benchmark, arm: Arm, scoring: Scoring) -> None:
        # half of the memory for prompts that stay, half for decoding
        self.room = worker.settings.limit_bytes // 2
        self.settings = worker.settings._replace(limit_bytes=self.room, fidelity=False)
        self.worker, self.benchmark, self.arm, self.scoring = worker, benchmark, arm, scoring
        self.tasks: dict[tuple[str, str], Task] = {}

    @property
    def layers(self) -> int:
        """Layers of the model."""
        return int(self.worker.model.config.get_text_config().num_hidden_layers)

    def __call__(self, candidates: Sequence[Weights]) -> list[float]:
        """Mean over tasks of the mean score, in points, of each weight vector."""
        replica = self._replica([self._method(weights) for weights in candidates])
        by_task = [
            np.mean([self._scores(replica, dataset, sample) for sample in samples], axis=0)
            for dataset, samples in self.benchmark.samples.items()
        ]
        points: list[float] = (100 * np.mean(by_task, axis=0)).tolist()
        return points

    def _method(self, weights: Weights) -> Method:
        params = {**self.arm.params, "budget_file": None, "weights": weights}
        return build(self.arm.method, self.arm.target, params)

    def _replica(self, methods: Sequence[Method]) -> Worker:
        """The same model, serving other methods."""
        of = self.worker
        return Worker(of.model, of.tokenizer, [self.arm] * len(methods), methods, self.settings, of.place)

    def _scores(self, replica: Worker, dataset: str, sample: Sample) -> list[float]:
        """Score of each candidate on one sample; all are decoded together as far as memory allows."""
        task = self._prefilled(replica, dataset, sample)
        cells = [
            cell
            for batch in replica.batches(range(len(replica.jobs)), task)
            for cell in in_halves([Cell(arm) for arm in batch], lambda cells: replica.decode(cells, task))
        ]
        failed = next((cell.error for cell in cells if cell.error is not None), None)
        if failed is not None:
            raise Undecoded(f"{dataset} {sample.id} cannot be decoded: {failed.strip().splitlines()[-1]}")
        texts = [replica.tokenizer.decode(cell.text, skip_special_tokens=True) for cell in cells]
        return [score_row(dataset, text, sample.answers, sample.all_classes, self.scoring) for text in texts]

    def _prefilled(self, replica: Worker, dataset: str, sample: Sample) -> Task:
        """The sample after prefill: from memory, or computed and kept while there is room."""
        key = (dataset, sample.id)
        if key in self.tasks:
            return self.tasks[key]
        task = replica.prefill(Unit(dataset, sample, self.benchmark.prompts[dataset], (0,), ()))
        if size(task.state) <= self.room:
            self.room -= size(task.state)
            self.tasks[key] = task
        return task


def size(state: Prefill) -> int:
    """Bytes of a prefill's keys, values and queries."""
    return sum(x.nbytes for layer in state.layers for x in (layer.keys, layer.values, layer.queries))
