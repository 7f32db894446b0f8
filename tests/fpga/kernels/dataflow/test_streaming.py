"""The streaming GEMV: its fit, its arithmetic by hand and by a loop that counts, its bounds."""

import copy
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.kernels import gemv_fit
from common.files.configuration import Section
from common.files.yaml_file import load_yaml
from common.fpga.device.resources import Resources
from common.fpga.kernels.dataflow.operators import buffer, read_dataflow
from common.fpga.kernels.dataflow.streaming import StreamingGemv, host_call_us, read_streaming
from common.fpga.kernels.estimate import Engine
from common.fpga.kernels.ports import MemoryPorts
from common.intervals import ThreePoint
from common.messages.errors import ConfigurationError, UnusableValueError
from common.workload.layers import Convolution, Matmul, Pointwise
from tests.support.kernels.dataflow_kernels import (
    COSTS,
    DATAFLOW,
    MODEL,
    PORTS,
    STREAMING,
    bare_gemv,
    published_gemv,
    task_of,
)

# The U50 as it was published: rows, columns, kernel ms, call ms.
U50 = [
    (512, 256, 0.014481, 0.14245),
    (512, 512, 0.020853, 0.136975),
    (1024, 1024, 0.066462, 0.17869),
    (2048, 2048, 0.248076, 0.367888),
    (4096, 4096, 0.898929, 1.01729),
    (8192, 8192, 3.32855, 3.65307),
]
# The same kernel on another card (Vitis BLAS documentation, Profiling for the Alveo U280). Nothing is fitted to it.
U280_US = {
    (512, 256): 14.316,
    (512, 512): 19.998,
    (1024, 1024): 65.904,
    (2048, 2048): 235.251,
    (4096, 4096): 939.699,
    (8192, 8192): 3326.12,
}


def counted(rows, columns, ports, elements, word_bytes):
    """Cycles in which each port takes a word, rows that it drains, bytes: by walking over the matrix."""
    matrix = np.arange(rows * columns).reshape(rows, columns) % 13 - 6
    vector = np.arange(columns) % 7 - 3
    words, drains, moved = [0] * ports, [0] * ports, 0
    result = np.zeros(rows, int)
    for row in range(rows):
        port = row % ports
        for start in range(0, columns, elements):
            result[row] += matrix[row, start : start + elements] @ vector[start : start + elements]
            words[port] += 1
            moved += word_bytes
        drains[port] += 1
    assert (result == matrix @ vector).all()
    return max(words), max(drains), moved


# --- the fit --------------------------------------------------------------------------------------------------------


def test_fit_is_that_of_its_own_measurements():
    assert [(m.rows, m.columns, m.kernel_us, m.call_us) for m in MODEL.measurements] == [
        (rows, columns, pytest.approx(kernel * 1e3), pytest.approx(call * 1e3)) for rows, columns, kernel, call in U50
    ]
    again = gemv_fit.fit(MODEL, MODEL.measurements, gemv_fit.FORMS[gemv_fit.CHOSEN])
    assert MODEL.timing.row_drain_cycles == pytest.approx(again["row"], rel=2e-3)
    assert MODEL.timing.stall_share == pytest.approx(again["stall"], rel=2e-3)


def test_fit_by_another_way():
    """The two parameters on a grid, with the errors written out: nothing of the fit's code."""
    rows, columns, kernel_ms = (np.array(values) for values in list(zip(*U50, strict=True))[:3])
    slots, words = rows / 16, rows / 16 * columns / 4
    first = 0.1222 * 333

    def squares(drain, stall):
        return ((((first + words * (1 + stall) + slots * drain) / 333e3) / kernel_ms - 1) ** 2).sum()

    grid = [
        (squares(drain, stall), drain, stall)
        for drain in np.arange(70, 95, 0.25)
        for stall in np.arange(0.03, 0.07, 5e-4)
    ]
    _, drain, stall = min(grid)
    assert (drain, stall) == (
        pytest.approx(MODEL.timing.row_drain_cycles, abs=0.5),
        pytest.approx(MODEL.timing.stall_share, abs=1e-3),
    )


