"""All files of one profile together."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from common.npu.nodes import NpuNode, npu_nodes, require_one_graph
from common.npu.op_trace import OpTrace, read_op_trace
from common.npu.qhas import Qhas, read_qhas
from common.npu.qnn_csv import QnnProfile, read_qnn_csv
from common.npu.schematic import Schematic, read_schematic


@dataclass(frozen=True, slots=True)
class Sources:
    """What was read; only the profile is always there."""

    profile: QnnProfile
    schematic: Schematic | None
    qhas: Qhas | None
    trace: OpTrace | None

    def nodes(self) -> list[NpuNode]:
        """Return the nodes of the profile."""
        return npu_nodes(self.profile, self.schematic, self.trace)

    def facts(self) -> dict[str, Any]:
        """Return what the summary says of the profile besides its figures."""
        chips = [*self.trace.soc_models] if self.trace else []
        return {"is_emulated": self.profile.is_emulated, "run_count": len(self.profile.runs), "soc_models": chips}


def read_sources(profile: Path, schematic: Path | None, qhas: Path | None, trace: Path | None) -> Sources:
    """Read the files.

    Raises:
        PipelineError: one of them cannot be used, or the schematic is of another graph.
    """
    sources = Sources(
        read_qnn_csv(profile),
        read_schematic(schematic) if schematic else None,
        read_qhas(qhas) if qhas else None,
        read_op_trace(trace) if trace else None,
    )
    if sources.schematic and schematic:
        require_one_graph(sources.profile, sources.schematic, schematic)
    return sources
