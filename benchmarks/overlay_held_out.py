"""Test the overlay engine on measurements outside its fit: other boards, engines and networks.

    python -m benchmarks.overlay_held_out

The figures are those of the Vitis AI 1.4 model zoo for networks that ``models/`` builds: end-to-end latency with one
thread, and for the U280 frames per second with several. Those of the Ultra96 are older (AI SDK 2.0.4). They were looked
up after the form of the model and its rates had been fixed, and neither was changed for them.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import mean, median

import onnx

from benchmarks.overlay_fit import BUILDERS, Network, configured, network, predicted
from models.resnet50 import build_resnet50
from models.squeezenet import build_squeezenet

NETWORKS: dict[str, Callable[[], onnx.ModelProto]] = {
    **{name: partial(build, batch=1, has_weights=False) for name, build in BUILDERS.items()},
    "squeezenet": partial(build_squeezenet, batch=1, has_weights=False),
    "resnet50": partial(build_resnet50, batch=1),
}
# In ms. ResNet-50 is the zoo's mlperf_resnet50 of 8.19 G operations, which has its strides in the same layers as the
# one in models/. For the Ultra96 only the Caffe version is listed (7.7 G: strides in the 1x1 convolutions, 6 % less
# work).
LATENCY_MS = {
    ("dpu-b4096", "kv260"): {"squeezenet": 3.70, "resnet50": 13.92},
    ("dpu-b4096", "zcu104"): {
        "resnet18": 5.16,
        "vgg16": 46.68,
        "mobilenet-v1": 3.21,
        "inception-v1": 5.27,
        "squeezenet": 3.62,
        "resnet50": 13.17,
    },
    ("dpu-b4096", "zcu102"): {
        "resnet18": 5.46,
        "vgg16": 49.75,
        "mobilenet-v1": 3.37,
        "inception-v1": 5.57,
        "squeezenet": 3.69,
        "resnet50": 14.04,
    },
    ("dpu-b1600", "ultra96"): {
        "resnet18": 13.47,
        "mobilenet-v1": 5.97,
        "inception-v1": 13.98,
        "squeezenet": 5.96,
        "resnet50": 30.8,
    },
}
FRAMES_PER_SECOND = {
    ("dpu-cahx8h", "u280"): {
        "resnet18": 1658.3,
        "vgg16": 188.6,
        "inception-v1": 1378.1,
        "squeezenet": 3961.0,
        "resnet50": 645.7,
    },
}


@dataclass(frozen=True, slots=True)
class Comparison:
    """One published figure; errors are relative to it, the roofline's too."""

    board: str
    network: str
    unit: str
    published: float
    predicted: float
    error: float
    roofline_error: float


def comparisons() -> Iterator[Comparison]:
    """Yield every published figure with its prediction."""
    networks = {name: network(build()) for name, build in NETWORKS.items()}
    for (engine, board), figures in LATENCY_MS.items():
        for name, published in figures.items():
            yield _compared(networks[name], name, (engine, board), "ms", published)
    for (engine, board), figures in FRAMES_PER_SECOND.items():
        for name, published in figures.items():
            yield _compared(networks[name], name, (engine, board), "1/s", published)


def _compared(net: Network, name: str, place: tuple[str, str], unit: str, published: float) -> Comparison:
    model = predicted(net, configured(*place))
    if unit == "ms":
        prediction, roof = model.latency_us.likely / 1e3, model.roofline_us / 1e3
    else:
        prediction, roof = model.frames_per_second.likely, model.batch * 1e6 / model.roofline_us
    return Comparison(place[1], name, unit, published, prediction, prediction / published - 1, roof / published - 1)


def report() -> str:
    """Return a line for each figure, and the mean, median and worst error."""
    compared = list(comparisons())
    lines = [f"{'board':9}{'network':14}{'published':>12}{'predicted':>12}{'error':>9}{'roofline':>10}"]
    for row in compared:
        figures = f"{row.published:9.2f} {row.unit:3}{row.predicted:8.2f} {row.unit:3}"
        lines.append(f"{row.board:9}{row.network:14}{figures}{row.error:8.0%}{row.roofline_error:10.0%}")
    errors, roofs = [abs(row.error) for row in compared], [abs(row.roofline_error) for row in compared]
    for name, function in (("mean", mean), ("median", median), ("worst", max)):
        lines.append(f"{name:47}{function(errors):8.0%}{function(roofs):10.0%}")
    return "\n".join(lines)


def main(argv: Sequence[str] | None = None) -> int:
    """Print the table."""
    argparse.ArgumentParser(prog="python -m benchmarks.overlay_held_out", description=__doc__).parse_args(argv)
    print(report())
    return 0


if __name__ == "__main__":
    sys.exit(main())
