"""Send requests to a service on an ONNX Runtime session, and say what it delivers: latency, queue and batches.

Reads   the model file.
Writes  load_requests.csv (when each request was intended, queued, batched, started, ended), load_batches.csv (how each
        batch was formed and padded, what it took), load_summary.json. With --scenario also LoadGen's own
        loadgen_summary.txt; with --search load_search.csv (every run), load_batch_times.csv, load_best.json; for two
        minutes or longer endurance.csv (a row per minute; the first three are then of the last one) and
        endurance_summary.json; with --provider-matrix provider_comparison.csv.

Requests come by a schedule that waits for nobody (open loop), and their latency counts from the intended start: a
service that stands still for 200 ms shows it in every request that came meanwhile. With --users, users send the next
request when they have the answer (closed loop); that hides such a stall from all requests but a few.

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
    python 10_load_test.py --users 4 --sessions 2 --threads 1
    python 10_load_test.py --scenario server --rate 40           # MLPerf LoadGen sends the requests
"""

from __future__ import annotations

if __name__ == "__main__":
    from common import interrupts

    interrupts.end_at_once()  # first of all: the imports below take most of a second

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter
from typing import Any

import pandas as pd

from common import cli
from common.artifacts.transaction import Transaction
from common.errors import CommandLineError
from common.expressions import at, sum_of
from common.load import endurance as long_load
from common.load import optimum
from common.load.arrivals import Arrivals, Bursts, bursty, constant, poisson, replay
from common.load.batching import NEVER_NS, BatchPolicy
from common.load.clocked import run
from common.load.endurance import CLOCK, LoadPart, course, endure, minute_rows, part_of
from common.load.figures import Flops, LoadRun, batch_columns, request_columns, steady, summary, warmup_count
from common.load.loadgen import SCENARIOS, SUMMARY, drive, require_loadgen, results
from common.load.optimum import SearchTask, find_optimum
from common.load.rig import Prepared, SessionRig
from common.load.sessions import Inputs, SessionService, batched_inputs, require_batches
from common.load.sources import ClosedLoop, OpenLoop
from common.onnx_graph.counts import count_nodes
from common.onnx_graph.load import LoadedModel, load_model
from common.power.measured import PowerSample, average_power, counted_domains
from common.profiling.utilization import peak_resident_bytes
from common.runtime.inputs import given_arrays, make_feeds
from common.runtime.provider_matrix import matrix_rows, provider_matrix
from common.runtime.provider_table import resolve_provider
from common.runtime.session import OPTIMIZATIONS, Session, SessionSettings, create_session
from common.runtime.threads import usable_threads
from common.sensors.cpu import process_state
from common.sensors.discover import available_sensors
from common.sensors.quantities import POWER
from common.sensors.sampler import Sampler
from common.sensors.sensor import Sample
from common.view.endurance_text import endurance_report
from common.view.load_search_text import provider_matrix_report, search_report
from common.view.load_text import load_report

SCRIPT = "10_load_test.py"
SAMPLES = 4  # different requests; more would only fill memory
CLOSED = "closed"
Figures = dict[str, Any]
SEARCHED_BATCH = 16  # largest batch of a search that names none


