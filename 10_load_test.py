"""Send requests to a service on an ONNX Runtime session, and say what it delivers: latency, queue and batches.

Reads   the model file; with --images a folder of images.
Writes  load_requests.csv (when each request was intended, queued, batched, started, ended), load_batches.csv (how each
        batch was formed and padded, what it took), load_summary.json. With --scenario also LoadGen's own
        loadgen_summary.txt; with --search load_search.csv (every run), load_batch_times.csv, load_best.json; for two
        minutes or longer endurance.csv (a row per minute; the first three are then of the last one) and
        endurance_summary.json; with --with load_interference.csv; with --provider-matrix provider_comparison.csv. With
        --models load_fleet.csv alone: a row per model, with the host that measured it. What an earlier load test left
        in the folder is removed: all tables are of one command.

Requests come by a schedule that waits for nobody (open loop), and their latency counts from the intended start: a
service that stands still for 200 ms shows it in every request that came meanwhile. With --users, users send the next
request when they have the answer (closed loop); that hides such a stall from all requests but a few.

With --images each request brings an encoded image: decoding, resizing and normalizing it are stages of its call, timed
apart, and so is finding the --top-k classes. On a GPU the copies there and back are stages as well.

The generator's own delay is measured. A run in which it holds up more than 1 % of the requests for over 1 ms, and
over 1 % of their latency, is `invalid`; one whose queue grows is `overload`. Neither has percentiles.

EXAMPLE of input (a model) and output (load_requests.csv), some columns:

    resnet50-fp32.onnx: input float32 [N,3,224,224]

    request_index,outcome,load_batch_index,queue_depth_count,intended_us,batched_us,started_us,ended_us
    0,completed,0,0,18211.4,23224.8,23227.1,89120.2
    1,completed,0,1,21904.0,23224.8,23227.1,89120.2

    python 10_load_test.py --rate 40 --arrivals poisson --duration 60s --batch-max 8 --batch-wait 5ms
    python 10_load_test.py --model bert.onnx --replay arrivals.csv --length-dim seq --buckets 32,64,128 --batch-max 8
    python 10_load_test.py --search --p99-bound 50ms             # batch, wait, sessions, threads
    python 10_load_test.py --rate 20 --duration 1h               # minute by minute: leaks and drift
    python 10_load_test.py --rate 20 --post http://127.0.0.1:8765               # seen live by 12_dashboard.py --attach
    python 10_load_test.py --rate 20 --images photos --top-k 5 --replicate 2     # JPEG files, decoded for each request
    python 10_load_test.py --models resnet50.onnx,bert.onnx --search --cluster dask --cluster-address HOST:8786
    python 10_load_test.py --users 4 --sessions 2 --threads 1 --workers processes
    python 10_load_test.py --search --pool own,shared --spinning always,never    # compares ways to share the host
    python 10_load_test.py --model bert.onnx --with resnet50-fp32.onnx --rate 5 --duration 60s
    python 10_load_test.py --scenario server --rate 40           # MLPerf LoadGen sends the requests
"""

from __future__ import annotations

if __name__ == "__main__":
    from common import interrupts

    interrupts.end_at_once()  # first of all: the imports below take most of a second

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from common import cli, observer
from common.artifacts.transaction import Transaction
from common.cli import load_flags
from common.load.best_configuration import contradictions, find_best, with_best
from common.load.fleet import tasks_of
from common.load.generator.harness import Prepared
from common.load.generator.loadgen import SCENARIOS, SUMMARY, require_loadgen
from common.load.generator.wall_clock import Listener, nobody
from common.load.modes import Loaded, alone_and_together, by_loadgen, of_fleet, part_by_part, with_slow_calls
from common.load.requests.demand import KINDS
from common.load.results.load_figures import steady
from common.load.results.load_tables import LoadTables, run_tables
from common.load.results.slow_calls import call_series
from common.load.service.concurrency import SHARING
from common.load.service.served_model import ServedModel
from common.load.settings import Asked, beside, is_long, model_of, options_of, prepared_of, task_of
from common.load.telemetry import TOKEN, Posts, dashboard_at
from common.os_events.recorder import OsEventRecorder
from common.os_events.tracefs import TracefsRecorder
from common.profiling.utilization import peak_resident_bytes
from common.runtime.inputs.images import NORMALIZATIONS
from common.runtime.provider_matrix import matrix_rows, provider_matrix
from common.runtime.provider_table import device_of
from common.runtime.session import OPTIMIZATIONS
from common.runtime.threads import usable_threads
from common.view.endurance_text import endurance_report
from common.view.fleet_text import fleet_report
from common.view.load_interference_text import interference_report
from common.view.load_search_text import provider_matrix_report, search_report
from common.view.load_text import load_report
from common.workers import CLUSTERS, Workers

