"""Reader of QHAS, the "QNN HTP Analysis Summary" as JSON.

Qualcomm's qnn-profile-viewer makes it of a device's op trace and a schematic; ONNX Runtime does not write it. The
fields were taken from a summary of a ResNet-50 on a device (``tests/optracing/fixtures/qhas_resnet50.json`` of
microsoft/winml-cli), where DRAM bytes of the resources add up to the total.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from common.errors import PipelineError
from common.npu.json_source import listed_mappings, optional_number, read_json

WHAT = "a QNN HTP analysis summary (QHAS) as JSON"
MOST_BYTES = 200_000_000


@dataclass(frozen=True, slots=True)
class Resource:
    """One hardware thread: its kind (``HMX``, ``HVX``, …), and the cycles in which it was busy."""

    kind: str
    used_cycles: float | None


@dataclass(frozen=True, slots=True)
class Qhas:
    """The figures of the summary that others do not tell; None where it lacks them.

    Attributes:
        inference_us: one inference on the device.
        execute_us: the execution of the graph in it.
        timeline_cycles: from the first to the last cycle of the run.
        vtcm_peak_bytes: the largest allocation of VTCM.
    """

    inference_us: float | None
    execute_us: float | None
    timeline_cycles: float | None
    dram_read_bytes: float | None
    dram_write_bytes: float | None
    vtcm_peak_bytes: float | None
    resources: tuple[Resource, ...]

    def busy_share(self, kind: str) -> float | None:
        """Return the share of the run in which the threads of a kind were busy; None where that is unknown.

        The summary's own ``utilization`` refers each thread to the time between its own first and last cycle. Here all
        threads are referred to the whole run, so that the share can be compared between kinds.
        """
        used = [resource.used_cycles for resource in self.resources if resource.kind == kind]
        if not used or not self.timeline_cycles or None in used:
            return None
        return sum(cycles for cycles in used if cycles is not None) / (len(used) * self.timeline_cycles)


def read_qhas(path: Path) -> Qhas:
    """Read a summary.

    Raises:
        PipelineError: the file cannot be read, is of another kind, or says that a thread was busy longer than the run.
    """
    content = read_json(path, MOST_BYTES, WHAT)
    overall = _first(path, _mapping(path, _mapping(path, content, "data"), "htp_overall_summary"))
    figures = {key: optional_number(path, overall, key) for key in _KEYS}
    resources = tuple(_resources(path, overall))
    timeline = figures["timeline_cycles"]
    for resource in resources:
        if timeline is not None and resource.used_cycles is not None and resource.used_cycles > timeline:
            problem = f"{resource.kind} was busy for {resource.used_cycles:,.0f} cycles of a run of {timeline:,.0f}"
            raise PipelineError(path, problem, "record it again")
    return Qhas(**{_KEYS[key]: value for key, value in figures.items()}, resources=resources)


_KEYS = {
    "time_us": "inference_us",
    "graph_execute_us": "execute_us",
    "timeline_cycles": "timeline_cycles",
    "total_dram_read": "dram_read_bytes",
    "total_dram_write": "dram_write_bytes",
    "peak_vtcm_alloc": "vtcm_peak_bytes",
}


def _mapping(path: Path, content: Mapping[str, Any], key: str) -> dict[str, Any]:
    value = content.get(key)
    if not isinstance(value, dict):
        raise PipelineError(path, f"has no object {key!r}", f"give {WHAT}")
    return value


def _first(path: Path, summary: Mapping[str, Any]) -> dict[str, Any]:
    rows = listed_mappings(path, summary, "data", WHAT)
    if len(rows) != 1:
        raise PipelineError(path, f"tells of {len(rows)} processors, where one is expected", f"give {WHAT}")
    return rows[0]


def _resources(path: Path, overall: Mapping[str, Any]) -> list[Resource]:
    if "htp_resources" not in overall:
        return []
    rows = listed_mappings(path, _mapping(path, overall, "htp_resources"), "data", WHAT)
    return [Resource(str(row.get("type", "")), optional_number(path, row, "cycles_used")) for row in rows]
