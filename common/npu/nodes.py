"""All files of one profile together, and its nodes: the HTP operators that compute each, and the traffic they cause.

A node that takes 0 cycles is computed by another one: the compiler fused both. The schematic has no operator for such a
node. The results of the node say into which others it went. It stays in the table with that.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import TypedDict

from common.messages.errors import PipelineError, UnusableValueError
from common.messages.names import quoted
from common.npu.op_trace import OpTrace, read_op_trace
from common.npu.qhas import Qhas, read_qhas
from common.npu.qnn_csv import read_qnn_csv
from common.npu.qnn_profile import QnnProfile
from common.npu.schematic import HtpOp, Schematic, read_schematic
from common.table_rows import NpuNodesRow, NpuOperatorsRow

BYTES = ("dram_read_bytes", "dram_write_bytes", "vtcm_read_bytes", "vtcm_write_bytes")
UNITS = ("hvx", "hmx", "dma")
# The least share of a model that a file of another program must match; one below it is of another model.
# docs/VALIDATION.md has the shares of right and of wrong pairs.
LEAST_SHARE = 0.8
FILES = ("qnn_csv", "schematic", "qhas", "op_trace")


@dataclass(frozen=True, slots=True)
class NpuNode:
    """A QNN node; what no given file has is None or empty.

    ``fused_into`` are nodes whose HTP operators compute it, where it has none of its own. ``recorded`` is of QHAS. The
    cycles of all hardware threads are added up, so a share of them is an allocation of the run's time, not a time. It
    is None where the cycles are the emulator's.
    """

    op_id: int
    name: str
    qnn_op_type: str
    source_nodes: tuple[str, ...]
    fused_into: tuple[str, ...]
    node_cycles: float | None
    cycles_share: float | None
    ops: tuple[HtpOp, ...] | None
    recorded: NpuOperatorsRow | None = None

    def moved_bytes(self, column: str) -> int | None:
        """Return the bytes that its operators move, by the name of an attribute of :class:`HtpOp`."""
        return None if self.ops is None else sum(getattr(op, column) for op in self.ops)

    def op_count(self, unit: str = "") -> int | None:
        """Count its operators, or those that use a unit: ``hvx``, ``hmx`` or ``dma``."""
        return None if self.ops is None else sum(not unit or f"uses_{unit}" in op.flags for op in self.ops)

    @property
    def placement(self) -> tuple[object, ...]:
        """The place of its execution: the nodes that compute it, and its operators by unit and by kind."""
        ops = None if self.ops is None else tuple(sorted((op.name, tuple(sorted(op.flags))) for op in self.ops))
        return self.fused_into, ops

    @property
    def spill_bytes(self) -> int | None:
        """Bytes that it moves from VTCM into DRAM for want of room."""
        return None if self.ops is None else sum(op.dram_write_bytes for op in self.ops if op.is_spill)


def npu_nodes(
    profile: QnnProfile, schematic: Schematic | None, trace: OpTrace | None, recorded: Mapping[str, NpuOperatorsRow]
) -> list[NpuNode]:
    of_runs = {node: [run.node_cycles[node.op_id] for run in profile.runs] for node in profile.nodes}
    known = {node: [value for value in values if value is not None] for node, values in of_runs.items()}
    cycles = {node: float(median(values)) for node, values in known.items() if values}
    total = None if profile.is_emulated or len(cycles) < len(profile.nodes) else sum(cycles.values())
    ops: dict[int, list[HtpOp]] = {}
    for op in schematic.ops if schematic else ():
        ops.setdefault(op.op_id, []).append(op)
    hosts = _hosts(profile, schematic, ops) if schematic and ops else {}
    traced = trace.nodes if trace else {}
    return [
        NpuNode(
            node.op_id,
            node.name,
            traced[node.name].qnn_op_type if node.name in traced else "",
            traced.get(node.name, node).source_nodes,
            hosts.get(node.op_id, ()),
            cycles.get(node),
            cycles[node] / total if total else None,
            tuple(ops.get(node.op_id, ())) if schematic else None,
            recorded.get(node.name),
        )
        for node in profile.nodes
    ]


@dataclass(frozen=True, slots=True)
class Sources:
    profile: QnnProfile
    schematic: Schematic | None
    qhas: Qhas | None
    trace: OpTrace | None

    def nodes(self) -> list[NpuNode]:
        return npu_nodes(self.profile, self.schematic, self.trace, self.qhas.nodes if self.qhas else {})


def read_sources(
    files: Mapping[str, Path | None], graph_index: int | None = None, *, is_partial: bool = False
) -> Sources:
    """Read the files of one session.

    Raises:
        PipelineError: a file cannot be used, or is of another graph than the profile.
    """
    profile, schematic, qhas, trace = (files.get(name) for name in FILES)
    if profile is None:
        raise UnusableValueError("qnn_csv", "is missing", "give the profile that QNN wrote as CSV, or <model>")
    sources = Sources(
        read_qnn_csv(profile, graph_index),
        read_schematic(schematic) if schematic else None,
        read_qhas(qhas) if qhas else None,
        read_op_trace(trace) if trace else None,
    )
    if sources.schematic and schematic:
        require_one_graph(sources.profile, sources.schematic, schematic)
    if sources.qhas and qhas and not is_partial:
        _require_nodes(qhas, sources.qhas, sources.profile)
    return sources


def _require_nodes(path: Path, qhas: Qhas, profile: QnnProfile) -> None:
    """Refuse a QHAS whose nodes are not those of the profile."""
    names = {node.name for node in profile.nodes}
    cycles = {name: row["npu_cycles"] or 0.0 for name, row in qhas.nodes.items()}
    whole = sum(cycles.values())
    share = sum(value for name, value in cycles.items() if name in names) / whole if whole else 1.0
    if share < LEAST_SHARE:
        problem = f"is of another model: nodes with {share:.1%} of the cycles that it lists are in the profile"
        raise PipelineError(path, problem, "give that of the same session, or <accept_partial>")


def require_one_graph(profile: QnnProfile, schematic: Schematic, path: Path) -> None:
    """Refuse a schematic of another graph than that of the profile; the message names a node of one alone."""
    nodes = {node.op_id: node.name for node in profile.nodes}
    ops = {op.op_id for op in schematic.ops}
    foreign = next((op_id for op_id in ops if op_id not in nodes), None)
    if foreign is None:
        foreign = next((op_id for op_id in nodes if op_id not in schematic.graph), None)
    renamed = next((op_id for op_id, name in schematic.names.items() if nodes.get(op_id, name) != name), None)
    if foreign is not None or renamed is not None:
        op_id = renamed if foreign is None else foreign
        named = quoted(nodes.get(op_id, schematic.names.get(op_id, "without a name"))) if op_id is not None else ""
        problem = f"is of another graph than the profile: they differ in node {op_id} ({named})"
        raise PipelineError(path, problem, "give the schematic of the same session")


def _hosts(profile: QnnProfile, schematic: Schematic, computed: Mapping[int, object]) -> dict[int, tuple[str, ...]]:
    """Return what computes each node without operators: the nearest nodes that read it, else those that it reads."""
    names = {node.op_id: node.name for node in profile.nodes}
    operands = {op_id: [source for source, _ in node.inputs] for op_id, node in schematic.graph.items()}
    readers: dict[int, list[int]] = {}
    for op_id, sources in operands.items():
        for source in sources:
            readers.setdefault(source, []).append(op_id)
    return {
        op_id: tuple(names[host] for host in _nearest(op_id, readers, computed) or _nearest(op_id, operands, computed))
        for op_id in names
        if op_id not in computed
    }


def _nearest(op_id: int, towards: Mapping[int, Sequence[int]], computed: Mapping[int, object]) -> list[int]:
    nearest, seen, waiting = [], {op_id}, deque(towards.get(op_id, ()))
    while waiting:
        node = waiting.popleft()
        if node in seen:
            continue
        seen.add(node)
        if node in computed:
            nearest.append(node)
        else:
            waiting.extend(towards.get(node, ()))
    return nearest


class PlacementCells(TypedDict):
    """The compiler's decisions about a node: the columns that npu_nodes and npu_chip_nodes share."""

    npu_op_id: int
    npu_node: str
    qnn_op_type: str
    source_nodes: Sequence[str]
    fused_into: Sequence[str]
    htp_op_count: int | None
    hvx_op_count: int | None
    hmx_op_count: int | None
    dma_op_count: int | None
    dram_read_bytes: int | None
    dram_write_bytes: int | None
    vtcm_read_bytes: int | None
    vtcm_write_bytes: int | None
    spill_bytes: int | None


