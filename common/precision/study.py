"""One study: a model in float, and how far it, or one layer of it alone, is from that in each format."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import onnx

from common.graphs.grouping import grouped
from common.messages.errors import PipelineError, UnusableValueError
from common.precision.conversion.calibration import Calibration
from common.precision.conversion.float_model import FloatModel, float_model
from common.precision.conversion.quiet_runs import quiet_tool
from common.precision.conversion.schemes import ON_ENGINE, SCHEMES, Outputs, Scheme
from common.precision.judgement.evaluation import OutputJudgement, Reference, judged, outputs_of, reference
from common.precision.judgement.samples import Samples
from common.runtime.inputs.values import Array
from common.runtime.sessions.session import SessionSettings

BEYOND_BUDGET = "not tried: the budget was spent"


@dataclass(frozen=True, slots=True)
class Study:
    """What the judgements of all formats of a model have in common."""

    calibration: Calibration  # of the model in float
    known: Reference  # the samples that judge, and the outputs in float on them
    choosing: Reference  # the samples that calibrate, likewise; by them the scheme of a format is chosen
    settings: SessionSettings
    nodes: tuple[str, ...]  # contractions that are converted
    # Contractions that stay in float, because an operand or a result is not finite in a sample
    not_finite: tuple[str, ...]
    folder: Path  # for temporary files

    @property
    def model(self) -> FloatModel:
        return self.calibration.model

    def convert_and_judge(self, scheme: Scheme, nodes: Sequence[str], target: Path) -> dict[str, OutputJudgement]:
        """Write the model with some nodes in the format of a scheme, and judge each of its outputs.

        The judgement is that of the format: the runtime's integer kernels are not used, since those of some processors
        lose more than the format does.

        A PipelineError says that the tool cannot make it, or the runtime does not run it.
        """
        with quiet_tool(f"{scheme.number_format}, {scheme.name}", "cannot be made", target.parent):
            scheme.make(self.calibration, nodes, target)
        return self.judge_on(self.known, scheme, target)

    def judge_kernels(self, target: Path) -> dict[str, OutputJudgement]:
        """Judge a written model as the runtime runs it on this processor; nothing where the runtime does not."""
        try:
            return judged(self.known, _outputs(outputs_of, self.known.samples, target, self.settings))
        except PipelineError:
            return {}

    def judge_on(self, known: Reference, scheme: Scheme, target: Path) -> dict[str, OutputJudgement]:
        """Judge a written model on the samples of a reference."""
        settings = replace(self.settings, integer_kernels=False)
        return judged(known, _outputs(scheme.outputs_of, known.samples, target, settings))


def _outputs(run: Outputs, samples: Samples, target: Path, settings: SessionSettings) -> dict[str, Array]:
    """Run a model; if that fails, without the optimizations, which can make a graph that the runtime refuses."""
    try:
        return run(target, samples, settings)
    except PipelineError:
        if run is not outputs_of:
            raise
        return run(target, samples, replace(settings, optimization="disable"))


@dataclass(frozen=True, slots=True)
class SchemeResult:
    """What one scheme made of a model: its judged outputs, or the problem."""

    scheme: Scheme
    nodes: Sequence[str] = ()  # contractions that are in the format
    outputs: dict[str, OutputJudgement] | None = None  # by name; None where there is a problem
    # The same outputs as the runtime's own kernels compute them on this processor
    kernels: dict[str, OutputJudgement] = field(default_factory=dict)
    target: Path = Path()  # the file of the model in it
    # The same outputs on the samples that choose among the schemes of a format
    choosing: dict[str, OutputJudgement] = field(default_factory=dict)
    problem: str = ""

    def kernel_loss_db(self, output: str) -> float:
        """Return how much signal-to-noise ratio an output loses by the kernels of this processor."""
        if self.outputs is None or output not in self.kernels:
            return 0.0
        of_format, of_kernels = self.outputs[output].sqnr_db, self.kernels[output].sqnr_db
        if of_format is None or of_format == of_kernels:
            return 0.0
        return of_format - (-math.inf if of_kernels is None else of_kernels)


def studied(
    path: Path, folder: Path, calibrating: Samples, judging: Samples, settings: SessionSettings, scores: str | None
) -> Study:
    """Return the study of a model; ``scores`` is as in :func:`common.precision.judgement.evaluation.reference`.

    Raises:
        UnusableValueError: there is no such output, or labels do not fit.
        PipelineError: the model cannot be prepared, or does not run in float.
    """
    model = float_model(path, folder)
    known = reference(model.path, judging, settings, scores, path)
    # A sample that the model cannot take has no ranges: this refuses it.
    choosing = known if calibrating is judging else reference(model.path, calibrating, settings, scores, path)
    calibration = Calibration(model, calibrating.feeds, folder)
    bad = {*calibration.not_finite()} if model.nodes else set[str]()
    not_finite = tuple(name for name in model.nodes if bad & model.tensors[name])
    nodes = tuple(name for name in model.nodes if name not in not_finite)
    return Study(calibration, known, choosing, settings, nodes, not_finite, folder)


def scheme_results(study: Study, kept: str, progress: Callable[[float, float], None]) -> list[SchemeResult]:
    """Judge the model in each format by each scheme; only models of the format ``kept`` stay in the folder."""
    results, schemes = [], [scheme for scheme in SCHEMES if scheme.is_for(study.model)]
    for place, scheme in enumerate(schemes):
        target = study.folder / f"{place}.onnx"
        results.append(_scheme_result(study, scheme, target))
        if scheme.number_format != kept:
            target.unlink(missing_ok=True)
        progress(place + 1, len(schemes))
    return results


def _scheme_result(study: Study, scheme: Scheme, target: Path) -> SchemeResult:
    try:
        if not study.nodes:
            raise PipelineError(scheme.name, "the model has no contraction that a tool converts")
        outputs = study.convert_and_judge(scheme, study.nodes, target)
        nodes = study.nodes if scheme.converts_all else converted_nodes(study, target)
        if not nodes:
            if "DequantizeLinear" in study.model.op_types.values():
                raise PipelineError(scheme.name, "its contractions are quantized already")
            raise PipelineError(scheme.name, "the tool takes none of the contractions")
        choosing = study.judge_on(study.choosing, scheme, target)
    except PipelineError as error:
        return SchemeResult(scheme, problem=error.problem)
    return SchemeResult(scheme, nodes, outputs, study.judge_kernels(target), target, choosing)


def converted_nodes(study: Study, target: Path) -> list[str]:
    """Return the contractions that a tool changed: they are gone, or they read other tensors."""
    before, after = (
        {node.name: [*node.input] for node in onnx.load(path, load_external_data=False).graph.node}
        for path in (study.model.path, target)
    )
    return [name for name in study.nodes if after.get(name) != before[name]]


def best(results: Sequence[SchemeResult], study: Study, number_format: str) -> SchemeResult:
    """Return the result with the largest ratio on the samples that choose; schemes that are handed on come first.

    These are not the samples that judge, so the best of several schemes is not better by chance.

    An UnusableValueError says that no scheme for the format works.
    """
    of_format = [each for each in results if each.scheme.number_format == number_format]
    working = [each for each in of_format if each.outputs]
    if not working:
        names = grouped((each.problem, each.scheme.name) for each in of_format)
        is_one = len(names) == 1  # every scheme fails alike
        reasons = "; ".join(problem if is_one else f"{' and '.join(of)}: {problem}" for problem, of in names.items())
        others = dict.fromkeys(each.scheme.number_format for each in results if each.outputs)
        remedy = f"give one of {', '.join(others)}" if others else "no format can be judged"
        raise UnusableValueError("precision", f"{number_format} cannot be made ({reasons})", remedy)
    handed_on = [each for each in working if each.scheme.is_handed_on]

    def choice_db(result: SchemeResult) -> float:
        ratio = result.choosing[study.known.main].sqnr_db
        return -math.inf if ratio is None else ratio

    return max(handed_on or working, key=choice_db)


def on_engine(results: Sequence[SchemeResult]) -> SchemeResult:
    """Return the result for the network as the engine computes it; UnusableValueError: the engine does not."""
    (result,) = (each for each in results if each.scheme.name == ON_ENGINE)
    if not result.outputs:
        raise UnusableValueError("for_engine", result.problem)
    return result


# --- layers one by one ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class LayerJudgement:
    """The judgement of a layer alone in a format, and on the samples that choose, by which layers are mixed.

    ``problem`` says why there is none, and is empty otherwise.
    """

    node: str
    judgement: OutputJudgement | None = None
    choosing: OutputJudgement | None = None
    problem: str = ""


def layer_judgements(
    study: Study, scheme: Scheme, nodes: Sequence[str], budget_s: float, progress: Callable[[float, float], None]
) -> list[LayerJudgement]:
    """Judge layers, the most important ones first, until the budget is spent; at least one is tried."""
    end_s, found = time.monotonic() + budget_s, list[LayerJudgement]()
    for place, node in enumerate(nodes):
        if place and time.monotonic() > end_s:
            return [*found, *(LayerJudgement(late, problem=BEYOND_BUDGET) for late in nodes[place:])]
        found.append(_layer_judgement(study, scheme, node))
        progress(place + 1, len(nodes))
    return found


def _layer_judgement(study: Study, scheme: Scheme, node: str) -> LayerJudgement:
    target, main = study.folder / "layer.onnx", study.known.main
    try:
        outputs = study.convert_and_judge(scheme, [node], target)
        choosing = study.judge_on(study.choosing, scheme, target)
    except PipelineError as error:
        return LayerJudgement(node, problem=error.problem)
    return LayerJudgement(node, outputs[main], choosing[main])
