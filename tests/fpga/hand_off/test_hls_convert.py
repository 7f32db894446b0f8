"""The converter of a hand-off, compiled by g++: formats and orders of maps, and the trips of its loops."""

from __future__ import annotations

import ctypes
import shutil
from math import ceil

import numpy as np
import pytest

from common.fpga.hand_off.designs import converter
from tests.support.kernels.hls import WORD_BYTES, Memory, Program, as_bytes, compiled, counting, elements, port_names

PORT_COUNT = 4
SCALE, ZERO = np.float32(0.037), -5
pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="no g++: make rtl-tools")


@pytest.fixture(scope="module")
def kernel(tmp_path_factory):
    """The compiled converter with counters, and the names of what they count."""
    text, labels = counting(converter("int8", "K", port_names(PORT_COUNT)))
    folder = tmp_path_factory.mktemp("convert")
    function = compiled(text, folder, "convert")
    counted = ctypes.CDLL(str(folder / "convert.so")).counted
    counted.restype = ctypes.POINTER(ctypes.c_longlong)
    return function, labels, counted


def converted(kernel, content, shape, size, *, from_float=False, to_float=False):
    """The bytes of the target, and the trips of the loops."""
    function, labels, counted = kernel
    memory = Memory(PORT_COUNT)
    bases = memory.add(content), memory.add(bytes(size))
    settings = [*bases, *shape, int(from_float), int(to_float), int(SCALE.view(np.int32)), ZERO]
    program = memory.add(Program(settings=settings).content())
    before = dict(zip(labels, counted(), strict=False))
    whole = memory.run(function, ctypes.c_int64(program))
    found = {label: counted()[place] - before[label] for place, label in enumerate(labels)}
    return memory.after(whole, bases[1])[:size], found


SHAPES = [(3, 1000), (64, 65), (70, 131), (1, 77), (130, 1)]


@pytest.mark.parametrize("shape", SHAPES)
def test_maps_of_the_host_become_those_of_an_array(kernel, shape):
    x = np.random.default_rng(1).standard_normal(shape).astype("<f4") * 3
    found, _ = converted(kernel, x.tobytes(), shape, x.size, from_float=True)
    expected = np.clip(np.rint(x / SCALE) + ZERO, -128, 127).T
    assert len(np.unique(expected)) > 20
    np.testing.assert_array_equal(elements(found, x.size, 8), expected.ravel())


@pytest.mark.parametrize("shape", SHAPES)
def test_maps_of_an_array_become_those_of_the_host(kernel, shape):
    q = np.random.default_rng(2).integers(-128, 128, shape)
    found, _ = converted(kernel, as_bytes(q, 8), shape, 4 * q.size, to_float=True)
    np.testing.assert_array_equal(np.frombuffer(found.tobytes(), "<f4"), ((q - ZERO).astype("<f4") * SCALE).T.ravel())


@pytest.mark.parametrize("shape", SHAPES)
def test_channels_go_from_inside_to_outside(kernel, shape):
    q = np.random.default_rng(3).integers(-128, 128, shape)
    found, trips = converted(kernel, as_bytes(q, 8), shape, q.size)
    np.testing.assert_array_equal(elements(found, q.size, 8), q.T.ravel())
    beat = PORT_COUNT * WORD_BYTES
    assert trips["load"] >= q.size / beat
    # A row of a block begins and ends within a beat, and columns leave whole.
    blocks = ceil(shape[0] / beat), ceil(shape[1] / beat)
    assert trips["load"] <= shape[0] * (blocks[1] + ceil(shape[1] / beat))


def test_a_map_of_full_words_takes_a_beat_for_each_trip(kernel):
    """192 channels of 640 pixels: each loop moves a word of every port per trip."""
    q = np.random.default_rng(4).integers(-128, 128, (640, 192))
    found, trips = converted(kernel, as_bytes(q, 8), q.shape, q.size)
    np.testing.assert_array_equal(elements(found, q.size, 8), q.T.ravel())
    beats = q.size // (PORT_COUNT * WORD_BYTES)
    assert (trips["load"], trips["store"]) == (beats, beats)
