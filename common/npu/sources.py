"""All files of one profile together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from common.messages.errors import PipelineError, UnusableValueError
from common.npu.nodes import NpuNode, npu_nodes, require_one_graph
from common.npu.op_trace import OpTrace, read_op_trace
from common.npu.qhas import Qhas, read_qhas
from common.npu.qnn_csv import read_qnn_csv
from common.npu.qnn_profile import QnnProfile
from common.npu.schematic import Schematic, read_schematic

# The least share of a model that a file of another program must match; one below it is of another model.
# docs/VALIDATION.md has the shares of right and of wrong pairs.
LEAST_SHARE = 0.8
FILES = ("qnn_csv", "schematic", "qhas", "op_trace")


@dataclass(frozen=True, slots=True)
class Sources:
    profile: QnnProfile
    schematic: Schematic | None
    qhas: Qhas | None
    trace: OpTrace | None

    def nodes(self) -> list[NpuNode]:
        return npu_nodes(self.profile, self.schematic, self.trace, self.qhas.nodes if self.qhas else {})

    def facts(self) -> dict[str, object]:
        chips = [*self.trace.soc_models] if self.trace else []
        return {
            "is_emulated": self.profile.is_emulated,
            "is_emulated_source": self.profile.evidence,
            "run_count": len(self.profile.runs),
            "soc_models": chips,
        }


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
    cycles = {name: operator.cycles or 0.0 for name, operator in qhas.nodes.items()}
    whole = sum(cycles.values())
    share = sum(value for name, value in cycles.items() if name in names) / whole if whole else 1.0
    if share < LEAST_SHARE:
        problem = f"is of another model: nodes with {share:.1%} of the cycles that it lists are in the profile"
        raise PipelineError(path, problem, "give that of the same session, or <accept_partial>")
