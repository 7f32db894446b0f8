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
    python 10_load_test.py --model bert.onnx --lengths lognormal:64,0.8,512 --length-dim seq --batch-max 8
    python 10_load_test.py --search --p99-bound 50ms             # batch, wait, sessions, threads
    python 10_load_test.py --rate 20 --duration 1h               # minute by minute: leaks and drift
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
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd

from common import cli, observer
from common.artifacts.transaction import Transaction
from common.cli import load_flags
from common.errors import CommandLineError, UnusableValueError
from common.load import endurance as long_load
from common.load import optimum
from common.load.arrivals import Bursts
from common.load.batching import NEVER_NS, BatchPolicy
from common.load.concurrency import SHARING, Concurrency, every_concurrency
from common.load.demand import KINDS, Demand, padded_length
from common.load.endurance import LoadPart, course, endure, minute_rows, part_count, part_of
from common.load.figures import LoadRun, batch_columns, request_columns, steady, summary
from common.load.fleet import Bound, ModelTask, tasks_of
from common.load.interference import (
    MAIN,
    OTHER,
    ROUNDS,
    TOGETHER,
    interference_figures,
    interference_rows,
    measure_interference,
)
from common.load.lengths import Lengths
from common.load.loadgen import SCENARIOS, SUMMARY, drive, require_loadgen, results
from common.load.optimum import SearchTask, find_optimum
from common.load.record import LoadRecord
from common.load.rig import Prepared, SessionRig, load_together, prepare
from common.load.served_model import ServedModel, SessionShape, served_model
from common.load.service import Service
from common.load.slow_calls import call_series, slow_call_rows
from common.load.spool import Spool
from common.load.standard_names import standard_metrics
from common.load.whole_load import WholeLoad
from common.os_events.recorder import OsEventRecorder
from common.profiling.utilization import peak_resident_bytes
from common.runtime.images import NORMALIZATIONS
from common.runtime.provider_matrix import matrix_rows, provider_matrix
from common.runtime.provider_table import device_of, resolve_provider
from common.runtime.session import OPTIMIZATIONS, SessionSettings
from common.runtime.threads import usable_threads
from common.sensors.sensor import Sample
from common.view.endurance_text import endurance_report
from common.view.fleet_text import fleet_report
from common.view.load_interference_text import interference_report
from common.view.load_search_text import provider_matrix_report, search_report
from common.view.load_text import load_report
from common.workers import CLUSTERS, Workers, WorkersLostError

SCRIPT = "10_load_test.py"
Figures = dict[str, Any]
LOADED, ENDURED = ("load_requests", "load_batches", "load_summary"), ("endurance", "endurance_summary")
SEARCHED = ("load_batch_times", "load_search", "load_best")
ROWS_RESERVED = 4  # of those that a transaction counts in, for a request with its batch
WHOLE = ("replay", "scenario", "with_model")  # a load of these is not divided
SEARCHED_BATCH = 16  # largest batch of a search that names none


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
    return parser


# --- what is asked for ----------------------------------------------------------------------------------------------


def demand_of(settings: cli.Settings) -> Demand:
    """Return which requests come; of a long load, those of its first part."""
    bursts, seconds = Bursts.parse(settings.burst), settings.part if is_long(settings) else settings.duration
    rest = (settings.arrivals, bursts, settings.replay, settings.users, settings.think or 0.0)
    if settings.lengths and settings.replay:
        raise CommandLineError("<lengths>", "cannot be combined with <replay>", "the file has a column of lengths")
    lengths = Lengths.parse(settings.lengths) if settings.lengths else None
    return Demand(settings.rate, seconds, settings.seed, *rest, lengths)


def is_long(settings: cli.Settings) -> bool:
    """Whether the load is measured part by part."""
    return bool(settings.duration >= 2 * settings.part and not any(settings.values[name] is not None for name in WHOLE))


