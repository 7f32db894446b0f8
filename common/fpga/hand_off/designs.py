"""The designs of a plan's engines: C++ for Vitis HLS from templates, and the Verilog of arrays."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from string import Template

from common.fpga.hand_off.units import ComputeUnit, KernelPort
from common.fpga.kernels.dataflow.attention import AttentionEngine
from common.fpga.kernels.dataflow.rowwise import RowwiseEngine
from common.fpga.kernels.dataflow.streaming import StreamingGemv
from common.fpga.kernels.estimate import Engine
from common.fpga.kernels.systolic.array import SystolicArray
from common.fpga.kernels.systolic.loading import line_words
from common.fpga.rtl.generate import FORMATS, Design
from common.graphs.number_formats import PRECISION_BITS

Values = Mapping[str, object]

FOLDER = Path(__file__).resolve().parent / "templates"
STORAGE = {"LUT RAM": "lutram", "block RAM": "bram", "UltraRAM": "uram"}
# A program has room for an input, a residual, the scale and the shift of a normalization, and one more tensor.
MOST_OPERANDS, MOST_STEPS = 5, 12
POWERS = [round(65536 * 2 ** -(index / 256)) for index in range(257)]


def design_files(units: Iterable[ComputeUnit]) -> dict[str, str]:
    """Return the Verilog and the C++ of each design that has them, by their paths."""
    files = {}
    for unit in units:
        if (design := array_design(unit.engine)) is not None:
            files[f"rtl/{unit.design}.v"] = design.verilog()
        if (text := cpp(unit.engine, unit.design, unit.ports)) is not None:
            files[f"hls/{unit.design}.cpp"] = text
    return files


def cpp(engine: Engine, design: str, ports: Sequence[KernelPort]) -> str | None:
    match engine:
        case SystolicArray():
            values, arguments = _array(engine), _all_ports(ports)
        case RowwiseEngine():
            values, arguments = _rowwise(engine), _all_ports(ports)
        case AttentionEngine():
            values, arguments = _attention(engine), _all_ports(ports)
        case StreamingGemv():
            values, arguments = _streaming(engine, ports), _named_ports(["port"])
        case _:
            return None
    beats = ["beats.cpp"] if isinstance(engine, SystolicArray) else []
    files = [*_computing(engine.precision), *beats, f"{engine.kind}.cpp"]
    return _joined(engine.precision, design, ports, files, values, arguments)


def converter(precision: str, design: str, ports: Sequence[KernelPort]) -> str:
    """Return the C++ of a kernel that turns matrices and converts between an integer format and float32."""
    files = [*_computing(precision), "beats.cpp", "convert.cpp"]
    return _joined(precision, design, ports, files, {}, _all_ports(ports))


def copier(precision: str, design: str, ports: Sequence[KernelPort], vectors: Sequence[KernelPort]) -> str:
    """Return the C++ of a kernel that copies between ports of an array and those of a streaming kernel's vectors."""
    names = [port.name for port in vectors]
    values = {
        "vectors": len(names),
        "vector_arguments": _arguments(names),
        "vector_names": ", ".join(names),
        "vector_reads": _cases(names, "return {name}[at];"),
        "vector_writes": _cases(names, "{name}[at] = value; break;"),
    }
    return _joined(precision, design, [*ports, *vectors], ["copy.cpp"], values, _all_ports(ports))


def _computing(precision: str) -> list[str]:
    """Return the files of what computes: programs, and the arithmetic of the number format."""
    return ["program.cpp", "integers.cpp" if ARITHMETIC[precision].is_integer else "floats.cpp"]


def _joined(
    precision: str, design: str, ports: Sequence[KernelPort], files: Sequence[str], values: Values, arguments: Values
) -> str:
    texts = [template(name) for name in ("memory.cpp", *files)]
    # What takes an element from its bytes names the ports, so it is filled in first.
    whole = Template("".join(texts)).safe_substitute({**_common(precision, design, ports), **values})
    return Template(whole).substitute(arguments)


