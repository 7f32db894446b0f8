"""Fit the overlay engine's four rates to four measured latencies, and report how well they predict.

    python -m benchmarks.kernels.overlay_fit

The latencies are those of the Vitis AI 1.4 model zoo on a KV260 (one B4096 at 300 MHz, batch 1, one thread, from the
resized image to sorted scores). Four points cannot determine four free parameters, so each has a prior from documents.
The fit is the most probable set under priors and measurements (errors are log-normal, 5 % per network). Each network is
also predicted from a fit to the other three. The peak roofline, which is usually quoted, is shown for comparison. Other
boards and networks: ``python -m benchmarks.kernels.overlay_held_out``.

    network        measured ms   fit ms   error  left out  roofline
    resnet18              5.37     5.27  -1.9 %    -2.9 %   -45.0 %
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from math import exp, log
from pathlib import Path
from statistics import mean

import numpy as np
import numpy.typing as npt
import onnx

from benchmarks.process import ROOT
from common.fpga.device.board_files import load_board
from common.fpga.kernels.overlay.engine import OverlayEngine
from common.fpga.kernels.overlay.engine_files import load_engine
from common.fpga.planning.whole_model import WholeModel, whole_model
from common.graphs.source_graph import SourceGraph, from_rows
from common.onnx_graph.counts import count_nodes
from common.onnx_graph.load import load_model
from common.onnx_graph.rows import edge_rows, metrics_row
from common.workload.layer_rows import layers_by_node
from common.workload.layers import Layer
from models.classifiers.inception_v1 import build_inception_v1
from models.classifiers.mobilenet_v1 import build_mobilenet_v1
from models.classifiers.resnet import build_resnet18
from models.classifiers.vgg16 import build_vgg16

CONFIGS = ROOT / "configs"
# Vitis AI 1.4 model zoo, KV260, end to end, one thread.
MEASURED_US = {"resnet18": 5370.0, "vgg16": 52040.0, "mobilenet-v1": 3300.0, "inception-v1": 5460.0}
BUILDERS: dict[str, Callable[..., onnx.ModelProto]] = {
    "resnet18": build_resnet18,
    "vgg16": build_vgg16,
    "mobilenet-v1": build_mobilenet_v1,
    "inception-v1": build_inception_v1,
}
MEASURED_SPREAD = 0.05  # standard deviation of the logarithm of measured / predicted
INPUT_ELEMENTS = (
    3 * 224 * 224
)  # all four networks have the same input, so a fit cannot tell call cost from cost per element
CALL_FRACTION = 0.5  # of the host's time, assumed


@dataclass(frozen=True, slots=True)
class Prior:
    """Prior of a parameter: its median and the standard deviation of its logarithm."""

    median: float
    spread: float


PRIORS = {
    "port_fraction": Prior(0.7, 0.2),  # published kernels reach 0.5 to 0.9 of AXI ports
    "array_fraction": Prior(0.9, 0.07),  # filling and draining a pipeline in tiles of some hundred cycles
    "layer_us": Prior(8.0, 0.8),  # a few dependent reads of DDR and some synchronizations
    "host_us": Prior(500.0, 0.7),  # 150,528 bytes scaled, a system call and an interrupt, 1000 exponentials, a sort
}
Rates = Mapping[str, float]
Point = npt.NDArray[np.float64]
STEPS = 8
DIFFERENCE = 1e-3  # of a logarithm


@dataclass(frozen=True, slots=True)
class Network:
    """Input of the model: a source graph and the layers of each node."""

    graph: SourceGraph
    layers: Mapping[str, tuple[Layer, ...] | None]


def network(model: onnx.ModelProto) -> Network:
    """Count a model, without weights, as stage 02 does."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        onnx.save(model, path)
        loaded = load_model(path, {})
    counts = {count.node.name: count for count in count_nodes(loaded.graph, None)}
    rows = [metrics_row(loaded, count) for count in counts.values()]
    source = from_rows(rows, edge_rows(loaded.graph, counts))
    return Network(source, layers_by_node(rows, source))


def configured(engine: str, board: str) -> OverlayEngine:
    return load_engine(engine, CONFIGS / "engines", load_board(board, CONFIGS / "boards"))


