"""Compare the ceilings of stage 00 with those of other programs on the same host, measured in turn.

ONNX Runtime's float32 MatMul is compared with numpy's BLAS on the same product and with the multiply-adds of
``likwid-bench``; its streaming Add with numpy's and with the triads of ``likwid-bench`` and STREAM, if those programs
are on the PATH. Each program runs once per round, and its best round counts, as in stage 00.

Bytes are counted as stage 00 counts them: two reads and one write. A plain store also reads the line that it
overwrites, which no program here counts; a non-temporal store does not, so its triad shows the memory's real bandwidth.

OpenBLAS chooses its kernels by the processor's name and may choose narrower vectors than it has
(``OPENBLAS_VERBOSE=2`` says which); ``OPENBLAS_CORETYPE=SkylakeX`` gives those of AVX-512.

No test depends on a figure. BLAS reads its thread count from the environment, which is set before numpy is
imported, so a process is started for each thread count.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
LIKWID = "likwid-bench"
STREAM_NAMES = ("stream", "stream_c", "stream_c.exe")
VECTORS = (("avx512f", "avx512"), ("avx2", "avx"), ("sse2", "sse"))  # as /proc/cpuinfo and likwid-bench name them
# Working set of all threads, and passes over it: about 0.05 s each.
IN_CACHE, BEYOND_CACHES = ("32kB", 100_000), ("400MB", 10)
TURN_S = 0.4
Peer = Callable[[], float]


def likwid(quantity: str, kernel: str, size: str, passes: int, threads: int) -> Peer | None:
    """Return a kernel of likwid-bench, by its ``MFlops`` or ``MByte`` per second; None if the program is missing."""
    if not shutil.which(LIKWID):
        return None
    command = [LIKWID, "-t", kernel, "-i", str(passes), "-w", f"N:{size}:{threads}"]

    def measure() -> float:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        rate = re.search(rf"^{quantity}/s:\s+([\d.]+)", done.stdout, re.MULTILINE)
        return 1e6 * float(rate[1]) if done.returncode == 0 and rate else 0.0

    return measure


def stream_triad(threads: int) -> Peer | None:
    """Return the best triad that a STREAM binary reports; None if there is no such binary."""
    program = next(filter(None, map(shutil.which, STREAM_NAMES)), None)
    if program is None:
        return None
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads)}

    def measure() -> float:
        done = subprocess.run([program], capture_output=True, text=True, check=False, env=environment)
        rate = re.search(r"^Triad:\s+([\d.]+)", done.stdout, re.MULTILINE)
        return 1e6 * float(rate[1]) if rate else 0.0

    return measure


def timed(amount: float, run: Callable[[], object]) -> Peer:
    """Return a peer that repeats a run for a while; its quickest run counts."""

    def measure() -> float:
        best, start = float("inf"), time.perf_counter()
        while time.perf_counter() - start < TURN_S:
            before = time.perf_counter()
            run()
            best = min(best, time.perf_counter() - before)
        return amount / best

    return measure


def vector_suffix(cpuinfo: Path = Path("/proc/cpuinfo")) -> str:
    """Return likwid-bench's name for the widest vectors of this processor."""
    flags = cpuinfo.read_text(encoding="utf-8") if cpuinfo.exists() else ""
    return next((suffix for flag, suffix in VECTORS if re.search(rf"\b{flag}\b", flags)), "sse")


def of_runtime(threads: int) -> Iterator[tuple[str, str, Peer]]:
    """Yield group, name and peer of the operators of stage 00."""
    from common.profiling.ceilings.caches import last_level_cache_bytes, stream_array_bytes
    from common.profiling.ceilings.operators import SIDE, add, conv, matmul
    from common.profiling.ceilings.sessions import timed_operators
    from common.runtime.sessions.threads import available_processors

    size = stream_array_bytes(last_level_cache_bytes(available_processors(), threads))
    for work in timed_operators({threads: [matmul(SIDE), conv(256, 3), add(size)]}):
        group = "memory" if work.subject.roof == "memory" else "compute"
        yield group, f"ONNX Runtime, {work.subject.label}", timed(work.amount, work.run)


def of_numpy(threads: int) -> Iterator[tuple[str, str, Peer]]:
    """Yield the product by numpy's BLAS and, at one thread, numpy's addition, which is single-threaded."""
    import numpy as np

    from common.profiling.ceilings.caches import last_level_cache_bytes, stream_array_bytes
    from common.profiling.ceilings.operators import SIDE
    from common.runtime.sessions.threads import available_processors

    left, right = (np.full((SIDE, SIDE), value, np.float32) for value in (0.5, 0.25))
    product = np.empty_like(left)
    run = timed(2.0 * SIDE**3, lambda: np.matmul(left, right, out=product))
    yield "compute", f"numpy's BLAS, sgemm {SIDE}×{SIDE}×{SIDE}", run
    if threads == 1:
        count = stream_array_bytes(last_level_cache_bytes(available_processors(), threads)) // 4
        a, b, c = (np.full(count, 0.5, np.float32) for _ in range(3))
        yield "memory", "numpy, add", timed(3.0 * 4 * count, lambda: np.add(a, b, out=c))


def of_others(threads: int) -> Iterator[tuple[str, str, Peer | None]]:
    """Yield the programs that may be missing."""
    suffix = vector_suffix()
    fused = "" if suffix == "sse" else "_fma"
    for group, kernel, size in (
        ("compute", f"peakflops_sp_{suffix}{fused}", IN_CACHE),
        ("memory", f"stream_sp_{suffix}{fused}", BEYOND_CACHES),
        ("memory", f"stream_sp_mem_{suffix}{fused}", BEYOND_CACHES),
    ):
        quantity = "MFlops" if group == "compute" else "MByte"
        yield group, f"{LIKWID} {kernel}", likwid(quantity, kernel, *size, threads)
    yield "memory", "STREAM triad", stream_triad(threads)


def compare(threads: int, rounds: int) -> None:
    """Print the best of each and its ratio to ONNX Runtime's best of its group."""
    peers = [*of_runtime(threads), *of_numpy(threads), *of_others(threads)]
    best = {name: 0.0 for _, name, peer in peers if peer}
    for _ in range(rounds):
        for _, name, peer in peers:
            if peer:
                best[name] = max(best[name], peer())
    for group, unit in (("compute", "GFLOP/s"), ("memory", "GB/s")):
        names = [name for kind, name, _ in peers if kind == group]
        own = max(best[name] for name in names if name.startswith("ONNX Runtime"))
        for name in names:
            rate = best.get(name, 0.0)
            shown = f"{rate / 1e9:>8.1f} {unit:<7}  {rate / own:>5.2f}" if rate else f"{'not here':>16}"
            print(f"{threads:>7}  {name:<52}  {shown}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, action="append", help="default: 1, and all that the process may use")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.here:
        compare(given.threads[0], given.rounds)
        return
    from common.runtime.sessions.threads import available_threads

    print(f"{'threads':>7}  {'program':<52}  {'best of ' + str(given.rounds):<16}  of ONNX Runtime's best", flush=True)
    for threads in given.threads or dict.fromkeys((1, available_threads())):
        environment = {**os.environ, **dict.fromkeys(VARIABLES, str(threads))}
        flags = ["--here", "--threads", str(threads), "--rounds", str(given.rounds)]
        subprocess.run(
            [sys.executable, "-m", "benchmarks.measuring.ceilings_peers", *flags], env=environment, check=True
        )


if __name__ == "__main__":
    main()
