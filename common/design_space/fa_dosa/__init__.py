"""FA-DOSA's own interface, with its meanings: a graph, learnable mappings and fusions, and three costs with gradients.

The costs are those of :mod:`common.design_space.fa_dosa.accounting`, made continuous. A tensor moves once. A
fusion saves the write and the read of the tensor between its layers. The buffer is as large as the largest tile.
FA-DOSA minimizes

    loss = log(latency) + log(energy) + log(area)

This loss has no minimum. Latency and energy have a lower limit: each tensor moves once. The area has none, because it
falls with the tiles. So the logarithm of a buffer that shrinks to nothing falls without end.
:func:`calculate_penalty_loss` is bounded, so it does not change that, and a small number beside the area only says
where the fall ends. The design that this loss finds is the one at which the search stopped. docs/DESIGN_SPACE.md has a
running example.
"""

from common.design_space.fa_dosa.graph import ComputationGraph, calculate_macs
from common.design_space.fa_dosa.onnx_frontend import parse_onnx_to_graph
from common.design_space.fa_dosa.performance_model import (
    ConditionalPerformanceModel,
    FusionParameters,
    MappingParameters,
    calculate_hardware_config,
    calculate_penalty_loss,
)

__all__ = [
    "ComputationGraph",
    "ConditionalPerformanceModel",
    "FusionParameters",
    "MappingParameters",
    "calculate_hardware_config",
    "calculate_macs",
    "calculate_penalty_loss",
    "parse_onnx_to_graph",
]
