"""The engines that a plan may use: each fits its board, and serves what it is built for."""

from __future__ import annotations

from dataclasses import replace
from math import ceil, exp, hypot, log

import pytest

from common.fpga.coefficients import load_models
from common.fpga.device.board_files import load_board
from common.fpga.engine_catalogue import ROWWISE_SHARES, engines_for, port_count, rowwise_engines
from common.fpga.kernels.systolic.array import SystolicArray
from common.fpga.kernels.team import Team
from common.workload.layers import Convolution, Matmul, Pointwise, Pooling, Rowwise
from tests.support.kernels.dataflow_kernels import task_of
from tests.support.paths import CONFIGS

BOARDS = ("kv260", "u200", "u250", "u280", "u50", "u55c", "ultra96", "v80", "vck190", "zcu102", "zcu104")


@pytest.fixture(scope="module")
def models():
    return load_models(CONFIGS)


def norm(precision):
    return task_of(Rowwise("LayerNormalization", 31, 769), kind="rowwise", precision=precision)


def softmax(precision):
    return task_of(Rowwise("Softmax", 31, 769), kind="rowwise", precision=precision)


def pool(precision):
    return task_of(Pooling(1, 67, 113, 113, 56, 56, 3, 3, 2, 2), kind="pool", precision=precision)


def product(precision):
    return task_of(Matmul(61, 127, 257), precision=precision)


@pytest.mark.parametrize("board", BOARDS)
@pytest.mark.parametrize("precision", ["fp32", "bf16", "int8"])
def test_rows_take_a_small_share_of_any_board(board, precision, models):
    """A normalization, a softmax and a pool have an engine on every board, within the share that is left to it."""
    target = load_board(board, CONFIGS / "boards")
    tasks = [norm(precision), softmax(precision), pool(precision)]
    engines = rowwise_engines(target, precision, models, tasks)
    assert all(any(engine.estimate(task) for engine in engines) for task in tasks)
    assert len({engine.name for engine in engines}) == len(engines) <= 3
    for engine in engines:
        assert engine.resources.fits(target.total_budget)
    if board != "ultra96":  # a lane of everything in fp32 takes more than an eighth of its 324 DSPs
        largest = max(engines, key=lambda engine: engine.resources.lut)
        assert largest.resources.lut <= ROWWISE_SHARES[0] * target.total_budget.lut


def test_lanes_in_fp32_have_exponentials_only_where_a_task_needs_them(models):
    u280 = load_board("u280", CONFIGS / "boards")
    norms = rowwise_engines(u280, "fp32", models, [norm("fp32")])
    mixed = rowwise_engines(u280, "fp32", models, [norm("fp32"), softmax("fp32")])
    assert not [engine for engine in norms if engine.name.endswith("-exp")]
    assert {engine.name.endswith("-exp") for engine in mixed} == {True, False}
    widest_norm, widest_exp = (
        max(engine.lanes * engine.ports.count for engine in mixed if engine.name.endswith("-exp") is ends)
        for ends in (False, True)
    )
    assert widest_norm > widest_exp  # what lanes save in operators they have in number


@pytest.mark.slow
def test_an_engine_that_computes_no_task_is_not_offered(models):
    u280 = load_board("u280", CONFIGS / "boards")
    kinds = {engine.kind for engine in engines_for(u280, "int8", models, [pool("int8")])}
    assert kinds == {"rowwise"}
    kinds = {engine.kind for engine in engines_for(u280, "int8", models, [product("int8")])}
    assert kinds == {"systolic", "streaming"}
    moved = task_of(Pointwise("Concat", 7 * 11), kind="pointwise", precision="int8")
    assert [engine.lane for engine in engines_for(u280, "int8", models, [moved])] == [{}] * len(ROWWISE_SHARES)


