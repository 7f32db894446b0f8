"""Number formats in C++: their types, and how an element is taken from bytes and put into bytes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """A number format in C++: its types, its file, and how an element is taken from bytes and put into bytes."""

    element: str
    total: str
    unpack: str
    pack: str
    is_integer: bool = True


PUT_BYTES = """\
        uint8_t bytes[sizeof(stored_t)];
        std::memcpy(bytes, &stored, sizeof(stored_t));
        const unsigned size = sizeof(stored_t);
        for (unsigned i = 0; i < size; ++i) byte($port_names, index * size + i, bytes[i], 0xff);"""


def _whole_bytes(element: str, total: str, *, is_integer: bool = True) -> Arithmetic:
    put = f"        typedef {element} stored_t;\n        const stored_t stored = value;\n" + PUT_BYTES
    return Arithmetic(element, total, f"        return value<{element}>($port_names, index);", put, is_integer)


ARITHMETIC: Mapping[str, Arithmetic] = {
    "int16": _whole_bytes("int16_t", "int64_t"),
    "int8": _whole_bytes("int8_t", "int32_t"),
    "fp32": _whole_bytes("float", "float", is_integer=False),
    "int4": Arithmetic(
        "int8_t",
        "int32_t",
        "        const int8_t both = int8_t(byte($port_names, index / 2));\n"
        "        return index % 2 ? int8_t(both >> 4) : int8_t(int8_t(both << 4) >> 4);",
        "        const bool is_upper = index % 2;\n"
        "        byte($port_names, index / 2, uint8_t(is_upper ? value << 4 : value), is_upper ? 0xf0 : 0x0f);",
    ),
    "bf16": Arithmetic(
        "float",
        "float",
        "        const uint32_t bits = uint32_t(value<uint16_t>($port_names, index)) << 16;\n"
        "        float result;\n"
        "        std::memcpy(&result, &bits, sizeof result);\n"
        "        return result;",
        "        uint32_t bits;\n"
        "        std::memcpy(&bits, &value, sizeof bits);\n"
        "        const uint32_t rounded = bits + 0x7fff + (bits >> 16 & 1);  // to the nearest, ties to even\n"
        "        byte($port_names, 2 * index, uint8_t(rounded >> 16), 0xff);\n"
        "        byte($port_names, 2 * index + 1, uint8_t(rounded >> 24), 0xff);",
        is_integer=False,
    ),
}