def policy_of(settings: cli.Settings) -> BatchPolicy:
    """Return how requests are batched."""
    timeout_ns = round(1e9 * settings.timeout) if settings.timeout else NEVER_NS
    return BatchPolicy(
        settings.batch_max,
        round(1e9 * (settings.batch_wait or 0)),
        settings.batch_preferred,
        settings.buckets,
        capacity=settings.queue_max or NEVER_NS,
        timeout_ns=timeout_ns,
    )


def options_of(settings: cli.Settings, threads: int) -> SessionSettings:
    """Return how a session of so many threads is set up."""
    return SessionSettings(threads, resolve_provider(settings.provider), settings.optimization)


def concurrencies_of(settings: cli.Settings) -> list[Concurrency]:
    """Return the ways in which sessions may share the host."""
    several = (settings.workers, settings.pool, settings.execution, settings.inter_threads)
    return every_concurrency(*several, settings.spinning, settings.affinity)


def shape_of(settings: cli.Settings) -> SessionShape:
    """Return how many sessions answer, and how they are set up.

    Raises:
        CommandLineError: they may share the host in several ways.
    """
    kind, *others = concurrencies_of(settings)
    if others:
        problem, remedy = "are several ways to share the host", "give one value each, or <search>"
        raise CommandLineError("<workers>, <pool>, <execution>, <spinning>, <affinity>", problem, remedy)
    share = max(1, usable_threads(None) // settings.sessions)
    threads = usable_threads(settings.threads) if settings.threads else share
    return SessionShape(settings.sessions, options_of(settings, threads), kind, settings.replicate)


def model_of(settings: cli.Settings, length: int = 0) -> ServedModel:
    """Return the model, and requests of a length."""
    path, files = cli.model_path(settings.model), {name: Path(file) for name, file in settings.input}
    configured, requests = (
        cli.configured_bindings(settings, path),
        {"length_dim": settings.length_dim, "length": length},
    )
    model = served_model(path, dict(settings.dim), configured, files, **requests, seed=settings.seed)
    return model.with_side_work(settings.images, settings.normalize, settings.top_k)


def prepared_of(settings: cli.Settings) -> tuple[ServedModel, Prepared]:
    """Return the model, and its service, ready for the demand."""
    demand, policy = demand_of(settings), policy_of(settings)
    arrivals = demand.schedule()
    length = padded_length(demand, arrivals, settings.buckets, settings.length_dim)
    model = model_of(settings, length)
    return model, prepare(model, demand, arrivals, policy, shape_of(settings), length)


# --- one function per mode ------------------------------------------------------------------------------------------


def search(stage: cli.StageRun, transaction: Transaction) -> cli.Settings | None:
    """Search the best configuration within the bound; return the settings of a run with it, None after a signal."""
    settings = stage.settings
    if settings.users or settings.replay or settings.length_dim or settings.lengths:
        raise CommandLineError("<search>", "takes Poisson arrivals of one length", "leave the others out")
    model, processors, kinds = model_of(settings), usable_threads(settings.threads), concurrencies_of(settings)
    stage.set_model(model.bound.model_id, model.path.name, model.bound.dimensions)

    def shape_of_search(session_count: int, thread_count: int, kind: Concurrency) -> SessionShape:
        return SessionShape(session_count, options_of(settings, thread_count), kind, settings.replicate)

    def open_service(*shape: Any) -> Service:
        return model.service(shape_of_search(*shape), is_hosted=any(kind.is_hosted for kind in kinds))

    most = settings.batch_max if settings.origins["batch_max"] != "default" else SEARCHED_BATCH
    if most > 1 and not model.service(SessionShape(1, options_of(settings, 1))).inputs.batched:
        problem = "no input has a first axis of any size, so batches of one request alone are searched"
        stage.note(f"{problem}; --replicate lets runs share a session")
        most = 1
    asked = (1e6 * settings.p99_bound, settings.budget, most, processors, settings.usd_per_hour, settings.seed)
    task = SearchTask(*asked, kinds, lambda shape: shape_of_search(*shape).is_possible)
    if not task.shapes:
        open_service(1, processors, kinds[0])  # raises why
    with observer.power_meter(settings.avg_power_w) as power_w:
        found = find_optimum(SessionRig(open_service, power_w), task)
    best, batches = optimum.summary(found), optimum.batch_rows(found)
    transaction.add_rows("load_batch_times", batches)
    transaction.add_rows("load_search", optimum.trial_rows(found))
    transaction.add_document("load_best", best)
    stage.show(search_report(best, batches))
    if found.is_interrupted:
        say_interrupted(stage, transaction, "a signal ended the search", *SEARCHED)
        return None
    setup, rate_hz = optimum.chosen(found)
    shape = {"sessions": setup.session_count, "threads": setup.thread_count, **sharing(setup.concurrency)}
    return settings.changed(rate=rate_hz, batch_max=setup.batch_max, batch_wait=setup.wait_s, **shape)


def sharing(kind: Concurrency) -> dict[str, tuple[Any, ...]]:
    """Return the settings of a way to share the host."""
    chosen = {name: (getattr(kind, name),) for name in SHARING}
    return {**chosen, "inter_threads": (kind.inter_threads,) if kind.inter_threads else ()}


def compare_providers(stage: cli.StageRun, transaction: Transaction, model: ServedModel) -> None:
    """Run the model with every provider of this build, and compare the outputs with the CPU's."""
    options = SessionSettings(usable_threads(stage.settings.threads), optimization=stage.settings.optimization)
    rows = matrix_rows(provider_matrix(model.path, options, model.samples[0]))
    transaction.add_rows("provider_comparison", rows)
    stage.show(provider_matrix_report(rows))


def one_run(stage: cli.StageRun, transaction: Transaction, prepared: Prepared) -> tuple[LoadRun, Figures]:
    """Load the service once, and look for what disturbed its calls."""
    with OsEventRecorder() as events:
        measured = prepared.load(events.drain_if_due)
    record, first = measured.record, steady(measured.record).start_index or 0
    rows, lines = observer.slow_calls(call_series(record, first), events)
    transaction.add_rows("load_disturbances", slow_call_rows(record, rows))
    transaction.mark_incomplete([*interruption(record), *events.incomplete], "load_disturbances")
    stage.note(*lines)
    return measured, {}


def scenario(stage: cli.StageRun, transaction: Transaction, prepared: Prepared) -> tuple[LoadRun, Figures]:
    """Let MLPerf LoadGen send the requests, and keep its summary."""
    settings = stage.settings
    limits = {"rate_hz": settings.rate, "bound_s": settings.p99_bound, "duration_s": settings.duration}
    found: Figures = {"arrivals": f"LoadGen {settings.scenario}"}
    with transaction.scratch() as folder:
        service, policy = prepared.service, prepared.policy
        record = drive(settings.scenario, service, policy, folder, **limits, seed=settings.seed)
        if not record.is_interrupted:  # LoadGen would have no result
            transaction.add_copy("loadgen_summary", folder / SUMMARY)
            found |= {"loadgen_results": results(folder)}
    return prepared.run_of(record, is_open=settings.scenario == "server"), found


def endurance(stage: cli.StageRun, transaction: Transaction, prepared: Prepared) -> tuple[LoadRun, Figures]:
    """Load the service part by part; return the last part."""
    settings, spool, last, whole = stage.settings, Spool[Sample](), list[LoadRun](), WholeLoad()

    def run_part(index: int, duration_s: float) -> LoadPart:
        last[:] = [prepared.part(index, duration_s).load()]
        whole.add(last[0].record, last[0].verdict)
        return part_of(last[0].record, last[0].verdict)

    with observer.process_watch(spool) as sampler:
        parts = endure(run_part, settings.duration, settings.part)
    samples = spool.items()
    stage.note(*sampler.notes)
    text = {**long_load.summary(course(parts, samples), parts), **whole.figures()}
    transaction.add_rows("endurance", minute_rows(parts, samples))
    transaction.add_document("endurance_summary", text)
    if (count := part_count(settings.duration, settings.part)) > len(parts) or parts[-1].is_interrupted:
        say_interrupted(stage, transaction, f"a signal ended the load in part {len(parts)} of {count}", *ENDURED)
    stage.show(endurance_report(text))
    return last[0], {}


def interference(stage: cli.StageRun, transaction: Transaction, prepared: Prepared) -> tuple[LoadRun, Figures]:
    """Load the service and one of another model, alone and together; return the last run together."""
    settings = stage.settings
    model, beside = other_of(settings, prepared)

    def loads(index: int, services: Sequence[int]) -> list[LoadRun]:
        return load_together([(prepared, beside)[own].part(index, settings.duration / ROUNDS) for own in services])

    states = measure_interference(loads)
    rows = interference_rows(states, {MAIN: cli.model_path(settings.model).name, OTHER: model.path.name})
    transaction.add_rows("load_interference", rows)
    runs = states[MAIN, TOGETHER].runs
    if len(runs) < ROUNDS:
        say_interrupted(stage, transaction, f"a signal ended round {len(runs) + 1} of {ROUNDS}", "load_interference")
    stage.show(stage.plain(interference_report(rows)))
    return runs[-1], {"interference": interference_figures(rows)}


def other_of(settings: cli.Settings, prepared: Prepared) -> tuple[ServedModel, Prepared]:
    """Return the other model, and its service under requests of its own rate, set up as the first one's."""
    if settings.length_dim:
        raise CommandLineError("<with_model>", "takes requests of one length", "leave out <length_dim>")
    path = cli.model_path(settings.with_model, "--with")
    configured = cli.configured_bindings(settings, path)
    try:
        model = served_model(path, dict(settings.with_dim), configured, {}, seed=settings.seed)
    except UnusableValueError as error:
        quantities = ", ".join("with_dim" if name == "dim" else name for name in error.quantities)
        raise UnusableValueError(quantities, error.problem, error.remedy) from error
    demand = replace(prepared.demand, rate_hz=settings.with_rate or settings.rate, seed=settings.seed + ROUNDS)
    return model, prepare(model, demand, demand.schedule(), prepared.policy, prepared.shape, 0)


Mode = Callable[[cli.StageRun, Transaction, Prepared], tuple[LoadRun, Figures]]


def mode_of(settings: cli.Settings) -> Mode:
    """Return how the service is loaded."""
    if settings.with_model is not None:
        return interference
    return scenario if settings.scenario else endurance if is_long(settings) else one_run


# --- what is written ------------------------------------------------------------------------------------------------


def say_interrupted(stage: cli.StageRun, transaction: Transaction, reason: str, *names: str) -> None:
    """Mark tables of a measurement that a signal ended."""
    transaction.mark_incomplete([reason], *names)
    stage.note(reason)


def interruption(record: LoadRecord) -> list[str]:
    """Say that a signal ended a run, if one did."""
    return [f"a signal ended the run after {record.ended_ns / 1e9:.3g} s"] if record.is_interrupted else []


def add_run(stage: cli.StageRun, transaction: Transaction, measured: LoadRun, setup: Figures) -> None:
    """Write the tables of a run."""
    record = measured.record
    held = {**observer.process_figures(), "peak_resident_bytes": peak_resident_bytes()}
    document = {**summary(measured, steady(record)), **setup, **held}
    document["standard_metrics"] = standard_metrics(record, held)
    transaction.add_table("load_requests", pd.DataFrame(request_columns(record, document["warmup_request_count"])))
    transaction.add_table("load_batches", pd.DataFrame(batch_columns(measured)))
    transaction.add_document("load_summary", document)
    for reason in interruption(record):
        say_interrupted(stage, transaction, reason, *LOADED)
    stage.show(load_report(document))


def task_of(settings: cli.Settings) -> ModelTask:
    """Return what is the same for all models of a fleet."""
    kind, *others = concurrencies_of(settings)
    refused = ("replay", "users", "lengths", "length_dim", "buckets", "images", "top_k", "scenario", "provider_matrix")
    if name := next((name for name in (*refused, "input") if settings.values[name]), "") or (others and "spinning"):
        problem = "is not for several models" if name != "spinning" else "takes one way to share the host"
        raise CommandLineError(f"<{name}>", problem, "leave it out, or measure one model at a time")
    most = settings.batch_max if settings.origins["batch_max"] != "default" else SEARCHED_BATCH
    bound = Bound(1e6 * settings.p99_bound, settings.budget, most) if settings.search else None
    sessions = (options_of(settings, settings.threads or 0), settings.sessions, kind, settings.replicate)
    demand = replace(demand_of(settings), duration_s=settings.duration)
    return ModelTask(Path(), b"", dict(settings.dim), {}, demand, policy_of(settings), *sessions, bound)


def fleet(stage: cli.StageRun, transaction: Transaction) -> None:
    """Measure many models, each on the host of the worker that takes it."""
    settings, rows = stage.settings, list[Figures]()
    paths = [cli.model_path(str(name)) for name in settings.models]
    configured = [cli.configured_bindings(settings, path) for path in paths]
    tasks = tasks_of(paths, configured, task_of(settings), is_sent=bool(settings.cluster))
    workers = Workers(1, settings.cluster or "", settings.cluster_address)
    bar, reason = stage.progress_bar("models"), ""
    try:
        with contextlib.closing(workers.results([task.measured for task in tasks])) as results:
            for _, row in results:
                rows.append(row)
                bar(len(rows), len(tasks))
    except (KeyboardInterrupt, WorkersLostError) as error:
        if not rows:
            raise
        reason = str(error) or "a signal ended the load tests"
    order = [*map(str, paths)]
    rows.sort(key=lambda row: order.index(row["model_file"]))
    transaction.add_rows("load_fleet", rows)
    if reason:
        say_interrupted(stage, transaction, f"{reason}: {len(rows)} of {len(tasks)} models were measured", "load_fleet")
    stage.show(fleet_report(rows))


def load(stage: cli.StageRun, transaction: Transaction, settings: cli.Settings) -> None:
    """Load a service with these settings, and write what that gives."""
    model, prepared = prepared_of(settings)
    stage.set_model(model.bound.model_id, model.path.name, model.bound.dimensions)
    if settings.provider_matrix:
        compare_providers(stage, transaction, model)
    transaction.reserve(ROWS_RESERVED * (len(prepared.arrivals) if prepared.arrivals else 0))
    with observer.link_meter(device_of(prepared.shape.options.provider)) as link:
        measured, figures = mode_of(settings)(stage, transaction, prepared)
        figures |= {**model.side_work.figures, **link()}
    transaction.release()  # the disk may have filled meanwhile
    add_run(stage, transaction, measured, {"loadgen_results": {}, "interference": {}, **prepared.figures, **figures})


def main(argv: Sequence[str] | None = None) -> int:
    """Run the stage."""
    with cli.stage(arguments(), argv) as stage:
        settings = stage.settings
        settings.one_of("replay", "users", "scenario", "with_model")
        if settings.scenario:
            require_loadgen()  # before the sessions are created
        with stage.writing() as transaction:
            if settings.models:
                fleet(stage, transaction)
            elif chosen := search(stage, transaction) if settings.search else settings:
                load(stage, transaction, chosen)
            transaction.remove_others()
    return 0


if __name__ == "__main__":
    cli.run(main)
