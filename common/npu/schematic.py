"""Reader of the schematic (``*_schematic.bin``), in which QNN's compiler for the HTP writes down the graph it made.

The QNN provider writes it into the working directory with ``profiling_level=optrace``. It is text in Python's notation,
which is read line by line here and never executed. It says of every HTP operator how many bytes it moves between DRAM
and VTCM (the memory on the chip), whether it uses the vector unit (HVX), the matrix unit (HMX) or the DMA engine, and
where its results are in VTCM. All of that was decided when the graph was compiled: it is true of a device as well as of
the emulator.

The low 32 bits of an operator's id are the op id of the QNN node that it belongs to, as the profile's CSV has it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path

from common.messages.errors import PipelineError
from common.npu.source_file import read_lines

WHAT = "a schematic (*_schematic.bin) that QNN wrote"
MOST_BYTES = 500_000_000  # ResNet-50 takes 5.7 MB
BEGIN = "graph_before_optimization"
END = "#####  End of OpInfoRegisry dump"  # spelled like this
NODE_BITS = 0xFFFFFFFF
SPILL = "@Spill"
ITEM_BYTES = {
    **dict.fromkeys(("QUInt8", "QInt8", "Int8", "UInt8", "Bool"), 1),
    **dict.fromkeys(("QUInt16", "QInt16", "Int16", "UInt16", "Float16"), 2),
    **dict.fromkeys(("QInt32", "Int32", "UInt32", "Float32"), 4),
    **dict.fromkeys(("Int64", "UInt64", "Float64"), 8),
}

_SECTION = re.compile(r"([a-z_0-9]+) *= *[\[{(]")
_BANDWIDTH = re.compile(
    r'\{"opid" : (0x[0-9a-f]{1,16}) , "dram_read": (\d{1,18}) , "dram_write": (\d{1,18}) , '
    r'"vtcm_read": (\d{1,18}) , "vtcm_write": (\d{1,18}), "is_dma": \d\}'
)
_ID = re.compile(r"\s*(0x[0-9a-f]{1,16})\s*:")
_FLAGS = re.compile(r"'flags'\s*:\s*\(([^)]*)\)")
_OPERATION = re.compile(r"\s*'operation':'([^']*)'")
_INPUT = re.compile(r"\s*\((0x[0-9a-f]{1,16}),(\d{1,9})\)")
_DTYPE = re.compile(r"\s*'dtype': '(\w+)'")
_DIMS = re.compile(r"\s*'dims': \[([\d, ]*)\]")
_DESCRIPTION = re.compile(r"\s*'#\d+': opdesc\( (0x[0-9a-f]{1,16}), \"([^\"]*)\"")
_NAME = re.compile(r"(0x[0-9a-f]{1,16}): '(.+)',")
_BLOCK = re.compile(r"\s*\d+: \((0x[0-9a-f]{1,16}), (0x[0-9a-f]{1,16})\)")


@dataclass(frozen=True, slots=True)
class HtpOp:
    """One operator of the HTP; its name is empty where the schematic does not say, a flag is like ``uses_hvx``."""

    op_id: int
    name: str
    dram_read_bytes: int
    dram_write_bytes: int
    vtcm_read_bytes: int
    vtcm_write_bytes: int
    flags: frozenset[str]

    @property
    def is_spill(self) -> bool:
        """Whether it moves a tensor out of VTCM because there is no room for it."""
        return self.name == SPILL


@dataclass(frozen=True, slots=True)
class GraphNode:
    """A node before the compilation, with (op id, result) of each operand; bytes of an unknown type are None."""

    operation: str
    inputs: tuple[tuple[int, int], ...]
    output_bytes: tuple[int | None, ...]


@dataclass(frozen=True, slots=True)
class Schematic:
    """The compiled graph: operators that move bytes, and so take cycles; by op id the nodes before the compilation.

    ``names`` are QNN's for these, if written on one line; ``vtcm_peak_bytes`` is where the highest block of VTCM ends.
    """

    ops: tuple[HtpOp, ...]
    graph: Mapping[int, GraphNode]
    names: Mapping[int, str]
    vtcm_peak_bytes: int | None

    @property
    def result_ids(self) -> set[int]:
        """Op ids of the nodes that write the results of the graph."""
        return {op_id for op_id, node in self.graph.items() if node.operation == "q::Output"}

    @property
    def result_bytes(self) -> int | None:
        """Bytes of all results of the graph; None where a type is not known here."""
        operands = [operand for op_id in self.result_ids for operand in self.graph[op_id].inputs]
        sizes = [self.graph[op_id].output_bytes[index] for op_id, index in operands]
        return None if not sizes or None in sizes else sum(size for size in sizes if size is not None)

    @property
    def written_result_bytes(self) -> int:
        """Bytes that the compiled graph writes into DRAM for its results."""
        return sum(op.dram_write_bytes for op in self.ops if op.op_id in self.result_ids)


def read_schematic(path: Path) -> Schematic:
    """Read a schematic.

    Raises:
        PipelineError: the file cannot be read, is no schematic, ends early, or contradicts itself.
    """
    parts, has_begun, has_ended = _Parts(), False, False
    for section, line in _sections(path):
        parts.enter(section, line)
        has_begun, has_ended = has_begun or section == BEGIN, has_ended or END in line
    if not has_begun:
        raise PipelineError(path, "is no schematic", f"give {WHAT}")
    if not has_ended:
        raise PipelineError(path, "ends early", "record it again")
    schematic = parts.schematic()
    _require_results(path, schematic)
    return schematic


def _sections(path: Path) -> Iterator[tuple[str, str]]:
    section = ""
    for _, line in read_lines(path, MOST_BYTES, WHAT):
        if match := _SECTION.match(line):
            section = match[1]
        yield section, line


class _Parts:
    def __init__(self) -> None:
        self.moved: dict[int, tuple[int, int, int, int]] = {}
        self.flags: dict[int, frozenset[str]] = {}
        self.op_names: dict[int, str] = {}
        self.node_names: dict[int, str] = {}
        self.operations: dict[int, str] = {}
        self.inputs: dict[int, list[tuple[int, int]]] = {}
        self.sizes: dict[int, list[int | None]] = {}
        self.peak_bytes: int | None = None
        self._node = 0
        self._item_bytes: int | None = None

    def enter(self, section: str, line: str) -> None:
        if section == BEGIN:
            self._enter_graph(line)
        elif section == "bandwidth_information":
            if match := _BANDWIDTH.match(line):
                self.moved[int(match[1], 16)] = (int(match[2]), int(match[3]), int(match[4]), int(match[5]))
        elif section.startswith("graph_res_flags"):
            self._enter_flags(line)
        elif section == "opdesc_map":
            if match := _DESCRIPTION.match(line):
                self.op_names[int(match[1], 16)] = match[2]
        elif section == "qnn_name_translations":
            if match := _NAME.fullmatch(line):
                self.node_names[int(match[1], 16)] = match[2]
        elif section == "tcm_block_info" and (match := _BLOCK.match(line)):
            self.peak_bytes = max(self.peak_bytes or 0, int(match[1], 16) + int(match[2], 16))

    def _enter_graph(self, line: str) -> None:
        if match := _ID.match(line):
            self._node = int(match[1], 16)
        elif match := _OPERATION.match(line):
            self.operations[self._node] = match[1]
        elif match := _INPUT.match(line):
            self.inputs.setdefault(self._node, []).append((int(match[1], 16), int(match[2])))
        elif match := _DTYPE.match(line):
            self._item_bytes = ITEM_BYTES.get(match[1])
        elif match := _DIMS.match(line):
            dims = [int(dim) for dim in match[1].replace(",", " ").split()]
            size = None if self._item_bytes is None else prod(dims) * self._item_bytes
            self.sizes.setdefault(self._node, []).append(size)

    def _enter_flags(self, line: str) -> None:
        if match := _ID.match(line):
            self._node = int(match[1], 16)
        if match := _FLAGS.search(line):
            self.flags[self._node] = frozenset(re.findall(r"\w+", match[1]))

    def schematic(self) -> Schematic:
        ops = (
            HtpOp(htp_id & NODE_BITS, self.op_names.get(htp_id, ""), *moved, self.flags.get(htp_id, frozenset()))
            for htp_id, moved in self.moved.items()
        )
        graph = {
            node: GraphNode(operation, tuple(self.inputs.get(node, ())), tuple(self.sizes.get(node, ())))
            for node, operation in self.operations.items()
        }
        return Schematic(tuple(ops), graph, self.node_names, self.peak_bytes)


def _require_results(path: Path, schematic: Schematic) -> None:
    """Refuse a schematic without operators, with a broken graph, or whose DRAM writes are not its results."""
    if not schematic.ops:
        raise PipelineError(path, "has no traffic (bandwidth_information)", "record it with a newer version of QNN")
    for op_id, node in schematic.graph.items():
        for source, index in node.inputs:
            if source not in schematic.graph or index >= len(schematic.graph[source].output_bytes):
                problem = f"node {op_id} reads result {index} of node {source}, which is not there"
                raise PipelineError(path, problem, "record it again")
    expected, written = schematic.result_bytes, schematic.written_result_bytes
    if expected is not None and expected != written:
        problem = f"writes {written:,} bytes of results into DRAM, but the results have {expected:,}"
        raise PipelineError(
            path, problem, "it is damaged, or of a version of QNN that is not known: say so in an issue"
        )
