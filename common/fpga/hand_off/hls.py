"""C++ for high-level synthesis of the engines of a plan: loops, buffers and ports as pragmas, and right numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from string import Template

from common.fpga.hand_off.connectivity import design_name
from common.fpga.hand_off.ports import KernelPort
from common.fpga.kernels.estimate import Engine
from common.fpga.kernels.systolic import SystolicArray
from common.fpga.planning.planned_kernels import PlannedKernel
from common.number_formats import PRECISION_BITS

FOLDER = Path(__file__).resolve().parent
STORAGE = {"LUT RAM": "lutram", "block RAM": "bram", "UltraRAM": "uram"}


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """A number format in C++: its types, and how an element is taken from bytes, put into bytes and made of a sum."""

    element: str
    total: str
    unpack: str
    pack: str
    epilogue: str


REQUANTIZE = """\
    const float scaled = std::nearbyint(float(sum + bias) * scale) + float(zero);
    return element_t(scaled < least ? least : scaled > most ? most : scaled);"""
RESCALE = """\
    const float scaled = (sum + bias) * scale + float(zero);
    return scaled < least ? least : scaled > most ? most : scaled;"""
PUT_BYTES = """\
        uint8_t bytes[sizeof(stored_t)];
        std::memcpy(bytes, &stored, sizeof(stored_t));
        for (unsigned i = 0; i < sizeof(stored_t); ++i) byte({names}, index * sizeof(stored_t) + i, bytes[i], 0xff);"""


def _whole_bytes(stored: str, element: str, total: str, epilogue: str) -> Arithmetic:
    put = f"        typedef {stored} stored_t;\n        const stored_t stored = value;\n" + PUT_BYTES
    return Arithmetic(element, total, f"        return value<{stored}>({{names}}, index);", put, epilogue)


ARITHMETIC: Mapping[str, Arithmetic] = {
    "int16": _whole_bytes("int16_t", "int16_t", "int64_t", REQUANTIZE),
    "int8": _whole_bytes("int8_t", "int8_t", "int32_t", REQUANTIZE),
    "fp32": _whole_bytes("float", "float", "float", RESCALE),
    "int4": Arithmetic(
        "int8_t",
        "int32_t",
        "        const int8_t both = int8_t(byte({names}, index / 2));\n"
        "        return index % 2 ? int8_t(both >> 4) : int8_t(int8_t(both << 4) >> 4);",
        "        const bool is_upper = index % 2;\n"
        "        byte({names}, index / 2, uint8_t(is_upper ? value << 4 : value), is_upper ? 0xf0 : 0x0f);",
        REQUANTIZE,
    ),
    "bf16": Arithmetic(
        "float",
        "float",
        "        const uint32_t bits = uint32_t(value<uint16_t>({names}, index)) << 16;\n"
        "        float result;\n"
        "        std::memcpy(&result, &bits, sizeof result);\n"
        "        return result;",
        "        uint32_t bits;\n"
        "        std::memcpy(&bits, &value, sizeof bits);\n"
        "        const uint32_t rounded = bits + 0x7fff + (bits >> 16 & 1);  // to the nearest, ties to even\n"
        "        byte({names}, 2 * index, uint8_t(rounded >> 16), 0xff);\n"
        "        byte({names}, 2 * index + 1, uint8_t(rounded >> 24), 0xff);",
        RESCALE,
    ),
}


def hls_files(kernels: Sequence[PlannedKernel], ports: Mapping[str, Sequence[KernelPort]]) -> dict[str, str]:
    """Return the C++ of each design that there is some for, by its path."""
    texts = {design_name(kernel): cpp(kernel.engine, design_name(kernel), ports[kernel.name]) for kernel in kernels}
    return {f"hls/{design}.cpp": text for design, text in texts.items() if text is not None}


def cpp(engine: Engine, design: str, ports: Sequence[KernelPort]) -> str | None:
    """Return the text of one design; None for engines whose arithmetic stands in no template."""
    if not isinstance(engine, SystolicArray):
        return None
    values = _memory(engine.precision, design, ports) | _array(engine)
    texts = [(FOLDER / name).read_text(encoding="utf-8") for name in ("memory.cpp", "array.cpp")]
    return Template("".join(texts)).substitute(values)


def _memory(precision: str, design: str, ports: Sequence[KernelPort]) -> dict[str, object]:
    """Return the values of memory.cpp."""
    arithmetic, names = ARITHMETIC[precision], [port.name for port in ports]
    listed = ", ".join(names)
    last = len(names) - 1
    labels = ["default" if index == last else f"case {index}" for index in range(len(names))]
    return {
        "design": design,
        "port_count": len(ports),
        "word_bytes": ports[0].bits // 8,
        "element_bits": PRECISION_BITS[precision],
        "element_type": arithmetic.element,
        "sum_type": arithmetic.total,
        "unpack": arithmetic.unpack.format(names=listed),
        "pack": arithmetic.pack.format(names=listed),
        "epilogue": arithmetic.epilogue,
        "port_arguments": ", ".join(f"word_t *{name}" for name in names),
        "port_names": listed,
        "read_cases": _cases(labels, names, "return {name}[at];"),
        "write_cases": _cases(labels, names, "{name}[at] = value; break;"),
        "interfaces": "\n".join([*map(_interface, ports), "#pragma HLS INTERFACE s_axilite port=return"]),
    }


def _cases(labels: Sequence[str], names: Sequence[str], action: str) -> str:
    return "\n".join(f"        {label}: {action.format(name=name)}" for label, name in zip(labels, names, strict=True))


def _interface(port: KernelPort) -> str:
    words = port.burst_words
    return (
        f"#pragma HLS INTERFACE m_axi port={port.name} bundle={port.name} offset=slave"
        f" max_widen_bitwidth={port.bits} max_read_burst_length={words} max_write_burst_length={words}"
    )


def _array(engine: SystolicArray) -> dict[str, object]:
    """Return the values of array.cpp."""
    held = {buffer.name: STORAGE[buffer.memory] for buffer in engine.buffers}
    return {
        "rows": engine.rows,
        "cols": engine.cols,
        "simd": engine.simd,
        "tile_rows": engine.tile.rows,
        "tile_cols": engine.tile.cols,
        "tile_depth": engine.tile.depth,
        **{f"{name}_storage": held[name] for name in ("a", "b", "sums")},
    }
