"""Activations on the chip: which may stay, the pages that they take, and the traffic that they save, by hand."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import combinations, islice

import pytest

from benchmarks.kernels.overlay_fit import network
from common.fpga.coefficients import load_models
from common.fpga.device.board_files import load_board
from common.fpga.device.resources import Resources
from common.fpga.replicas.frame import Frame, FrameCall
from common.fpga.replicas.replica import replicas_for
from common.fpga.replicas.residence import (
    FrameTensor,
    Reading,
    ResidentCandidate,
    chosen,
    frame_tensors,
    keeps_activations,
    memory_of,
    pages_in,
    pages_in_use,
    with_kept,
)
from common.fpga.replicas.search import find_streams
from common.fpga.replicas.stream import CallTimes, FrameStage, keeping, stream
from common.fusion.groups import fuse
from common.workload.layers import Convolution, Matmul, Pooling
from common.workload.task_candidates import task_candidates
from common.workload.tasks import KeptBytes, Task, batched
from models.classifiers.conv_layers import classifier, conv, max_pool
from models.graph_builder import GraphBuilder
from tests.support.paths import CONFIGS

PAGE = 4_608


def frame_of(*tasks):
    return Frame(tuple(FrameCall(index, task, index == 0) for index, task in enumerate(tasks)))


def tensor(name, writer, last, size):
    return FrameTensor(name, writer, size, (Reading(last, size, is_operand=True),))


def layer_task(channels, out_channels, side):
    layer = Convolution(1, channels, side, side, out_channels, side, side, 1, 1)
    pixels = side**2
    return Task("conv", "conv", (layer,), "int8", channels * out_channels, channels * pixels, out_channels * pixels)


CHAIN = [layer_task(64, 64, 28), layer_task(64, 256, 28), layer_task(256, 64, 28), layer_task(64, 64, 28)]
PLANE = 28 * 28
# Results of the first three; the first is added behind the third as well, so it is alive through it.
TENSORS = (
    FrameTensor(
        "a", 0, 64 * PLANE, (Reading(1, 64 * PLANE, is_operand=True), Reading(2, 64 * PLANE, is_operand=False))
    ),
    tensor("b", 1, 2, 256 * PLANE),
    tensor("c", 2, 3, 64 * PLANE),
)


@pytest.fixture(scope="module")
def models():
    return load_models(CONFIGS)


@pytest.fixture(scope="module")
def u250():
    return load_board("u250", CONFIGS / "boards")


def chain_frame():
    tasks = list(CHAIN)
    tasks[2] = replace(tasks[2], read_bytes=tasks[2].read_bytes + 64 * PLANE)
    return replace(frame_of(*tasks), tensors=TENSORS)


@pytest.fixture(scope="module")
def replica(u250, models):
    return next(iter(replicas_for(u250, "int8", models, chain_frame(), None)))


def residual_block():
    """An input, a convolution, a block that adds its own input, a pool, and a classifier."""
    builder = GraphBuilder("block", has_weights=False)
    x = builder.node("Relu", [conv(builder, "input", "stem", (64, 3, 3, 3), stride=4)], "stem/relu")
    y = builder.node("Relu", [conv(builder, x, "first", (64, 64, 3, 3))], "first/relu")
    z = conv(builder, y, "second", (64, 64, 3, 3))
    added = builder.node("Relu", [builder.node("Add", [z, x], "add")], "add/relu")
    pooled = max_pool(builder, added, "pool", 2, 2)
    return network(classifier(builder, pooled, "fc", 64, (1, 3, 224, 224)))


def test_tensors_of_a_residual_block_with_the_calls_that_read_them():
    """By hand: the stem's map is the first convolution's operand, and is added behind the second one."""
    net = residual_block()
    groups = fuse(net.graph)
    candidates = task_candidates(net.graph, groups, net.layers, "int8", longest_chain=1)
    tasks = {candidate.covers[0]: candidate.task for candidate in candidates if candidate.task is not None}
    found = {each.writer: each for each in frame_tensors(net.graph, groups, tasks, "int8")}
    plane, pooled = 64 * 56 * 56, 64 * 28 * 28
    assert found[0].readings == (Reading(1, plane, is_operand=True), Reading(2, plane, is_operand=False))
    assert [(found[call].bytes, found[call].last) for call in (0, 1, 2, 3)] == [
        *((plane, 2), (plane, 2), (plane, 3)),
        (pooled, 4),
    ]
    assert max(found) < len(tasks) - 1  # what the last call writes leaves the card


def test_attention_and_products_of_two_activations_keep_nothing():
    product = Matmul(197, 64, 197, 12, has_weight=False)
    assert not keeps_activations(Task("qk", "gemm", (product,), "int8", 0, 1, 1))
    assert not keeps_activations(Task("qkv", "attention", (product, product), "int8", 0, 1, 1))
    assert keeps_activations(Task("fc", "gemm", (replace(product, has_weight=True),), "int8", 1, 1, 1))
    assert keeps_activations(Task("pool", "pool", (Pooling(1, 64, 8, 8, 4, 4, 2, 2, 2, 2),), "int8", 0, 1, 1))


def resident(of, frames=1):
    """What a tensor saves where each reading is loaded once."""
    return ResidentCandidate(
        of, of.writer, of.last, of.pages(frames), frames * (of.bytes + sum(r.bytes for r in of.readings))
    )


def test_pages_are_taken_from_the_writer_to_the_last_reader():
    tensors = [tensor("wide", 0, 1, 2 * PAGE), tensor("long", 0, 3, PAGE), tensor("late", 2, 3, 2 * PAGE + 1)]
    assert [each.pages(1) for each in tensors] == [2, 1, 3]
    assert [each.pages(4) for each in tensors] == [8, 4, 9]
    wide, long, late = map(resident, tensors)
    assert chosen([wide, long, late], 4) == [wide, late, long]
    assert pages_in_use([wide, late, long]) == 4
    assert chosen([wide, long, late], 3) == [wide, late]  # the long one holds a page through four calls
    assert pages_in_use([wide, late]) == 3
    assert chosen([wide, long, late], 0) == chosen([], 4) == []
    assert pages_in_use([]) == 0


def test_weights_that_are_loaded_often_stay_before_a_map_and_those_of_one_load_after_it():
    """By hand: two pages of four calls; each saved byte counts for the pages and calls that it takes."""
    output = ResidentCandidate(tensor("map", 1, 2, 2 * PAGE), 1, 2, 2, 4 * PAGE)  # 1.0 of a page a call
    often, once = ResidentCandidate(3, 0, 3, 2, 10 * PAGE), ResidentCandidate(3, 0, 3, 2, 2 * PAGE)  # 1.25 and 0.25
    assert chosen([output, often], 2) == [often]
    assert chosen([output, once], 2) == [output]
    assert chosen([output, often], 4) == [often, output]
    assert chosen([replace(once, saved_bytes=0)], 4) == []


@pytest.mark.slow
def test_no_call_has_more_pages_than_there_are_and_the_choice_is_near_the_best():
    draw = random.Random(26)
    shares = []
    for _ in range(150):
        spans = [sorted(draw.sample(range(8), 2)) for _ in range(8)]
        tensors = [resident(tensor(str(n), *span, draw.randint(1, 6 * PAGE))) for n, span in enumerate(spans)]
        pages = draw.randint(1, 14)

        def used(kept):
            return max(sum(each.pages for each in kept if each.first <= call <= each.last) for call in range(8))

        kept = chosen(tensors, pages)
        assert used(kept) == pages_in_use(kept) <= pages if kept else pages_in_use(kept) == 0
        fitting = (way for count in range(9) for way in combinations(tensors, count) if used(way) <= pages)
        best = max(sum(each.saved_bytes for each in way) for way in fitting)
        shares.append(sum(each.saved_bytes for each in kept) / best if best else 1.0)
    assert min(shares) > 0.45
    assert sum(shares) / len(shares) > 0.9


def test_memory_is_ultraram_first_and_as_wide_as_the_ports():
    room = Resources(uram=2.9, bram36=10.5)
    assert pages_in(room) == 2 * 8 + 10
    assert memory_of(9, room, 16.0) == Resources(uram=2.0)
    assert memory_of(19, room, 16.0) == Resources(uram=2.0, bram36=3.0)
    assert memory_of(5, Resources(bram36=8.0), 16.0) == Resources(bram36=5.0)
    assert memory_of(5, room, 64.0) == Resources(uram=2.0, bram36=6.0)  # eight blocks of 72 bits beside a port of 512
    assert memory_of(5, Resources(uram=7.0), 64.0) is None
    assert memory_of(0, Resources(uram=7.0), 64.0) == Resources()


def test_kept_operand_residual_and_result_cross_no_port(replica):
    """By hand: a call whose weights alone leave the chip's memory, over three frames."""
    task = with_kept(dict(enumerate(CHAIN)), TENSORS)[1]
    assert task.kept == KeptBytes(operand=64 * PLANE, written=256 * PLANE)
    task = batched(task, 3)
    plain, kept = (replica.main.estimate(each) for each in (replace(task, kept=KeptBytes()), task))
    assert plain.moved_bytes >= 64 * 256 + 3 * (64 + 256) * PLANE
    assert kept.moved_bytes % (64 * 256) == 0  # weights, once or for each tile of rows
    assert kept.moved_bytes <= plain.moved_bytes - 3 * (64 + 256) * PLANE
    assert kept.kept_bytes >= 3 * (64 + 256) * PLANE
    assert kept.time_us.likely <= plain.time_us.likely
    assert plain.kept_bytes == 0


