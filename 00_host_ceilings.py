"""Measure the roofs of this host: the operations/s and bytes/s that ONNX Runtime reaches at a thread count.

Reads   nothing from out/.
Writes  host_ceilings.json, once per host and thread count; it depends on no model.

MatMul, Gemm and Conv measure the compute ceiling of float32. MatMulInteger, QLinearMatMul and QLinearConv measure that
of int8. MatMul measures those of float16 and bfloat16, if the runtime computes in them. An Add (two reads and one
write) measures the memory ceiling with arrays of four times the last-level cache, and the ceiling of the caches with
arrays that stay in them. Every rate is measured at one thread as well. The operators take turns in short slices.
Sessions and arrays are created anew four times, and the best slice counts. The ceilings are marked unstable if the best
slices of the two halves differ by more than 5 %, or if all threads together reach over 5 % less than one thread.

EXAMPLE of input (this host) and output (host_ceilings.json), some fields:

    2 threads, last-level cache 32 MiB

    {"threads": 2, "peak_flop_per_s": 5.29e11, "peak_operator": "Conv fp32, 3×3, 256 channels of 28×28",
     "int8_op_per_s": 1.91e12, "fp16_flop_per_s": null, "memory_bytes_per_s": 8.68e10, "cache_bytes_per_s": 2.41e11,
     "one_thread_peak_flop_per_s": 2.70e11, "peak_halves_difference_share": 0.012, "stable": true}

    python 00_host_ceilings.py                          # at all threads that the process may use
    python 00_host_ceilings.py --threads 1 --seconds 20 --out out/one-thread
"""

from __future__ import annotations

if __name__ == "__main__":
    from common.process import startup

    startup.begin()  # first of all: the imports below take most of a second

import os
import time
from collections.abc import Sequence
from functools import partial
from typing import Any, cast

from common import cli
from common.graphs.number_formats import MEASURED_PEAKS
from common.messages.errors import CommandLineError
from common.process.host_identity import cpu_model
from common.profiling.ceilings.caches import (
    last_level_cache_bytes,
    private_cache_bytes,
    resident_array_bytes,
    stream_array_bytes,
)
from common.profiling.ceilings.sessions import operators_by_threads, timed_operators
from common.profiling.ceilings.slices import Slices, best, halves_difference_share, measure_slices, of_roof, rate
from common.runtime.sessions.threads import available_processors, usable_threads
from common.sensors.cpu import busy_processors
from common.table_rows import HostCeilingsDocument
from common.view.roofline.ceilings_text import ceiling_notes, ceilings_report

MAX_SECONDS = 20.0
BUSY_S = 0.5  # time before the measurement in which other work on the host is observed
MAX_DIFFERENCE = 0.05
RATES = {
    **{column: name for name, column in MEASURED_PEAKS.items()},
    "memory_bytes_per_s": "memory",
    "cache_bytes_per_s": "cache",
}
HALVES = {"peak": "fp32", "int8": "int8", "memory": "memory"}


def arguments() -> cli.Parser:
    parser = cli.Parser("00_host_ceilings.py", __doc__ or "")
    parser.shared("--threads")
    text = "measuring time of all slices together, at most 20 s"
    parser.setting("--seconds", type=cli.positive_float, default=10.0, metavar="S", help=text)
    return parser


def host_ceilings(slices: Sequence[Slices], threads: int) -> dict[str, Any]:
    pooled, single = ({name: of_roof(slices, roof, count) for name, roof in RATES.items()} for count in (threads, 1))
    rates, single_rates = ({name: rate(operators) for name, operators in part.items()} for part in (pooled, single))
    fp32, int8, cache = (best(pooled[name]) for name in ("peak_flop_per_s", "int8_op_per_s", "cache_bytes_per_s"))
    one_cache = best(single["cache_bytes_per_s"])
    shares = {name: halves_difference_share(of_roof(slices, roof, threads)) for name, roof in HALVES.items()}
    pairs = ((rates[name], single_rates[name]) for name in RATES)
    lost = max(1 - at_all_threads / at_one for at_all_threads, at_one in pairs if at_all_threads and at_one)
    return {
        **rates,
        **{f"one_thread_{name}": value for name, value in single_rates.items()},
        **{f"{kind.lower()}_flop_per_s": rate(pooled["peak_flop_per_s"], kind) for kind in ("MatMul", "Gemm", "Conv")},
        "peak_operator": fp32.subject.label if fp32 else "",
        "int8_operator": int8.subject.label if int8 else "",
        "cache_array_bytes": cache.subject.operand_bytes if cache else 0,
        "one_thread_cache_array_bytes": one_cache.subject.operand_bytes if one_cache else 0,
        **{f"{name}_halves_difference_share": share for name, share in shares.items()},
        "stable": max(share for share in (*shares.values(), lost) if share is not None) <= MAX_DIFFERENCE,
        "lost_to_threads_share": max(lost, 0.0),
        "slice_count": min(len(operator.first) + len(operator.second) for operator in slices),
    }


def main(argv: Sequence[str] | None = None) -> int:
    with cli.stage(arguments(), argv) as stage:
        settings = stage.settings
        if settings.seconds > MAX_SECONDS:
            raise CommandLineError("--seconds", f"{settings.seconds:g} is above {MAX_SECONDS:g}", "twenty are enough")
        threads, busy = usable_threads(settings.threads), busy_processors(BUSY_S)
        with stage.writing() as transaction:
            start, processors = time.perf_counter(), available_processors()
            caches = {count: last_level_cache_bytes(processors, count) for count in dict.fromkeys((threads, 1))}
            private, stream_bytes = private_cache_bytes(processors), stream_array_bytes(caches[threads])
            resident = {count: resident_array_bytes(private, last, count) for count, last in caches.items()}
            build = partial(timed_operators, operators_by_threads(stream_bytes, resident))
            slices = measure_slices(build, settings.seconds)
            ceilings = {
                "threads": threads,
                "cpu_model": cpu_model(),
                "last_level_cache_bytes": caches[threads],
                "stream_array_bytes": stream_bytes,
                "busy_processor_count": busy,
                **host_ceilings(slices, threads),
                "duration_s": time.perf_counter() - start,
            }
            document = cast("HostCeilingsDocument", ceilings)  # names that are put together are no literals
            stage.note(*ceiling_notes(document, os.cpu_count() or threads))
            transaction.add_document("host_ceilings", document)
        subjects = ((operator.subject, operator.best) for operator in slices)
        rows = [(subject.label, subject.roof, subject.threads, fastest) for subject, fastest in subjects]
        stage.show(ceilings_report(document, rows))
    return 0


if __name__ == "__main__":
    cli.run(main)