def arguments() -> cli.Parser:
    """The flags of this stage."""
    parser = cli.Parser(SCRIPT, __doc__ or "")
    count: dict[str, Any] = {"type": cli.positive_int, "metavar": "N"}
    time: dict[str, Any] = {"type": cli.duration, "metavar": "T"}
    parser.model_settings()
    parser.setting("--rate", type=cli.positive_float, default=10.0, metavar="HZ", help="requests per second, mean")
    parser.setting("--arrivals", choices=("poisson", "constant", "bursty"), default="poisson", help="how they come")
    parser.setting(
        "--burst", default="4,0.1,1", metavar="P,S,T", help="bursty: peak over mean rate, share, mean length"
    )
    parser.setting("--replay", type=cli.path, metavar="FILE", help="arrivals from a CSV file: a time in s, a length")
    parser.setting("--users", help="closed loop instead: so many users, who wait for each answer", **count)
    parser.setting("--think", help="closed loop: time of a user between an answer and the next request", **time)
    parser.setting("--duration", default=10.0, help="time in which requests come", **time)
    parser.setting("--seed", type=cli.non_negative_int, default=0, metavar="N", help="seed of arrivals and inputs")
    parser.setting("--batch-max", default=1, help="largest batch", **count)
    parser.setting("--batch-wait", help="how long the oldest request waits for others (default: not at all)", **time)
    parser.setting("--batch-preferred", type=cli.sizes, default=(), metavar="N,…", help="sizes that are sent at once")
    parser.setting("--buckets", type=cli.sizes, default=(), metavar="N,…", help="lengths that requests are padded to")
    parser.setting("--length-dim", metavar="NAME", help="dimension that is the length of a request, such as seq")
    parser.setting("--scenario", choices=tuple(SCENARIOS), help="MLPerf LoadGen sends the requests of this scenario")
    parser.setting("--queue-max", help="waiting requests above which further ones are rejected", **count)
    parser.setting("--timeout", help="longest wait of a request, and longest run of a batch", **time)
    parser.setting("--sessions", default=1, help="sessions, each with a worker of its own", **count)
    parser.setting("--replicate", default=1, help="runs that share a session at a time", **count)
    parser.setting("--threads", help="intra-op threads of each session (default: an equal share of all)", **count)
    parser.setting("--part", default=60.0, help="a load of two such parts or more is measured part by part", **time)
    parser.setting("--search", action="store_true", help="search batch, wait, sessions and threads within a bound")
    parser.setting("--p99-bound", default=0.05, help="bound of the search, and of LoadGen's server scenario", **time)
    parser.setting("--budget", default=60.0, help="time of the search", **time)
    parser.setting("--usd-per-hour", type=cli.positive_float, metavar="USD", help="price of this host, for the cost")
    parser.setting(
        "--avg-power-w", type=cli.positive_float, metavar="W", help="mean power, where no sensor measures it"
    )
    parser.setting(
        "--provider-matrix", action="store_true", help="compare the outputs of every provider with the CPU's"
    )
    parser.setting("--provider", default="cpu", metavar="NAME", help="execution provider")
    parser.setting("--optimization", choices=tuple(OPTIMIZATIONS), default="all", help="graph optimization level")
    return parser


def batch_policy(settings: cli.Settings) -> BatchPolicy:
    """Return how requests are batched."""
    timeout_ns = round(settings.timeout * 1e9) if settings.timeout else NEVER_NS
    return BatchPolicy(
        settings.batch_max,
        round((settings.batch_wait or 0) * 1e9),
        settings.batch_preferred,
        settings.buckets,
        capacity=settings.queue_max or NEVER_NS,
        timeout_ns=timeout_ns,
    )


def schedule(settings: cli.Settings) -> Arrivals:
    """Return when the requests of the open loop come.

    Raises:
        CommandLineError: there are lengths without a dimension that they are of.
    """
    if settings.replay:
        arrivals = replay(settings.replay)
        if arrivals.lengths is not None and not settings.length_dim:
            raise CommandLineError("<replay>", "holds lengths", "name the dimension that they are of: <length_dim>")
        return arrivals
    made = {"constant": lambda: constant(settings.rate, settings.duration)}
    made["poisson"] = lambda: poisson(settings.rate, settings.duration, settings.seed)
    made["bursty"] = lambda: bursty(settings.rate, settings.duration, Bursts(*bursts(settings.burst)), settings.seed)
    return made[settings.arrivals]()


def bursts(text: str) -> tuple[float, float, float]:
    """Return peak, share and mean length of bursts from ``4,0.1,1``.

    Raises:
        CommandLineError: these are no three numbers.
    """
    try:
        peak, share, mean_s = map(float, text.split(","))
    except ValueError:
        raise CommandLineError("<burst>", f"{text!r} is not PEAK,SHARE,SECONDS", "such as 4,0.1,1") from None
    return peak, share, mean_s


def longest(settings: cli.Settings, arrivals: Arrivals | None) -> int:
    """Return the longest request that the service computes; 0 where all have one size.

    Raises:
        CommandLineError: buckets without a dimension, or without requests of different lengths.
    """
    if not settings.length_dim:
        if settings.buckets:
            raise CommandLineError("<buckets>", "needs <length_dim>", "name the dimension that is padded")
        return 0
    if arrivals is None or arrivals.lengths is None:
        remedy = "give <replay> FILE with a time in s and a length per line"
        raise CommandLineError("<length_dim>", "needs requests with lengths", remedy)
    return int(settings.buckets[-1] if settings.buckets else arrivals.lengths.max())