@pytest.mark.slow
def test_heads_are_split_over_the_regions(models):
    """Twelve heads of BERT on an U280 of three regions: a team, which is quicker than its member and fits the board."""
    u280 = load_board("u280", CONFIGS / "boards")
    layers = (Matmul(128, 64, 128, 12, False), Rowwise("Softmax", 12 * 128, 128), Matmul(128, 128, 64, 12, False))
    moved = 12 * 128 * 64
    heads = task_of(*layers, kind="attention", precision="int8", read_bytes=3 * moved, written_bytes=moved)
    offered = [engine for engine in engines_for(u280, "int8", models, [heads]) if engine.kind == "attention"]
    (team,) = [engine for engine in offered if isinstance(engine, Team)]
    assert team.count == 3
    assert team.resources.fits(u280.total_budget)
    assert all(team.member.resources.fits(budget) for budget in u280.budgets)
    alone, together = (engine.estimate(heads).time_us.likely for engine in (team.member, team))
    assert alone / 3 < together < alone
    kv260 = load_board("kv260", CONFIGS / "boards")
    assert not [engine for engine in engines_for(kv260, "int8", models, [heads]) if isinstance(engine, Team)]


@pytest.mark.slow
def test_arrays_of_several_products_are_generic_and_over_regions_slower(models):
    """One product has an array tuned for it; two different ones share an array as the layers of a network do."""
    u280 = load_board("u280", CONFIGS / "boards")
    other = task_of(Matmul(61, 127, 513), precision="int8")
    one, several = (
        [engine for engine in engines_for(u280, "int8", models, tasks) if isinstance(engine, SystolicArray)]
        for tasks in ([product("int8")] * 2, [product("int8"), other])
    )
    scatters = models.systolic.scatters
    assert {engine.scatter for engine in one} == {scatters["product"]}
    assert {engine.scatter for engine in several} == {scatters["network"]}
    within, over = (
        max(engine.clock_cases_mhz.likely for engine in several if engine.spans_regions is spans)
        for spans in (False, True)
    )
    assert over == pytest.approx(within * models.systolic.clock.crossing_share**2, rel=0.08)


@pytest.mark.slow
@pytest.mark.parametrize(("images", "members"), [(1, []), (2, []), (5, [3])])
def test_images_are_split_over_the_regions(images, members, models):
    u280 = load_board("u280", CONFIGS / "boards")
    layer = Convolution(images, 16, 30, 30, 32, 28, 28, 3, 3)
    task = task_of(layer, kind="conv", precision="int8", weight_bytes=4608, read_bytes=14400, written_bytes=25088)
    teams = [engine for engine in engines_for(u280, "int8", models, [task]) if isinstance(engine, Team)]
    assert [team.count for team in teams] == members
    for team in teams:
        assert team.kind == "systolic"
        assert team.resources.fits(u280.total_budget)


@pytest.mark.slow
def test_fp32_arrays_use_the_floating_point_units_of_versal(models):
    """A V80's 7,810 DSPs in the budget are 4.69 TFLOP/s; on UltraScale+ logic its arrays stopped at 1.38."""
    v80 = load_board("v80", CONFIGS / "boards")
    largest = max(
        (engine for engine in engines_for(v80, "fp32", models, [product("fp32")]) if engine.kind == "systolic"),
        key=lambda engine: engine.peak_macs_per_cycle,
    )
    flop_per_s = 2 * largest.peak_macs_per_cycle * v80.clock_mhz * 1e6
    assert 2.4e12 < flop_per_s <= v80.peak_flop_per_s("fp32")  # flip-flops of the design around it are the limit
    assert largest.resources.dsp == largest.peak_macs_per_cycle
    assert largest.resources.fits(v80.total_budget)


def test_operators_of_rows_are_those_of_the_device(models):
    """An adder and a multiplier of a DSPFP32 take a DSP each, and no logic; of a DSP48E2 they take two and three."""
    versal, ultrascale = models.dataflow.on("DSP58"), models.dataflow.on("DSP48E2")
    assert versal.of(add=3, multiply=5).dsp == 8
    assert ultrascale.of(add=3, multiply=5).dsp == 21
    assert versal.of(add=3, multiply=5).lut == 0
    assert versal.of(exponential=1, divide=1) == ultrascale.of(exponential=1, divide=1)
    assert versal.mac("fp32", 1.0).dsp == 1 and versal.mac("int8", 3.0).dsp == pytest.approx(1 / 3)


@pytest.mark.parametrize(("board", "ports"), [("u280", (8, 16)), ("v80", (16, 32)), ("kv260", (2, 2))])
def test_ports_grow_with_the_channels_of_the_card(board, ports):
    """32 channels, 64, and four ways to one; products with few rows are as quick as their weights arrive."""
    target = load_board(board, CONFIGS / "boards")
    assert (port_count(target, "array"), port_count(target, "streaming")) == ports


# --- clock ------------------------------------------------------------------------------------------------------------


