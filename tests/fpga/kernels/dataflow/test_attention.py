"""Attention as a dataflow kernel: by hand, and by a loop that computes it and counts."""

from dataclasses import replace
from math import ceil
from statistics import geometric_mean

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.kernels.published import attention_shares
from common.fpga.device.resources import Resources
from common.fpga.kernels.dataflow.attention import Heads, heads_of
from common.fpga.kernels.estimate import Engine
from common.intervals import ThreePoint
from common.workload.layers import Convolution, Matmul, Pointwise, Rowwise
from tests.support.kernels.dataflow_kernels import COSTS, LOOPS_ALONE, PORTS, attention, task_of

SMALL = Heads(count=1, queries=3, keys=11, head_dim=7, value_dim=5)


def flash(queries, keys, values, rows, lanes, exp_lanes, block):
    """Online softmax in tiles and blocks; the result, and the cycles of the longest stage of each step."""
    result, cycles, read = np.zeros((len(queries), values.shape[1])), 0, 0
    for top in range(0, len(queries), rows):
        tile = queries[top : top + rows]
        read += tile.size
        largest, total = np.full(len(tile), -np.inf), np.zeros(len(tile))
        output = np.zeros((len(tile), values.shape[1]))
        for left in range(0, len(keys), block):
            k, v = keys[left : left + block], values[left : left + block]
            read += k.size + v.size
            scores, score_steps = np.zeros((len(tile), len(k))), 0
            for column, key in enumerate(k):
                for start in range(0, len(key), lanes):
                    scores[:, column] += tile[:, start : start + lanes] @ key[start : start + lanes]
                    score_steps += 1
            now = np.maximum(largest, scores.max(axis=1))
            correction, weights = np.exp(largest - now), np.exp(scores - now[:, None])
            exp_steps = ceil((rows + rows * len(k)) / exp_lanes)
            value_steps = 0
            for start in range(0, values.shape[1], lanes):
                output[:, start : start + lanes] *= correction[:, None]
                value_steps += 1
                for column in range(len(k)):
                    output[:, start : start + lanes] += np.outer(weights[:, column], v[column, start : start + lanes])
                    value_steps += 1
            largest, total = now, total * correction + weights.sum(axis=1)
            cycles += max(score_steps, exp_steps, value_steps)
        for start in range(0, values.shape[1], lanes):
            result[top : top + rows, start : start + lanes] = output[:, start : start + lanes] / total[:, None]
            cycles += 1
    return result, cycles, read


def plain(queries, keys, values):
    scores = np.exp(queries @ keys.T)
    return scores / scores.sum(axis=1, keepdims=True) @ values


# --- arithmetic -----------------------------------------------------------------------------------------------------


def test_stages_by_hand():
    """A block of 5 keys, heads of 7 and 5 on 3 lanes: 5 x 3, 2 rows x 6 exponentials on 2 lanes, 6 x 2."""
    assert attention().stages(5, SMALL) == (15, 6, 12)
    assert attention().stages(1, SMALL) == (3, 2, 4)


def test_cycles_by_hand():
    """Two tiles of blocks 15, 15, 4 and a division of 2; the first block's other stages, 6 + 12, once."""
    found = attention().estimate_attention(SMALL)
    assert attention().tile_cycles(SMALL) == 36
    assert found.cycles.likely == 2 * 36 + 18
    assert attention(ii_cycles=3.0).estimate_attention(SMALL).cycles.likely == 3 * 90
    assert found.flops == 2 * 3 * 11 * (7 + 5) + 5 * 3 * 11
    assert found.moved_bytes == 4 * (3 + 11) * (7 + 5)
    assert found.bound == "compute"


