"""Measure time and memory of the stages for growing models, compared with other programs that read the same model.

Every figure is of a whole process, imports included: the shortest time and the largest peak of the repetitions. The
models are synthetic (``benchmarks/pipeline/synthetic.py``) and temporary; the weights of 10 GiB are a sparse file.
03 and 04 read 02's real tables and made-up latencies (``benchmarks/pipeline/profiled.py``).

    model                  nodes  program    seconds  peak MB  of 02
    transformer            12024  02            1.06      157   1.00  1.8 s
    transformer            12024  onnx-tool   > 60.0        -      -
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.process import ROOT, CommandRun, best
from common.view.text import text_table

MEGABYTE = 1e6
GIB = 2**30
# (seconds, megabytes) of 02 by the requested number of nodes; the memory limit holds for weights of any size.
BUDGETS: dict[int, tuple[float, float | None]] = {
    144: (1.2, 160.0),
    1_500: (1.2, 160.0),
    12_000: (1.8, 160.0),
    100_000: (10.0, None),
}
STAGES = {
    "02": ["02_shapes_flops_bytes.py"],
    "03": ["03_merge_profile_metrics.py", "--peak-flops", "1e11", "--mem-bw", "1e10"],
    "04": ["04_critical_path.py"],
}
IMPORTS = "import numpy, onnx, pandas, pandera.pandas"
# Programs that infer shapes or count work as 02 does; each reads the path of the model from its argument.
PEERS = {
    # ONNX's own shape inference: load the weights, infer every shape. It counts no work.
    "onnx": "import onnx, sys; onnx.shape_inference.infer_shapes(onnx.load(sys.argv[1]), data_prop=True)",
    # The counter behind onnxsim's table: MACs, parameters, memory access. It simplifies nothing here.
    "onnxsim": "import onnx, sys; from onnxsim.model_info import ModelInfo; ModelInfo(onnx.load(sys.argv[1])).macs",
    "onnx-tool": "import onnx_tool, sys; onnx_tool.model_profile(sys.argv[1])",
}


@dataclass(frozen=True, slots=True)
class Case:
    """A synthetic model; ``weights_gib`` is the size of its side file."""

    kind: str
    nodes: int
    weights_gib: int = 0

    @property
    def title(self) -> str:
        return f"{self.kind}, {self.weights_gib} GiB" if self.weights_gib else self.kind

    def build(self, folder: Path) -> tuple[Path, int]:
        """Write the model in a process of its own; return its path and its number of nodes."""
        path = folder / f"{self.kind}-{self.nodes}.onnx"
        options = ["--weights-gib", str(self.weights_gib)]
        builder = [
            sys.executable,
            "-m",
            "benchmarks.pipeline.synthetic",
            self.kind,
            str(self.nodes),
            str(path),
            *options,
        ]
        return path, int(subprocess.run(builder, cwd=ROOT, check=True, capture_output=True, text=True).stdout)


CASES = (
    Case("transformer", 1_500),
    Case("convolutional", 1_500),
    Case("transformer", 12_000),
    Case("convolutional", 12_000),
    Case("transformer", 100_000),
    Case("convolutional", 100_000),
    Case("transformer", 144, weights_gib=10),
)


@dataclass(frozen=True, slots=True)
class Row:
    case: Case
    node_count: int
    program: str
    run: CommandRun


Measure = Callable[[Sequence[str]], CommandRun]


def stage(name: str, model: Path, folder: Path) -> list[str]:
    flags = ["--model", str(model)] if name == "02" else []
    return [sys.executable, *STAGES[name], *flags, "--out", str(folder), "--quiet"]


def peer_command(peer: str, model: Path) -> list[str]:
    return [sys.executable, "-c", PEERS[peer], str(model)]


def measure(cases: Sequence[Case], run: Measure) -> Iterator[Row]:
    """Run 02 and its peers on every model, then 03 and 04 on the tables of 02 for the transformers."""
    with tempfile.TemporaryDirectory() as scratch:
        for case in cases:
            model, count = case.build(Path(scratch))
            folder = Path(scratch) / f"{case.kind}-{case.nodes}-out"
            counted = run(stage("02", model, folder))
            yield Row(case, count, "02", counted)
            for peer in PEERS:
                yield Row(case, count, peer, run(peer_command(peer, model)))
            if case.kind == "transformer" and not case.weights_gib and not counted.failure:
                make = [sys.executable, "-m", "benchmarks.pipeline.profiled", str(model), str(folder)]
                subprocess.run(make, cwd=ROOT, check=True)
                for name in ("03", "04"):
                    yield Row(case, count, name, run(stage(name, model, folder)))


def against_peers(rows: Sequence[Row]) -> str:
    """Return seconds, peak and the ratio to 02 of every program on every model, with the budgets of 02."""
    own = {row.case: row.run for row in rows if row.program == "02"}
    cells = []
    for row in (row for row in rows if row.program in ("02", *PEERS)):
        ratio = "-" if row.run.failure or own[row.case].failure else f"{row.run.seconds / own[row.case].seconds:.2f}"
        verdict = within(row) if row.program == "02" else ""
        cells.append([row.case.title, str(row.node_count), row.program, *figures(row.run), ratio, verdict])
    header = ("model", "nodes", "program", "seconds", "peak MB", "of 02", "budget of 02")
    failures = [
        f"{row.program} on {row.case.title} of {row.node_count} nodes fails ({row.run.failure})"
        for row in rows
        if row.run.failure and not row.run.timed_out
    ]
    return "\n".join([text_table(header, cells, left=(0, 2, 6)), *failures])


def figures(run: CommandRun) -> list[str]:
    """Return seconds and peak, or that the run took too long, or that it failed."""
    if run.timed_out:
        return [f"> {run.seconds:.0f}", "-"]
    return ["fails", "-"] if run.failure else [f"{run.seconds:.2f}", f"{run.peak_bytes / MEGABYTE:.0f}"]


def within(row: Row) -> str:
    seconds, megabytes = BUDGETS[row.case.nodes]
    text = f"{seconds} s" + (f", {megabytes:.0f} MB" if megabytes else "")
    return text if is_kept(row) else f"{text}: above"


def is_kept(row: Row) -> bool:
    seconds, megabytes = BUDGETS[row.case.nodes]
    in_memory = megabytes is None or row.run.peak_bytes <= megabytes * MEGABYTE
    return not row.run.failure and row.run.seconds <= seconds and in_memory


def growth(rows: Sequence[Row]) -> str:
    """Return the cost of each further node, from one size of a kind to the next; linear growth gives a constant."""
    cells = []
    for program in STAGES:
        own = [row for row in rows if row.program == program and not row.case.weights_gib]
        for kind in dict.fromkeys(row.case.kind for row in own):
            sizes = [row for row in own if row.case.kind == kind and not row.run.failure]
            for index, row in enumerate(sizes):
                cells.append([program, kind, str(row.node_count), *figures(row.run), *further(sizes[:index], row)])
    return text_table(
        ("stage", "model", "nodes", "seconds", "peak MB", "µs per node", "kB per node"), cells, left=(0, 1)
    )


def further(smaller: Sequence[Row], row: Row) -> list[str]:
    """Return time and memory per node added since the next smaller model."""
    if not smaller:
        return ["", ""]
    nodes = row.node_count - smaller[-1].node_count
    seconds = row.run.seconds - smaller[-1].run.seconds
    extra_bytes = row.run.peak_bytes - smaller[-1].run.peak_bytes
    return [f"{seconds / nodes * 1e6:.1f}", f"{extra_bytes / nodes / 1e3:.2f}"]


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--repetitions", type=int, default=3, metavar="N", help="runs of each program (default: 3)")
    parser.add_argument("--timeout-s", type=float, default=60.0, metavar="S", help="of a run (default: 60)")
    parser.add_argument("--memory-gib", type=float, default=16.0, metavar="GIB", help="address space (default: 16)")
    parser.add_argument("--up-to", type=int, default=100_000, metavar="NODES", help="leave larger models out")
    given = parser.parse_args(argv)

    def run(program: Sequence[str]) -> CommandRun:
        limit = int(given.memory_gib * GIB)
        return best(program, max(1, given.repetitions), timeout_s=given.timeout_s, memory_bytes=limit)

    rows = []
    for row in measure([case for case in CASES if case.nodes <= given.up_to], run):
        print(row.case.title, row.node_count, row.program, *figures(row.run), file=sys.stderr)
        rows.append(row)
    start_up = run([sys.executable, "-c", IMPORTS])
    print(f"{against_peers(rows)}\n\n{growth(rows)}\n")
    print(f"of which imports (numpy, onnx, pandas, pandera): {' s, '.join(figures(start_up))} MB")
    of_stages = [row for row in rows if row.program in STAGES]
    return int(any(row.run.failure or (row.program == "02" and not is_kept(row)) for row in of_stages))


if __name__ == "__main__":
    sys.exit(main())