def template(name: str) -> str:
    return (FOLDER / name).read_text(encoding="utf-8")


def _common(precision: str, design: str, ports: Sequence[KernelPort]) -> dict[str, object]:
    arithmetic = ARITHMETIC[precision]
    interfaces = [
        f"#pragma HLS INTERFACE m_axi port={port.name} bundle={port.name} offset=slave max_widen_bitwidth={port.bits}"
        f" max_read_burst_length={port.burst_words} max_write_burst_length={port.burst_words}"
        for port in ports
    ]
    return {
        "design": design,
        "word_bytes": ports[0].bits // 8,
        "interfaces": "\n".join([*interfaces, "#pragma HLS INTERFACE s_axilite port=return"]),
        "all_arguments": _arguments([port.name for port in ports]),
        "element_bits": PRECISION_BITS[precision],
        "element_type": arithmetic.element,
        "sum_type": arithmetic.total,
        "value_type": "int32_t" if arithmetic.is_integer else "float",
        "number_type": "int64_t" if arithmetic.is_integer else "double",
        "unpack": arithmetic.unpack,
        "unpack_beat": arithmetic.unpack.replace("$port_names, ", ""),
        "pack": arithmetic.pack,
        "pack_beat": arithmetic.pack.replace("$port_names, ", ""),
        "powers": ", ".join(map(str, POWERS)),
        "most_operands": MOST_OPERANDS,
        "most_steps": MOST_STEPS,
    }


# --- ports ------------------------------------------------------------------------------------------------------------


def _all_ports(ports: Sequence[KernelPort]) -> Values:
    """Return the values of memory.cpp for tensors that are spread over all ports."""
    return _named_ports([port.name for port in ports])


def _named_ports(names: Sequence[str]) -> Values:
    return {
        "port_count": len(names),
        "port_arguments": _arguments(names),
        "port_names": ", ".join(names),
        "word_reads": "\n".join(
            f"    at = (first + PORTS - 1 - {at}) / PORTS;\n"
            f"    if (at * PORTS + {at} <= last) beat.word[{at}] = {name}[base + at];"
            for at, name in enumerate(names)
        ),
        "read_cases": _cases(names, "return {name}[at];"),
        "kept_reads": "\n".join(
            f"    at = (first + PORTS - 1 - {at}) / PORTS;\n"
            f"    if (wanted[{at}] && at * PORTS + {at} <= last) {{\n"
            f"        if (!lines[segment].has({at}, base + at, of_call)) {{\n"
            f"            beat.word[{at}] = {name}[base + at];\n"
            f"            keep_in_all(lines, {at}, base + at, of_call, beat.word[{at}]);\n"
            "        }\n"
            f"        beat.word[{at}] = lines[segment].word[{at}][(base + at) % LINES];\n"
            "    }"
            for at, name in enumerate(names)
        ),
        "write_cases": _cases(names, "{name}[at] = value; break;"),
    }


def _arguments(names: Sequence[str]) -> str:
    return ", ".join(f"word_t *{name}" for name in names)


def _cases(names: Sequence[str], action: str) -> str:
    labels = [*(f"case {index}" for index in range(len(names) - 1)), "default"]
    return "\n".join(f"        {label}: {action.format(name=name)}" for label, name in zip(labels, names, strict=True))


# --- engines ----------------------------------------------------------------------------------------------------------


def _array(engine: SystolicArray) -> Values:
    held = {buffer.name: STORAGE[buffer.memory] for buffer in engine.buffers}
    return {
        "rows": engine.rows,
        "cols": engine.cols,
        "simd": engine.simd,
        "sums_per_cycle": engine.sums_per_cycle,
        "tile_rows": engine.tile.rows,
        "tile_cols": engine.tile.cols,
        "tile_depth": engine.tile.depth,
        "line_words": line_words(engine.ports),
        "held_type": ARITHMETIC[engine.precision].held,
        **{f"{name}_storage": held[name] for name in ("a", "b", "sums", "results")},
    }


