"""A study as rows of tables."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, cast

from common.precision.conversion.schemes import Scheme
from common.precision.judgement.evaluation import NOT_JUDGED, Bounds, OutputJudgement
from common.precision.judgement.measures import Share, accuracy, limits
from common.precision.mixture import Mixture
from common.precision.study import LayerJudgement, SchemeResult, Study
from common.table_rows import FormatPrecisionRow, PrecisionLayersRow, PrecisionMixturesRow

FLOAT, AS_GIVEN = "fp32", "as given"
MOST_DB = 999.0  # stands for no error at all: a table has no infinity


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
