"""Refit the streaming GEMV model, and show the errors of each form of the model for sizes outside its fit.

``python -m benchmarks.kernels.gemv_fit`` prints the fit that configs/streaming.yaml holds, the errors by size (fitted,
left out, extrapolated from smaller sizes), and the forms that were compared. The form is chosen by its errors on sizes
that were left out.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from benchmarks.process import ROOT
from common.files.configuration import Section
from common.fpga.kernels.dataflow.streaming import PublishedSize, StreamingModel, host_call_us, read_streaming

CONFIG = ROOT / "configs" / "streaming.yaml"
# A form is the set of fitted delays, which keep the kernel from taking a word in every cycle.
FORMS = {
    "start": ("start",),
    "start + row": ("start", "row"),
    "row": ("row",),
    "row + stall": ("row", "stall"),
    "start + stall": ("start", "stall"),
    "start + row + stall": ("start", "row", "stall"),
}
CHOSEN = "row + stall"


def load() -> StreamingModel:
    return read_streaming(Section.of_file(CONFIG))


def terms(model: StreamingModel, sizes: Sequence[PublishedSize]) -> dict[str, np.ndarray]:
    """Return the cycles that one unit of each parameter adds, by size, and the cycles ``given`` without any."""
    lanes = model.ports.elements_per_word(64)
    rows = np.array([-(-size.rows // model.ports.count) for size in sizes], float)
    words = rows * np.array([-(-size.columns // lanes) for size in sizes])
    first = model.timing.first_word_ns * model.ports.clock_mhz / 1e3
    return {"given": words + first, "start": np.ones(len(sizes)), "row": rows, "stall": words}


def fit(model: StreamingModel, sizes: Sequence[PublishedSize], form: Sequence[str]) -> dict[str, float]:
    """Return the parameters by least squares of relative errors; negative ones are dropped."""
    columns, measured = terms(model, sizes), _cycles(model, sizes)
    design = np.column_stack([columns[name] for name in form]) / measured[:, None]
    solved = np.linalg.lstsq(design, (measured - columns["given"]) / measured, rcond=None)[0]
    kept = [name for name, value in zip(form, solved, strict=True) if value > 0]
    if len(kept) < len(form):
        return fit(model, sizes, kept) if kept else {}
    return dict(zip(form, solved.tolist(), strict=True))


def errors(model: StreamingModel, sizes: Sequence[PublishedSize], parameters: dict[str, float]) -> np.ndarray:
    """Return predicted / measured - 1 for each size."""
    columns = terms(model, sizes)
    predicted = columns["given"] + sum(value * columns[name] for name, value in parameters.items())
    return np.asarray(predicted / _cycles(model, sizes) - 1)


def left_out(model: StreamingModel, form: Sequence[str]) -> np.ndarray:
    """Return the error of each size when the others are fitted."""
    sizes = model.measurements
    return np.array(
        [errors(model, [size], fit(model, [other for other in sizes if other is not size], form))[0] for size in sizes]
    )


def extrapolated(model: StreamingModel, form: Sequence[str]) -> np.ndarray:
    """Return the error of each of the three largest sizes when all smaller ones are fitted."""
    sizes = model.measurements
    return np.array([errors(model, [sizes[i]], fit(model, sizes[:i], form))[0] for i in range(3, len(sizes))])


def call_errors(model: StreamingModel) -> np.ndarray:
    """Return the errors of the host's call by the configured model."""
    columns = terms(model, model.measurements)
    cycles = columns["given"] + model.timing.row_drain_cycles * columns["row"]
    kernel_us = (cycles + model.timing.stall_share * columns["stall"]) / model.ports.clock_mhz
    return np.array(
        [
            host_call_us(us, 8 * (size.rows + size.columns), model.host_call_us.likely, model.link_bytes_per_s)
            / size.call_us
            - 1
            for us, size in zip(kernel_us, model.measurements, strict=True)
        ]
    )


def _cycles(model: StreamingModel, sizes: Sequence[PublishedSize]) -> np.ndarray:
    return np.array([size.kernel_us for size in sizes]) * model.ports.clock_mhz


def main() -> None:
    """Print the fit, the table by size and the comparison of forms."""
    model = load()
    parameters = fit(model, model.measurements, FORMS[CHOSEN])
    print(f"fitted on n = {len(model.measurements)}: " + ", ".join(f"{k} {v:.4g}" for k, v in parameters.items()))
    fitted, out = errors(model, model.measurements, parameters), left_out(model, FORMS[CHOSEN])
    print(f"{'rows x columns':>15} {'measured us':>12} {'fitted':>8} {'left out':>9} {'call':>8}")
    for size, *shares in zip(model.measurements, fitted, out, call_errors(model), strict=True):
        fit_error, left_out_error, call_error = shares
        times = f"{size.rows:7d}x{size.columns:<7d} {size.kernel_us:12.3f}"
        print(f"{times} {fit_error:8.1%} {left_out_error:9.1%} {call_error:8.1%}")
    print(f"\n{'form':>20} {'fitted':>8} {'left out':>9} {'worst':>7} {'larger sizes from smaller':>27}")
    for name, form in FORMS.items():
        inside = errors(model, model.measurements, fit(model, model.measurements, form))
        outside, larger = np.abs(left_out(model, form)), np.abs(extrapolated(model, form))
        print(
            f"{name:>20} {np.abs(inside).mean():8.1%} {outside.mean():9.1%} {outside.max():7.1%} {larger.mean():27.1%}"
        )


if __name__ == "__main__":
    main()
