"""Load a model at a remote endpoint that speaks KServe's v2 protocol, by HTTP or gRPC, and measure what it delivers.

Reads   what the endpoint says of its model; with --replay a file of arrivals.
Writes  load_endpoint.json (what the endpoint says of its model); load_requests.csv, load_batches.csv,
        load_summary.json, load_steps.csv and load_histogram.hlog, as 10_load_test.py writes them.

Triton, OpenVINO Model Server, KServe, MLServer and others speak that protocol. Requests come as in 10_load_test.py.
Latency counts from the intended start on this host, so it includes the network. Each connection has at most one batch
at a time. A request waits if no connection is free, and a queue that grows is `overload`.

A request is one row of the inputs. --dim INPUT.AXIS=N gives the size of a free axis other than the first.

EXAMPLE of input (what an endpoint says of its model) and output (load_requests.csv), some columns:

    {"name": "resnet50", "inputs": [{"name": "image", "datatype": "FP32", "shape": [-1, 3, 224, 224]}], ...}

    request_index,outcome,load_batch_index,intended_us,started_us,ended_us,round_trip_us
    0,completed,0,0,41.9,23101.2,22780.3
    1,completed,1,17971.2,18110.6,41202.7,22821.0

    python 25_load_endpoint.py --endpoint http://127.0.0.1:8000 --served-model resnet50 --rate 40 --duration 60s
    python 25_load_endpoint.py --endpoint grpc://127.0.0.1:8001 --served-model resnet50 --profile 60s:10,60s:10-50
    python 25_load_endpoint.py --endpoint https://models.example.org --served-model bert --dim ids.1=128 --users 8
"""

from __future__ import annotations

if __name__ == "__main__":
    from common.process import startup

    startup.begin()  # first of all: the imports below take most of a second

from collections.abc import Sequence
from typing import cast

from common import cli
from common.artifacts.transaction import Transaction
from common.cli import load_stage
from common.cli.flags import load_flags
from common.load.generator.harness import Harness
from common.load.requests.demand import KINDS
from common.load.results.load_tables import load_tables
from common.load.settings import EndpointLoad, EndpointSettings, checked
from common.load.telemetry import telemetry_to
from common.measurements import meters
from common.table_rows import LoadEndpointDocument
from common.view.load.load_text import load_report, steps_report


def arguments() -> cli.Parser:
    parser = cli.Parser("25_load_endpoint.py", __doc__ or "")
    load_flags.endpoint_flags(parser)
    parser.shared("--dim", help="size of a free axis, as INPUT.AXIS=N; repeatable")
    parser.shared("--input")
    load_flags.schedule_flags(parser, KINDS)
    load_flags.course_flags(parser)
    load_flags.user_flags(parser)
    load_flags.batching_flags(parser)
    load_flags.goodput_flags(parser)
    load_flags.telemetry_flags(parser)
    return parser


def load(stage: cli.StageRun, transaction: Transaction, endpoint_load: EndpointLoad, harness: Harness) -> int:
    """Load the endpoint, write the tables, and return the exit code."""
    transaction.reserve(load_stage.ROWS_RESERVED * harness.expected_count)
    with meters.link_meter(harness.shape.device) as link:
        test = harness.load()
        setup = {**harness.figures, **link()}
    transaction.release()  # the disk may have filled meanwhile
    tables = load_tables(test, setup, meters.process_figures())
    transaction.add_document("load_endpoint", cast("LoadEndpointDocument", endpoint_load.document))
    load_stage.add_load(transaction, tables)
    stage.note(*tables.lacks)
    stage.show("\n".join(filter(None, (load_report(tables.summary), steps_report(tables.steps)))))
    return load_stage.exit_code(stage, endpoint_load.settings.thresholds.broken(tables.summary))


def main(argv: Sequence[str] | None = None) -> int:
    with cli.stage(arguments(), argv) as stage:
        given = stage.settings
        endpoint_load = EndpointSettings.of(checked(given.values, given.given)).on_endpoint()
        stage.set_model(endpoint_load.model.model_id, endpoint_load.model.metadata.name, endpoint_load.model.dimensions)
        telemetry = telemetry_to(*load_stage.post_of(given), endpoint_load.model.metadata.name, stage.note)
        with stage.writing() as transaction, telemetry as listener:
            code = load(stage, transaction, endpoint_load, endpoint_load.harness(listener))
    return code


if __name__ == "__main__":
    cli.run(main)