def _rowwise(engine: RowwiseEngine) -> Values:
    return {
        "units": engine.ports.count,
        "lanes": engine.lanes,
        "row_limit": engine.row_limit,
        "ii_cycles": ceil(engine.ii_cycles),
    }


def _attention(engine: AttentionEngine) -> Values:
    return {
        "query_rows": engine.query_rows,
        "row_lanes": engine.row_lanes,
        "exp_lanes": engine.exp_lanes,
        "key_block": engine.key_block,
        "heads_parallel": engine.heads_parallel,
        "head_dim": engine.head_dim_limit,
        "buffer_elements": engine.buffer_bytes * 8 // PRECISION_BITS[engine.precision],
        "ii_cycles": ceil(engine.ii_cycles),
        "kept_storage": "uram" if engine.uses_uram else "bram",
    }


def _streaming(engine: StreamingGemv, ports: Sequence[KernelPort]) -> Values:
    names = {side: [port.name for port in ports if port.name.startswith(side)] for side in "pxy"}
    sides = {"matrix": names["p"], "x": names["x"], "y": names["y"]}
    return {
        "matrix_ports": engine.ports.count,
        "vectors": engine.vectors,
        **{f"{side}_arguments": _arguments(of_side) for side, of_side in sides.items()},
        **{f"{side}_names": ", ".join(of_side) for side, of_side in sides.items()},
        "matrix_cases": _cases(names["p"], "return reader.element({name}, index);"),
        "x_cases": _cases(names["x"], "return reader.element({name}, index);"),
        "y_cases": _cases(names["y"], "writer.element({name}, index, element_t(value)); break;"),
        "flush_cases": _cases(names["y"], "results[v].flush({name}); break;"),
    }


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """A number format in C++: its types, its file, and how an element is taken from bytes and put into bytes."""

    element: str
    total: str
    held: str  # type of a result before the steps behind it
    unpack: str
    pack: str
    is_integer: bool = True


PUT_BYTES = """\
        uint8_t bytes[sizeof(stored_t)];
        std::memcpy(bytes, &stored, sizeof(stored_t));
        const unsigned size = sizeof(stored_t);
        for (unsigned i = 0; i < size; ++i) byte($port_names, index * size + i, bytes[i], 0xff);"""


def _whole_bytes(element: str, total: str, held: str, *, is_integer: bool = True) -> Arithmetic:
    put = f"        typedef {element} stored_t;\n        const stored_t stored = value;\n" + PUT_BYTES
    return Arithmetic(element, total, held, f"        return value<{element}>($port_names, index);", put, is_integer)


ARITHMETIC: Mapping[str, Arithmetic] = {
    "int16": _whole_bytes("int16_t", "int64_t", "int32_t"),
    "int8": _whole_bytes("int8_t", "int32_t", "int16_t"),
    "fp32": _whole_bytes("float", "float", "float", is_integer=False),
    "int4": Arithmetic(
        "int8_t",
        "int32_t",
        "int16_t",
        "        const int8_t both = int8_t(byte($port_names, index / 2));\n"
        "        return index % 2 ? int8_t(both >> 4) : int8_t(int8_t(both << 4) >> 4);",
        "        const bool is_upper = index % 2;\n"
        "        byte($port_names, index / 2, uint8_t(is_upper ? value << 4 : value), is_upper ? 0xf0 : 0x0f);",
    ),
    "bf16": Arithmetic(
        "float",
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


def array_design(engine: Engine) -> Design | None:
    """Return the design of an array; None for any other engine, and for formats that the generator does not have."""
    if not isinstance(engine, SystolicArray) or engine.precision not in FORMATS:
        return None
    overlaps = engine.schedule == "overlapped"
    sums = engine.sums_per_cycle if overlaps else 1
    return Design(engine.rows, engine.cols, engine.precision, overlaps, engine.simd, sums)
