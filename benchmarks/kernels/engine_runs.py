"""Networks that the engine in Verilog computed cycle by cycle, with a memory of a board: a family of our own designs.

`python -m benchmarks.plans.engine_networks --record benchmarks/kernels/engine_runs.csv` adds rows to the table. Times
of networks on arrays are judged by it, and judge it, as published designs (benchmarks/kernels/array_coverage.py).
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import onnx

from benchmarks.process import ROOT
from common.fpga.coefficients import load_models
from common.fpga.device.board_files import load_board
from common.fpga.kernels.ports import MemoryPorts
from common.fpga.kernels.systolic.array import SystolicArray, build_array
from common.fpga.rtl.engine.fabric import Fabric, load_fabric
from models.classifiers.mobilenet_v1 import build_mobilenet_v1
from models.classifiers.resnet import build_resnet18
from models.classifiers.resnet8 import build_tiny_resnet8
from models.transformers.encoder import build_encoder

CONFIGS = ROOT / "configs"
TABLE = Path(__file__).with_suffix(".csv")
COLUMNS = ("network", "fabric", "rows", "cols", "simd", "word_bytes", "simulated_cycles")
USUAL_BOARD = "u250"  # for the share of a memory's peak rate
IMAGE = 64
NETWORKS: Mapping[str, Callable[[], onnx.ModelProto]] = {
    "resnet8": partial(build_tiny_resnet8, seed=0, batch=1),
    "mobilenet": partial(build_mobilenet_v1, seed=0, batch=1, image=IMAGE),
    "resnet18": partial(build_resnet18, seed=0, batch=1, image=IMAGE),
    "encoder": partial(build_encoder, seed=0),
}


@dataclass(frozen=True, slots=True)
class EnginePlace:
    """A network, an engine by its rows, columns and products per element, and the board whose memory it had."""

    network: str
    fabric: str
    size: tuple[int, int, int]
    word_bytes: int

    def array(self) -> SystolicArray:
        """Return the array that 07 models for that size and memory."""
        return array_on(self.size, self.word_bytes, load_fabric(self.fabric, CONFIGS / "fabrics"))


@dataclass(frozen=True, slots=True)
class EngineCycles:
    """Cycles that a network took in simulation."""

    place: EnginePlace
    simulated: int


def array_on(size: tuple[int, int, int], word_bytes: int, fabric: Fabric) -> SystolicArray:
    """Return the array of 07's model with a port to the memory of an open board, whose efficiency is the usual one."""
    usual = load_board(USUAL_BOARD, CONFIGS / "boards").memory
    ports = MemoryPorts(1, 8 * word_bytes, fabric.clock_mhz, 1, fabric.memory_bytes_per_s, usual.efficiency, 0.0)
    return build_array(size, "int8", ports, 1.0, load_models(CONFIGS).systolic)


def engine_runs(path: Path = TABLE) -> list[EngineCycles]:
    """Return the rows of a table of runs."""
    with path.open(encoding="utf-8", newline="") as file:
        return [_run(row) for row in csv.DictReader(file)]


def _run(row: Mapping[str, str]) -> EngineCycles:
    size = int(row["rows"]), int(row["cols"]), int(row["simd"])
    place = EnginePlace(row["network"], row["fabric"], size, int(row["word_bytes"]))
    return EngineCycles(place, int(row["simulated_cycles"]))


def add_run(path: Path, run: EngineCycles) -> None:
    """Write a run into a table, in the place of an earlier one of the same network and engine."""
    others = [each for each in (engine_runs(path) if path.exists() else []) if each.place != run.place]
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        for each in [*others, run]:
            place = each.place
            writer.writerow([place.network, place.fabric, *place.size, place.word_bytes, each.simulated])
