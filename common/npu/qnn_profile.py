"""The runs of a profile that QNN recorded, and where they ran."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from common.table_rows import NpuRunsRow

DEVICE_FIELDS = frozenset({"rpc_execute_us", "qnn_accelerator_us", "accelerator_busy_us"})
DEVICE, EMULATOR, UNKNOWN = "a device", "the HTP emulator", "unknown"


@dataclass(frozen=True, slots=True)
class QnnNode:
    """A node as QNN names it; ``source_nodes`` are those of the model that it computes, where the profile says so."""

    op_id: int
    name: str
    source_nodes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class QnnRun:
    """One run; a time that the profile does not give, or calls ``UNKNOWN``, is None."""

    session_index: int  # how many sessions the file holds before that of the run
    node_cycles: Mapping[int, int | None]  # cycles by op id, added up over the threads of the processor
    origin: str
    netrun_us: int | None = None  # the run as Qualcomm's qnn-net-run sees it, with its input and output
    # The whole run, as the host sees it; the next ones are parts of it, each within the one before
    qnn_execute_us: int | None = None
    rpc_execute_us: int | None = None
    qnn_accelerator_us: int | None = None  # the device's side of the call
    accelerator_us: int | None = None  # the execution of the graph, with waiting
    accelerator_busy_us: int | None = None  # the execution of the graph, without waiting
    accelerator_cycles: int | None = None
    vtcm_acquire_us: int | None = None
    power_up_us: int | None = None
    hvx_thread_count: int | None = None
    yield_count: int | None = None


@dataclass(frozen=True, slots=True)
class QnnProfile:
    """All runs of one graph, and its nodes in the order of the profile."""

    runs: tuple[QnnRun, ...]
    nodes: tuple[QnnNode, ...]

    @property
    def is_emulated(self) -> bool:
        return any(run.origin == EMULATOR for run in self.runs)

    @property
    def evidence(self) -> str:
        """Why the times are taken for those of the emulator, or of a device."""
        if self.is_emulated:
            return "the profile counts 0 HVX threads and times no remote call"
        if any(run.origin == DEVICE for run in self.runs):
            return "the profile has HVX threads, of a remote call or of waiting on the device"
        return "the profile does not say; the emulator would count 0 HVX threads, so a device is assumed"


def origin_of(values: Mapping[str, int | None]) -> str:
    """Return where a run ran, by the fields that its rows fill.

    The emulator counts 0 HVX threads. A row that only a device writes outweighs that, even if its time is unknown.
    """
    threads = values.get("hvx_thread_count")
    if threads or values.keys() & DEVICE_FIELDS:
        return DEVICE
    return UNKNOWN if threads is None else EMULATOR


def run_rows(profile: QnnProfile) -> list[NpuRunsRow]:
    return [
        {
            "npu_run_index": index,
            "session_index": run.session_index,
            "netrun_us": run.netrun_us,
            "qnn_execute_us": run.qnn_execute_us,
            "rpc_execute_us": run.rpc_execute_us,
            "qnn_accelerator_us": run.qnn_accelerator_us,
            "accelerator_us": run.accelerator_us,
            "accelerator_busy_us": run.accelerator_busy_us,
            "accelerator_cycles": run.accelerator_cycles,
            "vtcm_acquire_us": run.vtcm_acquire_us,
            "power_up_us": run.power_up_us,
            "hvx_thread_count": run.hvx_thread_count,
            "yield_count": run.yield_count,
            "is_emulated": profile.is_emulated,
        }
        for index, run in enumerate(profile.runs)
    ]
