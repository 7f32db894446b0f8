"""The judgement of a format: the model in it runs on all samples, and its outputs are compared with those in float."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx

from common.fpga.rtl.engine.arithmetic import tensors_of
from common.fpga.rtl.engine.network import EngineNetwork
from common.fpga.rtl.engine.reading.layers import layers_of, of_one_sample
from common.messages.errors import PipelineError, UnusableValueError
from common.messages.names import listed, shown
from common.precision.judgement.measures import Share, accuracy, agreement, limits, signal_to_noise_db
from common.precision.judgement.samples import RANDOM, Samples
from common.runtime.inputs.values import Array, Feeds
from common.runtime.provider_matrix import OutputDistance, output_errors
from common.runtime.sessions.session import SessionSettings, create_session
from common.runtime.sessions.stoppable import StoppableRuns

SURVIVES, UNDECIDED, BREAKS, NOT_JUDGED = "survives", "undecided", "breaks", "not judged"
TOP_5 = 5
# Outputs of three axes are scores where their name says so; hidden states have three axes, too.
SCORES = ("logit", "score", "prob")


@dataclass(frozen=True, slots=True)
class OutputJudgement:
    """An output in a format."""

    distance: OutputDistance
    sqnr_db: float | None  # see :func:`common.precision.judgement.measures.signal_to_noise_db`
    # Share of samples whose likeliest class in float is also the likeliest class in the format, or is among its five
    # likeliest; None for outputs that are no scores of classes
    top_1: Share | None = None
    top_5: Share | None = None
    accuracy: Share | None = None  # share of samples whose label is the likeliest class; None without labels

    @property
    def is_lost(self) -> bool:
        """Whether a value of the output is NaN or infinite, as where a format overflows, or its shape is another."""
        return self.distance.max_abs_error is None


@dataclass(frozen=True, slots=True)
class Reference:
    """The outputs in float on all samples."""

    samples: Samples
    outputs: Mapping[str, Array]  # floats by name, all samples along the first axis
    scores: str | None  # name of the output with scores of classes; None where there is none

    @property
    def main(self) -> str:
        """The output by which layers and formats are judged."""
        return self.scores or next(iter(self.outputs))


def outputs_of(model: Path, samples: Samples, settings: SessionSettings, named: Path | None = None) -> dict[str, Array]:
    """Run a model on all samples, and return its float outputs; errors of runs name ``named``.

    A PipelineError says that the runtime refuses it, or a run fails.
    """
    session = create_session(model, settings)
    runs = StoppableRuns(session, named or model)
    names = [output.name for output in session.get_outputs()]
    found = [runs.run(feeds)[0] for feeds in samples.feeds]
    by_name = {name: [np.asarray(outputs[place]) for outputs in found] for place, name in enumerate(names)}
    return {name: _joined(parts) for name, parts in by_name.items() if parts[0].dtype.kind == "f"}


def _joined(parts: Sequence[Array]) -> Array:
    """Return the samples of all runs along the first axis; as one vector if the runs differ in shape."""
    is_alike = parts[0].ndim and len({part.shape[1:] for part in parts}) == 1
    return np.concatenate(parts if is_alike else [part.ravel() for part in parts])


def engine_outputs(target: Path, samples: Samples, _: SessionSettings) -> dict[str, Array]:
    """Return the outputs of a quantized network (QDQ) as the engine in Verilog computes it, without the Verilog.

    Raises:
        PipelineError: the model has an operator, or an arrangement of operators, that the engine does not compute.
    """
    model = of_one_sample(onnx.load(target))
    try:
        network = layers_of(model)
    except PipelineError as error:
        raise PipelineError(target, f"the engine does not compute it ({error})") from error
    runs = [_engine_run(model, network, feeds) for feeds in samples.feeds]
    return {name: np.concatenate([run[name] for run in runs]) for name in runs[0]}


def _engine_run(model: onnx.ModelProto, network: EngineNetwork, feeds: Feeds) -> dict[str, Array]:
    entries = {node.output[0]: node.input[0] for node in model.graph.node if node.op_type == "QuantizeLinear"}
    inputs = {
        each.name: np.stack([each.quantized(sample[None]) for sample in feeds[entries[each.name]]])
        for each in network.inputs
    }
    tensors = tensors_of(network, inputs)
    outputs = {}
    for value, each in zip(model.graph.output, network.outputs, strict=True):
        shape = [dim.dim_value for dim in value.type.tensor_type.shape.dim]
        whole = np.concatenate([each.restored(sample, shape) for sample in tensors[each.name]]).astype(np.int32)
        outputs[value.name] = (whole - each.zero).astype(np.float32) * each.scale
    return outputs


def reference(model: Path, samples: Samples, settings: SessionSettings, scores: str | None, named: Path) -> Reference:
    """Return the outputs in float.

    Args:
        named: the model that errors name; ``model`` is a file that nobody knows.
        scores: name of the output with scores of classes; None: the first that looks like one.

    Raises:
        UnusableValueError: there is no such output, or labels have nothing to be compared with.
        PipelineError: an output is not finite, so there is nothing to compare with.
    """
    outputs = outputs_of(model, samples, settings, named)
    if not outputs:
        raise PipelineError(named, "no output is of floats, so nothing can be compared")
    if scores is not None and scores not in outputs:
        raise UnusableValueError("scores", f"no output {shown(scores)} of floats", f"there is {listed(outputs, 5)}")
    _require_finite(named, samples, outputs)
    found = scores or next((name for name in outputs if _are_scores(name, outputs[name], samples.count)), None)
    if samples.labels is not None:
        _require_classes(samples.labels, found, outputs)
    return Reference(samples, outputs, found)


def _require_finite(named: Path, samples: Samples, outputs: Mapping[str, Array]) -> None:
    for name, array in outputs.items():
        if not np.isfinite(array).all():
            first = int(np.argwhere(~np.isfinite(array))[0][0])
            where = f" (first in sample {samples.place(first)})" if array.shape[:1] == (samples.count,) else ""
            problem = f"output {shown(name)} in float is NaN or infinite{where}"
            raise PipelineError(named, problem, "give samples that the model can take")


def _require_classes(labels: Array, scores: str | None, outputs: Mapping[str, Array]) -> None:
    """Refuse labels without scores of their shape, and those that are no class: no format could be right about them.

    The UnusableValueError names the first one.
    """
    shape = outputs[scores].shape if scores is not None else ()
    if scores is None or labels.shape != shape[:-1]:
        fits = "no output holds scores of classes" if scores is None else f"{shown(scores)} is {list(shape)}"
        raise UnusableValueError("labels", f"of shape {list(labels.shape)}, but {fits}", "name it with <scores>")
    count = shape[-1]
    if (bad := labels[(labels < 0) | (labels >= count)]).size:
        raise UnusableValueError("labels", f"class {bad.flat[0]}, but there are {count}", f"give 0 to {count - 1}")


def _are_scores(name: str, array: Array, count: int) -> bool:
    is_named = any(word in name.lower() for word in SCORES)
    is_shaped = array.ndim == 2 or (array.ndim == 3 and is_named)
    return is_shaped and len(array) == count and array.shape[-1] > 1


def judged(known: Reference, outputs: Mapping[str, Array]) -> dict[str, OutputJudgement]:
    """Compare outputs with those in float, by name."""
    judgements = {}
    for name, wanted in known.outputs.items():
        found = outputs[name]
        (distance,) = output_errors([name], [found], [wanted])
        ratio = signal_to_noise_db(wanted, found) if distance.is_equal_shape else None
        is_scored = name == known.scores and distance.is_equal_shape
        judgements[name] = OutputJudgement(distance, ratio, *(_shares(known, wanted, found) if is_scored else ()))
    return judgements


def _shares(known: Reference, wanted: Array, found: Array) -> tuple[Share, Share | None, Share | None]:
    labels = known.samples.labels
    return (
        limits(agreement(wanted, found)),
        limits(agreement(wanted, found, TOP_5)) if wanted.shape[-1] > TOP_5 else None,
        limits(accuracy(labels, found)) if labels is not None else None,
    )


@dataclass(frozen=True, slots=True)
class Bounds:
    """The least agreement and the least signal-to-noise ratio that a format must reach; None: no bound."""

    agreement: float
    sqnr_db: float | None = None

    def _is_quiet(self, found: OutputJudgement) -> bool:
        is_within = self.sqnr_db is None or (found.sqnr_db is not None and found.sqnr_db >= self.sqnr_db)
        return is_within and not found.is_lost

    def are_met(self, found: OutputJudgement) -> bool:
        """Return whether the agreement itself, and the noise, are within the bounds."""
        return self._is_quiet(found) and (found.top_1 is None or found.top_1.value >= self.agreement)

    def verdict(self, found: OutputJudgement, source: str) -> str:
        """Return whether the model survives a format, by the limits of the agreement and by the noise."""
        if source == RANDOM:
            return NOT_JUDGED
        if not self._is_quiet(found) or (found.top_1 is not None and found.top_1.high < self.agreement):
            return BREAKS
        if found.top_1 is None:
            return NOT_JUDGED if self.sqnr_db is None else SURVIVES
        return SURVIVES if found.top_1.low >= self.agreement else UNDECIDED