def test_errors_of_fit_and_of_what_was_left_out():
    chosen = gemv_fit.FORMS[gemv_fit.CHOSEN]
    fitted = gemv_fit.errors(MODEL, MODEL.measurements, gemv_fit.fit(MODEL, MODEL.measurements, chosen))
    assert np.abs(fitted).mean() < 0.02
    assert np.abs(fitted).max() < 0.041
    out = np.abs(gemv_fit.left_out(MODEL, chosen))
    assert out.mean() < 0.025
    assert out.max() == pytest.approx(MODEL.worst_left_out_error, abs=5e-4)


def test_form_is_the_one_that_predicts_best_what_it_has_not_seen():
    worst = {name: np.abs(gemv_fit.left_out(MODEL, form)).max() for name, form in gemv_fit.FORMS.items()}
    larger = {name: np.abs(gemv_fit.extrapolated(MODEL, form)).mean() for name, form in gemv_fit.FORMS.items()}
    assert min(worst, key=worst.get) == min(larger, key=larger.get) == gemv_fit.CHOSEN


def test_a_negative_parameter_is_dropped():
    sizes = [replace(size, kernel_us=size.kernel_us * 0.9) for size in MODEL.measurements[:4]]
    assert all(value > 0 for value in gemv_fit.fit(MODEL, sizes, ("start", "row", "stall")).values())
    assert gemv_fit.fit(MODEL, [replace(MODEL.measurements[0], kernel_us=1.0)], ("row",)) == {}


def test_benchmark_prints_each_size_and_form(capsys):
    gemv_fit.main()
    printed = capsys.readouterr().out
    assert printed.startswith("fitted on n = 6: row 82.")
    assert "8192x8192" in printed
    assert all(name in printed for name in gemv_fit.FORMS)


@pytest.mark.parametrize(("rows", "columns", "kernel_ms", "call_ms"), U50)
def test_each_measured_time_is_near_and_in_its_interval(rows, columns, kernel_ms, call_ms):
    time_us = published_gemv().estimate_gemv(rows, columns).time_us
    assert time_us.likely == pytest.approx(kernel_ms * 1e3, rel=0.041)
    assert time_us.optimistic <= kernel_ms * 1e3 <= time_us.pessimistic
    call = host_call_us(time_us.likely, 8 * (rows + columns), MODEL.host_call_us.likely, MODEL.link_bytes_per_s)
    assert call == pytest.approx(call_ms * 1e3, rel=0.07)


def test_other_card_that_nothing_was_fitted_to():
    engine = published_gemv()
    errors = [engine.estimate_gemv(*size).time_us.likely / us - 1 for size, us in U280_US.items()]
    assert np.abs(errors).mean() < 0.05


# --- arithmetic -----------------------------------------------------------------------------------------------------


def test_cycles_by_hand():
    """23 x 37 fp32 on 3 ports of 8 elements: 8 rows of 5 words at 1.25 cycles, 8 drains of 7, 11 to the first."""
    found = bare_gemv().estimate_gemv(23, 37)
    assert found.cycles.likely == pytest.approx(11 + 8 * 5 * 1.25 + 8 * 7)
    assert found.time_us.likely == pytest.approx(117 / 100)
    assert found.flops == 2 * 23 * 37
    # The matrix in whole words, x again for each of the 8 rows of a port, y once.
    assert found.moved_bytes == 23 * 5 * 32 + 8 * 5 * 32 + 23 * 4
    assert found.bound == "fixed"