@pytest.mark.parametrize(
    ("queries", "keys", "head_dim", "value_dim", "rows", "lanes", "exp_lanes", "block"),
    [
        (3, 11, 7, 5, 2, 3, 2, 5),
        (13, 17, 5, 7, 4, 2, 1, 8),  # exponentials decide
        (1, 23, 3, 13, 1, 5, 3, 7),
        (7, 5, 11, 11, 8, 11, 8, 16),
    ],
)
def test_cycles_and_traffic_by_computing_it(queries, keys, head_dim, value_dim, rows, lanes, exp_lanes, block):
    random = np.random.default_rng(7)
    q, k, v = (random.normal(size=shape) for shape in ((queries, head_dim), (keys, head_dim), (keys, value_dim)))
    result, cycles, read = flash(q, k, v, rows, lanes, exp_lanes, block)
    np.testing.assert_allclose(result, plain(q, k, v), rtol=1e-12)
    engine = attention(query_rows=rows, row_lanes=lanes, exp_lanes=exp_lanes, key_block=block, buffer_bytes=0)
    heads = Heads(1, queries, keys, head_dim, value_dim)
    stages = engine.stages(min(block, keys), heads)
    found = engine.estimate_attention(heads)
    assert found.cycles.likely == cycles + sum(stages) - max(stages)
    assert found.moved_bytes == 4 * (read + queries * value_dim)


def test_heads_follow_one_another():
    one, seven = (attention().estimate_attention(replace(SMALL, count=count)) for count in (1, 7))
    assert seven.cycles.likely - one.cycles.likely == 6 * 72
    assert (seven.flops, seven.moved_bytes) == (7 * one.flops, 7 * one.moved_bytes)


# --- where K and V are ----------------------------------------------------------------------------------------------


def slow(**changes):
    """One port of 32 bytes, a word in every cycle, and a channel that carries both directions."""
    ports = replace(PORTS, count=1, channel_count=1, channel_bytes_per_s=1e12, stall_share=0.0)
    return attention(ports=ports, **changes)


# Of a head: K and V 11 x 12 x 4 = 528 bytes. Of a tile: Q 2 x 7 x 4 = 56; with K and V 584 bytes, 19 words.
def test_read_again_without_room():
    engine = slow(buffer_bytes=527, query_rows=1, row_lanes=64, exp_lanes=64)
    heads = replace(SMALL, count=2)
    found = engine.residence(heads)
    # Three tiles of one row: 528 + 28 bytes, 18 words, where a tile of 5 + 1 + 6 steps would take 14.
    assert engine.tile_cycles(heads) == 6 + 6 + 2 + 1
    assert (found.where, found.kv_reads, found.waits_for_memory) == ("read again", 3, True)
    assert found.cycles == 2 * 3 * 18 + (18 - 15) + (5 + 1)
    assert engine.estimate_attention(heads).moved_bytes == 2 * (4 * 14 * 12 + 2 * 528)


def test_kept_once_loads_behind_the_first_tile():
    engine = slow(buffer_bytes=528, query_rows=1, row_lanes=64, exp_lanes=64)
    heads = replace(SMALL, count=2)
    found = engine.residence(heads)
    assert (found.where, found.kv_reads) == ("kept once", 1)
    assert found.cycles == 2 * (18 + 2 * 15) + 3 + 6
    assert engine.estimate_attention(heads).moved_bytes == 2 * 4 * 14 * 12


def test_kept_twice_loads_behind_the_whole_head_before():
    engine = slow(buffer_bytes=1056, query_rows=1, row_lanes=64, exp_lanes=64)
    heads = replace(SMALL, count=2)
    found = engine.residence(heads)
    assert (found.where, found.kv_reads, found.waits_for_memory) == ("kept twice", 1, False)
    assert found.cycles == 2 * 45 + 3 + 6


def test_of_equal_times_the_one_with_less_traffic():
    assert attention().residence(SMALL).where == "kept once"
    assert attention(buffer_bytes=0).residence(SMALL).where == "read again"


def test_a_mask_is_read_once_beside():
    engine = slow(buffer_bytes=0, query_rows=1, row_lanes=64, exp_lanes=64)
    plain_one, masked = engine.estimate_attention(SMALL), engine.estimate_attention(SMALL, bytes_beside=320)
    assert masked.moved_bytes - plain_one.moved_bytes == 320
    assert masked.cycles.likely - plain_one.cycles.likely == pytest.approx(10)
    # Where lanes decide, it passes beside them.
    assert (
        attention().estimate_attention(SMALL, bytes_beside=320).cycles == attention().estimate_attention(SMALL).cycles
    )


def test_the_first_word_is_waited_for_once():
    waits = attention(first_word_ns=110.0).estimate_attention(replace(SMALL, count=5))
    assert waits.cycles.likely - attention().estimate_attention(replace(SMALL, count=5)).cycles.likely == pytest.approx(
        11
    )


