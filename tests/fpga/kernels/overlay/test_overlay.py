"""Overlay engines: time of a step by hand, configurations, whole networks, the fit and what it says of other boards."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from statistics import mean, median

import pytest

from benchmarks.kernels import overlay_fit, overlay_held_out
from benchmarks.kernels.coverage import band_of, left_out, spread_of
from benchmarks.kernels.overlay_fit import MEASURED_US, Network, configured, network, predicted
from benchmarks.kernels.published import cards
from benchmarks.plans import throughput
from benchmarks.plans.throughput import same_engines
from common.files.configuration import Section
from common.files.yaml_file import load_yaml
from common.fpga.device.board_files import load_board
from common.fpga.device.resources import Resources
from common.fpga.kernels.estimate import TimeScatter
from common.fpga.kernels.overlay.cycles import OverlayShape
from common.fpga.kernels.overlay.engine import OverlayEngine, OverlayHost, OverlayPorts
from common.fpga.kernels.overlay.engine_files import load_engine, read_engine
from common.fpga.planning.whole_model import whole_model
from common.intervals import ThreePoint
from common.messages.errors import ConfigurationError, PipelineError, UnusableValueError
from common.workload.layers import Convolution, Matmul, Pointwise, Pooling, Rowwise
from common.workload.tasks import Task
from models.classifiers.conv_layers import conv, max_pool
from models.classifiers.squeezenet import build_squeezenet
from models.graph_builder import FLOAT, GraphBuilder
from tests.support.paths import CONFIGS

PLACES = [
    ("dpu-b4096", "kv260"),
    ("dpu-b4096", "zcu104"),
    ("dpu-b4096", "zcu102"),
    ("dpu-b1600", "ultra96"),
    ("dpu-cahx8h", "u280"),
    ("dpu-cadf8h", "u250"),
    ("dpu-cadf8h", "u200"),
]
# Round numbers, so that a step can be computed by hand: 16 bytes a cycle and port, 100 cycles a µs.
PLAIN = OverlayEngine(
    name="plain",
    title="",
    board="none",
    clock_mhz=100.0,
    engine_count=1,
    core_count=1,
    shape=OverlayShape(8, 16, 16, 4, 4, 8, 1000),
    ports=OverlayPorts(2, 0, 128, 1e12, 0.5),
    host=OverlayHost(call_us=300.0, input_ns=2.0, operation_ns=7.0, link_bytes_per_s=float("inf"), threads=1),
    array_share=0.8,
    layer_cycles=700.0,
    resources=Resources(dsp=710),
    scatter=TimeScatter(ThreePoint(1.5, 1.0, 0.7), 0.1, 0.1, 5),
)
LAYER = Convolution(1, 17, 11, 13, 23, 11, 13, 3, 5)  # 1560 cycles of the array, 838,695 multiply-accumulates


def altered(engine: OverlayEngine, **changes: object) -> OverlayEngine:
    return replace(engine, **changes)  # type: ignore[arg-type]


# --- a step ----------------------------------------------------------------------------------------------------------


def test_a_step_that_computes() -> None:
    step = PLAIN.step((LAYER,), 5865, 2431, 3289)
    assert step.array_cycles == 1560
    assert step.compute_us == pytest.approx(1560 / 0.8 / 100)
    assert step.memory_us == pytest.approx((5865 + 2431) / (2 * 16 * 100) / 0.5)  # reads; writes have their own way
    assert step.time_us == pytest.approx(19.5 + 7.0)
    assert step.bound == "compute"


def test_a_step_that_waits_for_memory() -> None:
    step = PLAIN.step((Matmul(1, 1009, 1013),), 1009 * 1013, 0, 0)
    assert step.array_cycles == 64 * 64
    assert step.time_us == pytest.approx(1009 * 1013 / 3200 / 0.5 + 7.0)
    assert step.bound == "memory"


def test_writes_can_be_the_slower_way() -> None:
    assert PLAIN.step((LAYER,), 0, 100, 64000).memory_us == pytest.approx(64000 / 3200 / 0.5)


def test_the_board_memory_limits_both_ways_together() -> None:
    slow = altered(PLAIN, ports=replace(PLAIN.ports, memory_bytes_per_s=1.7e9))
    assert slow.step((LAYER,), 1000, 2000, 3000).memory_us == pytest.approx(6000 / 1700 / 0.5)


def test_weights_of_a_core_have_their_own_ports_and_come_once() -> None:
    ports = OverlayPorts(1, 2, 256, 1e12, 0.5)
    cores = altered(PLAIN, ports=ports, engine_count=14, core_count=3)
    assert cores.step((LAYER,), 640_000, 32_000, 0).memory_us == pytest.approx(640_000 / (2 * 32 * 100) / 0.5)
    assert cores.step((LAYER,), 6_400, 320_000, 0).memory_us == pytest.approx(320_000 / (1 * 32 * 100) / 0.5)
    shared = altered(cores, ports=replace(ports, memory_bytes_per_s=1e9))
    assert shared.step((LAYER,), 7_000, 5_000, 3_000).memory_us == pytest.approx((3 * 7_000 + 14 * 8_000) / 1e3 / 0.5)


def test_a_lone_activation_goes_through_the_window_unit() -> None:
    assert PLAIN.step((Pointwise("Relu", 1009),), 0, 0, 0).window_cycles == 16
    assert PLAIN.step((LAYER, Pointwise("Relu", 3289)), 0, 0, 0).window_cycles == 0


# --- as a kernel of the plan -----------------------------------------------------------------------------------------


def task(*layers: object, precision: str = "int8", **changes: int) -> Task:
    amounts = {"weight_bytes": 5865, "read_bytes": 2431, "written_bytes": 3289, **changes}
    return Task("t", "conv", layers, precision, **amounts)  # type: ignore[arg-type]


def test_an_estimate_is_a_step_with_the_interval_of_published_networks() -> None:
    found = PLAIN.estimate(task(LAYER))
    assert found is not None
    assert found.time_us.cases == pytest.approx((1.5 * 26.5, 26.5, 0.7 * 26.5))
    hasty = altered(PLAIN, scatter=TimeScatter(ThreePoint(1.5, 1.0, 0.01), 0.1, 0.1, 5)).estimate(task(LAYER))
    assert hasty is not None
    assert hasty.time_us.optimistic == pytest.approx(838_695 / (2048 * 100))  # no step beats its multipliers
    assert found.cycles.likely == pytest.approx(2650)
    assert found.flops == 2 * 838_695
    assert found.moved_bytes == 5865 + 2431 + 3289


def test_a_batch_goes_through_in_rounds() -> None:
    single, three = altered(PLAIN, engine_count=1), altered(PLAIN, engine_count=3)
    batch = task(replace(LAYER, batch=7), read_bytes=7 * 2431, written_bytes=7 * 3289)
    one_image = single.estimate(task(LAYER))
    rounds = [engine.estimate(batch) for engine in (single, three)]
    assert one_image is not None
    assert [found and found.time_us.likely / one_image.time_us.likely for found in rounds] == [7.0, 3.0]


@pytest.mark.parametrize(
    "asked",
    [
        task(LAYER, precision="fp32"),
        task(),
        task(Rowwise("LayerNormalization", 5, 7)),
        task(Matmul(7, 7, 7, has_weight=False)),
        task(Pooling(1, 3, 14, 14, 1, 1, 14, 14)),
        task(LAYER, on_chip_bytes=1001),
    ],
    ids=["fp32", "empty", "rows", "two tensors", "14x14", "on chip"],
)
def test_what_it_cannot_run_has_no_estimate(asked: Task) -> None:
    assert PLAIN.estimate(asked) is None


# --- configurations --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "board"), PLACES)
def test_configured_engines_stand_on_their_boards(name: str, board: str) -> None:
    engine = configured(name, board)
    assert (engine.name, engine.kind, engine.board) == (name, "overlay", board)
    stands_on = load_board(board, CONFIGS / "boards")
    assert engine.resources.fits(stands_on.total)


def test_the_vendor_names_an_engine_by_its_operations_a_cycle() -> None:
    assert 2 * configured("dpu-b4096", "kv260").shape.macs_per_cycle == 4096
    assert 2 * configured("dpu-b1600", "ultra96").shape.macs_per_cycle == 1600


def test_fourteen_engines_take_a_quarter_of_a_dsp_for_each_mac() -> None:
    engine = configured("dpu-cahx8h", "u280")
    macs = engine.engine_count * engine.shape.macs_per_cycle
    assert engine.resources.dsp / macs == pytest.approx(0.254, abs=5e-4)
    assert engine.spans_regions
    assert not configured("dpu-b4096", "kv260").spans_regions


@pytest.mark.slow
def test_engines_of_a_published_floorplan_have_the_published_rates() -> None:
    """DPUCADF8H on a U250 and a U200: three networks each, to which nothing was fitted."""
    rates = [
        (same_engines(card, name), rate)
        for card in cards()
        if card.file == "dpu-cadf8h"
        for name, rate in card.frames_per_s.items()
    ]
    assert len(rates) == 6
    for found, rate in rates:
        assert found is not None
        assert found.pessimistic < rate < found.optimistic
        assert found.likely == pytest.approx(rate, rel=0.17)


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        (["--board", "u520"], "argument --board: invalid choice: 'u520'"),
        (["--board", "u50", "--network", "squeezenet"], "no rate of these networks is published for these boards"),
    ],
)
def test_boards_without_a_published_rate_are_refused(
    flags: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        throughput.main(flags)
    assert told in capsys.readouterr().err.splitlines()[-1]


def test_clocks() -> None:
    assert [configured(*place).clock_mhz for place in PLACES] == [300, 300, 281, 287, 150, 300, 300]


def content(name: str = "dpu-b4096") -> dict[str, object]:
    return load_yaml(CONFIGS / "engines" / f"{name}.yaml")


def read(changed: dict[str, object], board: str = "kv260") -> OverlayEngine:
    return read_engine(Section(Path("dpu-b4096.yaml"), changed), load_board(board, CONFIGS / "boards"))


def test_an_engine_that_the_vendor_does_not_build_for_the_board() -> None:
    with pytest.raises(UnusableValueError) as caught:
        read(content(), "u280")
    assert str(caught.value) == "<engine>: dpu-b4096 is not built for u280; it is built for kv260, zcu102, zcu104"


def test_an_engine_that_there_is_not() -> None:
    with pytest.raises(UnusableValueError) as caught:
        load_engine("dpu-b9", CONFIGS / "engines", load_board("ultra96", CONFIGS / "boards"))
    remedy = "did you mean dpu-b4096 or dpu-b1600? known: dpu-b1600, dpu-b4096, dpu-cadf8h, dpu-cahx8h"
    assert str(caught.value) == f"<engine>: 'dpu-b9' is neither a known engine nor a YAML file; {remedy}"


def test_unknown_keys_and_broken_counts_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="unknown key 'colour'"):
        read({**content(), "colour": "red"})
    half = {"value": 1.5, "source": "somewhere", "trust": "assumed"}
    with pytest.raises(ConfigurationError, match=r"engine_count is 1\.5; it takes a whole number"):
        read({**content(), "engine_count": half})


def test_the_fitted_rates_are_the_same_in_all_files() -> None:
    files = [content(path.stem) for path in (CONFIGS / "engines").glob("*.yaml")]
    rates = [
        (
            file["rates"]["array_fraction"]["value"],  # type: ignore[index]
            file["rates"]["layer_cycles"]["value"],  # type: ignore[index]
            file["ports"]["efficiency_fraction"]["value"],  # type: ignore[index]
        )
        for file in files
    ]
    assert len(rates) == 4
    assert len(set(rates)) == 1


# --- whole networks --------------------------------------------------------------------------------------------------


def small(*, window: int = 2, batch: int = 1) -> Network:
    """3 to 17 channels of 22 x 26, a pooling, two branches of 11 and 13 channels side by side, 5 channels."""
    builder = GraphBuilder("small")
    x = builder.node("Relu", [conv(builder, "input", "a", (17, 3, 3, 3))], "a")
    x = max_pool(builder, x, "p", window, window)
    branches = [conv(builder, x, f"b{width}", (width, 17, 1, 1)) for width in (11, 13)]
    joined = builder.node("Concat", branches, "join", axis=1)
    y = conv(builder, joined, "c", (5, 24, 1, 1))
    builder.node("Softmax", [builder.node("Flatten", [y], "f", axis=1)], "s", output="output", axis=1)
    size = 5 * (22 // window) * (26 // window)
    return network(builder.model({"input": (FLOAT, (batch, 3, 22, 26))}, {"output": (FLOAT, (batch, size))}))


def test_feature_maps_that_fit_a_bank_are_not_moved() -> None:
    """A bank of 1000 bytes: the first map has 9724, the pooled 2431, the joined 3432, the last 715."""
    found = {row["engine_layer"]: row for row in predicted(small(), PLAIN).layers}
    assert found["/a/Conv"]["moved_bytes"] == 3 * 17 * 9 + 3 * 22 * 26 + 9724
    assert found["/p/MaxPool"]["moved_bytes"] == 9724 + 2431
    # The parts are written to where the joined map lies, and it is read once: the Concat itself is no step.
    assert found["/b11/Conv"]["moved_bytes"] == 11 * 17 + 2431 + 11 * 143
    assert found["/c/Conv"]["moved_bytes"] == 5 * 24 + 3432 + 0
    assert "/join/Concat" not in found
    large = altered(PLAIN, shape=replace(PLAIN.shape, bank_bytes=2000))
    parts = {row["engine_layer"]: row for row in predicted(small(), large).layers}
    assert parts["/b11/Conv"]["moved_bytes"] == 11 * 17 + 2431 + 11 * 143  # 1573 fit, what they are part of does not
    fitting = altered(PLAIN, shape=replace(PLAIN.shape, bank_bytes=10_000))
    inside = {row["engine_layer"]: row for row in predicted(small(), fitting).layers}
    assert inside["/a/Conv"]["moved_bytes"] == 3 * 17 * 9 + 3 * 22 * 26 + 0
    assert inside["/b11/Conv"]["moved_bytes"] == 11 * 17


def test_latency_is_the_sum_of_its_parts() -> None:
    found = predicted(small(), PLAIN)
    softmax_us = 715 * 7.0e-3
    around_us = 300.0 + 3 * 22 * 26 * 2.0e-3
    assert found.host_us == pytest.approx(softmax_us + around_us)
    engine_us = sum(row["kernel_latency_likely_us"] for row in found.layers if row["unit"] != "host")
    assert found.engine_us == pytest.approx(engine_us)
    assert found.latency_us.likely == pytest.approx(found.engine_us + found.host_us)
    assert found.latency_us.pessimistic >= found.latency_us.likely > found.latency_us.optimistic
    assert found.frames_per_second.likely == pytest.approx(1e6 / found.latency_us.likely)
    assert found.pipelined_frames_per_second.likely == pytest.approx(1e6 / engine_us)
    assert [row["unit"] for row in found.layers] == ["array", "window", "array", "array", "array", "host"]
    assert found.macs == 22 * 26 * 17 * 27 + 143 * (24 * 17 + 24 * 5)


def test_the_interval_is_that_of_published_networks(networks: dict[str, Network]) -> None:
    found = predicted(networks["resnet18"], configured("dpu-b4096", "kv260"))
    whole = found.engine_us + found.host_us
    assert found.latency_us.cases == pytest.approx((1.34 * whole, whole, 0.797 * whole))
    assert found.latency_us.optimistic < 5370 < found.latency_us.pessimistic
    assert found.frames_per_second.pessimistic < found.frames_per_second.likely < found.frames_per_second.optimistic


def test_threads_hide_the_host_until_the_engines_are_the_limit() -> None:
    found = {count: predicted(small(), altered(PLAIN, host=replace(PLAIN.host, threads=count))) for count in (1, 2, 99)}
    latency_us = found[1].latency_us.likely
    assert found[2].latency_us == found[1].latency_us
    assert found[2].frames_per_second.likely == pytest.approx(2e6 / latency_us)
    assert found[99].frames_per_second == found[1].pipelined_frames_per_second


def test_what_has_no_unit_runs_on_the_host_and_the_engine_is_called_again() -> None:
    """A pooling of 11 x 11 in the middle: beyond 8 x 8."""
    found = predicted(small(window=11), PLAIN)
    pooling = next(row for row in found.layers if row["engine_layer"] == "/p/MaxPool")
    assert pooling["unit"] == "host"
    assert pooling["kernel_latency_likely_us"] == pytest.approx(17 * 2 * 2 * 121 * 7.0e-3)
    softmax_us = 20 * 7.0e-3
    assert found.host_us == pytest.approx(
        pooling["kernel_latency_likely_us"] + softmax_us + 2 * 300.0 + 3 * 22 * 26 * 2.0e-3
    )
    assert any("called 2 times" in note for note in found.notes)
    assert any(note.startswith("/p/MaxPool") for note in found.notes)


def test_a_product_keeps_its_unit_where_only_its_activation_has_none() -> None:
    builder = GraphBuilder("silu")
    y = conv(builder, "input", "a", (17, 3, 3, 3))
    builder.node("Mul", [y, builder.node("Sigmoid", [y], "s")], "m", output="output")
    found = predicted(
        network(builder.model({"input": (FLOAT, (1, 3, 22, 26))}, {"output": (FLOAT, (1, 17, 22, 26))})), PLAIN
    )
    assert [(row["op_types"], row["unit"]) for row in found.layers] == [
        (["Conv"], "array"),
        (["Sigmoid", "Mul"], "host"),
    ]
    elements = 17 * 22 * 26
    assert found.layers[0]["moved_bytes"] == 3 * 17 * 9 + 3 * 22 * 26 + elements
    assert found.layers[1]["kernel_latency_likely_us"] == pytest.approx((elements + 2 * elements) * 7.0e-3)


def test_a_card_moves_its_input_over_the_link_for_every_engine() -> None:
    host = replace(PLAIN.host, link_bytes_per_s=1e9)
    card, board = altered(PLAIN, host=host, engine_count=14), altered(PLAIN, engine_count=14)
    moved = 14 * (3 * 22 * 26 + 715)  # the scores before the softmax come back
    difference = predicted(small(), card).latency_us.likely - predicted(small(), board).latency_us.likely
    assert difference == pytest.approx(moved / 1e3)
    assert predicted(small(), card).batch == 14


def test_a_model_with_a_batch_of_its_own_is_refused() -> None:
    with pytest.raises(PipelineError, match="its shapes are for a batch of 2"):
        predicted(small(batch=2), PLAIN)


def test_a_model_without_a_layer_for_the_engine_is_refused() -> None:
    builder = GraphBuilder("softmax")
    builder.node("Softmax", ["input"], "s", output="output", axis=1)
    found = network(builder.model({"input": (FLOAT, (1, 7))}, {"output": (FLOAT, (1, 7))}))
    with pytest.raises(PipelineError, match="runs no layer of the model"):
        whole_model(found.graph, found.layers, PLAIN)


# --- the fit ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def networks() -> dict[str, Network]:
    return {name: network(build(batch=1, has_weights=False)) for name, build in overlay_fit.BUILDERS.items()}


@pytest.mark.slow
def test_the_configuration_is_what_the_fit_gives(networks: dict[str, Network]) -> None:
    engine = configured("dpu-b4096", "kv260")
    rates = overlay_fit.fit(networks, engine, MEASURED_US)
    host = engine.host
    assert engine.ports.share == pytest.approx(rates["port_fraction"], rel=2e-3)
    assert engine.array_share == pytest.approx(rates["array_fraction"], rel=2e-3)
    assert engine.layer_cycles == pytest.approx(rates["layer_us"] * 300, rel=2e-3)
    host_us = host.call_us + host.input_ns * overlay_fit.INPUT_ELEMENTS * 1e-3
    assert host_us == pytest.approx(rates["host_us"], rel=2e-3)


@pytest.mark.slow
def test_rates_stay_where_the_priors_believe_them(networks: dict[str, Network]) -> None:
    rates = overlay_fit.fit(networks, configured("dpu-b4096", "kv260"), MEASURED_US)
    assert 0.5 < rates["port_fraction"] < 0.9
    assert 0.8 < rates["array_fraction"] < 1.0
    assert 3 < rates["layer_us"] < 20
    assert 250 < rates["host_us"] < 1000


@pytest.mark.slow
def test_fitted_and_left_out_errors(networks: dict[str, Network]) -> None:
    engine = configured("dpu-b4096", "kv260")
    fitted = overlay_fit.errors(networks, engine, MEASURED_US)
    assert mean(map(abs, fitted.values())) < 0.015
    alone = overlay_fit.left_out(networks, engine)
    assert mean(map(abs, alone.values())) < 0.03
    assert max(map(abs, alone.values())) < 0.05
    roofs = [1 - predicted(networks[name], engine).roofline_us / us for name, us in MEASURED_US.items()]
    assert 0.5 < mean(roofs) < 0.6


@pytest.fixture(scope="module")
def held_out() -> list[overlay_held_out.Comparison]:
    return list(overlay_held_out.comparisons())


@pytest.mark.exhaustive
def test_held_out_boards_and_networks(held_out: list[overlay_held_out.Comparison]) -> None:
    """85 published figures that nothing was fitted to; the worst is SqueezeNet on the U280, which the host limits."""
    assert len(held_out) == 85
    errors = [abs(one.error) for one in held_out]
    assert mean(errors) < 0.105
    assert median(errors) < 0.115
    worst = max(held_out, key=lambda one: abs(one.error))
    assert (worst.board, worst.network) == ("u280", "squeezenet")
    assert max(abs(one.error) for one in held_out if one is not worst) < 0.21
    assert mean(abs(one.roofline_error) for one in held_out) > 0.5


@pytest.mark.exhaustive
def test_the_interval_holds_networks_that_took_no_part_in_it(held_out: list[overlay_held_out.Comparison]) -> None:
    ratios = overlay_held_out.ratios(held_out)
    band, scatter = band_of(ratios), configured("dpu-b4096", "kv260").scatter
    configured_band, found = scatter.band, spread_of(ratios)
    assert (scatter.family_sd, scatter.design_sd) == pytest.approx((found.family_sd, found.design_sd), abs=1e-3)
    assert (configured_band.optimistic, configured_band.pessimistic) == pytest.approx((band.low, band.high), abs=1e-3)
    inside, count = (sum(counts) for counts in zip(*(one[1:] for one in left_out(ratios).values()), strict=True))
    assert inside / count > 0.9
    assert sum(one.is_inside for one in held_out) >= 83


def test_squeezenet_spends_its_time_on_the_processor() -> None:
    """Its 14 x 14 maps are beyond the largest pooling: 196,000 additions, two fifths of the latency, are the host's."""
    found = predicted(network(build_squeezenet(batch=1, has_weights=False)), configured("dpu-b4096", "kv260"))
    pooling = next(row for row in found.layers if row["unit"] == "host")
    assert pooling["engine_layer"] == "/pool10/GlobalAveragePool"
    assert pooling["kernel_latency_likely_us"] == pytest.approx(1000 * 14 * 14 * 7.0e-3)
    assert 0.35 < pooling["kernel_latency_likely_us"] / found.latency_us.likely < 0.45
    without_us = found.latency_us.likely - pooling["kernel_latency_likely_us"]
    assert without_us / 3700 < 0.6  # what a model without it says of 3.70 ms
