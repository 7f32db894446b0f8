"""Logs as TensorFlow Lite's benchmark_model prints them, of any operators."""

from __future__ import annotations

from collections.abc import Sequence

Row = tuple[str, str, float, int]  # node type, name, ms of a call, calls of a run
STARTED = ("ModifyGraphWithDelegate", "ModifyGraphWithDelegate/0", 14.8, 1)


def tflite_log(rows: Sequence[Row], *, has_start: bool = False, stamp: str = "", count: int = 67) -> str:
    """Return a log: the part of the start-up, that of the runs, and the operators of most time again.

    Args:
        has_start: whether rows have the column ``[start]`` of older versions.
        stamp: what is before each line.
    """
    lines = [
        *("STARTING!", "Enable op profiling: [1]", "Profiling Info for Benchmark Initialization:"),
        *_part("Run Order", [STARTED], has_start),
        "Operator-wise Profiling Info for Regular Benchmark Runs:",
        *_part("Run Order", rows, has_start),
        *_part("Top by Computation Time", sorted(rows, key=lambda row: -row[2])[:2], has_start),
        f"Timings (microseconds): count={count} first=7068 curr=7410 min=6282 max=7683 avg=7360.09 std=256",
        f"{len(rows)} nodes observed",
    ]
    return "".join(f"{stamp}{line}\n" if line else "\n" for line in lines)


def _part(title: str, rows: Sequence[Row], has_start: bool) -> list[str]:
    start = "[start]\t" if has_start else ""
    heading = f"\t[node type]\t{start}[first]\t[avg ms]\t[%]\t[cdf%]\t[mem KB]\t[times called]\t[Name]"
    whole = sum(ms * calls for _, _, ms, calls in rows)
    texts, done = [], 0.0
    for kind, name, ms, calls in rows:
        share, begin = 100 * ms * calls / whole, "    0.000\t" if has_start else ""
        done += share
        figures = f"{ms:9.3f}\t{ms:9.3f}\t{share:7.3f}%\t{done:7.3f}%\t    0.000\t{calls:9d}"
        texts.append(f"\t{kind:>24}\t{begin}{figures}\t{name}")
    return [f"{'=' * 30} {title} {'=' * 30}", heading, *texts, ""]