def with_rates(engine: OverlayEngine, rates: Rates) -> OverlayEngine:
    call_us = CALL_FRACTION * rates["host_us"]
    input_ns = (1 - CALL_FRACTION) * rates["host_us"] / INPUT_ELEMENTS * 1e3
    return replace(
        engine,
        ports=replace(engine.ports, share=rates["port_fraction"]),
        array_share=rates["array_fraction"],
        layer_cycles=rates["layer_us"] * engine.clock_mhz,
        host=replace(engine.host, call_us=call_us, input_ns=input_ns),
    )


def predicted(net: Network, engine: OverlayEngine) -> WholeModel:
    return whole_model(net.graph, net.layers, engine)


def fit(networks: Mapping[str, Network], engine: OverlayEngine, names: Collection[str]) -> dict[str, float]:
    """Return the most probable rates, given the measured latencies of the named networks and the priors."""
    start = np.log([prior.median for prior in PRIORS.values()])

    def residuals(point: Point) -> Point:
        """Return errors of the networks and deviations from the priors, each in standard deviations."""
        trial = with_rates(engine, _rates(point))
        errors_of_time = [log(predicted(networks[name], trial).latency_us.likely / MEASURED_US[name]) for name in names]
        deviations = (point - start) / [prior.spread for prior in PRIORS.values()]
        return np.concatenate([np.array(errors_of_time) / MEASURED_SPREAD, deviations])

    return _rates(_least_squares(residuals, start))


def _rates(point: Point) -> dict[str, float]:
    return {name: exp(value) for name, value in zip(PRIORS, point, strict=True)}


def _least_squares(residuals: Callable[[Point], Point], point: Point) -> Point:
    """Gauss-Newton with central differences: the residuals are close to linear, and priors keep every step small."""
    for _ in range(STEPS):
        columns = [
            (residuals(point + shift) - residuals(point - shift)) / (2 * DIFFERENCE)
            for shift in np.eye(len(point)) * DIFFERENCE
        ]
        point = point - np.linalg.lstsq(np.stack(columns, axis=1), residuals(point), rcond=None)[0]
    return point


def errors(networks: Mapping[str, Network], engine: OverlayEngine, names: Collection[str]) -> dict[str, float]:
    """Return the relative error of the engine's prediction for each named network."""
    return {name: predicted(networks[name], engine).latency_us.likely / MEASURED_US[name] - 1 for name in names}


def left_out(networks: Mapping[str, Network], engine: OverlayEngine) -> dict[str, float]:
    """Return the relative error of each network when the other three are fitted."""
    left_out_errors: dict[str, float] = {}
    for name in MEASURED_US:
        rates = fit(networks, engine, [other for other in MEASURED_US if other != name])
        left_out_errors |= errors(networks, with_rates(engine, rates), [name])
    return left_out_errors


def report() -> str:
    """Return the fitted rates, and each network's error by the fit, by a fit to the other three and by the roofline."""
    networks = {name: network(build(batch=1, has_weights=False)) for name, build in BUILDERS.items()}
    engine = configured("dpu-b4096", "kv260")
    rates = fit(networks, engine, MEASURED_US)
    columns = (
        errors(networks, with_rates(engine, rates), MEASURED_US),
        left_out(networks, engine),
        {name: predicted(networks[name], engine).roofline_us / MEASURED_US[name] - 1 for name in MEASURED_US},
    )
    lines = ["  ".join(f"{name} {value:.4g}" for name, value in rates.items()), ""]
    lines.append(f"{'network':14}{'measured ms':>12}{'fit ms':>9}{'error':>10}{'left out':>10}{'roofline':>10}")
    for name, measured_us in MEASURED_US.items():
        fit_ms = measured_us * (1 + columns[0][name]) / 1e3
        shares = "".join(f"{column[name]:10.1%}" for column in columns)
        lines.append(f"{name:14}{measured_us / 1e3:12.2f}{fit_ms:9.2f}{shares}")
    shares = "".join(f"{mean(map(abs, column.values())):10.1%}" for column in columns)
    return "\n".join([*lines, f"{'mean':14}{'':21}{shares}"])


def main(argv: Sequence[str] | None = None) -> int:
    argparse.ArgumentParser(prog="python -m benchmarks.kernels.overlay_fit", description=__doc__).parse_args(argv)
    print(report())
    return 0


if __name__ == "__main__":
    sys.exit(main())
