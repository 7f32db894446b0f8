"""The measured model, and whether the mended one returns what it returns, within what its number format can hold."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto

from common.onnx_graph.load import LoadedModel
from common.runtime.inputs.values import Feeds
from common.runtime.sessions.session import SessionSettings, create_session
from common.runtime.sessions.stoppable import StoppableRuns

# Largest error of an output, over its largest magnitude. Sums in another order differ by a multiple of the unit
# roundoff that grows with their length (Higham 2002, Accuracy and Stability of Numerical Algorithms, 3.1). The
# multiples are a choice of this project.
TOLERANCES = {
    TensorProto.DOUBLE: 2.0**-53 * 2**10,
    TensorProto.FLOAT: 2.0**-24 * 2**10,
    TensorProto.FLOAT16: 2.0**-11 * 2**4,
    TensorProto.BFLOAT16: 2.0**-8 * 2**3,
}


@dataclass(frozen=True)
class MendSubject:
    """The measured model: as it was loaded, as it is mended, and how it runs."""

    path: Path
    loaded: LoadedModel
    proto: onnx.ModelProto
    feeds: Sequence[Feeds]  # inputs of several runs; the first ones are those of the measured runs
    options: SessionSettings


@dataclass(frozen=True, slots=True)
class Agreement:
    """How far the outputs of two models are apart."""

    # Largest error of an output over its largest magnitude; None where an output has another shape, is not finite at
    # other places, or is no number and differs
    error: float | None
    tolerance: float  # that of the coarsest number format of the given model

    @property
    def holds(self) -> bool:
        return self.error is not None and self.error <= self.tolerance


def agreement(
    given: onnx.ModelProto, mended: onnx.ModelProto, feeds: Sequence[Feeds], settings: SessionSettings
) -> Agreement:
    """Run both models on the same inputs.

    Args:
        feeds: inputs of one run each.

    Raises:
        PipelineError: the runtime refuses one of them, or a run fails.
    """
    outputs = []
    for model in (given, mended):
        session = create_session(model.SerializeToString(), settings)
        taken = {value.name for value in session.get_inputs()}
        runs = StoppableRuns(session, "the mended model" if model is mended else "the model")
        outputs.append([runs.run({name: array for name, array in feed.items() if name in taken})[0] for feed in feeds])
    errors = [
        _error(np.asarray(wanted), np.asarray(actual))
        for of_given, of_mended in zip(*outputs, strict=True)
        for wanted, actual in zip(of_given, of_mended, strict=True)
    ]
    known = [error for error in errors if error is not None]
    return Agreement(max(known, default=0.0) if len(known) == len(errors) else None, tolerance(given))


def tolerance(model: onnx.ModelProto) -> float:
    """Return the largest error by the coarsest float that the model declares; none is allowed without floats."""
    graph = model.graph
    declared = {tensor.data_type for tensor in graph.initializer}
    declared |= {value.type.tensor_type.elem_type for value in (*graph.input, *graph.output, *graph.value_info)}
    declared |= {attribute.i for node in graph.node for attribute in node.attribute if attribute.name == "to"}
    return max((TOLERANCES[dtype] for dtype in TOLERANCES.keys() & declared), default=0.0)


def _error(wanted: np.ndarray, actual: np.ndarray) -> float | None:
    if wanted.shape != actual.shape or wanted.dtype != actual.dtype:
        return None
    if wanted.dtype.kind != "f":
        return 0.0 if np.array_equal(wanted, actual) else None
    is_finite = np.isfinite(wanted)
    if not np.array_equal(wanted[~is_finite], actual[~is_finite], equal_nan=True):
        return None
    before, after = wanted[is_finite].astype(np.float64), actual[is_finite].astype(np.float64)
    largest, difference = np.abs(before).max(initial=0.0), np.abs(after - before).max(initial=0.0)
    error = difference if not largest else difference / largest
    return float(error) if np.isfinite(error) else None