def test_a_pool_whose_map_is_on_the_chip_reads_nothing(replica):
    pool = Task("pool", "pool", (Pooling(1, 64, 56, 56, 28, 28, 3, 3, 2, 2),), "int8", 0, 64 * 56**2, 64 * PLANE)
    built = load_board("u250", CONFIGS / "boards"), load_models(CONFIGS)
    engine = next(
        engine
        for each in islice(replicas_for(built[0], "int8", built[1], frame_of(*CHAIN, pool), None), 1)
        for engine in each.beside
    )
    kept = engine.estimate(replace(pool, kept=KeptBytes(operand=64 * 56**2)))
    assert (kept.moved_bytes, kept.kept_bytes) == (64 * PLANE, 64 * 56**2)
    assert engine.estimate(pool).moved_bytes >= 64 * (56**2 + PLANE)


def test_kept_weights_cross_no_port_for_any_number_of_frames(replica):
    task = CHAIN[1]
    kept = with_kept({1: task}, [1])[0]
    assert kept.kept == batched(kept, 3).kept == KeptBytes(weights=64 * 256)
    plain, held = (replica.main.estimate(batched(each, 3)) for each in (task, kept))
    assert (plain.moved_bytes - held.moved_bytes) % (64 * 256) == 0
    assert plain.moved_bytes - held.moved_bytes == held.kept_bytes >= 64 * 256
    assert held.moved_bytes >= 3 * (64 + 256) * PLANE  # the maps cross


