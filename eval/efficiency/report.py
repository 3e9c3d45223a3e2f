"""What was measured, for readers: CSV with every number, a Markdown table, the machine and its versions."""

import csv
import io
import json
import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import torch

from eval.efficiency.measure import Spread
from eval.efficiency.roofline import Rates
from eval.efficiency.rows import Row
from eval.manifest import device_name, versions

HEAD = (
    "tokens",
    "method",
    "ratio",
    "prefill s",
    "compress s",
    "of total",
    "step ms",
    "tokens/s",
    "x full",
    "K/V MiB",
    "peak MiB (prefill, compress, decode)",
    "of roofline (prefill, decode)",
)


def machine(device: torch.device, model: Any, rates: Rates) -> dict[str, Any]:
    """Where the numbers come from."""
    return {
        "device": device_name(device),
        "processor": _processor(),
        "threads": torch.get_num_threads(),
        "system": platform.platform(),
        "versions": versions(),
        "dtype": str(model.dtype).removeprefix("torch."),
        "parameters": sum(p.numel() for p in model.parameters()),
        "bandwidth_bytes_per_s": rates.bandwidth,
        "matmul_operations_per_s": rates.operations,
        "load": os.getloadavg()[0],
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "")


def cells(row: Row) -> dict[str, Any]:
    """A row in flat columns: a spread becomes median, low and high."""
    flat: dict[str, Any] = {}
    for field in fields(row):
        value = getattr(row, field.name)
        if isinstance(value, Spread):
            flat |= {f"{field.name}_s": value.median, f"{field.name}_low": value.low, f"{field.name}_high": value.high}
        else:
            flat[field.name] = value
    return flat


def csv_text(rows: Sequence[Row], skipped: Mapping[int, str]) -> str:
    """All rows, then the lengths that did not fit, with the reason in the last column."""
    out = io.StringIO()
    names = [*(list(cells(rows[0])) if rows else ["n"]), "skipped"]
    writer = csv.DictWriter(out, names, lineterminator="\n", restval="")
    writer.writeheader()
    for row in rows:
        writer.writerow({k: f"{v:.6g}" if isinstance(v, float) else v for k, v in cells(row).items()})
    for n, reason in skipped.items():
        writer.writerow({"n": n, "skipped": reason})
    return out.getvalue()


def table(rows: Sequence[Row]) -> list[tuple[str, ...]]:
    """The columns of `HEAD`; ± is half the range of the repeats."""
    return [
        (
            str(row.n),
            row.method,
            row.ratio,
            _time(row.prefill),
            _time(row.compress),
            f"{100 * row.compress_share:.1f} %",
            _time(row.step, 1000),
            f"{row.tokens_per_s:.1f}",
            f"{row.speedup:.2f}",
            f"{row.kv_bytes / 2**20:.1f}",
            " ".join(
                "–" if b is None else f"{b / 2**20:.0f}" for b in (row.prefill_peak, row.compress_peak, row.decode_peak)
            ),
            f"{100 * row.prefill_roofline:.0f} % {100 * row.decode_roofline:.0f} %",
        )
        for row in rows
    ]


def _time(value: Spread, factor: float = 1) -> str:
    return f"{factor * value.median:.3g} ± {factor * (value.high - value.low) / 2:.1g}"


def markdown(rows: Sequence[Row], skipped: Mapping[int, str], place: Mapping[str, Any], new_tokens: int) -> str:
    """Table, skipped lengths and the machine."""
    lines = ["| " + " | ".join(HEAD) + " |", "|---:|---|---:|" + "---:|" * (len(HEAD) - 3)]
    lines += ["| " + " | ".join(row) + " |" for row in table(rows)]
    lines += [f"\n{n} tokens: skipped, {reason}" for n, reason in skipped.items()]
    kernels = ", ".join(sorted({f"{row.method}: {row.kernel}" for row in rows}))
    lines.append(
        f"\n{_described(place)}; {new_tokens} tokens decoded; attention kernels of decoding: {kernels or 'none'}."
    )
    return "\n".join(lines) + "\n"


def _described(place: Mapping[str, Any]) -> str:
    gigabytes, gigaflops = place["bandwidth_bytes_per_s"] / 1e9, place["matmul_operations_per_s"] / 1e9
    libraries = ", ".join(f"{name} {version}" for name, version in place["versions"].items())
    return (
        f"{place['processor'] or place['device']}, {place['threads']} threads, {place['dtype']}; measured memory "
        f"{gigabytes:.1f} GB/s, matmul {gigaflops:.0f} GFLOP/s; load {place['load']:.1f} at the start; {libraries}"
    )


def write(
    folder: Path, rows: Sequence[Row], skipped: Mapping[int, str], place: Mapping[str, Any], new_tokens: int
) -> None:
    """Write ``efficiency.csv``, ``efficiency.md`` and ``machine.json``."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "efficiency.csv").write_text(csv_text(rows, skipped), encoding="utf-8")
    (folder / "efficiency.md").write_text(markdown(rows, skipped, place, new_tokens), encoding="utf-8")
    (folder / "machine.json").write_text(json.dumps(place, indent=1) + "\n", encoding="utf-8")
