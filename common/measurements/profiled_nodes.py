"""The executed nodes of a measurement: the executed graph, and the time of each of its nodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from common.messages.errors import PipelineError
from common.onnx_graph.executed import SavedGraph, saved_graph
from common.profiling.correction import NodeLatency, correct, operand_counts
from common.profiling.figures import node_rows
from common.profiling.runs.measurement import Measurement
from common.table_rows import OpLatencyRow


@dataclass(frozen=True, slots=True)
class ProfiledNodes:
    """The nodes of a measurement.

    Attributes:
        measurement: with unique names of the nodes, or with a failure.
        executed: the graph that ran; None where the trace was lost or the graph cannot be used.
        latencies: of each node; there are none after a failure.
    """

    measurement: Measurement
    executed: SavedGraph | None = None
    latencies: Sequence[NodeLatency] = ()

    @property
    def rows(self) -> list[OpLatencyRow]:
        if self.executed is None:
            return []
        return node_rows(self.latencies, self.executed.graph, self.measurement.profiled_warmup)


def executed_by(measurement: Measurement, dimensions: Mapping[str, int]) -> SavedGraph:
    """Return the executed graph, whose file is beside the trace; PipelineError: it is no graph that can be used."""
    return saved_graph(measurement.trace_file.parent / "executed.onnx", measurement.trace.op_types, dimensions)


def profiled_nodes(measurement: Measurement, dimensions: Mapping[str, int]) -> ProfiledNodes:
    """Return the nodes of a measurement; an error about them becomes its failure, and its runs stay."""
    if not measurement.trace.nodes:
        return ProfiledNodes(measurement)  # the trace was lost
    executed = None
    try:
        executed = executed_by(measurement, dimensions)
        measurement = measurement.renamed(executed.bodies)
        latencies = correct(measurement, operand_counts(executed.graph), measurement.trace_file.parent)
    except PipelineError as error:
        return ProfiledNodes(measurement.failed(error), executed)
    return ProfiledNodes(measurement, executed, latencies)
