"""Test the overlay engine on measurements that it was not fitted on: other boards, engines and networks.

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
# ms; the ResNet-50 is the zoo's mlperf_resnet50 of 8.19 G operations, whose strides lie where those of models/ do; of
# the Ultra96 only that of Caffe is listed (7.7 G: strides in the 1x1 convolutions, 6 % less work).
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
    """Every figure beside its prediction."""
    networks = {name: network(build()) for name, build in NETWORKS.items()}
    for (engine, board), figures in LATENCY_MS.items():
        for name, published in figures.items():
            yield _compared(networks[name], name, (engine, board), "ms", published)
    for (engine, board), figures in FRAMES_PER_SECOND.items():
        for name, published in figures.items():
            yield _compared(networks[name], name, (engine, board), "1/s", published)


def _compared(found: Network, name: str, place: tuple[str, str], unit: str, published: float) -> Comparison:
    model = predicted(found, configured(*place))
    if unit == "ms":
        ours, roof = model.latency_us.likely / 1e3, model.roofline_us / 1e3
    else:
        ours, roof = model.frames_per_second.likely, model.batch * 1e6 / model.roofline_us
    return Comparison(place[1], name, unit, published, ours, ours / published - 1, roof / published - 1)


def report() -> str:
    """A line a figure, and how far off they are together."""
    found = list(comparisons())
    lines = [f"{'board':9}{'network':14}{'published':>12}{'predicted':>12}{'error':>9}{'roofline':>10}"]
    for one in found:
        figures = f"{one.published:9.2f} {one.unit:3}{one.predicted:8.2f} {one.unit:3}"
        lines.append(f"{one.board:9}{one.network:14}{figures}{one.error:8.0%}{one.roofline_error:10.0%}")
    ours, roofs = [abs(one.error) for one in found], [abs(one.roofline_error) for one in found]
    for name, function in (("mean", mean), ("median", median), ("worst", max)):
        lines.append(f"{name:47}{function(ours):8.0%}{function(roofs):10.0%}")
    return "\n".join(lines)


def main(argv: Sequence[str] | None = None) -> int:
    """Print the table."""
    argparse.ArgumentParser(prog="python -m benchmarks.overlay_held_out", description=__doc__).parse_args(argv)
    print(report())
    return 0


if __name__ == "__main__":
    sys.exit(main())
