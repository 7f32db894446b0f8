"""A study as rows of tables, and notes on what it leaves open."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

from common.messages.names import listed
from common.precision.conversion.schemes import ON_ENGINE, Scheme
from common.precision.judgement.evaluation import NOT_JUDGED, Bounds, OutputJudgement
from common.precision.judgement.measures import Share, accuracy, limits
from common.precision.judgement.samples import RANDOM, Samples
from common.precision.mixture import Mixture
from common.precision.study import BEYOND_BUDGET, LayerJudgement, SchemeResult, Study
from common.table_rows import FormatPrecisionRow, PrecisionLayersRow, PrecisionMixturesRow

FLOAT, AS_GIVEN = "fp32", "as given"
MOST_DB = 999.0  # stands for no error at all: a table has no infinity
FEW_SAMPLES = 30  # if all of them agree, up to 11 % may still disagree (Wilson's limit)
MOST_NAMED = 3
KERNEL_LOSS_DB = 1.0  # sums in another order lose far less


def precision_rows(
    study: Study, results: Sequence[SchemeResult], written: SchemeResult | None, bounds: Bounds, left: Sequence[str]
) -> list[FormatPrecisionRow]:
    """Return a row for each format, scheme and output; the first rows are those of the model as given.

    Args:
        written: the result whose model is kept.
        left: contractions that no tool converts, by name.
    """
    rows = [_row(study, None, name, None, bounds, left) | {"is_written_model": False} for name in study.known.outputs]
    for result in results:
        for name in result.outputs or ("",):
            judgement = result.outputs[name] if result.outputs else None
            rows.append(_row(study, result, name, judgement, bounds, left) | {"is_written_model": result is written})
    return cast("list[FormatPrecisionRow]", rows)


def _row(
    study: Study,
    result: SchemeResult | None,
    name: str,
    judgement: OutputJudgement | None,
    bounds: Bounds,
    left: Sequence[str],
) -> dict[str, Any]:
    samples, nodes = study.known.samples, result.nodes if result else ()
    verdict = bounds.verdict(judgement, samples.source) if judgement and name == study.known.main else NOT_JUDGED
    in_float = [node for node in (*study.nodes, *study.not_finite) if node not in nodes]
    return {
        "number_format": result.scheme.number_format if result else FLOAT,
        "quantization_scheme": result.scheme.name if result else AS_GIVEN,
        "output_name": name,
        "format_verdict": verdict,
        "format_problem": result.problem if result else "",
        "is_arithmetic": result.scheme.activations if result else True,
        "sample_source": samples.source,
        "judged_sample_count": samples.count,
        "calibration_sample_count": len(study.calibration.feeds) * samples.per_run,
        "converted_op_types": sorted({study.model.op_types[node] for node in nodes}),
        "converted_node_count": len(nodes),
        "float_nodes": [*in_float, *left] if result else [],
        "calibration_sqnr_db": _finite(result.choosing[name].sqnr_db) if result and name in result.choosing else None,
        "kernel_sqnr_db": _finite(result.kernels[name].sqnr_db) if result and name in result.kernels else None,
        **_errors(judgement),
        **_interval("top1_agreement", judgement.top_1 if judgement else None),
        **_interval("top5_agreement", judgement.top_5 if judgement else None),
        **_interval("accuracy", _accuracy(study, name, judgement) if judgement or not result else None),
    }


def _accuracy(study: Study, name: str, judgement: OutputJudgement | None) -> Share | None:
    if judgement:
        return judgement.accuracy
    labels = study.known.samples.labels
    return None if labels is None or name != study.known.scores else limits(accuracy(labels, study.known.outputs[name]))


def _errors(judgement: OutputJudgement | None) -> dict[str, float | None]:
    distance = judgement.distance if judgement else None
    return {
        "sqnr_db": _finite(judgement.sqnr_db) if judgement else None,
        "cosine_error": distance.cosine_error if distance else None,
        "max_abs_error": distance.max_abs_error if distance else None,
    }


def _finite(ratio_db: float | None) -> float | None:
    return MOST_DB if ratio_db == math.inf else ratio_db


def _interval(stem: str, share: Share | None) -> dict[str, float | None]:
    ends = (None, None, None) if share is None else (share.value, share.low, share.high)
    return dict(zip((f"{stem}_share", f"{stem}_low_share", f"{stem}_high_share"), ends, strict=True))


def mixture_rows(
    study: Study, scheme: Scheme, found: Sequence[Mixture], written: Mixture | None, bounds: Bounds, left: Sequence[str]
) -> list[PrecisionMixturesRow]:
    """Return a row for each mixture of layers in the format and in float; no tool converts ``left``."""
    rows = [
        {
            "mixture_index": place,
            "number_format": scheme.number_format,
            "quantization_scheme": scheme.name,
            "format_verdict": bounds.verdict(mixture.judgement, study.known.samples.source),
            "sample_source": study.known.samples.source,
            "judged_sample_count": study.known.samples.count,
            "converted_node_count": len(mixture.nodes),
            "format_macs_share": mixture.macs_share,
            "predicted_sqnr_db": _finite(mixture.predicted_db),
            "sqnr_db": _finite(mixture.judgement.sqnr_db),
            "calibration_sqnr_db": _finite(mixture.choosing.sqnr_db),
            "calibration_top1_agreement_share": mixture.choosing.top_1.value if mixture.choosing.top_1 else None,
            **_interval("top1_agreement", mixture.judgement.top_1),
            "is_within_bounds": bounds.are_met(mixture.choosing),
            "is_written_model": mixture is written,
            "float_nodes": [node for node in (*study.nodes, *study.not_finite) if node not in mixture.nodes] + [*left],
        }
        for place, mixture in enumerate(found)
    ]
    return cast("list[PrecisionMixturesRow]", rows)


def layer_rows(
    study: Study, scheme: Scheme, layers: Sequence[LayerJudgement], macs: Mapping[str, int | None]
) -> list[PrecisionLayersRow]:
    """Return a row for each layer that a scheme converted alone."""
    rows = [
        {
            "source_node": layer.node,
            "op_type": study.model.op_types[layer.node],
            "macs": macs.get(layer.node),
            "number_format": scheme.number_format,
            "quantization_scheme": scheme.name,
            "layer_problem": layer.problem,
            **_errors(layer.judgement),
            **_interval("top1_agreement", layer.judgement.top_1 if layer.judgement else None),
        }
        for layer in layers
    ]
    return cast("list[PrecisionLayersRow]", rows)


# --- notes ------------------------------------------------------------------------------------------------------------


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