def placement_cells(node: NpuNode) -> PlacementCells:
    """Return the cells of a node; without a schematic they come from QHAS."""
    recorded = node.recorded if node.ops is None else None
    return {
        "npu_op_id": node.op_id,
        "npu_node": node.name,
        "qnn_op_type": node.qnn_op_type or (node.recorded["qnn_op_type"] if node.recorded else ""),
        "source_nodes": list(node.source_nodes),
        "fused_into": list(node.fused_into),
        "htp_op_count": recorded["htp_op_count"] if recorded else node.op_count(),
        "hvx_op_count": node.op_count("hvx"),
        "hmx_op_count": node.op_count("hmx"),
        "dma_op_count": node.op_count("dma"),
        "dram_read_bytes": recorded["dram_read_bytes"] if recorded else node.moved_bytes("dram_read_bytes"),
        "dram_write_bytes": recorded["dram_write_bytes"] if recorded else node.moved_bytes("dram_write_bytes"),
        "vtcm_read_bytes": recorded["vtcm_read_bytes"] if recorded else node.moved_bytes("vtcm_read_bytes"),
        "vtcm_write_bytes": recorded["vtcm_write_bytes"] if recorded else node.moved_bytes("vtcm_write_bytes"),
        "spill_bytes": node.spill_bytes,
    }


def node_row(node: NpuNode, accelerator_us: float | None, *, is_emulated: bool) -> NpuNodesRow:
    """Return a node as a row of npu_nodes; ``accelerator_us`` is what a run of the graph takes."""
    share = node.cycles_share
    return {
        **placement_cells(node),
        "npu_cycles": node.node_cycles,
        "npu_cycles_share": share,
        "dominant_path_cycles": node.recorded["dominant_path_cycles"] if node.recorded else None,
        "attributed_npu_time_us": None if share is None or accelerator_us is None else share * accelerator_us,
        "is_emulated": is_emulated,
    }