SCRIPT = "10_load_test.py"
ROWS_RESERVED = 7  # of those that a transaction counts in, for a request that has a batch of its own


def arguments() -> cli.Parser:
    """The flags of this stage."""
    parser = cli.Parser(SCRIPT, __doc__ or "")
    parser.model_settings()
    load_flags.request_flags(parser, KINDS)
    load_flags.payload_flags(parser, tuple(NORMALIZATIONS))
    load_flags.batching_flags(parser)
    load_flags.concurrency_flags(parser, tuple(OPTIMIZATIONS), SHARING)
    load_flags.search_flags(parser)
    load_flags.fleet_flags(parser, CLUSTERS)
    load_flags.mode_flags(parser, tuple(SCENARIOS))
    load_flags.post_flags(parser)
    return parser


# --- one function per mode ------------------------------------------------------------------------------------------


def fleet(stage: cli.StageRun, transaction: Transaction) -> None:
    """Measure many models, each on the host of the worker that takes it."""
    settings = stage.settings
    paths = [cli.model_path(str(name)) for name in settings.models]
    configured = [cli.configured_bindings(settings, path) for path in paths]
    tasks = tasks_of(paths, configured, task_of(settings.values), is_sent=bool(settings.cluster))
    workers = Workers(1, settings.cluster or "", settings.cluster_address)
    results = workers.results([task.measured for task in tasks])
    found = of_fleet(paths, results, stage.progress_bar("models"))
    write(stage, transaction, found)
    stage.show(fleet_report(found.rows["load_fleet"]))


def compare_providers(stage: cli.StageRun, transaction: Transaction, model: ServedModel) -> None:
    """Run the model with every provider of this build, and compare the outputs with the CPU's."""
    options = options_of(stage.settings.values, usable_threads(stage.settings.threads))
    rows = matrix_rows(provider_matrix(model.path, options, model.samples[0]))
    transaction.add_rows("provider_comparison", rows)
    stage.show(provider_matrix_report(rows))


def one_run(prepared: Prepared) -> Loaded:
    """Load the service once, and look for what disturbed its calls."""
    with OsEventRecorder(TracefsRecorder(parses_late=True)) as events:
        run = prepared.load(events.drain_if_due)
    series = call_series(run.record, steady(run.record).start_index or 0)
    return with_slow_calls(run, *observer.slow_calls(series, events), events.incomplete)


def by_scenario(transaction: Transaction, prepared: Prepared, asked: Asked) -> Loaded:
    """Let MLPerf LoadGen send the requests, and keep its summary."""
    with transaction.scratch() as folder:
        run, tables = by_loadgen(prepared, asked, folder)
        if not run.record.is_interrupted:  # LoadGen would have no result
            transaction.add_copy("loadgen_summary", folder / SUMMARY)
    return run, tables


def long_load(stage: cli.StageRun, prepared: Prepared, asked: Asked) -> Loaded:
    """Load the service part by part."""
    run, tables = part_by_part(prepared, asked, observer.process_watch)
    stage.show(endurance_report(tables.documents["endurance_summary"]))
    return run, tables


def interference(stage: cli.StageRun, prepared: Prepared, asked: Asked) -> Loaded:
    """Load the service and one of another model, alone and together."""
    path = cli.model_path(asked["with_model"], "--with")
    other = beside(path, cli.configured_bindings(stage.settings, path), asked, prepared)
    run, tables = alone_and_together(prepared, other, (Path(asked["model"]).name, path.name), asked["duration"])
    stage.show(stage.plain(interference_report(tables.rows["load_interference"])))
    return run, tables


