"""All files of one profile together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from common.errors import UnusableValueError
from common.npu.nodes import NpuNode, npu_nodes, require_one_graph
from common.npu.op_trace import OpTrace, read_op_trace
from common.npu.qhas import Qhas, read_qhas
from common.npu.qnn_csv import read_qnn_csv
from common.npu.qnn_profile import QnnProfile
from common.npu.schematic import Schematic, read_schematic

FILES = ("qnn_csv", "schematic", "qhas", "op_trace")


@dataclass(frozen=True, slots=True)
class Sources:
    profile: QnnProfile
    schematic: Schematic | None
    qhas: Qhas | None
    trace: OpTrace | None

    def nodes(self) -> list[NpuNode]:
        return npu_nodes(self.profile, self.schematic, self.trace)

    def facts(self) -> dict[str, object]:
        chips = [*self.trace.soc_models] if self.trace else []
        return {
            "is_emulated": self.profile.is_emulated,
            "is_emulated_source": self.profile.evidence,
            "run_count": len(self.profile.runs),
            "soc_models": chips,
        }


def read_sources(files: Mapping[str, Path | None], graph_index: int | None = None) -> Sources:
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
    return sources