def every_kind(board, precision, models):
    """Return engines of every kind but the overlay: for a product of heads, a product, rows and a pool."""
    heads = task_of(
        Matmul(61, 67, 71, 12, has_weight=False),
        Rowwise("Softmax", 12 * 61, 71),
        Matmul(61, 71, 67, 12, has_weight=False),
        kind="attention",
        precision=precision,
    )
    found = engines_for(board, precision, models, [heads, product(precision), norm(precision), pool(precision)])
    assert {engine.kind for engine in found} == {"systolic", "streaming", "attention", "rowwise"}
    return found


def test_rows_and_attention_have_room_for_the_ports_of_an_array(models):
    """A kernel that reads the tensors of an array where they lie has a port to each of its channels."""
    u280 = load_board("u280", CONFIGS / "boards")
    seen = set()
    for engine in every_kind(u280, "int8", models):
        placed = engine.member if isinstance(engine, Team) else engine
        if placed.kind in ("rowwise", "attention"):
            seen.add(placed.kind)
            more = 8 - placed.ports.count  # an array of a U280 has eight
            alone = replace(placed, reached_ports=0).resources
            added = placed.resources + alone.times(-1)
            assert added.bram36 == pytest.approx(more * ceil(256 / 72))
            assert added.lut == pytest.approx(more * placed.costs.port.lut, abs=1)
    assert seen == {"rowwise", "attention"}


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["fp32", "int8"])
def test_every_engine_has_a_clock_interval_by_its_luts_and_regions(precision, models):
    """Shares of the board's 300 MHz: LUTs of the design over those of its regions, counted here."""
    u280 = load_board("u280", CONFIGS / "boards")
    of_region, of_board = max(region.total.lut for region in u280.regions), u280.total.lut
    bands = {  # configs/systolic_rtl.yaml, by regions and by whether half of their LUTs are taken
        (False, False): (0.83, 1.0, 1.0),
        (False, True): (0.81, 0.93, 1.0),
        (True, False): (0.333, 0.887**2, 1.0),  # two borders between three regions
        (True, True): (0.333, 0.887**2, 1.0),
    }
    seen = set()
    for engine in every_kind(u280, precision, models):
        placed = engine.member if isinstance(engine, Team) else engine
        crosses = placed.kind == "systolic" and placed.spans_regions
        is_dense = placed.resources.lut >= 0.5 * (of_board if crosses else of_region)
        assert engine.clock_cases_mhz.cases == pytest.approx([300 * share for share in bands[crosses, is_dense]])
        assert engine.clock_mhz == engine.clock_cases_mhz.likely
        seen.add((crosses, is_dense))
    assert {crosses for crosses, _ in seen} == {False, True}


def test_a_given_clock_is_reached(models):
    u280 = load_board("u280", CONFIGS / "boards").clocked(211.0)
    for engine in every_kind(u280, "int8", models):
        assert set(engine.clock_cases_mhz.cases) == {211.0}


@pytest.mark.slow
def test_an_unknown_clock_widens_the_time_of_a_stream(models):
    """What is computed at 0.83 of the clock takes at least 1 / 0.83 of the time, whatever else is uncertain."""
    u280 = load_board("u280", CONFIGS / "boards")
    given = u280.clocked(u280.clock_mhz)
    for unsure, sure in zip(every_kind(u280, "int8", models), every_kind(given, "int8", models), strict=True):
        if unsure.kind not in ("streaming", "rowwise"):
            continue
        for task in (product("int8"), norm("int8"), pool("int8")):
            if (wide := unsure.estimate(task)) is not None:
                narrow = sure.estimate(task)
                assert wide.time_us.likely == pytest.approx(narrow.time_us.likely)
                assert wide.time_us.optimistic == pytest.approx(narrow.time_us.optimistic)
                own = narrow.time_us.pessimistic / narrow.time_us.likely
                assert wide.time_us.pessimistic / wide.time_us.likely == pytest.approx(
                    exp(hypot(log(own), log(1 / 0.83)))
                )


def test_the_published_stream_closed_within_the_interval_of_one_region(models):
    """Vitis BLAS GEMV on an U280 with 16 channels over all regions: 319 MHz of the 333 that its times imply."""
    share = models.systolic.clock.share(0.1)
    assert share.pessimistic < 319 / 333 <= share.optimistic
