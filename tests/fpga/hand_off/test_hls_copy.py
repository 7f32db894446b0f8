"""The kernel that copies between an array's ports and a streaming kernel's vectors, compiled by g++."""

from __future__ import annotations

import ctypes
import shutil
from math import ceil

import numpy as np
import pytest

from common.fpga.hand_off.designs import ARITHMETIC, copier
from common.fpga.hand_off.units import KernelPort
from tests.support.kernels.hls import BITS, WORD_BYTES, as_bytes, compiled, counting, port_names

PORT_COUNT = 3
# Lines, and elements of a line: full words, an odd number, less than a word, a single line, one longer than all words.
SHAPES = [(4, 64), (5, 37), (7, 3), (1, 53), (2, 1000), (64, 1)]
pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="no g++: make rtl-tools")


def vector_ports(count):
    return [KernelPort(f"v{index}", 8 * WORD_BYTES, "") for index in range(count)]


@pytest.fixture(scope="module")
def kernels(tmp_path_factory):
    """The compiled kernel of each format, for one vector and for two, with counters of its loops."""
    folder, built = tmp_path_factory.mktemp("copy"), {}
    for precision, vectors in [*((name, 1) for name in ARITHMETIC), ("int8", 2)]:
        text, labels = counting(copier(precision, "K", port_names(PORT_COUNT), vector_ports(vectors)))
        function = compiled(text, folder, f"{precision}_{vectors}")
        counted = ctypes.CDLL(str(folder / f"{precision}_{vectors}.so")).counted
        counted.restype = ctypes.POINTER(ctypes.c_longlong)
        built[precision, vectors] = function, labels, counted
    return built


def spread(content, before):
    """A tensor over the ports word by word, behind ``before`` words of each; the rest is filled with marks."""
    words = ceil(len(content) / WORD_BYTES)
    ports = np.full((PORT_COUNT, before + words // PORT_COUNT + 2, WORD_BYTES), 0xA5, np.uint8)
    padded = np.frombuffer(content.ljust(words * WORD_BYTES, b"\xa5"), np.uint8).reshape(words, WORD_BYTES)
    for word in range(words):
        ports[word % PORT_COUNT, before + word // PORT_COUNT] = padded[word]
    return ports


def in_lines(values, bits, vectors, before):
    """Vector v on port v % vectors, each from a word on; what is behind its elements is zero."""
    line_bytes = ceil(values.shape[1] * bits / 8 / WORD_BYTES) * WORD_BYTES
    of_port = [b"" for _ in range(vectors)]
    for line, row in enumerate(values):
        of_port[line % vectors] += as_bytes(row, bits).ljust(line_bytes, b"\0")
    most = max(map(len, of_port)) // WORD_BYTES
    ports = np.full((vectors, before + most + 1, WORD_BYTES), 0x5A, np.uint8)
    for port, content in enumerate(of_port):
        words = np.frombuffer(content, np.uint8).reshape(-1, WORD_BYTES)
        ports[port, before : before + len(words)] = words
    return ports


def run(kernel, ports, vectors, bases, shape, *, is_to_vectors):
    """Run a call; both memories are changed in place. Return the cycles of its loops."""
    function, labels, counted = kernel
    before = dict(zip(labels, counted(), strict=False))
    pointers = [ctypes.c_void_p(port.ctypes.data) for port in (*ports, *vectors)]
    function(*pointers, *map(ctypes.c_int64, (*bases, *shape)), ctypes.c_int32(is_to_vectors))
    return {label: counted()[at] - before[label] for at, label in enumerate(labels)}


@pytest.mark.slow
@pytest.mark.parametrize(("precision", "vectors"), [*((name, 1) for name in BITS), ("int8", 2)])
@pytest.mark.parametrize("shape", SHAPES)
def test_a_tensor_goes_there_and_back(kernels, precision, vectors, shape):
    """Both layouts by numpy; what stands around the tensor is not touched, and a word moves in every cycle."""
    bits, half = BITS[precision], 1 << (BITS[precision] - 1)
    values = np.random.default_rng(shape[1]).integers(-half, half, shape)
    as_sequence, as_lines = spread(as_bytes(values, bits), 2), in_lines(values, bits, vectors, 3)
    found = np.full_like(as_lines, 0x5A)
    cycles = run(kernels[precision, vectors], as_sequence.copy(), found, (2, 3), shape, is_to_vectors=True)
    np.testing.assert_array_equal(found, as_lines)
    words = shape[0] * ceil(shape[1] * bits / 8 / WORD_BYTES)
    assert (cycles["spread"], cycles["join"]) == (words, 0)

    # An odd number of elements of four bits leaves half a byte, which keeps what stood there.
    back = np.full_like(as_sequence, 0xA5)
    cycles = run(kernels[precision, vectors], back, as_lines.copy(), (3, 2), shape, is_to_vectors=False)
    if bits == 4 and values.size % 2:
        as_sequence = spread(as_bytes(np.append(values.ravel(), -6), bits), 2)  # 0xA of the mark
    np.testing.assert_array_equal(back, as_sequence)
    assert (cycles["spread"], cycles["join"]) == (0, words)