def flops_of(symbolic: LoadedModel, batch_names: frozenset[str], length_dim: str | None) -> Flops:
    """Return the FLOPs of a call by its batch size and its length, from the expressions that 02 counts by."""
    counts = count_nodes(symbolic.graph, symbolic.bounds)
    total = sum_of(figure for count in counts if (figure := count.figure("flops")) is not None)

    def flops(size: int, length: int) -> float:
        return float(at(total, {**dict.fromkeys(batch_names, size), **({length_dim: length} if length_dim else {})}))

    return flops


def batch_names(symbolic: LoadedModel) -> frozenset[str]:
    """Return the unbound dimensions that stand first in an input: those that batching chooses."""
    inputs = (tensor.shape for tensor in symbolic.graph.tensors.values() if tensor.kind == "input")
    firsts = {str(shape[0]).strip("'") for shape in inputs if shape}
    return frozenset(firsts & {*symbolic.unbound})


def load_bound(settings: cli.Settings, path: Path, length: int) -> tuple[LoadedModel, Flops, dict[str, Path]]:
    """Return the model with one request's dimensions bound, and the FLOPs of its calls."""
    files = {name: Path(file) for name, file in settings.input}
    given, values = dict(settings.dim), given_arrays(files)
    configured = cli.configured_bindings(settings, path)
    if length:
        given[settings.length_dim] = length
    symbolic = load_model(path, {}, symbolic=True)
    names = batch_names(symbolic)
    for name, size in given.items():
        if name in names and size != 1:
            problem = f"{name}={size}: {name} is the first axis of an input, and a request is one row of it"
            raise CommandLineError("<dim>", problem, "leave it out, and give <batch_max>")
    bound = load_model(path, given, {**configured, **dict.fromkeys(names, 1)}, values=values)
    chosen = {*names, *([settings.length_dim] if length else [])}
    fixed = {name: size for name, size in bound.dimensions.items() if name not in chosen}
    if fixed:
        symbolic = load_model(path, fixed, symbolic=True)
    return bound, flops_of(symbolic, names, settings.length_dim), files


def inputs_of(
    model: LoadedModel, session: Session, files: Mapping[str, Path], settings: cli.Settings, length: int
) -> Inputs:
    """Return samples of requests, and how they are put together."""
    seeds = range(settings.seed, settings.seed + SAMPLES)
    samples = [make_feeds(model.graph, files, seed) for seed in seeds]
    variable: dict[str, int] = {}
    if length:
        unbound = load_model(cli.model_path(settings.model), dict(settings.dim), symbolic=True).graph.tensors
        for name in samples[0]:
            sizes = [*map(str, unbound[name].shape or ())]
            if settings.length_dim in sizes:
                variable[name] = sizes.index(settings.length_dim)
    return Inputs(samples, batched_inputs(session), variable)


def opener(stage: cli.StageRun, settings: cli.Settings, length: int) -> tuple[Callable[..., SessionService], Flops]:
    """Return what makes a service of so many sessions with so many threads each, and the FLOPs of its calls."""
    path, provider = cli.model_path(settings.model), resolve_provider(settings.provider)
    model, flops, files = load_bound(settings, path, length)
    stage.set_model(model.model_id, path.name, model.dimensions)

    def open_service(session_count: int, thread_count: int) -> SessionService:
        options = SessionSettings(thread_count, provider, settings.optimization)
        sessions = [create_session(path, options) for _ in range(session_count)]
        return SessionService(
            sessions, path, inputs_of(model, sessions[0], files, settings, length), settings.replicate
        )

    return open_service, flops


