"""Recurrent layers: the matrix products of every time step and direction, and the arithmetic of their gates.

Sequences shorter than the longest are counted in full.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from common.graphs.graph import Count
from common.graphs.operators import MICROSOFT
from common.onnx_graph.work.registry import DEQUANTIZE, QUANTIZE_DYNAMICALLY, SIGMOID, TANH, Cost, Operation, formula


@dataclass(frozen=True, slots=True)
class Cell:
    """``flops`` per hidden unit and step beyond the products: sums of the two products, activations, state update."""

    gates: int
    flops: int
    peephole_flops: int = 0


CELLS: Mapping[str, Cell] = {
    "RNN": Cell(1, 1 + TANH),
    # three sums; two sigmoids and a tanh; r ⊙ H; (1 − z) ⊙ h + z ⊙ H
    "GRU": Cell(3, 3 + 2 * SIGMOID + TANH + 1 + 4),
    # four sums; three sigmoids and two tanh; f ⊙ C + i ⊙ c; o ⊙ tanh(C)
    "LSTM": Cell(4, 4 + 3 * SIGMOID + 2 * TANH + 3 + 1, peephole_flops=6),
}


def _sizes(operation: Operation) -> tuple[Count, Count, Count]:
    """Return time steps · batch · directions, the inputs, and the hidden units.

    X is (time, batch, inputs) or (batch, time, inputs), R (directions, gates · hidden, hidden).
    """
    length, batch, inputs = operation.shape(0, rank=3)
    directions = 2 if operation.text("direction", "forward") == "bidirectional" else 1
    return length * batch * directions, inputs, operation.integer("hidden_size", 0) or operation.dim(2, 2)


def _count(operation: Operation, cell: Cell) -> Cost:
    """Count steps · gates · hidden · (inputs + hidden) MACs; the biases are added once, 1 FLOP per gate."""
    steps, inputs, hidden = _sizes(operation)
    flops = cell.flops + operation.has(3) * cell.gates + operation.has(7) * cell.peephole_flops
    return Cost(steps * cell.gates * hidden * (inputs + hidden), steps * hidden * flops)


@formula(*CELLS)
def count_recurrent(operation: Operation) -> Cost:
    """Read X, W, R, optional B, sequence lengths, initial states, P (LSTM's peepholes)."""
    return _count(operation, CELLS[operation.node.op_type])


@formula("DynamicQuantizeLSTM", domains=(MICROSOFT,))
def count_dynamic_quantize_lstm(operation: Operation) -> Cost:
    """Count an LSTM that quantizes inputs and states (5 FLOPs per element) and scales the integer products (2 each)."""
    (steps, inputs, hidden), cell = _sizes(operation), CELLS["LSTM"]
    quantize = QUANTIZE_DYNAMICALLY * steps * (inputs + hidden)
    return _count(operation, cell).plus(quantize + DEQUANTIZE * steps * 2 * cell.gates * hidden)
