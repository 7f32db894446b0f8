"""Run 08 on transformers of growing depth, each accelerator a whole process: time, peak memory, and how both grow.

ViT-B/16 (one image) and BERT-base (128 words) are built without weights and counted by 02. 08 maps or fuses all
of their layers (``exact``), without results of earlier runs. The published models have twelve layers. Each run has to
be complete within 60 s and 1 GB, or the exit code is 1. The growth is in processor time, which other programs disturb
least.

    model      layers  nodes  hardware  wall s  CPU s  peak MB  ms/layer   pJ·cycles
    bert-base      96   8568  gemmini     23.9    6.2      212        24  1.0042e+20
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import onnx

from benchmarks.process import ROOT, CommandRun, run
from common.artifacts.catalogue import ARTIFACTS
from common.view.text import text_table
from models.transformers.bert import build_bert
from models.transformers.vit import build_vit

LARGEST_S, LARGEST_MB = 60.0, 1000.0
DEPTHS = (6, 12, 24, 48, 96)
HARDWARE = ("gemmini", "fa-dosa")
MODELS = {
    "vit-b16": lambda layers: build_vit(batch=1, depth=layers, has_weights=False),
    "bert-base": lambda layers: build_bert(batch=1, seq=128, layers=layers, has_weights=False),
}
MEGABYTE, GIB = 1e6, 2**30
HEADER = ("model", "layers", "nodes", "hardware", "wall s", "CPU s", "peak MB", "ms/layer", "pJ·cycles")


@dataclass(frozen=True, slots=True)
class Row:
    model: str
    layers: int
    nodes: int
    hardware: str
    run: CommandRun
    edp: float

    @property
    def is_kept(self) -> bool:
        """Whether the run is within the limits."""
        is_small = self.run.seconds <= LARGEST_S and self.run.peak_bytes <= LARGEST_MB * MEGABYTE
        return not self.run.failure and is_small


def counted(model: str, layers: int, folder: Path) -> int:
    """Write 02's tables of a model into a folder; return the number of its nodes."""
    path = folder / "model.onnx"
    built = MODELS[model](layers)
    onnx.save(built, path)
    script = [sys.executable, "02_shapes_flops_bytes.py", "--model", str(path), "--out", str(folder), "--quiet"]
    subprocess.run(script, cwd=ROOT, check=True)
    return len(built.graph.node)


def searched(hardware: str, folder: Path) -> tuple[CommandRun, float]:
    """Run 08 on 02's tables; return the run, and the least energy-delay product."""
    script = [sys.executable, "08_design_space.py", "--hardware", hardware, "--out", str(folder), "--quiet"]
    done = run([*script, "--cache-mb", "0"], timeout_s=10 * LARGEST_S, memory_bytes=16 * GIB)
    if done.failure:
        return done, float("nan")
    best = json.loads((folder / ARTIFACTS["design_summary"].file).read_text(encoding="utf-8"))
    return done, float(best["edp_pj_cycles"])


def measured(depths: Sequence[int], hardware: Sequence[str]) -> Iterator[Row]:
    for model in MODELS:
        for layers in depths:
            with tempfile.TemporaryDirectory() as scratch:
                nodes = counted(model, layers, Path(scratch))
                for name in hardware:
                    yield Row(model, layers, nodes, name, *searched(name, Path(scratch)))


def report(rows: Sequence[Row]) -> str:
    """Return the table; growth is the processor time of each layer beyond the next smaller depth."""
    ordered = sorted(rows, key=lambda row: (row.model, row.hardware, row.layers))
    pairs = zip(ordered, [None, *ordered], strict=False)
    return text_table(HEADER, [_line(row, before) for row, before in pairs], left=(0, 3))


def _line(row: Row, before: Row | None) -> list[str]:
    growth = ""
    if before and (before.model, before.hardware) == (row.model, row.hardware):
        more_s = row.run.processor_seconds - before.run.processor_seconds
        growth = f"{more_s / (row.layers - before.layers) * 1e3:.0f}"
    times = (f"{row.run.seconds:.1f}", f"{row.run.processor_seconds:.1f}")
    figures = (*times, f"{row.run.peak_bytes / MEGABYTE:.0f}", growth, f"{row.edp:.4e}")
    return [row.model, str(row.layers), str(row.nodes), row.hardware, *figures]


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--depths", type=int, nargs="+", default=DEPTHS, metavar="N", help="layers of the models")
    parser.add_argument("--hardware", nargs="+", default=HARDWARE, help="files of configs/hardware")
    given = parser.parse_args(argv)
    rows = []
    for row in measured(given.depths, given.hardware):
        print(*_line(row, None), file=sys.stderr, flush=True)
        rows.append(row)
    print(report(rows))
    for row in rows:
        if not row.is_kept:
            print(f"{row.model}, {row.layers} layers, {row.hardware}: {row.run.failure or 'above its limit'}")
    return int(not all(row.is_kept for row in rows))


if __name__ == "__main__":
    sys.exit(main())