def prepare(stage: cli.StageRun, settings: cli.Settings) -> Prepared:
    """Create the sessions and warm them up."""
    policy = batch_policy(settings)
    arrivals = None if settings.users else schedule(settings)
    length = longest(settings, arrivals)
    share = max(1, usable_threads(None) // settings.sessions)
    threads = usable_threads(settings.threads) if settings.threads else share
    open_service, flops = opener(stage, settings, length)
    service = open_service(settings.sessions, threads)
    require_batches(cli.model_path(settings.model), service.inputs, settings.batch_max)
    service.warm_up(policy, length)
    options = SessionSettings(threads, resolve_provider(settings.provider), settings.optimization)
    return Prepared(service, policy, arrivals, flops, options)


def send(prepared: Prepared, settings: cli.Settings, arrivals: Arrivals | None, duration_s: float) -> LoadRun:
    """Let the requests come."""
    policy, duration_ns = prepared.policy, round(duration_s * 1e9)
    source: ClosedLoop | OpenLoop
    if arrivals is None:
        if policy.capacity < settings.users:
            problem = f"{policy.capacity} is below the {settings.users} users, who would ask again at once"
            raise CommandLineError("<queue_max>", problem, "leave it out")
        source = ClosedLoop(settings.users, duration_ns, think_ns=round((settings.think or 0) * 1e9))
        last_ns = duration_ns
    else:
        source, last_ns = OpenLoop(arrivals), int(arrivals.intended_ns[-1]) if len(arrivals) else 0
    record = run(source, prepared.service, policy, last_ns=last_ns)
    return LoadRun(record, policy, prepared.service.worker_count, arrivals is not None, prepared.flops)


def send_by_loadgen(prepared: Prepared, settings: cli.Settings, transaction: Transaction) -> tuple[LoadRun, Figures]:
    """Let MLPerf LoadGen send the requests, and keep its summary; return the run, and what LoadGen says of it."""
    limits = {"rate_hz": settings.rate, "bound_s": settings.p99_bound, "duration_s": settings.duration}
    with transaction.scratch() as folder:
        record = drive(settings.scenario, prepared.service, prepared.policy, folder, **limits)
        transaction.add_copy("loadgen_summary", folder / SUMMARY)
        found = results(folder)
    is_open = settings.scenario == "server"
    return LoadRun(record, prepared.policy, prepared.service.worker_count, is_open, prepared.flops), found


@contextmanager
def power_meter(stage: cli.StageRun) -> Iterator[Callable[[float, float], float | None]]:
    """Yield what returns the mean power between two times: the given one, or what sensors measure; None without."""
    given, samples = stage.settings.avg_power_w, list[Sample]()
    sensors = [] if given else [one for one in available_sensors()[0] if POWER in one.quantities]

    def measured_w(begin_s: float, end_s: float) -> float | None:
        readings = [
            PowerSample(one.time_s, one.sensor_domain, one.value) for one in [*samples] if one.quantity == POWER
        ]
        domains = counted_domains({one.sensor_domain for one in readings}, with_gpu=False)
        found = average_power(readings, domains, begin_s, end_s)
        return found.likely if found else None

    with Sampler(sensors, samples):
        yield (lambda begin_s, end_s: given) if given else measured_w


def changed(settings: cli.Settings, values: Mapping[str, Any]) -> cli.Settings:
    """Return the settings with other values."""
    return cli.Settings({**settings.values, **values}, settings.origins, settings.command)


def search(stage: cli.StageRun, transaction: Transaction) -> cli.Settings:
    """Search the best configuration within the bound; return the settings of a run with it."""
    settings = stage.settings
    if settings.users or settings.replay or settings.length_dim:
        raise CommandLineError("<search>", "takes Poisson arrivals of one length", "leave the others out")
    open_service, _ = opener(stage, settings, 0)
    processors = usable_threads(settings.threads)
    most = settings.batch_max if settings.origins["batch_max"] != "default" else SEARCHED_BATCH
    if most > 1 and not open_service(1, processors).inputs.batched:
        stage.note("no input has a first axis of any size, so batches of one request alone are searched")
        most = 1
    task = SearchTask(1e6 * settings.p99_bound, settings.budget, most, processors, settings.usd_per_hour, settings.seed)
    with power_meter(stage) as power_w:
        found = find_optimum(SessionRig(open_service, power_w), task)
    best, batches = optimum.summary(found), optimum.batch_rows(found)
    transaction.add_rows("load_batch_times", batches)
    transaction.add_rows("load_search", optimum.trial_rows(found))
    transaction.add_document("load_best", best)
    stage.show(search_report(best, batches))
    chosen = best["best_by"].get("rate") or best["nearest"] or optimum.lightest(found)
    values = {
        "rate": chosen.get("sustained_requests_per_s") or chosen["offered_requests_per_s"],
        "batch_max": chosen["batch_max_count"],
        "batch_wait": chosen["batch_wait_us"] / 1e6,
        "sessions": chosen["session_count"],
        "threads": chosen["threads"],
    }
    return changed(settings, values)


def endurance(stage: cli.StageRun, transaction: Transaction, prepared: Prepared, settings: cli.Settings) -> LoadRun:
    """Load the service minute by minute; return the last minute."""
    sensors = [process_state(perf_counter), *(one for one in available_sensors()[0] if CLOCK in one.quantities)]
    samples, last = list[Sample](), list[LoadRun]()

    def run_part(index: int, duration_s: float) -> LoadPart:
        own = changed(settings, {"duration": duration_s, "seed": settings.seed + index})
        last[:] = [send(prepared, own, None if settings.users else schedule(own), duration_s)]
        return part_of(last[0].record, last[0].verdict)

    with Sampler(sensors, samples, 1.0) as sampler:
        parts = endure(run_part, settings.duration, settings.part)
    stage.note(*sampler.notes)
    text = long_load.summary(course(parts, samples), parts)
    transaction.add_rows("endurance", minute_rows(parts, samples))
    transaction.add_document("endurance_summary", text)
    stage.show(endurance_report(text))
    return last[0]


def add_run(stage: cli.StageRun, transaction: Transaction, measured: LoadRun, figures: dict[str, Any]) -> None:
    """Write the tables of a run."""
    record, state = measured.record, steady(measured.record)
    document = {**summary(measured, state), **figures, "peak_resident_bytes": peak_resident_bytes()}
    columns = request_columns(record, warmup_count(record, state))
    transaction.add_table("load_requests", pd.DataFrame(columns))
    transaction.add_table("load_batches", pd.DataFrame(batch_columns(measured)))
    transaction.add_document("load_summary", document)
    if record.is_interrupted:
        reason = f"a signal ended the run after {record.ended_ns / 1e9:.3g} s"
        transaction.mark_incomplete([reason], "load_requests", "load_batches", "load_summary")
        stage.note(reason)
    stage.show(load_report(document))


def compare_providers(stage: cli.StageRun, transaction: Transaction) -> None:
    """Run the model with every provider of this build, and compare the outputs with the CPU's."""
    settings, files = stage.settings, {name: Path(file) for name, file in stage.settings.input}
    model, _, _ = load_bound(settings, path := cli.model_path(settings.model), 0)
    options = SessionSettings(usable_threads(settings.threads), optimization=settings.optimization)
    rows = matrix_rows(provider_matrix(path, options, make_feeds(model.graph, files, settings.seed)))
    transaction.add_rows("provider_comparison", rows)
    stage.show(provider_matrix_report(rows))


def described(settings: cli.Settings, kind: str | None) -> str:
    """Return how requests came, in a word or two."""
    named = {"users": CLOSED, "replay": "replay", "scenario": f"LoadGen {settings.scenario}"}
    return named.get(kind or "", str(settings.arrivals))


def main(argv: Sequence[str] | None = None) -> int:
    """Run the stage."""
    with cli.stage(arguments(), argv) as stage:
        settings = stage.settings
        kind = settings.one_of("replay", "users", "scenario")
        found: Figures = {}
        if settings.scenario:
            require_loadgen()  # before the sessions are created
        with stage.writing() as transaction:
            if settings.search:
                settings = search(stage, transaction)
            prepared = prepare(stage, settings)
            if settings.provider_matrix:
                compare_providers(stage, transaction)
            if settings.scenario:
                measured, found = send_by_loadgen(prepared, settings, transaction)
            elif settings.duration >= 2 * settings.part and not settings.replay:
                measured = endurance(stage, transaction, prepared, settings)
            else:
                measured = send(prepared, settings, prepared.arrivals, settings.duration)
            figures = {
                "provider": prepared.options.provider,
                "graph_optimization": prepared.options.optimization,
                "threads": prepared.options.threads,
                "session_count": settings.sessions,
                "replica_count": settings.replicate,
                "arrivals": described(settings, kind),
                "loadgen_results": found,
                "batch_max_count": settings.batch_max,
                "batch_wait_us": prepared.policy.wait_ns / 1e3,
            }
            if not settings.scenario:
                transaction.remove("loadgen_summary")
            add_run(stage, transaction, measured, figures)
    return 0


if __name__ == "__main__":
    cli.run(main)
