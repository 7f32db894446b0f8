"""Streams over replicas: resources by hand, stages against brute force, the search against one array and its bound."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations, islice, pairwise

import pytest

from common.fpga.coefficients import load_models
from common.fpga.device.board_files import load_board
from common.fpga.engine_catalogue import arrays
from common.fpga.kernels.overlay.engine_files import load_engine
from common.fpga.replicas.frame import Frame, FrameCall
from common.fpga.replicas.replica import replicas_for, shared_ports
from common.fpga.replicas.rows import schedule_rows, units
from common.fpga.replicas.search import CallTimes, balanced, batches, find_streams, has_heads
from common.fpga.replicas.stream import FrameStage, stream
from common.intervals import ThreePoint
from common.workload.layers import Convolution, Matmul, Pooling
from common.workload.tasks import Task, batched
from tests.support.paths import CONFIGS

LAUNCH_US = 81.0  # configs/boards/u280.yaml


def engine_of(replica, task):
    return next(engine for engine in replica.engines if engine.estimate(task) is not None)


def conv(channels, out_channels, side, window=3):
    layer = Convolution(1, channels, side, side, out_channels, side, side, window, window)
    weights = channels * out_channels * window**2
    return Task("conv", "conv", (layer,), "int8", weights, channels * side**2, out_channels * side**2)


def pool(channels, side):
    layer = Pooling(1, channels, side, side, side // 2, side // 2, 2, 2, 2, 2)
    return Task("pool", "pool", (layer,), "int8", 0, channels * side**2, channels * (side // 2) ** 2)


def frame_of(*tasks, **values):
    return Frame(tuple(FrameCall(index, task, index == 0) for index, task in enumerate(tasks)), **values)


FRAME = frame_of(conv(64, 128, 29), pool(128, 29), conv(128, 256, 14), conv(256, 512, 14), conv(512, 512, 7))


@pytest.fixture(scope="module")
def models():
    return load_models(CONFIGS)


@pytest.fixture(scope="module")
def u280():
    return load_board("u280", CONFIGS / "boards")


def timing_of(board, models, launch_per="group"):
    return CallTimes(board, models, "int8", launch_per)


def arrays_of(board, models, frame):
    return arrays(board, "int8", models, frame.tasks, max(board.budgets, key=lambda budget: budget.dsp))


@pytest.fixture(scope="module")
def replicas(u280, models):
    """The first of many: for a region each, with either tile, with and without pumped DSPs."""
    return list(islice(replicas_for(u280, "int8", models, FRAME, None), 8))


@pytest.fixture(scope="module")
def found(u280, models):
    return find_streams(FRAME, u280, "int8", models, "group", arrays_of(u280, models, FRAME))


def test_each_resource_takes_its_share_of_a_frame(u280, models, replicas):
    """Frames over three replicas, seven at a time: 7 frames of a call are one launch, and each replica has a third."""
    replica, frame = replicas[0], replace(FRAME, host_us=ThreePoint.exactly(43.0), to_card_us=ThreePoint(31, 29, 23))
    counts = {"SLR0": 1, "SLR1": 1, "SLR2": 1}
    made = stream(timing_of(u280, models), frame, "frames", counts, [FrameStage(replica, 0, frame.calls)], 7)
    estimates = [(engine_of(replica, task), batched(task.nameless, 7)) for task in frame.tasks]
    on_array = [engine.estimate(task).time_us.likely for engine, task in estimates if engine is replica.main]
    beside = [engine.estimate(task).time_us.likely for engine, task in estimates if engine is not replica.main]
    assert len(on_array) == 4 and len(beside) == 1
    likely = {name: us.likely for name, us in made.busy_us.items()}
    assert likely["arrays"] == pytest.approx((sum(on_array) + 4 * LAUNCH_US) / 21)
    assert likely["rows and pools"] == pytest.approx((beside[0] + LAUNCH_US) / 21)
    assert likely["launches"] == pytest.approx(5 * LAUNCH_US / 7)
    assert (likely["host"], likely["link to the card"]) == (43.0, 29.0)
    moved = sum(engine.estimate(task).moved_bytes for engine, task in estimates) / 7
    assert likely["memory"] == pytest.approx(1e6 * moved / (32 * 14.375e9 * 0.65))
    assert made.interval_us.likely == max(likely.values())
    assert made.rate_per_s.likely == pytest.approx(1e6 / max(likely.values()))
    assert made.latency_us.likely == pytest.approx(7 * (43 + 29) + sum(on_array) + sum(beside) + 5 * LAUNCH_US)
    assert made.in_flight % 7 == 0
    assert made.in_flight - 7 < made.latency_us.likely / made.interval_us.likely <= made.in_flight


def test_the_first_frames_end_when_the_latency_says(u280, models, replicas):
    """In an empty pipeline, frames pass link, converters, array and host one after the other."""
    times = {"host_us": 43, "to_card_us": 29, "convert_in_us": 19, "convert_out_us": 5, "to_host_us": 11}
    frame = replace(FRAME, **{name: ThreePoint.exactly(us) for name, us in times.items()})
    made = stream(timing_of(u280, models), frame, "frames", {"SLR0": 1}, [FrameStage(replicas[0], 0, frame.calls)], 7)
    bars = [bar for bar in schedule_rows(made) if bar["call_frames"] == "1 to 7"]
    lasting = [(bar["lane"], bar["interval_finish_us"] - bar["interval_start_us"]) for bar in bars]
    converted = [(lane, us) for lane, us in lasting if lane.startswith("convert")]
    assert [lane for lane, _ in converted] == ["convert-in", "convert-out"]
    assert [us for _, us in converted] == pytest.approx([7 * 19, 7 * 5])
    assert all(before["interval_finish_us"] == after["interval_start_us"] for before, after in pairwise(bars))
    assert bars[-1]["interval_finish_us"] == pytest.approx(made.latency_us.likely)


def test_power_bounds_the_rate_at_the_limit_of_the_card(u280, models, replicas):
    """A card of little more power than it draws at rest takes the time in which that little is enough."""
    weak = replace(u280, limit_w=42.4, static_w=ThreePoint.exactly(41.4))
    made = stream(timing_of(weak, models), FRAME, "frames", {"SLR0": 1}, [FrameStage(replicas[0], 0, FRAME.calls)], 1)
    energy, estimates = models.energy, [engine_of(replicas[0], task).estimate(task.nameless) for task in FRAME.tasks]
    flops, moved = (sum(getattr(each, name) for each in estimates) for name in ("flops", "moved_bytes"))
    per_byte = energy.memory("hbm").likely + 2 * energy.memory_pj_per_byte["on_chip"].likely
    uj = (flops * energy.compute_pj_per_flop["int8"].likely + moved * per_byte) / 1e6
    assert made.busy_us["power"].likely == pytest.approx(uj, rel=1e-6)  # over one watt
    assert made.bottleneck == "power"


def test_a_phase_is_launched_once_and_a_group_each_time(u280, models, replicas):
    calls = [FrameStage(replicas[0], 0, FRAME.calls)]
    launches = {
        way: stream(timing_of(u280, models, way), FRAME, "frames", {"SLR0": 1}, calls, 1).works[0].launch_count
        for way in ("group", "phase")
    }
    assert launches == {"group": 5, "phase": 1}  # only the first call reads a tensor of the host


def slowest(stages, timing):
    return max(timing.work(stage.replica, stage.calls, 1).slowest_us.likely for stage in stages)


@pytest.mark.parametrize("count", [2, 3, 4])
def test_stages_are_those_of_brute_force(u280, models, replicas, count):
    timing = timing_of(u280, models)
    for replica in replicas[:3]:
        made = balanced(timing, replica, FRAME.calls, count)
        assert [call for stage in made for call in stage.calls] == list(FRAME.calls)
        ways = []
        for cuts in combinations(range(1, len(FRAME.calls)), count - 1):
            ends = [0, *cuts, len(FRAME.calls)]
            parts = [FRAME.calls[first:end] for first, end in pairwise(ends)]
            ways.append(slowest([FrameStage(replica, 0, part) for part in parts], timing))
        assert slowest(made, timing) == pytest.approx(min(ways), rel=1e-6)


@pytest.mark.slow
def test_every_replica_fits_its_region_and_its_share_of_the_memory(u280, models):
    replicas = list(replicas_for(u280, "int8", models, FRAME, None))
    assert len(replicas) > 10
    for replica in replicas:
        counts = replica.counts(u280)
        for region in u280.regions:
            needed, budget = replica.fabric, u280.budget(region)
            for name in ("lut", "ff", "bram36", "uram", "dsp"):
                assert counts[region.name] * getattr(needed, name) <= getattr(budget, name) * (1 + 1e-9)
        ports = replica.main.ports
        whole = 3 * replica.in_region * ports.channel_count * ports.channel_bytes_per_s
        assert whole <= u280.memory.bytes_per_s * (1 + 1e-9)


def test_ports_of_a_board_with_few_channels_share_them(models):
    u250 = load_board("u250", CONFIGS / "boards")
    ports = [shared_ports(u250, in_region) for in_region in (1, 2, 4)]
    assert [each.channel_bytes_per_s for each in ports] == [19.2e9, 9.6e9, 4.8e9]  # 4, 8 and 16 on 4 channels
    zcu102 = load_board("zcu102", CONFIGS / "boards")
    assert shared_ports(zcu102, 3).channel_bytes_per_s == pytest.approx(17.064e9 / 3)


def test_pumped_dsps_are_half_as_many_and_have_the_clock_of_such_designs(u280, models, replicas):
    pumped = [each.main for each in replicas if each.main.dsp_cycles == 2]
    assert pumped
    for array in pumped:
        assert array.resources.dsp < array.rows * array.cols * array.simd / 2  # 1/4, and its epilogue
        assert array.name.endswith("-pumped")
        clock = array.clock_cases_mhz
        assert (clock.pessimistic, clock.likely, clock.optimistic) == pytest.approx((150.0, 300.0, 350.1))
    fp32 = frame_of(*(replace(task, precision="fp32") for task in FRAME.tasks))
    assert {each.main.dsp_cycles for each in islice(replicas_for(u280, "fp32", models, fp32, None), 4)} == {1}


def test_pools_beside_an_array_are_quick_or_have_all_lanes_that_fit(models):
    """Every replica of a U250 with a wide pool: twice the lanes fit nowhere where they would be needed.

    In shares of the room, some had one lane where eight fitted: the ports' block RAM hid them from the share.
    """
    u250 = load_board("u250", CONFIGS / "boards")
    frame = frame_of(conv(64, 128, 28), pool(256, 112))
    checked = 0
    for replica in replicas_for(u250, "int8", models, frame, None):
        (pools,) = replica.beside
        array, windows = replica.main.estimate(batched(frame.tasks[0], 8)), pools.estimate(batched(frame.tasks[1], 8))
        if windows.time_us.likely > array.time_us.likely / 3 and pools.lanes < 64:
            wider = replace(pools, lanes=2 * pools.lanes)
            more = replace(wider.resources + pools.resources.times(-1), memory_channels=0.0)
            left = replica.room + replica.fabric.times(-1)
            assert not more.fits(left), replica.name
            checked += 1
    assert checked > 3


@pytest.mark.slow
def test_the_search_beats_one_array_and_stays_below_its_bound(found):
    rates = {each.division: each.rate_per_s.likely for each in found.streams}
    assert set(rates) == {"frames", "layers", "one array"}
    assert found.best.rate_per_s.likely == max(rates.values()) > 1.2 * rates["one array"]
    assert max(rates.values()) <= found.bound_per_s * (1 + 1e-9)
    assert found.best.memory_bytes > FRAME.weight_bytes
    for each in found.streams:
        pessimistic, likely, optimistic = each.rate_per_s.cases
        assert pessimistic < likely <= optimistic


@pytest.mark.slow
def test_a_slow_host_bounds_every_plan(u280, models):
    slow = replace(FRAME, host_us=ThreePoint(30_000.0, 20_000.0, 10_000.0))
    found = find_streams(slow, u280, "int8", models, "group", arrays_of(u280, models, slow))
    assert found.best.bottleneck == "host"
    assert found.best.rate_per_s.cases == pytest.approx((1e6 / 3e4, 50.0, 100.0))
    assert found.best.card_rate_per_s.likely > 50.0
    assert found.bound_per_s == pytest.approx(50.0)


def test_nothing_streams_where_no_array_computes_anything(u280, models):
    assert find_streams(frame_of(), u280, "int8", models, "group", ()) is None


@pytest.mark.slow
def test_heads_are_divided_where_there_are_heads(u280, models):
    product = Matmul(197, 64, 197, 12, has_weight=False)
    heads = Task("qk", "gemm", (product,), "int8", 0, 2 * 12 * 197 * 64, 12 * 197 * 197)
    frame = frame_of(conv(64, 128, 28), heads)
    assert [has_heads(call) for call in frame.calls] == [False, True]
    found = find_streams(frame, u280, "int8", models, "phase", arrays_of(u280, models, frame))
    by_division = {each.division: each for each in found.streams}
    shared, apart = by_division["heads"], by_division["frames"]
    assert shared.latency_us.likely < apart.latency_us.likely
    assert shared.rate_per_s.likely <= apart.rate_per_s.likely * (1 + 1e-9)


def test_calls_take_batches_that_double():
    assert batches(32) == [1, 2, 4, 8, 16, 32]
    assert batches(5) == [1, 2, 4]


@pytest.mark.slow
def test_the_first_frames_have_one_lane_for_each_replica_and_no_two_at_once(found):
    for each in found.streams:
        bars = schedule_rows(each)
        lanes = {}
        for bar in bars:
            lanes.setdefault(bar["lane"], []).append((bar["interval_start_us"], bar["interval_finish_us"]))
        for spans in lanes.values():
            spans.sort()
            assert all(before[1] <= after[0] + 1e-9 for before, after in pairwise(spans))
        of_arrays = {lane.removesuffix(" arrays") for lane in lanes if lane.endswith(" arrays")}
        assert of_arrays == set(units(each)[: each.chains * len(each.stages)])
        starts = {int(bar["call_frames"].split()[0]) for bar in bars}
        assert starts == {1 + each.frames * call for call in range(3 * each.chains)}


@pytest.mark.slow
def test_a_vendors_engine_is_replicated_as_often_as_it_fits(models):
    """Three B4096 on a ZCU102, as its vendor has them; each has a third of the memory's rate."""
    board = load_board("zcu102", CONFIGS / "boards")
    engine = load_engine("dpu-b4096", CONFIGS / "engines", board)
    vendors = [each for each in replicas_for(board, "int8", models, FRAME, engine) if each.main.kind == "overlay"]
    assert max(sum(each.counts(board).values()) for each in vendors) == 3
    third = next(each for each in vendors if each.in_region == 3)
    assert third.main.ports.memory_bytes_per_s == pytest.approx(17.064e9 / 3)


@pytest.mark.slow
@pytest.mark.parametrize(("card", "held"), [("u250", {"SLR0", "SLR1", "SLR2", "SLR3"}), ("u200", {"SLR0", "SLR2"})])
def test_a_vendors_engine_alone_in_a_region_needs_no_room_for_timing(models, card, held):
    """DPUCADF8H needs more DSPs than a plan's share of a region: one in each, but in none the static part halves."""
    board = load_board(card, CONFIGS / "boards")
    engine = load_engine("dpu-cadf8h", CONFIGS / "engines", board)
    assert not any(replace(engine.resources, memory_channels=0.0).fits(budget) for budget in board.budgets)
    vendors = [each for each in replicas_for(board, "int8", models, FRAME, engine) if each.main.kind == "overlay"]
    assert vendors
    for each in vendors:
        assert each.in_region == 1
        assert {name for name, count in each.counts(board).items() if count} == held
        assert not each.beside  # the engine pools too