# --- bounds ---------------------------------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(
    heads=st.builds(
        Heads, st.integers(1, 5), st.integers(1, 300), st.integers(1, 300), st.integers(1, 64), st.integers(1, 64)
    ),
    rows=st.integers(1, 33),
    lanes=st.integers(1, 33),
    room=st.integers(0, 100_000),
)
def test_no_time_beats_lanes_exponentials_or_memory(heads, rows, lanes, room):
    engine = attention(query_rows=rows, row_lanes=lanes, buffer_bytes=room, ports=PORTS)
    found = engine.estimate_attention(heads)
    compulsory = 4 * heads.count * (heads.queries + heads.keys) * (heads.head_dim + heads.value_dim)
    assert found.moved_bytes >= compulsory
    for us in found.time_us.cases:
        assert us * engine.clock_mhz >= heads.macs / engine.lanes * (1 - 1e-12)
        assert us >= compulsory / engine.ports.channel_rate_bytes_per_s * 1e6 * (1 - 1e-12)
    assert found.cycles.likely >= heads.scores / engine.exp_lanes
    assert found.time_us.optimistic <= found.time_us.likely <= found.time_us.pessimistic


@settings(max_examples=40, deadline=None)
@given(queries=st.integers(1, 200), keys=st.integers(1, 200), ports=st.integers(1, 8), room=st.integers(0, 50_000))
def test_more_ports_clock_or_room_never_slow_it(queries, keys, ports, room):
    heads = Heads(3, queries, keys, 61, 61)

    def us(count, clock, size):
        of_count = replace(PORTS, count=count, channel_count=count, clock_mhz=clock)
        return attention(ports=of_count, buffer_bytes=size).estimate_attention(heads).time_us.likely

    assert us(ports + 1, 100.0, room) <= us(ports, 100.0, room)
    assert us(ports, 130.0, room) <= us(ports, 100.0, room)
    assert us(ports, 100.0, 2 * room + 1) <= us(ports, 100.0, room)


def test_interval_holds_what_kernels_by_hand_attain():
    """792 MACs on 12 lanes: 0.33 us at 100 MHz, of which a tenth is attained at worst."""
    engine = attention(efficiency=ThreePoint(0.1, 0.3, 0.5))
    heads = Heads(1, 6, 11, 7, 5)
    found = engine.estimate_attention(heads)
    assert heads.macs == 792
    reach = (0.5 / 0.1) ** 0.5  # of published kernels from their middle
    assert found.time_us.pessimistic == pytest.approx(max(792 / 12 / 100 / 0.1, found.time_us.likely * reach), rel=0.1)


def test_likely_is_no_better_than_the_usual_published_kernel():
    """Tiles that fill all lanes: the loops alone would attain nearly all. The best kernel is the optimistic case."""
    heads = Heads(12, 1024, 1024, 64, 64)
    found = attention(efficiency=ThreePoint(0.1, 0.3, 0.8)).estimate_attention(heads)
    ideal_us = heads.macs / attention().lanes / 100
    assert found.time_us.cases == pytest.approx((ideal_us / 0.1, ideal_us / 0.3, ideal_us / 0.8), rel=1e-6)


def test_the_share_is_that_of_named_kernels():
    shares = attention_shares().values()
    found = COSTS.attention_efficiency.cases
    assert found == pytest.approx((min(shares), geometric_mean(shares), max(shares)), rel=2e-3)


# --- several heads at once ------------------------------------------------------------------------------------------


def test_heads_at_once_take_as_many_units():
    one, two = attention(), attention(heads_parallel=2)
    once = COSTS.control + COSTS.ports(one.ports.count, one.ports.port_bits) + Resources(memory_channels=3)
    assert two.resources == (once + (one.resources + once.times(-1)).times(2)).whole()
    assert (two.name, two.lanes) == ("attention-2x2x3-fp32", 2 * one.lanes)


