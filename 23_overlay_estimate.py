"""Estimate the latency and the frames per second of a whole model on a vendor's overlay engine, such as a DPU.

Reads   op_metrics.csv, op_edges.csv; a board and an engine file.
Writes  overlay_layers.csv (a row per layer), overlay_summary.json.

The engine computes the layers one after the other. Layers without a unit on the engine run on the host. No profile is
needed. All figures are estimates with a pessimistic, a likely and an optimistic case.

EXAMPLE of output (overlay_layers.csv), some columns:

    engine_layer,op_types,unit,macs,kernel_latency_likely_us,board_bound
    /conv1/Conv,"[""Conv"",""BatchNormalization"",""Relu""]",array,118013952,301.2,compute

    python 23_overlay_estimate.py --board zcu104 --engine dpu-b4096
"""

from __future__ import annotations

if __name__ == "__main__":
    from common.process import startup

    startup.begin()  # first of all: the imports below take most of a second

from collections.abc import Sequence

from common import cli
from common.cli.plan_stage import CONFIGS, source_graph
from common.fpga.device.board_files import load_board
from common.fpga.kernels.overlay.engine import OverlayEngine
from common.fpga.kernels.overlay.engine_files import load_engine
from common.fpga.planning.whole_model import summary_of, whole_model
from common.messages.errors import CommandLineError
from common.view.plan.engine_text import overlay_report
from common.workload.layer_rows import layers_by_node


def arguments() -> cli.Parser:
    parser = cli.Parser("23_overlay_estimate.py", __doc__ or "")
    parser.shared("--board", default="zcu104")
    parser.shared("--engine")
    return parser


def chosen_engine(settings: cli.Settings) -> OverlayEngine:
    """Return the engine that must be named, on its board."""
    if settings.engine is None:
        raise CommandLineError("<engine>", "is missing", "add for example --engine dpu-b4096")
    return load_engine(settings.engine, CONFIGS / "engines", load_board(settings.board, CONFIGS / "boards"))


def main(argv: Sequence[str] | None = None) -> int:
    with cli.stage(arguments(), argv) as stage:
        engine = chosen_engine(stage.settings)
        metrics, graph = source_graph(stage.tables)
        with stage.writing() as transaction:
            with stage.tables.content():
                estimate = whole_model(graph, layers_by_node(metrics, graph), engine)
            stage.note(*estimate.notes)
            layers, summary = estimate.layers, summary_of(estimate, engine)
            transaction.add_rows("overlay_layers", layers)
            transaction.add_document("overlay_summary", summary)
        stage.show(overlay_report(summary, layers))
    return 0


if __name__ == "__main__":
    cli.run(main)
