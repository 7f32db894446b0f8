"""The configured kernels of common/fpga/kernels that stream, on a memory of round numbers."""

from dataclasses import replace

from common.files.configuration import Section
from common.fpga.kernels.dataflow.attention import AttentionEngine
from common.fpga.kernels.dataflow.operators import OPERATORS, RowwiseEfficiency, read_dataflow
from common.fpga.kernels.dataflow.rowwise import RowwiseEngine
from common.fpga.kernels.dataflow.streaming import StreamingGemv, StreamTiming, read_streaming
from common.fpga.kernels.ports import MemoryPorts
from common.intervals import ThreePoint
from common.workload.tasks import Task
from tests.support.paths import CONFIGS

STREAMING, DATAFLOW = CONFIGS / "streaming.yaml", CONFIGS / "dataflow.yaml"


COSTS = read_dataflow(Section.of_file(DATAFLOW))
MODEL = read_streaming(Section.of_file(STREAMING))
BAND = ThreePoint(0.25, 0.5, 1.0)
LOOPS_ALONE = ThreePoint(0.25, 1.0, 1.0)  # no published kernel is slower than the loops
# 256 bit at 100 MHz ask for 3.2 GB/s of channels that sustain 10: no cycle is lost but for a stall in four.
PORTS = MemoryPorts(3, 256, 100.0, 3, 10e9, ThreePoint(0.5, 0.8, 1.0), 0.25)
BARE = StreamTiming(row_drain_cycles=7.0, stall_share=0.25, first_word_ns=110.0)


def published_gemv(**changes):
    """The kernel as it was measured: 16 ports of 256 bit, fp64, 333 MHz."""
    return StreamingGemv("fp64", replace(MODEL.ports, **changes), MODEL.timing, COSTS, MODEL.efficiency)


def bare_gemv(precision="fp32", vectors=1, **changes):
    return StreamingGemv(precision, replace(PORTS, **changes), BARE, COSTS, BAND, vectors)


def attention(**changes):
    """Two rows of three lanes, two exponentials, blocks of five keys; a step in every cycle; memory at no cost."""
    engine = AttentionEngine(
        precision="fp32",
        query_rows=2,
        row_lanes=3,
        exp_lanes=2,
        key_block=5,
        buffer_bytes=1 << 20,
        head_dim_limit=64,
        ii_cycles=1.0,
        first_word_ns=0.0,
        ports=replace(PORTS, channel_bytes_per_s=1e15, port_bits=1 << 20, stall_share=0.0),
        costs=COSTS,
        efficiency=LOOPS_ALONE,
    )
    return replace(engine, **changes)


EVERY_OPERATOR = dict.fromkeys(OPERATORS, 9)


def rowwise(**changes):
    """Three units of five lanes with nine operators of each kind; a step in every cycle, no wait for the first word."""
    engine = RowwiseEngine(
        precision="fp32",
        lane=EVERY_OPERATOR,
        lanes=5,
        row_limit=101,
        ii_cycles=1.0,
        row_drain_cycles=7.0,
        first_word_ns=0.0,
        ports=PORTS,
        costs=COSTS,
        efficiency=RowwiseEfficiency(BAND, BAND),
    )
    return replace(engine, **changes)


def task_of(*layers, precision="fp32", kind="gemm", weight_bytes=0, read_bytes=0, written_bytes=0, on_chip_bytes=0):
    return Task("t", kind, layers, precision, weight_bytes, read_bytes, written_bytes, on_chip_bytes)
