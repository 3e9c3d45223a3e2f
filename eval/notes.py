"""What a reader must know to judge a table: how it was scored, what is missing, which numbers are not exact."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from eval.aggregate import Table
from eval.grid import APPROXIMATE, HOLE
from eval.records import Record
from eval.scores import scoring_text
from eval.statistics import DRAWS
from eval.view import View

SHOWN = 5  # holes that are named
FIRST_TOKEN = 0.05  # attention share of an evicted first token above which results are ruined


def notes(view: View, blocks: Sequence[Table], statistics: bool = False) -> list[str]:
    """Lines below the tables of a run."""
    return [
        f"{scoring_text(view)}; protocol: {_protocol(view.manifest)}; {_limit(view.manifest)}.",
        "Avg: mean over tasks; Category avg: over categories of the mean within each; Δ: against the full cache on the "
        "same samples; Avg rank: within the ratio, ties share the mean rank, full cache not ranked; Kept %: true share "
        "of all cache entries; best and second best of a column are marked within the ratio.",
        *([FIDELITY] if any(row.fidelity for block in blocks for row in block.rows) else []),
        *([STATISTICS] if statistics else []),
        *_approximate(view),
        *_holes(view),
        *_counters(view),
        *_loops(view),
        *dict.fromkeys(f"{arm['label']}: {arm['note']}." for arm in view.manifest["arms"] if arm.get("note")),
        *map(str, view.manifest.get("notes", ())),
        *_versions(view),
    ]


STATISTICS = (
    f"Paired differences in points: 95 % bootstrap intervals stratified over tasks ({DRAWS:,} draws, seeded); p of the "
    "paired permutation test, with Holm's correction over the methods of the ratio; wins, ties and losses by sample; "
    "detectable: the smallest true difference that this many samples find with probability 0.8."
)

FIDELITY = (
    "Fidelity: the full cache's own continuation, teacher-forced through each compressed cache; perplexity ratio: "
    "geometric mean; diverges at: median token where the free-running text first differs, a text that never does "
    "counted with its length."
)


def mixed(views: Sequence[View]) -> list[str]:
    """Warnings where runs that are shown together come from different versions or devices."""
    facts: dict[str, set[str]] = {}
    for view in views:
        for name, value in {**view.manifest.get("versions", {}), "device": view.manifest.get("device")}.items():
            facts.setdefault(name, set()).add(str(value))
    different = [f"{name} {' / '.join(sorted(values))}" for name, values in sorted(facts.items()) if len(values) > 1]
    return [f"Warning: runs of different versions or devices are mixed: {'; '.join(different)}."] if different else []


def _protocol(manifest: dict[str, Any]) -> str:
    facts = {**manifest["protocol"], "sliding_layers": manifest.get("sliding_layers")}
    return ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in facts.items() if value is not None)


def _limit(manifest: dict[str, Any]) -> str:
    counts = [task["selected"] for task in manifest["tasks"].values()]
    if manifest.get("limit") is None and counts == [task["rows"] for task in manifest["tasks"].values()]:
        return "all samples of each task"
    low, high = min(counts), max(counts)
    number = str(low) if low == high else f"{low} to {high}"
    return f"limit: {number} {'sample' if number == '1' else 'samples'} per task"


def _records(view: View, arm: int) -> Iterator[Record]:
    for rows in view.manifest["cells"].values():
        for keys in rows:
            record = view.records.get(keys[arm])
            if record is not None and record.error is None:
                yield record


def _approximate(view: View) -> Iterator[str]:
    names = [arm["label"] for arm in view.manifest["arms"] if not arm["exact"]]
    if names:
        yield f"{APPROXIMATE} budget met only approximately, the measured share is shown: {_listed(names)}."


def _holes(view: View) -> Iterator[str]:
    holes: list[tuple[str, str]] = []
    reasons: dict[str, list[str]] = {}
    for dataset, rows in view.manifest["cells"].items():
        for sample, keys in enumerate(rows):
            for arm, key in zip(view.manifest["arms"], keys, strict=True):
                record = view.records.get(key)
                if record is None or record.error is not None:
                    where = f"{arm['label']} ({arm['ratio']}) {dataset} {sample}"
                    holes.append(("not computed" if record is None else "failed", where))
                if record is not None and record.error is not None:
                    reasons.setdefault(_last_line(record.error), []).append(arm["label"])
    for state, count in sorted(Counter(state for state, _ in holes).items()):
        named = [where for kind, where in holes if kind == state]
        more = f" and {count - SHOWN} more" if count > SHOWN else ""
        yield f"{HOLE} {count} cells {state} and left out, never counted as 0: {', '.join(named[:SHOWN])}{more}."
    for reason, labels in list(reasons.items())[:SHOWN]:
        yield f"Failed with {reason}: {_listed(labels)}; tracebacks are in the records."


def _last_line(traceback: str) -> str:
    return (traceback.strip().splitlines() or ["no reason was recorded"])[-1]


def _counters(view: View) -> Iterator[str]:
    """A merging method that merged nothing is an eviction method; an evicted attention sink ruins any."""
    idle, sunk = [], []
    for number, arm in enumerate(view.manifest["arms"]):
        counters = [record.counters for record in _records(view, number)]
        routed = [sum(found["routed"]) for found in counters if "routed" in found]
        shares = [max(found["evicted_first_share"]) for found in counters if found.get("evicted_first_share")]
        if routed and not any(routed):
            idle.append(f"{arm['label']} ({arm['ratio']})")
        if max(shares, default=0) > FIRST_TOKEN:
            sunk.append(f"{arm['label']} ({arm['ratio']}) up to {100 * max(shares):.1f} %")
    if idle:
        yield f"Nothing was routed, so nothing was merged: {_listed(idle)}."
    if sunk:
        yield f"Warning: the evicted first token held more than 5 % of a layer's attention: {_listed(sunk)}."


def _loops(view: View) -> Iterator[str]:
    """Share of outputs that end in a repetition: what repositioning (SelKV, Eq. 7) is said to prevent."""
    looped = []
    for number, arm in enumerate(view.manifest["arms"]):
        ends = [record.looped for record in _records(view, number)]
        if any(ends):
            looped.append(f"{arm['label']} ({arm['ratio']}) {100 * sum(ends) / len(ends):.0f} %")
    if looped:
        yield f"Outputs that end in a loop: {_listed(looped)}; the others none."


def _versions(view: View) -> Iterator[str]:
    arms = enumerate(view.manifest["arms"])
    old = [arm["label"] for number, arm in arms if {r.version for r in _records(view, number)} - {arm["version"]}]
    if old:
        yield f"Warning: cells of different versions of a method are mixed: {_listed(old)}."


def _listed(names: Iterable[str]) -> str:
    return ", ".join(dict.fromkeys(names))
