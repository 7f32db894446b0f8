"""Send requests to a service on an ONNX Runtime session, and measure what it delivers: latency, queue and batches.

Reads   the model file; with --images a folder of images; with --best load_best.json and load_search.csv.
Writes  load_requests.csv (when each request was intended, queued, batched, started, ended), load_batches.csv (how each
        batch was formed and padded, what it took), load_summary.json, load_steps.csv (what was delivered at each rate),
        load_histogram.hlog (latencies second by second, as HdrHistogram logs them), load_disturbances.csv (slow calls,
        and what disturbed them).

Requests come by a schedule that waits for nobody (open loop), and their latency counts from the intended start. So a
stop of 200 ms lengthens every request that came meanwhile. With --users, users send the next request when they have the
answer (closed loop). Then only a few requests show such a stop.

With --images each request brings an encoded image. Decoding, resizing and normalizing it are stages of its call, which
are timed separately. So is finding the --top-k classes. On a GPU, the copies to and from it are stages as well.

A load is `failing` if a larger share of requests than --max-error-share fails. It is an `overload` if its queue grows,
or if a larger share than that is rejected or not served. It is `invalid` if the generator's own delays make more
than 10 % of the latency. None of these has percentiles. In those of a `valid` load, a failed request counts with the
time that its caller waited.

The exit code is 4 if more than --max-error-share of the requests get no answer, or fewer than --min-goodput per second
get one within --goodput-bound.

EXAMPLE of input (a model) and output (load_requests.csv), some columns:

    resnet50-fp32.onnx: input float32 [N,3,224,224]

    request_index,outcome,load_batch_index,queue_depth_count,intended_us,batched_us,started_us,ended_us
    0,completed,0,0,18211.4,23224.8,23227.1,89120.2
    1,completed,0,1,21904.0,23224.8,23227.1,89120.2

    python 10_load_test.py --rate 40 --arrivals poisson --duration 60s --batch-max 8 --batch-wait 5ms
    python 10_load_test.py --profile 60s:10,30s:10-50,60s:50                    # 10/s, a ramp up to 50/s, then 50/s
    python 10_load_test.py --model bert.onnx --replay arrivals.csv --length-dim seq --buckets 32,64,128 --batch-max 8
    python 10_load_test.py --rate 20 --post http://127.0.0.1:8765               # seen live by 12_dashboard.py --attach
    python 10_load_test.py --rate 20 --images photos --top-k 5 --replicate 2     # JPEG files, decoded for each request
    python 10_load_test.py --rate 40 --duration 10m --until "p99 5%"    # ends when the limits of p99 are within 5 %
    python 10_load_test.py --users 4 --sessions 2 --threads 1 --workers processes
    python 10_load_test.py --rate 40 --max-error-share 1% --goodput-bound 50ms --min-goodput 35    # exit code 4 below
    python 10_load_test.py --best --duration 60s                 # the configuration that 14_load_search.py found
"""

from __future__ import annotations

if __name__ == "__main__":
    from common.process import startup

    startup.begin()  # first of all: the imports below take most of a second

from collections.abc import Sequence

from common import cli
from common.artifacts.stages import WRITER
from common.artifacts.transaction import Transaction
from common.cli import load_stage
from common.cli.flags import load_flags
from common.load.best_configuration import contradictions
from common.load.generator.harness import Harness
from common.load.requests.demand import KINDS
from common.load.results.load_figures import steady
from common.load.results.load_tables import LoadTables, call_series, load_tables, slow_call_rows
from common.load.service.concurrency import SHARING
from common.load.settings import LoadSettings, checked, with_best
from common.load.telemetry import telemetry_to
from common.measurements import meters, observer
from common.messages.errors import UpstreamError
from common.os_events.recorder import OsEventRecorder
from common.os_events.tracefs import TracefsRecorder
from common.runtime.inputs.images import NORMALIZATIONS
from common.runtime.sessions.limits import limited_runs
from common.runtime.sessions.session import OPTIMIZATIONS
from common.view.load.load_text import load_report, steps_report


def arguments() -> cli.Parser:
    parser = cli.Parser("10_load_test.py", __doc__ or "")
    parser.shared(*cli.MODEL)
    load_flags.schedule_flags(parser, KINDS)
    load_flags.course_flags(parser)
    load_flags.user_flags(parser)
    load_flags.length_flags(parser)
    load_flags.payload_flags(parser, tuple(NORMALIZATIONS))
    load_flags.batching_flags(parser)
    load_flags.goodput_flags(parser)
    load_flags.session_flags(parser, tuple(OPTIMIZATIONS), SHARING)
    text = "load the best configuration of load_best.json at the rate that it sustains"
    parser.setting("--best", action="store_true", default=False, help=text)
    load_flags.telemetry_flags(parser)
    text = "27_token_streams.py loads a decoder (generate), 21_loadgen_scenario.py runs the scenarios of LoadGen"
    parser.elsewhere["--scenario"] = text
    return parser


def load(stage: cli.StageRun, transaction: Transaction, harness: Harness) -> LoadTables:
    """Load the service, look for what disturbed its calls, and write the tables."""
    transaction.reserve(load_stage.ROWS_RESERVED * harness.expected_count)
    with meters.link_meter(harness.shape.device) as link:
        with OsEventRecorder(TracefsRecorder(parses_late=True)) as events:
            test = harness.load(events.drain_if_due)
        setup = {**harness.figures, **link()}
    transaction.release()  # the disk may have filled meanwhile
    tables = load_tables(test, setup, meters.process_figures())
    load_stage.add_load(transaction, tables)
    slow, lines = observer.slow_calls(call_series(test.record, steady(test.record).start_index or 0), events)
    transaction.add_rows("load_disturbances", slow_call_rows(test.record, slow))
    transaction.mark_incomplete([*tables.lacks, *events.incomplete], "load_disturbances")
    stage.note(*lines, *tables.lacks)
    stage.show("\n".join(filter(None, (load_report(tables.summary), steps_report(tables.steps)))))
    return tables


def main(argv: Sequence[str] | None = None) -> int:
    with cli.stage(arguments(), argv) as stage:
        given = stage.settings
        values = checked(given.values, given.given)
        best = stage.tables.document("load_best") if given.best else None
        if best:
            values = with_best(values, best, stage.tables.rows("load_search"))
        settings = LoadSettings.of(values)
        path = cli.model_path(given.model)
        model_load = settings.on(path, cli.configured_bindings(given.config, path))
        model_id, remedy = model_load.model.bound.model_id, f"run {WRITER['load_best']} with it"
        if stage.record.model_id not in ("", model_id):  # that of the configuration that was searched
            raise UpstreamError(stage.tables.path("load_best"), "of another model", remedy)
        stage.set_model(model_id, path.name, model_load.model.bound.dimensions)
        with stage.writing() as transaction, limited_runs(given.run_timeout):
            with telemetry_to(*load_stage.post_of(given), path.name, stage.note) as listener:
                harness = model_load.harness(listener)
                tables = load(stage, transaction, harness)
            if best:
                stage.note(*contradictions(best, tables.summary))
            code = load_stage.exit_code(stage, settings.thresholds.broken(tables.summary))
    return code


if __name__ == "__main__":
    cli.run(main)