@pytest.mark.parametrize(
    ("rows", "columns", "ports", "precision", "elements"),
    [
        (1, 1, 3, "fp32", 8),
        (23, 37, 3, "fp32", 8),
        (7, 61, 5, "int8", 32),
        (31, 29, 2, "fp64", 4),
        (2, 67, 3, "int4", 64),
    ],
)
def test_cycles_and_bytes_by_walking_over_the_matrix(rows, columns, ports, precision, elements):
    words, drains, moved = counted(rows, columns, ports, elements, 32)
    engine = bare_gemv(precision, count=ports, channel_count=ports)
    found = engine.estimate_gemv(rows, columns)
    assert found.cycles.likely == pytest.approx(11 + words * 1.25 + drains * 7)
    vector = words * 32 + -(-rows * 256 // elements // 8)
    assert found.moved_bytes == moved + vector
    assert engine.lanes == ports * elements


def test_rows_that_do_not_divide_cost_a_whole_turn():
    engine = bare_gemv()
    assert engine.estimate_gemv(22, 40).cycles.likely == engine.estimate_gemv(24, 40).cycles.likely
    assert engine.estimate_gemv(25, 40).cycles.likely > engine.estimate_gemv(24, 40).cycles.likely


def test_narrower_elements_fill_a_word_with_more():
    """4096 columns: 1024 words of fp64, 512 of fp32, 256 of int16 and bf16, 128 of int8, 64 of int4."""
    start, drain = 0.1222 * 333, MODEL.timing.row_drain_cycles * 256
    for precision, words in [("fp64", 1024), ("fp32", 512), ("bf16", 256), ("int16", 256), ("int8", 128), ("int4", 64)]:
        engine = replace(published_gemv(), precision=precision)
        cycles = engine.estimate_gemv(4096, 4096).cycles.likely
        assert cycles == pytest.approx(start + drain + 256 * words * (1 + MODEL.timing.stall_share))


def test_vectors_share_a_pass_and_more_of_them_take_more_passes():
    one, four = bare_gemv(), bare_gemv(vectors=4)
    assert four.estimate_gemv(23, 37, 4).cycles == one.estimate_gemv(23, 37).cycles
    # Five vectors: two passes of the four, five of the one.
    assert four.estimate_gemv(23, 37, 5).cycles.likely == pytest.approx(11 + 2 * 106)
    assert one.estimate_gemv(23, 37, 5).cycles.likely == pytest.approx(11 + 5 * 106)
    assert four.lanes == 4 * one.lanes
    assert four.resources.dsp - 6 == 4 * (one.resources.dsp - 6)
    # An x and a y port of each vector, on a channel of its own.
    assert (four.resources.bram36, four.resources.memory_channels) == (4 * (3 + 8), 3 + 4)
    assert (one.name, four.name) == ("streaming-3ch-fp32", "streaming-3ch-fp32-x4")


def test_a_product_streams_its_second_operand():
    """(5, 37) by (37, 23), twice: 23 rows of 37 for each, five vectors, so ten passes of one vector."""
    engine = bare_gemv()
    task = task_of(Matmul(5, 37, 23, batch=2), Pointwise("Relu", 230), read_bytes=2 * 5 * 37 * 4)
    found = engine.estimate(task)
    assert found.cycles.likely == pytest.approx(11 + 10 * 106)
    assert found.flops == 2 * 2 * 5 * 37 * 23
    # In each of ten passes the matrix and, for 8 rows of a port, x; in the end y.
    assert found.moved_bytes == 10 * (23 * 5 * 32 + 8 * 5 * 32 + 23 * 4)


def test_what_a_fused_group_reads_beside_its_product_counts():
    engine = bare_gemv()
    own = 4 * (37 * 23 + 37 + 23)
    plain = engine.estimate(task_of(Matmul(1, 37, 23), weight_bytes=own))
    with_residual = engine.estimate(task_of(Matmul(1, 37, 23), weight_bytes=own, read_bytes=32_000))
    assert with_residual.moved_bytes - plain.moved_bytes == 32_000
    assert with_residual.cycles.likely == pytest.approx(11 + 1000 * 1.25)
    assert (plain.bound, with_residual.bound) == ("fixed", "memory")


@pytest.mark.parametrize(
    "task",
    [
        task_of(Matmul(1, 5, 7), precision="int8"),
        task_of(Matmul(1, 5, 7), Matmul(1, 7, 5)),
        task_of(Convolution(1, 3, 5, 5, 7, 5, 5)),
        task_of(),
        task_of(Matmul(1, 5, 7), on_chip_bytes=1),
    ],
)
def test_what_it_cannot_compute(task):
    assert bare_gemv().estimate(task) is None


def test_extents_below_one_are_refused():
    with pytest.raises(UnusableValueError, match="extent"):
        bare_gemv().estimate_gemv(0, 5)


# --- bounds ---------------------------------------------------------------------------------------------------------

SIZES = st.integers(1, 3000)


@settings(max_examples=60, deadline=None)
@given(rows=SIZES, columns=SIZES, vectors=st.integers(1, 5), ports=st.integers(1, 31))
def test_no_time_beats_lanes_or_channels_and_no_traffic_is_below_one_reading(rows, columns, vectors, ports):
    engine = published_gemv(count=ports, channel_count=ports)
    found = engine.estimate_gemv(rows, columns, vectors)
    for us in found.time_us.cases:
        assert us * engine.clock_mhz * engine.lanes >= rows * columns * vectors * (1 - 1e-12)
        assert us >= rows * columns * 8 / engine.ports.bytes_per_s * 1e6 * (1 - 1e-12)
    assert found.time_us.optimistic <= found.time_us.likely <= found.time_us.pessimistic
    assert found.moved_bytes >= 8 * (rows * columns + vectors * (rows + columns))


@settings(max_examples=40, deadline=None)
@given(rows=SIZES, columns=SIZES, ports=st.integers(1, 15), clock=st.integers(50, 400))
def test_more_ports_or_clock_never_slow_it(rows, columns, ports, clock):
    def us(count, mhz):
        return (
            published_gemv(count=count, channel_count=count, clock_mhz=mhz).estimate_gemv(rows, columns).time_us.likely
        )

    assert us(ports + 1, clock) <= us(ports, clock)
    assert us(ports, clock + 25) <= us(ports, clock) * (1 + 1e-12)


def test_a_fast_clock_waits_for_the_channel():
    """256 bit at 500 MHz ask for 16 GB/s; a channel of 14.375 sustains 0.924 of it."""
    fast = published_gemv(clock_mhz=500.0)
    assert fast.ports.word_cycles == pytest.approx(16 / (14.375 * 0.924))
    us = fast.estimate_gemv(8192, 8192).time_us.likely
    assert us > 8192 * 8192 * 8 / (16 * 14.375e9 * 0.924) * 1e6


# --- ports ----------------------------------------------------------------------------------------------------------


def memory(**changes):
    values = {
        "channel_count": 4,
        "channel_bytes_per_s": 20e9,
        "efficiency": ThreePoint(0.3, 0.6, 0.9),
        "port_bits": 512,
        "limit_bytes_per_s": float("inf"),
    }
    return SimpleNamespace(**values | changes)


def test_ports_of_a_memory():
    ports = MemoryPorts.of(memory(), 3, 250.0, 0.05)
    assert (ports.count, ports.channel_count, ports.port_bits) == (3, 3, 512)
    assert ports.port_rate_bytes_per_s == 3 * 64 * 250e6
    assert ports.bytes_per_s == 3 * 64 * 250e6
    assert ports.word_cycles == 1.05
    assert MemoryPorts.of(memory(), 1, 250.0, 0.05, 128).bytes_per_s == 16 * 250e6
    # 100 words over 3 ports: 34 on the busiest.
    assert ports.stream_cycles(6400) == pytest.approx(34 * 1.05)


def test_ports_that_share_a_channel():
    """Four 128-bit ports at 300 MHz ask 19.2 GB/s of one channel of 19.2 that sustains 0.9."""
    shared = MemoryPorts.of(memory(channel_count=1, channel_bytes_per_s=19.2e9, port_bits=128), 4, 300.0, 0.05)
    assert shared.channel_count == 1
    assert shared.word_cycles == pytest.approx(1 / 0.9)


def test_a_limit_of_all_channels_together():
    limited = MemoryPorts.of(memory(limit_bytes_per_s=30e9), 4, 250.0, 0.05)
    assert limited.bytes_per_s == 30e9
    assert limited.word_cycles == pytest.approx(4 * 64 * 250e6 / (30e9 * 0.9))


def test_both_directions_share_the_channel():
    """300 bytes each way: 4 words on the busiest of 3 ports; channels of 3.2 GB/s carry one way at a time."""
    free, tight = PORTS, replace(PORTS, channel_bytes_per_s=3.2e9, stall_share=0.0)
    assert free.duplex_cycles(300, 300) == pytest.approx(4 * 1.25)
    assert tight.duplex_cycles(300, 300) == pytest.approx(600 / 96)
    assert tight.duplex_cycles(300, 0) == pytest.approx(4)


@pytest.mark.parametrize(
    ("count", "clock", "bits"), [(0, 300.0, None), (1, 0.0, None), (1, 300.0, 1024), (1, 300.0, 4)]
)
def test_ports_that_cannot_be(count, clock, bits):
    with pytest.raises(UnusableValueError):
        MemoryPorts.of(memory(), count, clock, 0.05, bits)


# --- resources ------------------------------------------------------------------------------------------------------


def test_resources_of_the_published_kernel():
    """121,535 LUT, 215,897 FF, 72 BRAM, 966 DSP on the U50, which the lane is derived from; the U280 has 0.6 % more."""
    found = published_gemv().resources
    assert (found.dsp, found.bram36, found.uram, found.memory_channels) == (966, 72, 0, 17)
    assert found.lut == pytest.approx(121_535, rel=0.001)
    assert found.ff == pytest.approx(215_897, rel=0.001)
    assert found.lut == pytest.approx(122_248, rel=0.01)
    assert found.ff == pytest.approx(215_381, rel=0.01)


def test_resources_by_hand():
    """fp32 on 3 ports: 24 lanes; 3 ports of the matrix, one of x, one of y, each with 4 blocks; 3 + 1 channels."""
    found = bare_gemv().resources
    assert found == Resources(
        lut=552 + 24 * 349 + 5 * 2208, ff=322 + 24 * 355 + 5 * 735, bram36=20, dsp=6 + 24 * 5, memory_channels=4
    )
    assert replace(bare_gemv(), macs_per_dsp=2.0).resources.dsp == 6 + 12


def test_buffers_are_as_large_as_size_or_width_asks():
    assert buffer(4608, 72) == Resources(bram36=1)
    assert buffer(4609, 72) == Resources(bram36=2)
    assert buffer(1, 145) == Resources(bram36=3)
    assert buffer(5 * 36_864, 72, uses_uram=True) == Resources(uram=5)


def test_it_is_an_engine():
    engine: Engine = published_gemv()
    assert (engine.name, engine.kind, engine.clock_mhz, engine.spans_regions) == (
        "streaming-16ch-fp64",
        "streaming",
        333,
        True,
    )


# --- configuration --------------------------------------------------------------------------------------------------


def changed(path, keys, value):
    content = copy.deepcopy(load_yaml(path))
    below = content
    for key in keys[:-1]:
        below = below[key]
    if value is None:
        del below[keys[-1]]
    else:
        below[keys[-1]] = value
    return content


@pytest.mark.parametrize(
    ("keys", "value", "words"),
    [
        (("timing", "row_drain_cycles"), None, "is missing"),
        (("timing", "unheard_of"), 1, "unknown key"),
        (("timing", "row_drain_cycles", "source"), " ", "source is not a text, or is empty"),
        (("conditions", "precision"), "fp8", "fp64"),
        (("measurements", "512x256", "rows"), "many", "finite number"),
        (("measurements", "512x256", "weather"), 1, "unknown key"),
        (("worst_left_out_error",), None, "is missing"),
    ],
)
def test_streaming_yaml_is_checked(keys, value, words):
    with pytest.raises(ConfigurationError, match=words):
        read_streaming(Section(STREAMING, changed(STREAMING, keys, value)))


@pytest.mark.parametrize(
    ("keys", "value", "words"),
    [
        (("operators", "add", "lut"), -1, "operators.add.lut is negative"),
        (("operators", "add", "source"), "", "operators.add.source is not a text"),
        (("operators", "add", "trust"), "hearsay", "trust"),
        (("operators", "add", "gates"), 1, "unknown key"),
        (("operators", "add"), None, "is missing"),
        (("mac_lanes", "fp8"), {}, "unknown key"),
    ],
)
def test_dataflow_yaml_is_checked(keys, value, words):
    with pytest.raises(ConfigurationError, match=words):
        read_dataflow(Section(DATAFLOW, changed(DATAFLOW, keys, value)))


def test_lanes_agree_with_the_dsps_of_the_boards():
    """Of an UltraScale+ device: 2 int8, 4 int4, 1 int16, half a bf16, a fifth of an fp32 product per DSP."""
    rates = {"int8": 2, "int4": 4, "int16": 1, "bf16": 0.5, "fp32": 0.2}
    assert all(COSTS.mac(name).dsp == pytest.approx(1 / rate) for name, rate in rates.items())
    assert COSTS.mac("fp32").lut == COSTS.operators["add"].lut + COSTS.operators["multiply"].lut
    assert isinstance(published_gemv(), StreamingGemv)
