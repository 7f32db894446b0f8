"""Reader of QNN's profile as CSV, which ONNX Runtime's QNN provider and Qualcomm's qnn-profile-viewer write.

A row is ``Msg Timestamp,Message,Time,Unit of Measurement,Timing Source,Event Level,Event Identifier``, and with
``enable_framework_op_trace=1`` a last column ``ONNX Source Ops``. Nothing is quoted: the name of a node may hold commas
and line ends. The rows of a run end with ``QNN (execute) time``. The viewer writes lines about itself before the
header, spaces after the commas, and a row of source ``NETRUN`` beside each run.

A run's node cycles add up to its ``Accelerator (execute) time (cycles)``, exactly. So rows that are lost, doubled or
mixed with another program's are found.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from common.errors import PipelineError
from common.names import quoted
from common.npu.source_file import read_text

WHAT = "a profile that QNN wrote as CSV"
MOST_BYTES = 100_000_000  # a run of a model of 1,000 nodes takes about 0.1 MB
HEADER = "msg timestamp,message,time,unit of measurement,timing source,event level,event identifier"
SOURCES_COLUMN = ",onnx source ops"
MOST_PREAMBLE = 100  # lines before the header
END_OF_RUN = "QNN (execute) time"
ACCELERATOR_CYCLES = "Accelerator (execute) time (cycles)"
FINALIZE = "QNN (finalize) time"
# Events of a run, and their fields in QnnRun.
FIELDS = {
    END_OF_RUN: "qnn_execute_us",
    "RPC (execute) time": "rpc_execute_us",
    "QNN accelerator (execute) time": "qnn_accelerator_us",
    "Accelerator (execute) time": "accelerator_us",
    "Accelerator (execute excluding wait) time": "accelerator_busy_us",
    ACCELERATOR_CYCLES: "accelerator_cycles",
    "Time for initial VTCM acquire": "vtcm_acquire_us",
    "Time for HVX + HMX power on and acquire": "power_up_us",
    "Number of HVX threads used": "hvx_thread_count",
    "Num times yield occured": "yield_count",
}
UNITS = {"us": "US", "cycles": "CYCLES", "count": "COUNT"}  # by the end of a field's name
UNKNOWN = "UNKNOWN"

_ROW = re.compile(r"\s*\d+\s*,")
_TIME = re.compile(r"\d{1,18}")
_NODE = re.compile(r"(?:(?P<name>.*)[: ])?OpId_(?P<op_id>\d{1,10}) \(cycles\)", re.DOTALL)
_NODE_AND_SOURCES = re.compile(r"(?:(?P<name>.*?)[: ])?OpId_(?P<op_id>\d{1,10}) \(cycles\),(?P<sources>.*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class QnnNode:
    """A node as QNN names it; ``source_nodes`` are those of the model that it computes, where the profile says so."""

    op_id: int
    name: str
    source_nodes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class QnnRun:
    """One run; a time that the profile does not tell, or calls ``UNKNOWN``, is None.

    Attributes:
        session_index: how many sessions the file holds before that of the run.
        node_cycles: cycles by op id, added up over the threads of the processor.
        qnn_execute_us: the whole run, as the host sees it; the next ones are parts of it, each within the one before.
        rpc_execute_us: the remote call.
        qnn_accelerator_us: the device's side of the call.
        accelerator_us: the execution of the graph, with waiting.
        accelerator_busy_us: the execution of the graph, without waiting.
        netrun_us: the run as Qualcomm's qnn-net-run sees it, with its input and output.
    """

    session_index: int
    node_cycles: Mapping[int, int | None]
    accelerator_cycles: int | None = None
    qnn_execute_us: int | None = None
    rpc_execute_us: int | None = None
    qnn_accelerator_us: int | None = None
    accelerator_us: int | None = None
    accelerator_busy_us: int | None = None
    netrun_us: int | None = None
    vtcm_acquire_us: int | None = None
    power_up_us: int | None = None
    hvx_thread_count: int | None = None
    yield_count: int | None = None

    @property
    def is_from_a_device(self) -> bool:
        """Whether the run tells of a remote call or of vector threads, which the emulator has not."""
        return self.rpc_execute_us is not None or bool(self.hvx_thread_count)


@dataclass(frozen=True, slots=True)
class QnnProfile:
    """All runs of one graph, and its nodes in the order of the profile."""

    runs: tuple[QnnRun, ...]
    nodes: tuple[QnnNode, ...]

    @property
    def is_emulated(self) -> bool:
        """Whether the times are those of the emulator."""
        return not any(run.is_from_a_device for run in self.runs)


@dataclass(frozen=True, slots=True)
class _Row:
    """One row; ``number`` is its line."""

    number: int
    message: str
    time: str
    unit: str
    timing_source: str
    level: str
    identifier: str


@dataclass(slots=True)
class _Block:
    """The rows of a run that was not finished yet."""

    start: int = 0
    values: dict[str, int | None] = field(default_factory=dict)
    nodes: dict[int, QnnNode] = field(default_factory=dict)
    cycles: dict[int, int | None] = field(default_factory=dict)


def read_qnn_csv(path: Path) -> QnnProfile:
    """Read a profile.

    Raises:
        PipelineError: the file cannot be read, is no profile, ends within a run, or its rows do not add up.
    """
    lines = [line.removesuffix("\r") for line in read_text(path, MOST_BYTES, WHAT).split("\n")]
    start, has_sources = _header(path, lines)
    runs, nodes, netrun_us = [], dict[int, QnnNode](), list[int | None]()
    block, session = _Block(), -1
    for row in _rows(path, lines, start):
        if row.identifier == FINALIZE and row.level == "ROOT":
            session += 1
        elif row.timing_source == "NETRUN":
            if row.message == "EXECUTE" and row.identifier.startswith("Graph"):
                netrun_us.append(_time(path, row))
        elif _enter(path, block, row, has_sources):
            runs.append(_finished(path, block, row, max(session, 0)))
            _require_nodes(path, row, nodes, block.nodes, is_first=len(runs) == 1)
            nodes, block = nodes or block.nodes, _Block()
    if block.start:
        problem = (
            f"ends within a run: no row {END_OF_RUN!r} from line {block.start} on; {len(runs)} before it are whole"
        )
        raise PipelineError(path, problem, "record it again, or delete the rows from that line on")
    if not runs:
        raise PipelineError(path, "holds no run", "record at least one run with a profiling level of basic or above")
    if len(netrun_us) == len(runs):
        runs = [replace(run, netrun_us=time_us) for run, time_us in zip(runs, netrun_us, strict=True)]
    return QnnProfile(tuple(runs), tuple(nodes.values()))


def _header(path: Path, lines: Sequence[str]) -> tuple[int, bool]:
    """Return the index of the header, and whether its last column names source nodes."""
    for index, line in enumerate(lines[:MOST_PREAMBLE]):
        header = ",".join(cell.strip().lower() for cell in line.split(","))
        if header.startswith(HEADER):
            return index, header == HEADER + SOURCES_COLUMN
    raise PipelineError(path, f"is no profile of QNN (no header {HEADER.title()!r})", f"give {WHAT}")


def _rows(path: Path, lines: Sequence[str], start: int) -> Iterator[_Row]:
    """Yield the rows; a line that begins without a timestamp goes on with the name that the line before it began."""
    index, header = start + 1, lines[start]
    while index < len(lines):
        first, parts = index, [lines[index]]
        index += 1
        while index < len(lines) and not _ROW.match(lines[index]) and lines[index] != header:
            parts.append(lines[index])
            index += 1
        text = "\n".join(parts)
        if text.strip() and text != header:
            yield _row(path, first + 1, text)


def _row(path: Path, number: int, text: str) -> _Row:
    cells = text.split(",", 6)
    if len(cells) < 7 or not _ROW.match(text):
        raise PipelineError(path, f"line {number} is no row of a profile: {quoted(text)}", "record it again")
    _, message, time, unit, source, level, identifier = (cell.strip() for cell in cells)
    return _Row(number, message, time, unit, source, level, identifier)


def _time(path: Path, row: _Row, unit: str = "US") -> int | None:
    """Return the time, cycles or count of a row; None where it is unknown."""
    if row.time == UNKNOWN:
        return None
    if row.unit != unit or not _TIME.fullmatch(row.time):
        problem = f"line {row.number}: {quoted(row.time)} {quoted(row.unit)} is no number of {unit}"
        raise PipelineError(path, problem, "record it again")
    return int(row.time)


def _enter(path: Path, block: _Block, row: _Row, has_sources: bool) -> bool:
    """Enter a row into the run that it belongs to, and return whether it ends the run; other rows are passed over."""
    event = row.identifier.removesuffix(",") if has_sources else row.identifier
    if row.level == "ROOT" and event in FIELDS:
        name = FIELDS[event]
        _require_new(path, row, name in block.values)
        block.values[name] = _time(path, row, UNITS[name.rpartition("_")[2]])
    elif row.level == "SUB-EVENT" and row.unit == "CYCLES":
        match = (_NODE_AND_SOURCES if has_sources else _NODE).fullmatch(row.identifier)
        if match is None:
            return False
        op_id, sources = int(match["op_id"]), match["sources"] if has_sources else ""
        _require_new(path, row, op_id in block.nodes)
        name = match["name"] or f"OpId_{op_id}"  # QNN inserts nodes without a name
        block.nodes[op_id] = QnnNode(op_id, name, tuple(sources.split(";")) if sources else ())
        block.cycles[op_id] = _time(path, row, "CYCLES")
    else:
        return False
    block.start = block.start or row.number
    return event == END_OF_RUN


def _require_new(path: Path, row: _Row, is_known: bool) -> None:
    """Refuse a second row for one event of a run."""
    if is_known:
        problem = f"line {row.number}: the run has {quoted(row.identifier)} already; the rows of two runs are mixed"
        raise PipelineError(path, problem, "record one session into a file")


def _finished(path: Path, block: _Block, row: _Row, session: int) -> QnnRun:
    """Return a run whose last row was read, after its cycles were added up."""
    run = QnnRun(session, block.cycles, **block.values)
    cycles = [value for value in run.node_cycles.values() if value is not None]
    is_whole = cycles and len(cycles) == len(run.node_cycles) and run.accelerator_cycles is not None
    if is_whole and sum(cycles) != run.accelerator_cycles:
        problem = (
            f"the run that ends in line {row.number} took {run.accelerator_cycles:,} cycles, "
            f"but its nodes took {sum(cycles):,}"
        )
        raise PipelineError(path, problem, "rows are lost or of another run: record it again")
    return run


def _require_nodes(
    path: Path, row: _Row, known: Mapping[int, QnnNode], nodes: Mapping[int, QnnNode], *, is_first: bool
) -> None:
    """Refuse a run of other nodes than those of the runs before it."""
    if not is_first and nodes != known:
        problem = f"the run that ends in line {row.number} has other nodes than the first run"
        raise PipelineError(path, problem, "give the profile of one graph")


def run_rows(profile: QnnProfile) -> list[dict[str, object]]:
    """Return the runs as rows of npu_runs."""
    names = [name for name in QnnRun.__slots__ if name != "node_cycles"]
    return [
        {"npu_run_index": index, **{name: getattr(run, name) for name in names}, "is_emulated": profile.is_emulated}
        for index, run in enumerate(profile.runs)
    ]
