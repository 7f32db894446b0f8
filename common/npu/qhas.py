"""Reader of QHAS, the "QNN HTP Analysis Summary" as JSON.

Qualcomm's qnn-profile-viewer makes it of a device's op trace and a schematic; ONNX Runtime does not write it. The
fields were taken from a summary of a ResNet-50 on a device (``tests/optracing/fixtures/qhas_resnet50.json`` of
microsoft/winml-cli), where DRAM bytes of the resources add up to the total. A table may be written as
``{"data": [rows]}``, as a list or as a single row. A device may have several processors, a row for each. The tables of
operators have a row for each kind, or for each of the slowest nodes. Cycles on the dominant path are by processor.

A summary that only states shares and bandwidth (``resource_utilization``, as npu_summary.json does) is read as well.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from common.messages.errors import PipelineError
from common.npu.source_file import mappings, optional_number, read_json
from common.table_rows import NpuOperatorsRow

WHAT = "a QNN HTP analysis summary (QHAS) as JSON"
MOST_BYTES = 50_000_000
OVERALL, STATED = "htp_overall_summary", "resource_utilization"
TRAFFIC = ("total_dram_read", "total_dram_write", "total_vtcm_read", "total_vtcm_write")
NODE = "QNN node"
# Tables of operators: their kind, and the keys of an operator's name and of its count of HTP operators.
OPERATORS = {
    "qnn_op_types": ("QNN operator type", "op", "num_htp_ops"),
    "qnn_op_instances_nodes": (NODE, "qnn_op", "num_htp_ops"),
    "htp_op_types": ("HTP operator type", "op", "instances"),
}
DOMINANT = "num_dominant_path_cycles_htp_"
UNCLASSIFIED = "UNK"  # the viewer's name for threads that it cannot classify
KIB = 1024
UNITS = ("HVX", "HMX")


@dataclass(frozen=True, slots=True)
class Resource:
    """One hardware thread: its kind (``HMX``, ``HVX``, …), the cycles in which it was busy, and those of its run."""

    kind: str
    used_cycles: float | None
    timeline_cycles: float | None


@dataclass(frozen=True, slots=True)
class Qhas:
    """The figures that only this summary has; None where it lacks them.

    ``vtcm_peak_bytes`` is the largest allocation of a processor. ``stated_shares`` are those of busy time by kind of
    thread that the summary itself states. The cycles of operators, kinds and nodes, are added up over the threads.
    """

    inference_us: float | None = None
    execute_us: float | None = None
    dram_read_bytes: float | None = None
    dram_write_bytes: float | None = None
    vtcm_read_bytes: float | None = None
    vtcm_write_bytes: float | None = None
    htp_op_count: float | None = None
    vtcm_peak_bytes: float | None = None
    resources: tuple[Resource, ...] = ()
    stated_shares: Mapping[str, float | None] = field(default_factory=dict)
    bandwidth_mbps: float | None = None
    operators: tuple[NpuOperatorsRow, ...] = ()

    @property
    def nodes(self) -> dict[str, NpuOperatorsRow]:
        return {row["npu_operator"]: row for row in self.operators if row["npu_operator_kind"] == NODE}

    def busy_share(self, kind: str) -> float | None:
        """Return the share of the run in which the threads of a kind were busy; None where that is unknown.

        The summary's own ``utilization`` refers each thread to the time between its own first and last cycle. Here all
        threads are referred to the whole run, so that the share can be compared between kinds.
        """
        of_kind = [resource for resource in self.resources if resource.kind == kind]
        used = _total([resource.used_cycles for resource in of_kind])
        available = _total([resource.timeline_cycles for resource in of_kind])
        return used / available if used is not None and available else self.stated_shares.get(kind)


def read_qhas(path: Path) -> Qhas:
    """Read a summary.

    Raises:
        PipelineError: the file cannot be read, is of another kind, or says that a thread was busy longer than the run.
    """
    content = read_json(path, MOST_BYTES, WHAT)
    inner = content.get("data")
    tables = inner if isinstance(inner, dict) else content
    if OVERALL in tables:
        return replace(_of_processors(path, _rows(path, tables, OVERALL)), operators=tuple(_operators(path, tables)))
    if isinstance(stated := tables.get(STATED), dict):
        return _stated(path, stated)
    raise PipelineError(path, f"has neither {OVERALL!r} nor {STATED!r}", f"give {WHAT}")


def _of_processors(path: Path, processors: Sequence[dict[str, object]]) -> Qhas:
    if not processors:
        raise PipelineError(path, f"has no row in {OVERALL!r}", f"give {WHAT}")
    resources = tuple(resource for processor in processors for resource in _resources(path, processor))
    dram_read, dram_write, vtcm_read, vtcm_write = (_traffic(path, processors, key, resources) for key in TRAFFIC)
    return Qhas(
        inference_us=_largest(path, processors, "time_us"),
        execute_us=_largest(path, processors, "graph_execute_us"),
        dram_read_bytes=dram_read,
        dram_write_bytes=dram_write,
        vtcm_read_bytes=vtcm_read,
        vtcm_write_bytes=vtcm_write,
        htp_op_count=_total([optional_number(path, row, "htp_nodes") for row in processors]),
        vtcm_peak_bytes=_largest(path, processors, "peak_vtcm_alloc"),
        resources=resources,
    )


def _stated(path: Path, section: Mapping[str, object]) -> Qhas:
    shares = {unit: optional_number(path, section, f"{unit.lower()}_utilization_percent") for unit in UNITS}
    for unit, percent in shares.items():
        if percent is not None and percent > 100:
            raise PipelineError(path, f"{unit} was busy for {percent} % of the run", "record it again")
    peak_kb = optional_number(path, section, "vtcm_peak_usage_kb")
    return Qhas(
        vtcm_peak_bytes=None if peak_kb is None else peak_kb * KIB,
        stated_shares={unit: None if percent is None else percent / 100 for unit, percent in shares.items()},
        bandwidth_mbps=optional_number(path, section, "ddr_bandwidth_mbps"),
    )


def _largest(path: Path, rows: Sequence[Mapping[str, object]], key: str) -> float | None:
    """Return the largest figure of the processors, which work side by side."""
    known = [value for row in rows if (value := optional_number(path, row, key)) is not None]
    return max(known, default=None)


def _traffic(path: Path, rows: Sequence[Mapping[str, object]], key: str, resources: Sequence[Resource]) -> float | None:
    """Return the bytes of all processors; None if the viewer could not classify threads and left out their bytes."""
    total = _total([optional_number(path, row, key) for row in rows])
    is_lost = not total and any(resource.kind == UNCLASSIFIED for resource in resources)
    return None if is_lost else total


def _total(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known and len(known) == len(values) else None


def _rows(path: Path, tables: Mapping[str, object], key: str) -> list[dict[str, object]]:
    value = tables[key]
    rows = mappings(value.get("data", [value]) if isinstance(value, dict) else value)
    if rows is None:
        raise PipelineError(path, f"has no list of objects in {key!r}", f"give {WHAT}")
    return rows


def _operators(path: Path, tables: Mapping[str, object]) -> Iterator[NpuOperatorsRow]:
    for table, (kind, name, count) in OPERATORS.items():
        for row in _rows(path, tables, table) if table in tables else ():
            percent = optional_number(path, row, "percent_active_cycles")
            dominant = [optional_number(path, row, key) for key in row if key.startswith(DOMINANT)]
            yield {
                "npu_operator_kind": kind,
                "npu_operator": str(row.get(name, "")),
                "qnn_op_type": str(row.get("qnn_op_type", "")),
                "npu_cycles": optional_number(path, row, "cycles"),
                "npu_cycles_share": None if percent is None else percent / 100,
                "dominant_path_cycles": _total(dominant),
                "htp_op_count": _whole(path, row, count),
                "dram_read_bytes": _whole(path, row, "dram_read"),
                "dram_write_bytes": _whole(path, row, "dram_write"),
                "vtcm_read_bytes": _whole(path, row, "vtcm_read"),
                "vtcm_write_bytes": _whole(path, row, "vtcm_write"),
            }


def _whole(path: Path, row: Mapping[str, object], key: str) -> int | None:
    value = optional_number(path, row, key)
    return None if value is None else int(value)


def _resources(path: Path, processor: Mapping[str, object]) -> list[Resource]:
    if "htp_resources" not in processor:
        return []
    timeline = optional_number(path, processor, "timeline_cycles")
    rows = _rows(path, processor, "htp_resources")
    used = [(str(row.get("type", "")), optional_number(path, row, "cycles_used")) for row in rows]
    for kind, cycles in used:
        if timeline is not None and cycles is not None and cycles > timeline:
            problem = f"{kind} was busy for {cycles:,.0f} cycles of a run of {timeline:,.0f}"
            raise PipelineError(path, problem, "record it again")
    return [Resource(kind, cycles, timeline) for kind, cycles in used]
