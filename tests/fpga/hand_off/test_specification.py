"""The specification of each kind of engine: complete, and its figures again by other means."""

from __future__ import annotations

import json
from dataclasses import replace
from math import ceil

import pytest

from common.fpga.coefficients import load_models
from common.fpga.device.board_files import load_board
from common.fpga.engine_catalogue import array_ports, attention, rowwise, streaming
from common.fpga.hand_off.schedule import Call
from common.fpga.hand_off.specification import specification
from common.fpga.hand_off.units import compute_units, connectivity
from common.fpga.kernels.systolic.array import build_array
from common.fpga.kernels.team import Team
from common.fpga.planning.planned_kernels import PlannedKernel
from common.intervals import ThreePoint
from common.workload.layers import Convolution, Matmul, Pooling, Rowwise
from common.workload.tasks import Task
from tests.support.paths import ROOT

CONFIGS = ROOT / "configs"
BOARD, MODELS = load_board("u280", CONFIGS / "boards"), load_models(CONFIGS)
NONE = ThreePoint.exactly(0.0)

HEADS, QUERIES, KEYS, KEY_DIM, VALUE_DIM = 13, 101, 97, 53, 61
ATTENTION = (
    Matmul(QUERIES, KEY_DIM, KEYS, HEADS, has_weight=False),
    Rowwise("Softmax", HEADS * QUERIES, KEYS),
    Matmul(QUERIES, KEYS, VALUE_DIM, HEADS, has_weight=False),
)
LAYERS = {
    "systolic": (Convolution(1, 13, 29, 31, 53, 15, 16, 3, 3, 2, 2),),
    "streaming": (Matmul(3, 997, 499),),
    "rowwise": (Rowwise("LayerNormalization", 211, 769),),
    "attention": ATTENTION,
    "team": ATTENTION,
}


def task_of(kind, precision):
    return Task(kind, kind, LAYERS[kind], precision, 11, 22, 33)


def engine_of(kind, precision="int8"):
    tasks = [task_of("rowwise", precision), Task("p", "pool", (Pooling(1, 5, 7, 7, 3, 3, 2, 2),), precision, 0, 1, 1)]
    heads = attention(BOARD, precision, MODELS, 16, 64, 4 * KEYS * 64)
    return {
        "systolic": build_array((8, 12, 4), precision, array_ports(BOARD), 2.0, MODELS.systolic),
        "streaming": streaming(BOARD, precision, MODELS),
        "rowwise": rowwise(BOARD, precision, MODELS, tasks, 0.125),
        "attention": replace(heads, heads_parallel=2),
        "team": Team(heads, 3, 100.0),
    }[kind]


def specified(kind, precision="int8"):
    """The specification of a kernel with two calls of one task, as JSON returns it, and its units."""
    engine, task = engine_of(kind, precision), task_of(kind, precision)
    estimate = engine.estimate(task)
    calls = [
        Call("K1", name, (0,), task, estimate, estimate.time_us, start, 1.0, ("x",), ("y",), 11)
        for name, start in (("G1", 0.0), ("G2", 500.0))
    ]
    region = None if engine.spans_regions else "SLR1"
    kernel = PlannedKernel("K1", engine, engine.name, region, (), None, NONE, None, 0, 0, NONE, NONE)
    units = compute_units([kernel], BOARD)
    return json.loads(json.dumps(specification(kernel, BOARD.name, units, calls))), units


@pytest.mark.parametrize("kind", LAYERS)
def test_every_item_of_a_kernel_is_there(kind):
    document, units = specified(kind)
    assert document["precision"] == "int8"
    assert document["engine_kind"] == ("attention" if kind == "team" else kind)
    assert document["design"].isidentifier()
    assert all(value > 0 for value in (*document["sizes"].values(), *document["tile"].values()))
    assert document["initiation_interval_cycles"] == (2 if document["engine_kind"] == "attention" else 1)
    assert len(set(document["loop_order"])) == len(document["loop_order"]) >= 3
    for port in document["ports"]:
        assert port["width_bits"] == 256
        assert port["burst_words"] == 4096 * 8 // 256
        assert port["memory"].startswith("HBM[")
    assert len(document["ports"]) == sum(len(unit.ports) for unit in units) > 0
    for held in document["buffers"]:
        assert held["memory"] in ("block RAM", "UltraRAM", "LUT RAM")
        assert min(held["bank_count"], held["depth_words"], held["width_bits"]) > 0
    assert [call["candidate"] for call in document["calls"]] == ["G1", "G2"]
    for call in document["calls"]:
        assert [layer["layer"] for layer in call["layers"]] == [type(layer).__name__ for layer in LAYERS[kind]]
        assert call["kernel_pessimistic_cycles"] >= call["kernel_likely_cycles"] >= call["kernel_optimistic_cycles"] > 0


