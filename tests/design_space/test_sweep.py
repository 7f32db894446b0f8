"""Sizes of a sweep, written one by one and as ranges."""

from __future__ import annotations

import itertools

import pytest

from common.design_space.accelerator.hardware_files import load_hardware
from common.design_space.accelerator.sweep import designs
from common.messages.errors import UnusableValueError
from tests.support.paths import CONFIGS

GEMMINI = load_hardware("gemmini", CONFIGS / "hardware")


def kib(text):
    found = designs(GEMMINI, f"scratchpad_kib={text}")
    sizes = [hardware.level("scratchpad").capacity_kib for hardware in found.values()]
    assert list(found) == [f"gemmini scratchpad_kib={size:g}" for size in sizes]
    return sizes


@pytest.mark.parametrize(
    ("text", "sizes"),
    [
        ("8,16,…,128", [8, 16, 32, 64, 128]),
        ("8,16,...,128", [8, 16, 32, 64, 128]),
        ("64,16,…,1", [64, 16, 4, 1]),
        ("3,8,16,…,64,100", [3, 8, 16, 32, 64, 100]),
        ("1,2,…,8,24,…,72", [1, 2, 4, 8, 24, 72]),
        ("8,16,…,16", None),
        ("8,16,…,32", [8, 16, 32]),
        ("2,3,…,6.75", [2, 3, 4.5, 6.75]),
        ("8,8", [8]),
    ],
)
def test_a_range_goes_on_as_its_first_two_sizes_do(text, sizes):
    if sizes is None:
        with pytest.raises(UnusableValueError, match="does not meet 16"):
            kib(text)
    else:
        assert kib(text) == sizes


def test_a_range_of_many_steps_meets_its_end():
    found = designs(GEMMINI, f"scratchpad_kib=0.1,0.11,…,{0.1 * 1.1**40!r}").values()
    sizes = [hardware.level("scratchpad").capacity_kib for hardware in found]
    assert len(sizes) == 41
    assert [after / before for before, after in itertools.pairwise(sizes)] == pytest.approx([1.1] * 40)


@pytest.mark.parametrize(
    ("text", "sides"),
    [
        ("4x4,8x8,…,64x64", [(4, 4), (8, 8), (16, 16), (32, 32), (64, 64)]),
        ("16x2,16x6,…,16x54", [(16, 2), (16, 6), (16, 18), (16, 54)]),
        ("64x2,32x6,…,8x54", [(64, 2), (32, 6), (16, 18), (8, 54)]),
        ("9x9,21x21,…,49x49", [(9, 9), (21, 21), (49, 49)]),
    ],
)
def test_both_sides_of_an_array_go_on(text, sides):
    found = designs(GEMMINI, f"array={text}")
    assert [(hardware.array.rows, hardware.array.columns) for hardware in found.values()] == sides


@pytest.mark.slow
@pytest.mark.parametrize(
    "sweep",
    [
        "scratchpad_kib=…",
        "scratchpad_kib=8,…,64",
        "scratchpad_kib=8,16,…",
        "scratchpad_kib=…,8,16",
        "scratchpad_kib=8,16,…,…,64",
        "scratchpad_kib=8,16,…,4",
        "scratchpad_kib=8,8,…,64",
        "scratchpad_kib=16,8,…,64",
        "scratchpad_kib=8,16,…,63",
        "scratchpad_kib=1,1.00001,…,1024",
        "array=9x9,12x12,…,27x27",
        "array=4x4,8x8,…,64x32",
        "array=4x4,8x8,…,64",
    ],
)
def test_what_is_no_range_is_refused(sweep):
    with pytest.raises(UnusableValueError):
        designs(GEMMINI, sweep)


def test_a_sweep_has_an_end():
    sides = ",".join(f"{side}x{side}" for side in range(1, 400))
    with pytest.raises(UnusableValueError, match="it has 119700 designs"):
        designs(GEMMINI, f"array={sides} scratchpad_kib={','.join(map(str, range(1, 301)))}")


def test_a_memory_that_holds_no_tile_is_a_design_too():
    (hardware,) = designs(GEMMINI, "scratchpad_kib=0.0001").values()
    assert hardware.level("scratchpad").capacity_kib == 0.0001
    with pytest.raises(UnusableValueError, match="below one tile"):
        hardware.require_room()


def test_the_buffer_is_the_outermost_memory_on_the_chip():
    assert designs(GEMMINI, "buffer_kib=8,64") == designs(GEMMINI, "scratchpad_kib=8,64")
    with pytest.raises(UnusableValueError, match="is there twice"):
        designs(GEMMINI, "buffer_kib=8 scratchpad_kib=8")