@contextlib.contextmanager
def posted(stage: cli.StageRun) -> Iterator[Listener]:
    """Post what happens meanwhile to a dashboard, if one is named; yield what is told of each run."""
    settings = stage.settings
    if settings.post is None:
        yield nobody
        return
    dashboard = dashboard_at(settings.post, settings.post_token or settings.out / TOKEN)
    with Posts(dashboard, Path(settings.model).name) as posts:
        yield posts.listen
    stage.note(*posts.notes)


def loaded(stage: cli.StageRun, transaction: Transaction, prepared: Prepared, asked: Asked) -> Loaded:
    """Load the service in the way that is asked for."""
    if asked["with_model"] is not None:
        return interference(stage, prepared, asked)
    if asked["scenario"]:
        return by_scenario(transaction, prepared, asked)
    return long_load(stage, prepared, asked) if is_long(asked) else one_run(prepared)


def load(stage: cli.StageRun, transaction: Transaction, asked: Asked, listener: Listener) -> Mapping[str, Any]:
    """Load a service as asked, and write what that gives; return its summary."""
    path = cli.model_path(asked["model"])
    model, prepared = prepared_of(path, cli.configured_bindings(stage.settings, path), asked, listener)
    stage.set_model(model.bound.model_id, model.path.name, model.bound.dimensions)
    if asked["provider_matrix"]:
        compare_providers(stage, transaction, model)
    transaction.reserve(ROWS_RESERVED * (len(prepared.arrivals) if prepared.arrivals else 0))
    with observer.link_meter(device_of(prepared.shape.options.provider)) as link:
        run, tables = loaded(stage, transaction, prepared, asked)
        setup = {**prepared.figures, **tables.figures, **model.side_work.figures, **link()}
    transaction.release()  # the disk may have filled meanwhile
    write(stage, transaction, tables)
    held = {**observer.process_figures(), "peak_resident_bytes": peak_resident_bytes()}
    own = run_tables(run, setup, held)
    write(stage, transaction, own)
    summary = own.documents["load_summary"]
    stage.show(load_report(summary))
    return summary


def search(stage: cli.StageRun, transaction: Transaction, listener: Listener) -> None:
    """Search the best configuration within the bound, and load it, unless a signal ended the search."""
    settings, path = stage.settings, cli.model_path(stage.settings.model)
    model = model_of(path, cli.configured_bindings(settings, path), settings.values)
    stage.set_model(model.bound.model_id, model.path.name, model.bound.dimensions)
    with observer.power_meter(settings.avg_power_w) as power_w:
        found, tables = find_best(model, settings.values, power_w, listener)
    write(stage, transaction, tables)
    best = tables.documents["load_best"]
    stage.show(search_report(best, tables.rows["load_batch_times"]))
    if not found.is_interrupted:
        run = load(stage, transaction, with_best(settings.values, found), listener)
        stage.note(*contradictions(best, run))


def write(stage: cli.StageRun, transaction: Transaction, tables: LoadTables) -> None:
    """Write what a load test leaves, and say what it lacks."""
    for name, columns in tables.columns.items():
        transaction.add_table(name, pd.DataFrame(columns))
    for name, rows in tables.rows.items():
        transaction.add_rows(name, rows)
    for name, content in tables.documents.items():
        transaction.add_document(name, content)
    for name, reasons in tables.incomplete.items():
        transaction.mark_incomplete(reasons, name)
    stage.note(*tables.notes)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the stage."""
    with cli.stage(arguments(), argv) as stage:
        settings = stage.settings
        settings.one_of("replay", "users", "scenario", "with_model")
        load_flags.refuse_idle(settings)
        if settings.scenario:
            require_loadgen()  # before the sessions are created
        with stage.writing() as transaction:
            if settings.models:
                fleet(stage, transaction)
            else:
                with posted(stage) as listener:
                    if settings.search:
                        search(stage, transaction, listener)
                    else:
                        load(stage, transaction, settings.values, listener)
            transaction.remove_others()
    return 0


if __name__ == "__main__":
    cli.run(main)