def bits_of(document, name):
    (held,) = (held for held in document["buffers"] if held["buffer"] == name)
    return held["bank_count"] * held["depth_words"] * held["width_bits"]


def test_a_streaming_kernel():
    document, _ = specified("streaming")
    assert document["sizes"] == {"matrix_ports": 16, "lanes_per_port": 32, "vectors": 1}
    assert [port["port"] for port in document["ports"]] == [*(f"p{n}" for n in range(16)), "x0", "y0"]
    assert document["calls"][0]["products"] == [{"rows": 499, "columns": 997, "vectors": 3, "batch_count": 1}]
    assert bits_of(document, "bursts") == 18 * 512 * 256
    # Its block RAM is these bursts: four blocks of 72 bits a port.
    assert document["resources"]["bram36"] == 18 * ceil(256 / 72)


def test_a_row_wise_kernel_holds_two_rows_a_unit():
    document, _ = specified("rowwise")
    units, lanes = document["sizes"]["units"], document["sizes"]["lanes"]
    assert document["sizes"]["row_limit"] == 769
    assert bits_of(document, "rows") == units * 2 * 8 * lanes * ceil(769 / lanes) >= units * 2 * 8 * 769
    assert {"add", "multiply"} <= set(document["lane_operators"])
    of_rows = max(ceil(2 * 769 / 4608), ceil(2 * lanes * 8 / 72))
    roots = 0.5  # block RAM of the table of roots, one in each unit
    assert document["resources"]["bram36"] == ceil(units * (of_rows + 4 + roots))


def test_an_attention_kernel():
    document, _ = specified("attention")
    assert document["sizes"] == {
        "query_rows": 16,
        "row_lanes": 16,
        "exponential_lanes": 16,
        "heads_parallel": 2,
        "head_dim_limit": 64,
    }
    assert document["tile"] == {"rows": 16, "keys": 16}
    assert bits_of(document, "keys and values") == 2 * 4 * KEYS * 64 * 8
    assert bits_of(document, "queries") == 2 * 2 * 16 * 64 * 8
    assert bits_of(document, "scores") == 2 * 2 * 16 * 16 * 32
    heads = {"count": HEADS, "queries": QUERIES, "keys": KEYS, "head_dim": KEY_DIM, "value_dim": VALUE_DIM}
    assert document["calls"][0]["heads"] == heads
    assert 2 * KEYS * (KEY_DIM + VALUE_DIM) <= 4 * KEYS * 64, "a head does not fit"
    assert document["calls"][0]["keys_and_values"] in ("kept once", "kept twice")


def test_the_members_of_a_team_are_units_of_one_design():
    document, units = specified("team")
    text = connectivity(units)
    assert "nk=attention_16x16_int8:3:K1_1,K1_2,K1_3\n" in text
    assert [line for line in text.splitlines() if line.startswith("slr=")] == [
        f"slr=K1_{n}:SLR{n - 1}" for n in (1, 2, 3)
    ]
    memories = [port["memory"] for port in document["ports"]]
    assert len(memories) == 3 * 8 == len(set(memories)) == document["resources"]["memory_channels"]
    assert [unit["region"] for unit in document["units"]] == ["SLR0", "SLR1", "SLR2"]
    assert document["calls"][0]["heads"]["count"] == ceil(HEADS / 3)
    assert document["calls"][0]["layers"][0]["batch"] == HEADS


@pytest.mark.parametrize("precision", ["fp32", "bf16", "int16", "int4"])
@pytest.mark.parametrize("kind", ["streaming", "rowwise", "attention"])
def test_widths_follow_the_format(kind, precision):
    document, _ = specified(kind, precision)
    bits = {"fp32": 32, "bf16": 16, "int16": 16, "int4": 4}[precision]
    assert document["precision"] == precision
    if kind == "streaming":
        assert document["sizes"]["lanes_per_port"] == 256 // bits
    elif kind == "rowwise":  # floating-point rows are kept in fp32
        assert document["initiation_interval_cycles"] == (1 if precision.startswith("int") else 2)
        lanes, units = document["sizes"]["lanes"], document["sizes"]["units"]
        stored = bits if precision.startswith("int") else 32
        assert bits_of(document, "rows") == units * 2 * lanes * stored * ceil(769 / lanes)
    else:
        assert bits_of(document, "queries") == 2 * 2 * 16 * 64 * bits
