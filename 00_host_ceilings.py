"""Measure the roof of this host: peak FLOP/s and bytes/s, as ONNX Runtime reaches them at the threads to be used.

Reads   nothing from out/.
Writes  host_ceilings.json, once per host and thread count (no model has a part in it).

MatMul, Gemm and Conv give the compute ceiling. The memory ceiling is an Add of two distinct arrays into a third, each
at least four times the last-level cache; it counts two reads and one write. All take turns in short slices, and the
best slice of each counts. Where the best of the first and of the second half differ by more than 5 %, the ceilings are
marked unstable.

EXAMPLE of what comes in (this host) and what goes out (host_ceilings.json), some fields:

    2 threads, last-level cache 32 MiB

    {"threads": 2, "peak_flop_per_s": 5.56e11, "peak_operator": "Conv 3×3, 256 channels of 28×28",
     "memory_bytes_per_s": 8.68e10, "peak_halves_difference_share": 0.012, "stable": true}

    python 00_host_ceilings.py                          # at all threads that the process may use
    python 00_host_ceilings.py --threads 1 --seconds 20 --out out/one-thread
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from typing import Any

from common import cli
from common.artifacts.provenance import Provenance, cpu_model, host_identity, tool_versions
from common.artifacts.store import Store
from common.errors import CommandLineError
from common.profiling.ceilings import (
    Slices,
    halves_difference_share,
    last_level_cache_bytes,
    measure_slices,
    stream_array_bytes,
    workloads,
)
from common.profiling.session import available_processors, available_threads
from common.view.ceilings_text import ceilings_report

SCRIPT = "00_host_ceilings.py"
MAX_SECONDS = 20.0
MAX_HALVES_DIFFERENCE = 0.05


def arguments() -> cli.Parser:
    """The flags of this stage."""
    parser = cli.Parser(SCRIPT, __doc__ or "")
    parser.setting("--threads", type=cli.positive_int, metavar="N", help="intra-op threads (default: all it may use)")
    parser.setting("--seconds", type=cli.positive_float, default=10.0, metavar="S", help="for the slices, at most 20")
    return parser


def host_ceilings(slices: Sequence[Slices]) -> dict[str, Any]:
    """The figures of host_ceilings that come of the slices."""
    memory = [found for found in slices if found.op_type == "Add"]
    compute = [found for found in slices if found.op_type != "Add"]
    peak = max(compute, key=lambda found: found.best)
    best = {
        op_type: max(found.best for found in compute if found.op_type == op_type)
        for op_type in ("MatMul", "Gemm", "Conv")
    }
    differences = halves_difference_share(compute), halves_difference_share(memory)
    return {
        "peak_flop_per_s": peak.best,
        "peak_operator": peak.label,
        **{f"{op_type.lower()}_flop_per_s": rate for op_type, rate in best.items()},
        "memory_bytes_per_s": max(found.best for found in memory),
        "peak_halves_difference_share": differences[0],
        "memory_halves_difference_share": differences[1],
        "stable": max(differences) <= MAX_HALVES_DIFFERENCE,
        "slice_count": min(len(found.rates) for found in slices),
    }


def caveats(ceilings: dict[str, Any]) -> list[str]:
    """What a reader of the ceilings must know, each with its remedy."""
    notes = []
    if ceilings["last_level_cache_bytes"] is None:
        size = f"{ceilings['stream_array_bytes'] // 2**20} MiB"
        notes.append(f"last-level cache unknown: arrays of {size} are taken; compare memory with what the maker states")
    if not ceilings["stable"]:
        names = {"compute": "peak_halves_difference_share", "memory": "memory_halves_difference_share"}
        shares = ", ".join(f"{kind} {100 * ceilings[name]:.1f} %" for kind, name in names.items())
        remedy = f"stop other work on this host and rerun {SCRIPT}, with --seconds 20"
        notes.append(f"unstable: the best slices of the two halves differ by more than 5 % ({shares}); {remedy}")
    return notes


def load_average() -> float | None:
    """Run-queue length over the last minute; None where the system has none."""
    try:
        return os.getloadavg()[0]
    except OSError:
        return None


def main(argv: Sequence[str] | None = None) -> int:
    """Run the stage."""
    settings = cli.parse(arguments(), argv)
    if settings.seconds > MAX_SECONDS:
        raise CommandLineError("--seconds", f"{settings.seconds:g} is above {MAX_SECONDS:g}", "twenty are enough")
    threads, load = settings.threads or available_threads(), load_average()
    record = Provenance(SCRIPT, settings.command, settings.record(), host=host_identity(), tools=tool_versions())
    store = Store(settings.out, record)
    with store.writing():
        start = time.perf_counter()
        cache_bytes = last_level_cache_bytes(available_processors(), threads)
        array_bytes = stream_array_bytes(cache_bytes)
        slices = measure_slices(workloads(threads, array_bytes), settings.seconds)
        ceilings = {
            "threads": threads,
            "cpu_model": cpu_model(),
            "last_level_cache_bytes": cache_bytes,
            "stream_array_bytes": array_bytes,
            "load_average": load,
            **host_ceilings(slices),
            "duration_s": time.perf_counter() - start,
        }
        record.notes += caveats(ceilings)
        store.add_document("host_ceilings", ceilings)
    rows = [(found.label, found.best, found.op_type == "Add") for found in slices]
    cli.show(settings, ceilings_report(ceilings, rows))
    cli.say(settings, *(f"note: {note}" for note in record.notes), f"wrote {store.path('host_ceilings')}")
    return 0


if __name__ == "__main__":
    cli.run(main)
