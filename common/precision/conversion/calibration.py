"""Ranges of activations on the samples that calibrate, by ONNX Runtime's calibrators; each range is found once."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from common.precision.conversion.float_model import QUANTIZED, FloatModel, described
from common.precision.conversion.quiet_runs import quiet_tool
from common.precision.conversion.smoothing import smoothed
from common.runtime.inputs.values import Feeds

ENDS = ("lowest", "highest")  # of a range, in the file


@dataclass(frozen=True, slots=True)
class Calibration:
    """The samples, and a folder for the ranges that are found."""

    model: FloatModel
    feeds: Sequence[Feeds]
    folder: Path

    def ranges(self, method: str, *, op_types: Sequence[str] | None = QUANTIZED) -> Path:
        """Return a file with the ranges, as the quantizer reads them.

        Args:
            method: ``MinMax``, ``Percentile`` (99.999 %, of both sides together) or ``Entropy``.
            op_types: whose operands and results have a range; None: all.

        Raises:
            PipelineError: the calibrator fails, for example with values that are not finite.
        """
        path = self.folder / (f"{method}.json" if op_types else f"{method}-all.json")
        if not path.exists():
            with quiet_tool(f"{method} ranges", "cannot be found", self.folder):
                self._find(method, op_types, path)
        return path

    def _find(self, method: str, op_types: Sequence[str] | None, path: Path) -> None:
        from onnxruntime.quantization import CalibrationMethod, create_calibrator
        from onnxruntime.quantization.calibrate import save_tensors_data

        calibrator = create_calibrator(
            self.model.path,
            None if op_types is None else [*op_types],
            str(self.folder / "augmented.onnx"),
            calibrate_method=CalibrationMethod[method],
            extra_options={"symmetric": False},
        )
        for feeds in self.feeds:  # one run at a time: it keeps all activations of the runs that it gets together
            calibrator.collect_data(_OneRun(feeds))
        save_tensors_data(calibrator.compute_data(), path)

    def smoothed(self) -> Calibration:
        """Return the calibration of the model with smoothed linear layers, which is made once.

        A PipelineError says that the model with outputs for all activations does not run.
        """
        folder = self.folder / "smoothed"
        path = folder / "float.onnx"
        if path.exists():
            return replace(self, model=described(path), folder=folder)
        folder.mkdir(exist_ok=True)
        with quiet_tool("activations", "cannot be smoothed", folder):
            return replace(self, model=smoothed(self.model, self.feeds, path), folder=folder)

    def not_finite(self) -> list[str]:
        """Return the tensors with an infinite value or NaN in a sample; PipelineError: the calibrator fails."""
        limits: dict[str, Any] = json.loads(self.ranges("MinMax").read_text(encoding="utf-8"))["data"]
        return [name for name, each in limits.items() if not np.isfinite([_number(each[end]) for end in ENDS]).all()]


def _number(entry: Any) -> float:
    """Return a number of the file, in which an array of one element is a list."""
    return float(np.ravel(entry["data"] if isinstance(entry, dict) else entry)[0])


class _OneRun:
    """One run, as a calibrator takes it: it asks for the next feeds until there are none."""

    def __init__(self, feeds: Feeds) -> None:
        self._feeds: Iterator[Feeds] = iter([feeds])

    def get_next(self) -> Feeds | None:
        return next(self._feeds, None)