def test_heads_at_once_share_the_rounds_and_the_ports():
    """Seven heads in four rounds of two; from slow memory all seven still have to come."""
    heads = replace(SMALL, count=7)
    one, two = attention(), attention(heads_parallel=2)
    rounds = [engine.residence(heads).cycles for engine in (one, two)]
    alone = one.residence(SMALL).cycles
    cycle = (rounds[0] - alone) / 6
    assert rounds[1] == pytest.approx(alone + 3 * cycle)
    slow = replace(PORTS, channel_bytes_per_s=1e6)
    both = [attention(ports=slow, heads_parallel=count).estimate_attention(heads).time_us.likely for count in (1, 2)]
    assert both[1] > 0.9 * both[0]


# --- tasks ----------------------------------------------------------------------------------------------------------

SCORES, SOFTMAX, VALUES = Matmul(3, 7, 11, 13, False), Rowwise("Softmax", 39, 11), Matmul(3, 11, 5, 13, False)


def test_heads_of_a_group():
    group = task_of(SCORES, Pointwise("Div", 429), SOFTMAX, VALUES, Pointwise("Transpose", 195), kind="attention")
    assert heads_of(group) == Heads(13, 3, 11, 7, 5)
    engine = attention()
    assert engine.estimate(group) == engine.estimate_attention(heads_of(group))
    assert attention(head_dim_limit=7).estimate(group) is not None
    assert attention(head_dim_limit=6).estimate(group) is None


def test_what_a_group_reads_beyond_its_operands_counts():
    border = 4 * 13 * 14 * 12
    found = attention().estimate(task_of(SCORES, SOFTMAX, VALUES, read_bytes=border + 429 * 4))
    assert found.moved_bytes == border + 429 * 4


@pytest.mark.parametrize(
    "task",
    [
        task_of(SCORES, SOFTMAX, VALUES, precision="int8"),
        task_of(SCORES, VALUES),
        task_of(SCORES, SOFTMAX),
        task_of(SCORES, Rowwise("LayerNormalization", 39, 11), VALUES),
        task_of(SCORES, SOFTMAX, VALUES, Convolution(1, 3, 5, 5, 7, 5, 5)),
        task_of(SCORES, SOFTMAX, Matmul(3, 12, 5, 13)),
        task_of(SCORES, Rowwise("Softmax", 143, 3), VALUES),
        task_of(Matmul(3, 65, 11, 13, False), SOFTMAX, VALUES),
        task_of(SCORES, SOFTMAX, VALUES, on_chip_bytes=1),
    ],
)
def test_what_it_cannot_compute(task):
    assert attention().estimate(task) is None


# --- resources ------------------------------------------------------------------------------------------------------


def test_resources_by_hand():
    """12 lanes of fp32; 2 exponentials; 1 MiB is 29 UltraRAMs of 36,864 bytes; tiles and blocks of two rows in LUTs."""
    engine = attention(ports=PORTS)
    tiles = (2 * (2 * 32 + 32) * 64 + 2 * 5 * 2 * (32 + 32)) / 32
    softmax = COSTS.of(exponential=2, add=4, multiply=4, convert=2, compare=2, divide=1)
    lanes = Resources(lut=12 * 349, ff=12 * 355, dsp=60)
    ports = Resources(lut=3 * 2208, ff=3 * 735, bram36=12, memory_channels=3)
    assert engine.resources == COSTS.control + lanes + softmax + ports + Resources(lut=tiles, uram=29)
    # 2 x 3 values of 32 bits in every cycle are 192 bits: three blocks, however little they hold.
    assert replace(engine, buffer_bytes=1).resources.uram == 3
    without = replace(engine, uses_uram=False).resources
    assert (without.uram, without.bram36) == (0, 12 + ceil((1 << 20) / 4608))


def test_narrow_formats_take_fewer_dsps_and_a_dsp58_one_for_fp32():
    wide, narrow = attention(query_rows=32, row_lanes=32), attention(query_rows=32, row_lanes=32, precision="int8")
    assert wide.resources.dsp - narrow.resources.dsp == 2048 * (5 - 0.5)
    assert attention(query_rows=32, row_lanes=32, macs_per_dsp=1.0).resources.dsp == wide.resources.dsp - 2048 * 4
    assert narrow.estimate_attention(SMALL).moved_bytes == 14 * 12


def test_it_is_an_engine():
    engine: Engine = attention()
    assert (engine.name, engine.kind, engine.clock_mhz, engine.spans_regions) == (
        "attention-2x3-fp32",
        "attention",
        100,
        False,
    )
    assert engine.efficiency == LOOPS_ALONE
