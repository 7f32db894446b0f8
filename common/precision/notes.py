"""Notes on what a study leaves open."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from common.messages.names import listed
from common.precision.conversion.schemes import ON_ENGINE
from common.precision.judgement.samples import RANDOM, Samples
from common.precision.study import BEYOND_BUDGET, LayerJudgement, SchemeResult, Study

FEW_SAMPLES = 30  # if all of them agree, up to 11 % may still disagree (Wilson's limit)
MOST_NAMED = 3
KERNEL_LOSS_DB = 1.0  # sums in another order lose far less


def study_notes(
    samples: Samples,
    study: Study,
    results: Sequence[SchemeResult],
    layers: Sequence[LayerJudgement],
    left: Sequence[str],
) -> Iterator[str]:
    """Yield the notes of a study; ``left`` are contractions that no tool converts."""
    if samples.source == RANDOM:
        yield "accuracy not judged: the samples are random; give <samples>, <images> or <input>"
    elif study.known.samples.count < FEW_SAMPLES:
        yield f"{study.known.samples.count} samples judge the formats, so the limits are wide"
    if len(samples.feeds) == 1:
        yield "the samples that judge are those that calibrated: there is one run"
    if samples.drawn:
        yield f"drawn at random, because nothing is given for them: {listed(samples.drawn, MOST_NAMED)}"
    if "DequantizeLinear" in study.model.op_types.values():
        yield "the model is quantized already: agreement and noise are those of a second rounding of it"
    if study.not_finite:
        yield f"left in float, because a value there is NaN or infinite: {listed(study.not_finite, MOST_NAMED)}"
    if left:
        yield f"left in float, because no tool converts them: {listed(left, MOST_NAMED)}"
    if kernels := kernel_note(results, study.known.main):
        yield kernels
    for each in results:
        # Few networks are for the engine: its row says why, and an error does where it is asked for.
        if each.problem and each.scheme.name != ON_ENGINE:
            yield f"{each.scheme.number_format} ({each.scheme.name}): {each.problem}"
    if late := [layer.node for layer in layers if layer.problem == BEYOND_BUDGET]:
        yield f"{len(late)} of {len(layers)} layers not tried within <budget>: {listed(late, MOST_NAMED)}"


def kernel_note(results: Sequence[SchemeResult], output: str) -> str | None:
    """Say where the runtime's kernels on this processor lose more than the format does; None where they do not."""
    worst = max(results, key=lambda each: each.kernel_loss_db(output), default=None)
    if worst is None or worst.kernel_loss_db(output) <= KERNEL_LOSS_DB:
        return None
    return (
        f"ONNX Runtime's kernels on this processor lose {worst.kernel_loss_db(output):.1f} dB more than the format "
        f"({worst.scheme.number_format}, {worst.scheme.name}): without VNNI, their sums saturate at 16 bits; "
        "the verdict is that of the format"
    )
