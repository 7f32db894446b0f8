"""A whole prompt on an array: the work is that of the law, and the time that of the kernels that were chosen."""

from __future__ import annotations

import importlib
from collections import Counter
from dataclasses import dataclass, replace
from math import inf

import pytest

from common.cli.plan_stage import CONFIGS
from common.fpga.coefficients import load_models
from common.fpga.decoding.prompt import CallWork, decode_kernel, prompt_plan, regions_of
from common.fpga.device.board_files import load_board
from common.fpga.device.resources import Resources
from common.fpga.engine_catalogue import engines_for, streaming
from common.fpga.planning.board_rows import WHOLE_BOARD
from common.generation.decoder import CallSizes, decoder_of
from common.generation.resident import Resident
from common.onnx_graph.load import load_model
from common.workload.layers import Matmul
from common.workload.tasks import Task
from models.__main__ import BUILDERS, save

STAGE = importlib.import_module("31_decode_plan")
MODELS, U280 = load_models(CONFIGS), load_board("u280", CONFIGS / "boards")
PROMPT = 48


def product(m, k, n):
    return Task("", "gemm", (Matmul(m, k, n),), "int8", k * n, m * k, m * n)


@pytest.mark.parametrize(
    "name",
    ["tiny-decoder", "tiny-grouped-decoder", "tiny-packed-decoder", "tiny-expert-decoder", "tiny-rolling-decoder"],
)
def test_the_work_of_a_prompt_is_that_of_its_law(tmp_path, name):
    """The groups of the graph and the counts of nodes give the same MACs, the head's for the last token alone."""
    path = tmp_path / "m.onnx"
    save(BUILDERS[name](), path)
    decoder = decoder_of(load_model(path, {}, symbolic=True), {}, {})
    work = STAGE.prompt_work(path, decoder, "int8", PROMPT)
    macs = sum(task.macs * count for task, count in work.tasks.items()) + work.other_macs
    assert macs == Resident(decoder, "int8").call(CallSizes(0, PROMPT)).macs


def test_the_time_is_that_of_the_kernel_with_the_least_for_each_group():
    tasks = Counter({product(64, 256, 512): 3, product(64, 512, 256): 2})
    plan = prompt_plan(CallWork(tasks), U280, "int8", MODELS)
    engines = {engine.name: engine for engine in engines_for(U280, "int8", MODELS, [*tasks])}
    array = engines[plan.engines[0]]
    assert plan.engines == (array.name,)  # nothing for a kernel of rows
    times = [array.estimate(task).time_us for task, count in tasks.items() for _ in range(count)]
    for case in ("pessimistic", "likely", "optimistic"):
        assert getattr(plan.time_us, case) == pytest.approx(sum(getattr(one, case) for one in times))
    others = [
        sum(engine.estimate(task).time_us.likely * count for task, count in tasks.items())
        for engine in engines.values()
        if engine.kind == "systolic"
    ]
    assert plan.time_us.likely == pytest.approx(min(others))
    needed = array.resources + streaming(U280, "int8", MODELS, 31).resources
    assert needed.fits(replace(U280.total_budget, memory_channels=inf))


def test_what_no_kernel_computes_takes_the_rate_of_the_array_or_of_the_memory():
    tasks = Counter([product(64, 256, 512)])
    alone = prompt_plan(CallWork(tasks), U280, "int8", MODELS)
    (array,) = (one for one in engines_for(U280, "int8", MODELS, [*tasks]) if one.name == alone.engines[0])
    macs = moved = 10_000  # too little to make another array the best
    computing, moving = (
        prompt_plan(work, U280, "int8", MODELS) for work in (CallWork(tasks, macs, 0), CallWork(tasks, 0, moved))
    )
    assert alone.engines == computing.engines == moving.engines
    peak_us = macs / (array.rows * array.cols * array.simd) / array.clock_mhz
    share = peak_us / array.timing.array_share * array.scatter.band.likely
    assert computing.time_us.likely - alone.time_us.likely == pytest.approx(share)
    rate = 460e9 * U280.memory.efficiency.likely
    assert moving.time_us.likely - alone.time_us.likely == pytest.approx(moved / rate * 1e6, rel=0.01)


def test_a_board_whose_format_has_no_array_has_no_plan():
    """The vck190 computes int8 in AI engines, which no model of this project covers."""
    board = load_board("vck190", CONFIGS / "boards")
    assert prompt_plan(CallWork(Counter([product(8, 8, 8)])), board, "int8", MODELS) is None


@pytest.mark.parametrize(("weights", "lanes"), [("bf16", 31 * 16), ("int8", 31 * 32), ("int4", 31 * 64)])
def test_each_channel_but_one_has_an_engine_for_a_whole_word(weights, lanes):
    """A word of a U280's ports has 256 bits."""
    kernel = decode_kernel(U280, weights, MODELS)
    assert (kernel.name, kernel.lanes) == (f"streaming-31ch-{weights}", lanes)


def test_a_board_without_room_for_these_engines_has_none():
    small = replace(U280, regions=tuple(replace(region, usable=region.usable.times(0.05)) for region in U280.regions))
    assert decode_kernel(small, "bf16", MODELS) is None
    assert prompt_plan(CallWork(Counter([product(8, 8, 8)])), small, "int8", MODELS, "bf16") is None


@dataclass(frozen=True)
class Block:
    resources: Resources
    spans_regions: bool = False


def test_engines_in_one_region_fit_it_together():
    """Blocks share a region as far as they fit it together; four of six tenths have no place in three regions."""
    least = min(U280.budget(region).dsp for region in U280.regions)
    large, small = Block(Resources(dsp=0.66 * least)), Block(Resources(dsp=0.3 * least))
    first, second, third = (region.name for region in U280.regions)
    assert regions_of([large, large], U280) == (first, second)
    assert regions_of([large, small], U280) == (first, first)
    assert regions_of([large, large, large], U280) == (first, second, third)
    tight = replace(U280, regions=tuple(replace(region, usable=U280.regions[0].usable) for region in U280.regions))
    room = tight.budget(tight.regions[0]).dsp
    assert regions_of([Block(Resources(dsp=0.6 * room))] * 4, tight) is None
    assert regions_of([Block(Resources(dsp=2 * room), spans_regions=True)], tight) == (WHOLE_BOARD,)
