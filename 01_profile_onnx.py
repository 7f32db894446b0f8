"""Profile an ONNX model with ONNX Runtime: how long it takes, how long each executed node takes, what profiling costs.

Reads   the model file.
Writes  op_latency.csv (every executed node, raw and corrected), run_latency.csv, latency_summary.json, ort_trace.json
        (raw), executed_graph.onnx (what the runtime made of the model, without weights), power_samples.csv.

Unprofiled and profiled runs alternate, so the latency is that of unprofiled runs and the cost of profiling is measured.
What the profiler adds inside each node's time is estimated at the same threads from chains of operators of known time,
by class (thread pool used or not, number of operands), subtracted and floored at zero. Nodes below four times that are
flagged. Bodies of Loop, Scan and If have rows of their own; their owner's row is what it takes beside them. Nodes
without a name of their own are named first. --runs counts unprofiled runs; profiled ones are as many, as long as the
trace stays below 40,000 events.

EXAMPLE of what comes in (a model) and what goes out (op_latency.csv), some columns:

    resnet50-fp32.onnx: 175 nodes, input float32 [N,3,224,224]

    executed_node,op_type,sample_count,raw_median_us,corrected_median_us,correction_us,is_correction_dominated
    /relu/Relu_output_0_nchwc,Conv,50,1031.0,1028.3,2.7,False

    python 01_profile_onnx.py --model resnet50-fp32.onnx --runs 5           # looked up in models/; tails stay empty
    python 01_profile_onnx.py --model bert.onnx --dim batch=1 --dim seq=128 --runs 1000 --threads 1
    python 01_profile_onnx.py --model resnet50-fp32.onnx --input input=cat.jpg
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import pandas as pd

from common import cli
from common.artifacts.provenance import Provenance, host_identity, tool_versions
from common.artifacts.store import Store
from common.graph import Graph
from common.onnx_graph.executed import load_executed_graph, without_weights
from common.onnx_graph.load import load_model
from common.onnx_graph.naming import NamedModel, named_model, rename_saved
from common.profiling.caveats import caveats
from common.profiling.correction import NodeLatency, correct
from common.profiling.figures import latency_figures, node_figures
from common.profiling.inputs import given_arrays, make_feeds
from common.profiling.measurement import Measurement, measure, require_same_nodes
from common.profiling.session import OPTIMIZATIONS, SessionSettings, available_threads, resolve_provider
from common.sensors.discover import available_sensors
from common.sensors.sampler import Sampler
from common.view.latency_text import latency_report

SCRIPT = "01_profile_onnx.py"
PLACES = ("op_latency", "run_latency", "latency_summary", "power_samples", "executed_graph", "ort_trace")


def arguments() -> cli.Parser:
    """The flags of this stage."""
    parser = cli.Parser(SCRIPT, __doc__ or "")
    parser.model_settings()
    parser.setting("--runs", type=cli.at_least(5), default=60, metavar="N", help="unprofiled runs, at least 5")
    parser.setting(
        "--warmup", type=cli.positive_int, default=10, metavar="N", help="runs before those, of each session"
    )
    parser.setting("--threads", type=cli.positive_int, metavar="N", help="intra-op threads (default: all it may use)")
    parser.setting("--provider", default="cpu", metavar="NAME", help="execution provider; no other may take a node")
    parser.setting("--optimization", choices=tuple(OPTIMIZATIONS), default="all", help="graph optimization level")
    parser.setting("--seed", type=cli.non_negative_int, default=0, metavar="N", help="of the random inputs")
    parser.setting("--power-rate-hz", type=cli.positive_float, default=10.0, metavar="HZ", help="of the power sensors")
    return parser


def op_latency(latencies: Sequence[NodeLatency], graph: Graph) -> pd.DataFrame:
    """op_latency: one row per executed node."""
    domains = {node.name: node.domain for node in graph.nodes}
    return pd.DataFrame([{"domain": domains[latency.node.name], **node_figures(latency)} for latency in latencies])


def run_latency(measurement: Measurement) -> pd.DataFrame:
    """run_latency: every run of both series, on a clock that starts with the first."""
    frame = pd.DataFrame([asdict(lap) for lap in measurement.laps])
    frame["start_us"] = 1e6 * (frame["start_s"] - frame["start_s"].min())
    return frame.drop(columns="start_s")


def power_samples(sampler: Sampler, measurement: Measurement) -> pd.DataFrame:
    """power_samples: on the clock of run_latency; what was read before the first run is left out."""
    origin = min(lap.start_s for lap in measurement.laps)
    columns = ["sensor", "sensor_domain", "time_us", "measured_power_w"]
    rows = [(s.sensor, s.sensor_domain, 1e6 * (s.time_s - origin), s.power_w) for s in sampler.samples]
    return pd.DataFrame([row for row in rows if row[2] >= 0], columns=columns)


def naming_notes(named: NamedModel | None) -> list[str]:
    """What was done to the names of the model's nodes."""
    if named is None or not named.renamed_count:
        return []
    return [f"{named.renamed_count} nodes without a name of their own were named, as in op_metrics.csv"]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the stage."""
    settings = cli.parse(arguments(), argv)
    path = cli.model_path(settings.model)
    provider = resolve_provider(settings.provider)
    files = {name: Path(file) for name, file in settings.input}
    bindings, values = cli.configured_bindings(settings, path), given_arrays(files)
    model, named = load_model(path, dict(settings.dim), bindings, values=values), named_model(path)
    feeds = make_feeds(model.graph, files, settings.seed)
    options = SessionSettings(settings.threads or available_threads(), provider, settings.optimization)
    record = Provenance(SCRIPT, settings.command, settings.record(), host=host_identity(), tools=tool_versions())
    record.model_id, record.model_path, record.dimensions = model.model_id, path.name, dict(model.dimensions)
    sensors, missing = available_sensors()
    store = Store(settings.out, record)
    with store.writing(), store.scratch() as folder:
        with Sampler(sensors, settings.power_rate_hz) as sampler:
            bar = cli.progress_bar(settings, "runs")
            content = named.content if named else None
            measurement = measure(path, feeds, options, settings.runs, settings.warmup, folder, bar, content)
        traced = [(node.name, node.op_type) for node in measurement.trace.nodes.values()]
        executed, bodies = rename_saved(without_weights(folder / "executed.onnx", traced))
        store.add_bytes("executed_graph", executed)
        measurement = measurement.renamed(bodies)
        graph = load_executed_graph(store.temporary("executed_graph.onnx"), model.dimensions)
        require_same_nodes(measurement.trace, {node.name for node in graph.nodes})
        operand_counts = {node.name: sum(map(bool, node.inputs)) for node in graph.nodes}
        latencies = correct(measurement, operand_counts, options.threads, folder)
        summary = latency_figures(measurement, latencies, options)
        record.notes += [*naming_notes(named), *missing, *sampler.notes, *caveats(summary, latencies)]
        nodes = store.add_table("op_latency", op_latency(latencies, graph))
        store.add_table("run_latency", run_latency(measurement))
        store.add_document("latency_summary", summary)
        store.add_table("power_samples", power_samples(sampler, measurement))
        store.add_file("ort_trace", measurement.trace_file.replace(store.temporary("ort_trace.json")))
    cli.show(settings, latency_report(summary, nodes))
    cli.say(settings, *(f"note: {note}" for note in record.notes), *(f"wrote {store.path(name)}" for name in PLACES))
    return 0


if __name__ == "__main__":
    cli.run(main)