def test_a_stage_builds_the_memories_that_its_tensors_and_weights_take(u250, models, replica):
    frame, timing = chain_frame(), CallTimes(u250, models, "int8", "group")
    counts = {region.name: 1 for region in u250.regions}
    plain, left = FrameStage(replica, 0, frame.calls), replica.left(u250, counts)
    held = keeping(timing, frame, plain, 2, left)
    assert [each.name for each in sorted(held.kept, key=lambda each: each.writer)] == ["a", "b", "c"]
    pages = sum(-(-2 * amount * PLANE // PAGE) for amount in (64, 256, 64))  # all three are alive in the third call
    width = replica.main.ports.bytes_per_cycle
    assert held.replica.maps == memory_of(pages, left, width)
    assert held.weight_bytes == sum(task.weight_bytes for task in CHAIN)
    of_weights = sum(-(-task.weight_bytes // PAGE) for task in CHAIN)
    assert held.replica.weights == memory_of(of_weights, left + held.replica.maps.times(-1), width)
    for region in u250.regions:
        assert held.replica.fabric.fits(u250.budget(region))
    moved = [stream(timing, frame, "frames", counts, [each], 2).works[0].moved_bytes for each in (plain, held)]
    saved = sum(each.bytes + sum(reading.bytes for reading in each.readings) for each in TENSORS)
    assert moved[0] - moved[1] >= 2 * saved + held.weight_bytes
    assert moved[1] >= 2 * (64 + 64) * PLANE  # the first operand and the last result cross
    tight = keeping(timing, frame, plain, 2, Resources(uram=0.0, bram36=7.0))  # narrower than its port
    assert (tight.kept, tight.weight_bytes, tight.replica) == ((), 0, replica)


def test_weights_stay_as_far_as_the_rounded_memory_of_the_maps_leaves_room(u250, models, replica):
    """By hand: 132 pages of maps take 17 UltraRAMs (136 pages), and ten pages of weights find nine."""
    frame, timing = chain_frame(), CallTimes(u250, models, "int8", "group")
    held = keeping(timing, frame, FrameStage(replica, 0, frame.calls), 2, Resources(uram=17.0, bram36=9.0))
    assert len(held.kept) == 3
    assert held.replica.maps == Resources(uram=17.0)
    pages = [-(-call.task.kept.weights // PAGE) for call in held.calls]
    assert sum(pages) == 9
    assert held.replica.weights == Resources(bram36=9.0)


def test_what_two_stages_share_crosses_the_memory(u250, models, replica):
    frame, timing = chain_frame(), CallTimes(u250, models, "int8", "group")
    room = Resources(uram=100.0)
    first = keeping(timing, frame, FrameStage(replica, 0, frame.calls[:2]), 1, room)
    second = keeping(timing, frame, FrameStage(replica, 2, frame.calls[2:]), 1, room)
    assert first.kept == ()
    assert [each.name for each in second.kept] == ["c"]
    assert [call.task.kept.weights for call in second.calls] == [task.weight_bytes for task in CHAIN[2:]]


def test_each_engine_has_its_own_part_of_the_memory(u250, models):
    """The same chain alone, and with a pool of its own behind it, which is another engine's."""
    pool = Task("pool", "pool", (Pooling(1, 64, 28, 28, 14, 14, 2, 2, 2, 2),), "int8", 0, 64 * PLANE, 64 * PLANE // 4)
    alone = chain_frame()
    both = Frame((*alone.calls, FrameCall(4, pool, reads_host=False)), tensors=TENSORS)
    replica = next(iter(replicas_for(u250, "int8", models, both, None)))
    timing, room = CallTimes(u250, models, "int8", "group"), Resources(uram=60.0)
    one, two = (keeping(timing, each, FrameStage(replica, 0, each.calls), 1, room) for each in (alone, both))
    assert {each.name for each in one.kept} == {each.name for each in two.kept} == {"a", "b", "c"}
    assert pages_in(two.replica.maps) >= 2 * (pages_in(one.replica.maps) - 8)


@pytest.mark.slow
def test_a_plan_with_activations_on_the_chip_moves_less_and_is_no_slower(u250, models):
    frame = chain_frame()
    plain, kept = (
        find_streams(each, u250, "int8", models, "phase", ()) for each in (replace(frame, tensors=()), frame)
    )
    assert not any(stage.kept for stage in plain.best.stages)
    assert any(stage.kept for stage in kept.best.stages)
    assert kept.best.rate_per_s.likely >= plain.best.rate_per_s.likely
    assert kept.best.rate_per_s.likely <= kept.bound_per_s * (1 + 1e-9)
    moved = [sum(work.moved_bytes for work in each.best.works) / each.best.frames for each in (plain, kept)]
    assert moved[1] < moved[0]
    for region, count in kept.best.counts.items():
        budget = next(u250.budget(each) for each in u250.regions if each.name == region)
        assert kept.best.largest_fabric.times(count).fits(budget)
