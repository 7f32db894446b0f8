"""Reader of QNN's profile as CSV, which ONNX Runtime's QNN provider and Qualcomm's qnn-profile-viewer write.

A row is ``Msg Timestamp,Message,Time,Unit of Measurement,Timing Source,Event Level,Event Identifier``, and with
``enable_framework_op_trace=1`` a last column ``ONNX Source Ops``. Nothing is quoted: the name of a node may hold commas
and line ends. The rows of a run end with ``QNN (execute) time``. The viewer writes lines about itself before the
header, spaces after the commas, and a row of source ``NETRUN`` beside each run. A spreadsheet that saved the file again
may separate by semicolons or tabs, and quotes what holds them.

A run's node cycles add up to its ``Accelerator (execute) time (cycles)``, exactly. So rows that are lost, doubled or
mixed with another program's are found. Runs of other nodes are of another graph: a model may be divided into several.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain, islice
from pathlib import Path

from common.messages.errors import PipelineError, UnusableValueError
from common.messages.names import quoted
from common.npu.qnn_profile import DEVICE, EMULATOR, QnnNode, QnnProfile, QnnRun, origin_of
from common.npu.source_file import read_lines

WHAT = "a profile that QNN wrote as CSV"
MOST_BYTES = 100_000_000  # a run of a model of 1,000 nodes takes about 0.1 MB
COLUMNS = "Msg Timestamp,Message,Time,Unit of Measurement,Timing Source,Event Level,Event Identifier"
HEADER = COLUMNS.lower().split(",")
SOURCES_COLUMN = "onnx source ops"
DELIMITERS = (",", ";", "\t")
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

_ROW = re.compile(r"\s*\d+\s*[,;\t]")
_TIME = re.compile(r"\d{1,18}")
_NODE = re.compile(r"(?:(?P<name>.*)[: ])?OpId_(?P<op_id>\d{1,10}) \(cycles\)", re.DOTALL)
_NODE_AND_SOURCES = re.compile(
    r"(?:(?P<name>.*?)[: ])?OpId_(?P<op_id>\d{1,10}) \(cycles\)[,;\t](?P<sources>.*)", re.DOTALL
)
_QUOTED = re.compile(r'"((?:[^"]|"")*OpId_\d{1,10} \(cycles\))"(?=[,;\t]|$)')

Lines = Iterator[tuple[int, str]]
Runs = list[tuple[QnnRun, Mapping[int, QnnNode]]]


@dataclass(frozen=True, slots=True)
class _Row:
    number: int
    message: str
    time: str
    unit: str
    timing_source: str
    level: str
    identifier: str


@dataclass(frozen=True, slots=True)
class _Form:
    """How a file is written: its header, what separates its cells, and whether it has a column of sources."""

    header: str
    delimiter: str
    has_sources: bool


@dataclass(slots=True)
class _Block:
    """The rows of a run that was not finished yet."""

    start: int = 0
    values: dict[str, int | None] = field(default_factory=dict)
    nodes: dict[int, QnnNode] = field(default_factory=dict)
    cycles: dict[int, int | None] = field(default_factory=dict)


def read_qnn_csv(path: Path, graph_index: int | None = None) -> QnnProfile:
    """Read a profile.

    ``graph_index`` chooses among several graphs, in the order of their first runs.

    Raises:
        PipelineError: the file cannot be read, is no profile, ends within a run, or its rows do not add up.
        UnusableValueError: the profile holds no such graph, or several and none was chosen.
    """
    lines = read_lines(path, MOST_BYTES, WHAT)
    runs = _runs(path, lines, _form(path, lines))
    if len({run.origin for run, _ in runs} & {DEVICE, EMULATOR}) > 1:
        raise PipelineError(path, "holds runs of a device and of the emulator", "record each into a file of its own")
    return _chosen(path, runs, graph_index)


def _runs(path: Path, lines: Lines, form: _Form) -> Runs:
    runs, netrun_us, block, session, row = Runs(), list[int | None](), _Block(), -1, None
    for row in _rows(path, lines, form):
        if row.identifier == FINALIZE and row.level == "ROOT":
            session += 1
        elif row.timing_source == "NETRUN":
            if row.message == "EXECUTE" and row.identifier.startswith("Graph"):
                netrun_us.append(_time(path, row))
        elif _enter(path, block, row, form.has_sources):
            runs.append((_finished(path, block, row, max(session, 0)), block.nodes))
            block = _Block()
    if start := block.start or (row.number if row and _is_cut(row) else 0):
        problem = f"ends within a run: no row {END_OF_RUN!r} from line {start} on; {len(runs)} before it are whole"
        raise PipelineError(path, problem, "record it again, or delete the rows from that line on")
    if not runs:
        raise PipelineError(path, "holds no run", "record at least one run with a profiling level of basic or above")
    if len(netrun_us) == len(runs):
        runs = [(replace(run, netrun_us=time_us), nodes) for (run, nodes), time_us in zip(runs, netrun_us, strict=True)]
    return runs


def _is_cut(row: _Row) -> bool:
    """Whether the last row has the name of an event that ends early, or that a cut row goes on with."""
    name = row.identifier.partition("\n")[0].rstrip(",;\t ")
    return row.timing_source != "NETRUN" and any(event.startswith(name) for event in {*FIELDS} - {END_OF_RUN})


def _chosen(path: Path, runs: Runs, graph_index: int | None) -> QnnProfile:
    graphs: dict[tuple[QnnNode, ...], list[QnnRun]] = {}
    for run, nodes in runs:
        graphs.setdefault(tuple(nodes.values()), []).append(run)
    if graph_index is None and len(graphs) > 1:
        listed = "; ".join(
            f"{index}: {len(nodes)} nodes, runs: {len(of)}" for index, (nodes, of) in enumerate(graphs.items())
        )
        problem = f"holds runs of {len(graphs)} graphs ({listed}), or of one whose rows were lost"
        raise PipelineError(path, problem, "choose one with <graph>, or record it again")
    if graph_index is not None and graph_index >= len(graphs):
        raise UnusableValueError("graph", f"{graph_index}: {path} has {len(graphs)}", "count them from 0")
    chosen = [*graphs][graph_index or 0]
    return QnnProfile(tuple(graphs[chosen]), chosen)


def _form(path: Path, lines: Lines) -> _Form:
    for _, line in islice(lines, MOST_PREAMBLE):
        for delimiter in DELIMITERS:
            cells = [cell.strip().strip('"').lower() for cell in line.split(delimiter)]
            if cells[: len(HEADER)] == HEADER:
                return _Form(line, delimiter, SOURCES_COLUMN in cells[len(HEADER) :])
    raise PipelineError(path, f"is no profile of QNN (no header {COLUMNS!r})", f"give {WHAT}")


def _rows(path: Path, lines: Lines, form: _Form) -> Iterator[_Row]:
    """Yield the rows; a line that begins without a timestamp goes on with the name that the line before it began."""
    first, parts = 0, list[str]()
    for number, line in chain(lines, [(0, form.header)]):
        if not parts or _ROW.match(line) or line == form.header:
            if "".join(parts).strip() and parts != [form.header]:
                yield _row(path, first, "\n".join(parts), form)
            first, parts = number, [line]
        else:
            parts.append(line)


def _row(path: Path, number: int, text: str, form: _Form) -> _Row:
    cells = text.split(form.delimiter, 6)
    if len(cells) < 7 or not _ROW.match(text):
        raise PipelineError(path, f"line {number} is no row of a profile: {quoted(text)}", "record it again")
    _, message, time, unit, source, level, identifier = (cell.strip() for cell in cells)
    return _Row(number, message, time, unit.upper(), source, level, _unquoted(identifier, form))


def _unquoted(identifier: str, form: _Form) -> str:
    """Return the last cell without quotes around it and without the empty cells that a spreadsheet adds."""
    if match := _QUOTED.match(identifier):
        identifier = match[1].replace('""', '"') + identifier[match.end() :]
    return identifier if form.has_sources else identifier.rstrip(form.delimiter + "\n ")


def _time(path: Path, row: _Row, unit: str = "US") -> int | None:
    if row.time == UNKNOWN:
        return None
    if row.unit != unit or not _TIME.fullmatch(row.time):
        problem = f"line {row.number}: {quoted(row.time)} {quoted(row.unit)} is no number of {unit}"
        raise PipelineError(path, problem, "record it again")
    return int(row.time)


def _enter(path: Path, block: _Block, row: _Row, has_sources: bool) -> bool:
    event = row.identifier.rstrip(",;\t\n ") if has_sources else row.identifier
    if row.level == "ROOT" and event in FIELDS:
        name = FIELDS[event]
        _require_new(path, row, name in block.values)
        block.values[name] = _time(path, row, UNITS[name.rpartition("_")[2]])
    elif row.level != "ROOT" and row.unit == "CYCLES":
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
    if is_known:
        problem = f"line {row.number}: the run has {quoted(row.identifier)} already; the rows of two runs are mixed"
        raise PipelineError(path, problem, "record one session into a file")


def _finished(path: Path, block: _Block, row: _Row, session: int) -> QnnRun:
    run = QnnRun(session, block.cycles, origin_of(block.values), **block.values)
    cycles = [value for value in run.node_cycles.values() if value is not None]
    is_whole = cycles and len(cycles) == len(run.node_cycles) and run.accelerator_cycles is not None
    if is_whole and sum(cycles) != run.accelerator_cycles:
        problem = (
            f"the run that ends in line {row.number} took {run.accelerator_cycles:,} cycles, "
            f"but its nodes took {sum(cycles):,}"
        )
        raise PipelineError(path, problem, "rows are lost or of another run: record it again")
    return run
