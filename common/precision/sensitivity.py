"""Layers one by one: what each layer does to the output if it alone is in the format."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from common.messages.errors import PipelineError
from common.precision.conversion.schemes import Scheme
from common.precision.judgement.evaluation import OutputJudgement
from common.precision.study import Study

BEYOND_BUDGET = "not tried: the budget was spent"


@dataclass(frozen=True, slots=True)
class LayerJudgement:
    """The judgement of a layer alone in a format; ``problem`` says why there is none, and is empty otherwise.

    Attributes:
        choosing: the same on the samples that choose; by it layers are mixed.
    """

    node: str
    judgement: OutputJudgement | None = None
    choosing: OutputJudgement | None = None
    problem: str = ""


def layer_judgements(
    study: Study, scheme: Scheme, nodes: Sequence[str], budget_s: float, progress: Callable[[float, float], None]
) -> list[LayerJudgement]:
    """Judge layers in their order until the budget is spent; at least one is tried.

    Args:
        nodes: layers, the most important ones first.
    """
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
        choosing = study.judge_choice(scheme, target)
    except PipelineError as error:
        return LayerJudgement(node, problem=error.problem)
    return LayerJudgement(node, outputs[main], choosing[main])
