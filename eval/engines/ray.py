"""Ray as the engine: a pool of model replicas over GPUs and machines; samples are the units, this process writes.

A lost replica is restarted by Ray and its sample redone, elsewhere if need be; replicas are added when nodes join.
"""

import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from eval.cells import Unit
from eval.config import RunPlan
from eval.engines.local import load_worker
from eval.outcome import Cell, record_of
from eval.progress import Meter
from eval.records import Record
from eval.sample import Benchmark
from eval.worker import Settings
from selkv.errors import UserError
from selkv.method import Method

RETRIES = 2  # how often a sample is redone whose replica died, before its cells are recorded as failed
GROW_EVERY = 30.0  # seconds between looks for room that new nodes have brought


class Replica:
    """A model in a process of its own; Ray makes it an actor."""

    def __init__(self, plan: RunPlan, benchmark: Benchmark, methods: Sequence[Method], settings: Settings) -> None:
        self.worker = load_worker(plan, benchmark, methods, settings)

    def run(self, unit: Unit) -> list[Record]:
        """Records of a unit."""
        return self.worker.run(unit)


def work(
    plan: RunPlan,
    benchmark: Benchmark,
    units: Sequence[Unit],
    methods: Sequence[Method],
    settings: Settings,
    meter: Meter,
) -> Iterator[tuple[str, list[Record]]]:
    """Records of units as they finish, in any order, with the dataset that they belong to.

    Raises
    ------
    UserError
        When Ray is not installed, the cluster cannot be reached, or a replica cannot start.
    """
    ray = connected(plan)
    resources = {"num_cpus": plan.engine["cpus_per_worker"], "num_gpus": gpus_per_worker(plan, ray)}
    # every replica needs prompts and limits, none the rows: those travel with their unit
    shared = ray.put((plan, replace(benchmark, samples={}), tuple(methods), settings))
    actor = ray.remote(max_restarts=-1, max_task_retries=RETRIES, **resources)(Replica)
    waiting, idle, looked = deque(units), [], 0.0
    running: dict[Any, tuple[Any, Unit]] = {}
    count = 0
    while waiting or running:
        if time.monotonic() - looked > GROW_EVERY:
            room = min(len(waiting), room_for(plan, ray, resources, count))
            idle += [actor.remote(*ray.get(shared)) for _ in range(room)]
            count, looked = count + room, time.monotonic()
        while idle and waiting:
            replica, unit = idle.pop(), waiting.popleft()
            running[replica.run.remote(unit)] = (replica, unit)
        finished, _ = ray.wait(list(running), timeout=GROW_EVERY)
        for reference in finished:
            replica, unit = running.pop(reference)
            records = result(ray, reference, unit, methods, plan, benchmark)
            idle.append(replica)
            meter.say(f"{unit.dataset} {unit.sample.index}, {count} replicas")
            meter.advance(len(records))
            yield unit.dataset, records


def connected(plan: RunPlan) -> Any:
    """Ray, connected to the cluster that ``engine.address`` names, or started here."""
    try:
        import ray
    except ImportError:
        raise UserError("engine=ray needs Ray; run: pip install ray, or use engine=local") from None
    if not ray.is_initialized():
        try:
            ray.init(address=plan.engine["address"], log_to_driver=False, include_dashboard=False)
        except (ConnectionError, ValueError) as problem:
            raise UserError(
                f"engine.address={plan.engine['address']} cannot be joined ({problem}); start a cluster with ray start "
                "--head, or leave engine.address=null to start Ray here"
            ) from None
    return ray


def gpus_per_worker(plan: RunPlan, ray: Any) -> float:
    """GPUs of a replica: what the config says, or one where the cluster has any."""
    wanted = plan.engine["gpus_per_worker"]
    return wanted if wanted != "auto" else min(1, ray.cluster_resources().get("GPU", 0))


def room_for(plan: RunPlan, ray: Any, resources: dict[str, float], count: int) -> int:
    """Replicas that may be started now, besides the `count` there are."""
    wanted = plan.engine["workers"]
    if wanted != "auto":
        return max(0, int(wanted) - count)
    have = ray.cluster_resources()
    fits = min((int(have.get(name, 0) // need) for name, need in named(resources).items() if need), default=1)
    if fits + count < 1:
        raise UserError(
            f"no replica fits: engine.cpus_per_worker={resources['num_cpus']:g} and engine.gpus_per_worker="
            f"{resources['num_gpus']:g} of {have.get('CPU', 0):g} CPUs and {have.get('GPU', 0):g} GPUs; lower them"
        )
    return max(0, fits - count)


def named(resources: dict[str, float]) -> dict[str, float]:
    """Needs of a replica under the names of Ray's cluster resources."""
    return {"CPU": resources["num_cpus"], "GPU": resources["num_gpus"]}


def result(
    ray: Any, reference: Any, unit: Unit, methods: Sequence[Method], plan: RunPlan, benchmark: Benchmark
) -> list[Record]:
    """Records of a finished unit; error records where its replica died again and again."""
    try:
        return ray.get(reference)
    except ray.exceptions.RayActorError as problem:
        if getattr(problem, "actor_init_failed", False):
            raise UserError(f"a replica of the model cannot start: {str(problem).splitlines()[-1]}") from None
        place = {"model": plan.model["name"], "data": benchmark.name}
        lost = [Cell(arm, error=f"the replica died {RETRIES + 1} times: {problem}") for arm in unit.arms]
        return [record_of(unit, cell, plan.arms[cell.arm], methods[cell.arm], place) for cell in lost]
