"""The C++ of a hand-off as a function in this process: its memory, the program of a call, and what it leaves."""

from __future__ import annotations

import ctypes
import re
import subprocess
from dataclasses import dataclass, field

import numpy as np

from common.fpga.hand_off.units import KernelPort

WORD_BYTES = 16
FLAGS = ("-std=c++14", "-O1", "-Wall", "-Wextra", "-Werror", "-Wno-unknown-pragmas", "-Wno-unused-label")
BITS = {"int4": 4, "int8": 8, "int16": 16}
MOST_OPERANDS, MOST_STEPS = 5, 12  # of a program

SUM, PRODUCT, QUOTIENT, INVERSE, LARGEST, SMALLEST, SLOPE, SLOPE_OF_OPERAND, TABLE, ROOT, EXPONENTIAL = range(11)
ENTERED, ONE = -1, -2  # operands that are no tensor
INT32 = -(2**31), 2**31 - 1


def port_names(count):
    return [KernelPort(f"p{index}", 8 * WORD_BYTES, "") for index in range(count)]


def compiled(text, folder, name, function="K"):
    """Compile a design with all warnings as errors, and return its function."""
    source, library = folder / f"{name}.cpp", folder / f"{name}.so"
    source.write_text(text, encoding="utf-8")
    subprocess.run(["g++", *FLAGS, "-shared", "-fPIC", "-o", library, source], check=True)
    return getattr(ctypes.CDLL(str(library)), function)


# --- loops ---------------------------------------------------------------------------------------------------------

# A pipelined loop: its label at the begin of a line, its head, and the pragma in the line below.
LABEL = re.compile(r"^ +(\w+:)$", re.MULTILINE)
LOOP = re.compile(
    r"^(?P<label>\w+):\n *(?:for|while) \(.*\) \{\n(?=#pragma HLS PIPELINE II=(?P<interval>\d+)\n)", re.MULTILINE
)
WORD = re.compile(r"beat\.word\[\d+\] = p\d+\[base \+ at\];")  # a word of a port is read


def counting(text):
    """The text with a counter of cycles in each pipelined loop and one of words, and what they count."""
    plain = LABEL.sub(r"\1", text)
    labels = [found["label"] for found in LOOP.finditer(plain)]
    places = iter(range(len(labels)))
    counted = LOOP.sub(lambda found: f"{found[0]}        trips[{next(places)}] += {found['interval']};\n", plain)
    counted = WORD.sub(lambda found: f"++trips[{len(labels)}], {found[0]}", counted)
    head = f'static long long trips[{len(labels) + 1}];\nextern "C" long long *counted() {{ return trips; }}\n'
    return head + counted, [*labels, "words"]


# --- tensors ----------------------------------------------------------------------------------------------------------


def as_bytes(values, bits):
    """The bytes of a tensor of integers; two of four bits share one, the first in the lower half."""
    flat = np.ascontiguousarray(values).reshape(-1)
    if bits != 4:
        return flat.astype(f"<i{bits // 8}").tobytes()
    nibbles = np.append(flat, 0)[: (len(flat) + 1) // 2 * 2].astype(np.uint8) & 15
    return (nibbles[::2] | nibbles[1::2] << 4).astype(np.uint8).tobytes()


def elements(content, count, bits):
    """The first integers of a sequence of bytes."""
    if bits != 4:
        return np.frombuffer(content[: count * bits // 8].tobytes(), f"<i{bits // 8}").astype(np.int64)
    pairs = content[: (count + 1) // 2]
    values = np.stack([pairs & 15, pairs >> 4], axis=1).reshape(-1)[:count].astype(np.int64)
    return np.where(values > 7, values - 16, values)


class Memory:
    """Ports with their words; a tensor is spread over all of them, word by word."""

    def __init__(self, port_count, word_bytes=WORD_BYTES):
        self.words, self.word_bytes = [[] for _ in range(port_count)], word_bytes

    def add(self, content):
        """Place a tensor, and return its base."""
        size = self.word_bytes
        words = [content[i : i + size].ljust(size, b"\0") for i in range(0, len(content), size)]
        words += [b"\xaa" * size] * (-len(words) % len(self.words))  # the rest belongs to somebody else
        base = len(self.words[0])
        for index, word in enumerate(words):
            self.words[index % len(self.words)].append(word)
        return base

    def arrays(self):
        """The content of each port."""
        return [np.frombuffer(b"".join(words), np.uint8).copy() for words in self.words]

    def run(self, kernel, *scalars):
        """Call the kernel, and return the memory as one sequence of bytes."""
        ports = self.arrays()
        kernel(*map(pointer, ports), *scalars)
        return np.stack([port.reshape(-1, self.word_bytes) for port in ports], axis=1).reshape(-1)

    def after(self, content, base):
        """The bytes from a base on."""
        return content[base * len(self.words) * self.word_bytes :]


def pointer(port):
    return port.ctypes.data_as(ctypes.c_void_p)


# --- programs ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class View:
    base: int
    strides: tuple
    offset: int = 0
    zero: int = 0
    is_wide: bool = False

    @property
    def numbers(self):
        return [self.base, self.offset, *self.strides, self.zero, int(self.is_wide)]


@dataclass(frozen=True)
class Step:
    operation: int
    operand: int = ONE
    m: float = 1
    n: float = 0
    shift: int = 0
    least: float = INT32[0]
    most: float = INT32[1]

    @property
    def numbers(self):
        return [self.operation, self.operand, self.m, self.n, self.shift, self.least, self.most, 0]


@dataclass(frozen=True)
class Program:
    kind: int = 0
    extents: tuple = (1, 1, 1, 1)
    before: tuple = ()
    after: tuple = ()
    table: int = -1
    settings: tuple = ()
    result: View = View(0, (0, 0, 0, 0))
    operands: tuple = field(default=())

    def content(self, is_integer=True):
        """The bytes of a program, in the order that the C++ documents."""
        nothing = View(0, (0, 0, 0, 0))
        views = [*self.operands, *[nothing] * (MOST_OPERANDS - len(self.operands))]
        steps = [step.numbers for step in (*self.before, *self.after)]
        steps += [[0] * 8] * (MOST_STEPS - len(steps))
        numbers = [self.kind, *self.extents, len(self.before), len(self.after), self.table]
        numbers += [*self.settings, *[0] * (32 - len(self.settings))]
        numbers += self.result.numbers + [number for view in views for number in view.numbers]
        numbers += [number for step in steps for number in step]
        return np.array(numbers, "<i8" if is_integer else "<f8").tobytes()


# --- the arithmetic of integer lanes, by its definition ---------------------------------------------------------------


def rounded(value, shift):
    """The nearest whole number of value / 2^shift, ties towards the larger, in exact integers."""
    value = np.asarray(value, dtype=object)
    return value * 2**-shift if shift < 0 else value if shift == 0 else (2 * value + 2**shift) // 2 ** (shift + 1)


def exponential(distance):
    """65536 * 2^-(distance / 65536), from a table of 256 intervals."""
    whole, fraction = divmod(int(distance), 65536)
    if whole > 31:
        return 0
    index, rest = divmod(fraction, 256)
    low, high = (round(65536 * 2 ** -(at / 256)) for at in (index, index + 1))
    return int(rounded(low * (256 - rest) + high * rest, 8 + whole))


def ratio(value, divisor, fraction_bits):
    """value / divisor through a reciprocal of the leading 16 bits of the divisor."""
    shift = int(divisor).bit_length() - 16
    leading = divisor >> shift if shift >= 0 else divisor << -shift
    return int(rounded(int(value) * (2**31 // leading), 31 + shift - fraction_bits))
