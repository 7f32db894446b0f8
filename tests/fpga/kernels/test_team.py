"""Engines that share one call: by hand, and against a loop that gives out heads one after the other."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from common.fpga.coefficients import load_models
from common.fpga.kernels.dataflow.attention import Heads
from common.fpga.kernels.systolic.array import build_array
from common.fpga.kernels.team import Team, shared
from common.workload.layers import Convolution, Matmul, Pointwise, Rowwise
from tests.support.kernels.dataflow_kernels import PORTS, attention, task_of
from tests.support.paths import CONFIGS

MODELS = load_models(CONFIGS)


def heads_task(count, queries=11, keys=13, depth=7, **changes):
    """Attention of so many heads: both products, and softmax between them."""
    layers = (
        Matmul(queries, depth, keys, count, has_weight=False),
        Pointwise("Mul", count * queries * keys),
        Rowwise("Softmax", count * queries, keys),
        Matmul(queries, keys, depth, count, has_weight=False),
    )
    read, written = 4 * count * depth * (queries + 2 * keys), 4 * count * queries * depth
    return task_of(*layers, kind="attention", read_bytes=read, written_bytes=written, **changes)


def test_the_largest_share_decides():
    """Seven heads on three members: three heads, and two further starts of 23 cycles at 100 MHz."""
    member = attention(ports=PORTS)
    found = Team(member, 3, 23.0).estimate(heads_task(7))
    largest = member.estimate_attention(Heads(3, 11, 13, 7, 7))
    for mine, share in zip(found.time_us.cases, largest.time_us.cases, strict=True):
        assert mine == pytest.approx(share + 2 * 0.23)
    whole = member.estimate(heads_task(7))
    assert (found.flops, found.moved_bytes) == (whole.flops, whole.moved_bytes)
    assert found.cycles.likely == pytest.approx(100 * found.time_us.likely)


@settings(max_examples=60, deadline=None)
@given(count=st.integers(1, 40), members=st.integers(2, 5))
def test_shares_are_those_of_heads_given_out_in_turn(count, members):
    given_out = [0] * members
    for head in range(count):
        given_out[head % members] += 1
    share = shared(heads_task(count), members)
    if count < members:
        assert share is None
        return
    products = [layer for layer in share.layers if isinstance(layer, Matmul)]
    assert {layer.batch for layer in products} == {max(given_out)}
    assert share.layers[2].rows == 11 * max(given_out)
    assert share.macs * count == heads_task(count).macs * max(given_out)


@settings(max_examples=40, deadline=None)
@given(count=st.integers(2, 30), members=st.integers(2, 4))
def test_a_team_is_never_quicker_than_all_its_lanes(count, members):
    """No team beats its members' multipliers, and it moves each byte over its own channels."""
    member = attention(ports=PORTS)
    found = Team(member, members, 0.0).estimate(heads_task(count))
    if found is None:
        assert count < members
        return
    macs = heads_task(count).macs
    for us in found.time_us.cases:
        assert us * member.clock_mhz * member.lanes * members >= macs * (1 - 1e-12)
    assert found.time_us.likely <= member.estimate(heads_task(count)).time_us.likely


def test_resources_are_those_of_all_members():
    member = attention(ports=PORTS)
    team = Team(member, 3, 23.0)
    assert team.resources == member.resources.times(3)
    assert team.ports.count == 3 * member.ports.count
    assert (team.name, team.kind, team.spans_regions) == ("3x-attention-2x3-fp32", "attention", True)


def test_what_has_no_batch_is_not_shared():
    image = Convolution(1, 3, 7, 7, 5, 5, 5, 3, 3)
    assert shared(task_of(image), 2) is None
    assert shared(task_of(replace(image, batch=5)), 2).layers[0].batch == 3
    assert shared(task_of(Matmul(3, 5, 7, 4), Matmul(3, 7, 5, 2)), 2) is None  # two extents: no batch of both
    assert shared(heads_task(4, on_chip_bytes=1), 2) is None
    assert Team(attention(), 2, 0.0).estimate(task_of(Matmul(3, 5, 7, 4))) is None


def test_images_of_a_batch_are_shared_by_arrays():
    """Seven images on three arrays: three, each with all weights; the call of three images and two starts."""
    array = build_array((4, 4, 1), "fp32", PORTS, 0.2, MODELS.systolic)
    layer = Convolution(7, 3, 9, 9, 5, 7, 7, 3, 3)
    task = task_of(layer, kind="conv", weight_bytes=540, read_bytes=7 * 972, written_bytes=7 * 980)
    three = task_of(replace(layer, batch=3), kind="conv", weight_bytes=540, read_bytes=3 * 972, written_bytes=3 * 980)
    found = Team(array, 3, 1000.0).estimate(task)
    assert found.time_us.likely == pytest.approx(array.estimate(three).time_us.likely + 2000 / array.clock_mhz)
    assert found.flops == 2 * 7 * 5 * 49 * 27
