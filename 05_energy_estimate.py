"""Estimate the energy of one inference and of each executed node: compute, data movement and static power.

Reads   op_roofline.csv, latency_summary.json, run_latency.csv, power_samples.csv; host_ceilings.json if it exists;
        phase_work.csv of a decoder.
Writes  ops_profile.csv (latency, FLOPs, bytes and energy of each node), energy_summary.json, efficiency.json.

Average power is --avg-power-w, else the power that 01 measured, else a model by the name of the processor. The model
takes a share of the thermal design power by the cores in use, and adds the memory (configs/processors.yaml). The column
energy_source says which of the three it is. Static power is --static-power-w, else the power measured before the runs,
else modelled. Static energy is divided over the nodes by time, dynamic energy by modelled work (configs/energy.yaml).

EXAMPLE of input (op_roofline.csv) and output (ops_profile.csv), some columns, at two threads of a machine with two
Xeon Gold 6130 and 96 GiB:

    executed_node,dtype,flops,weight_bytes,input_bytes,output_bytes,node_latency_us
    conv1,float32,236027904,37632,602112,3211264,2310.5

    executed_node,compute_energy_uj,movement_energy_uj,static_energy_uj,energy_uj,energy_source
    conv1,33588.775,195.543953,97272.05,131056.369,modelled

    python 05_energy_estimate.py --avg-power-w 65 --static-power-w 40   # power meter: running, and idle
    python 05_energy_estimate.py --cpu "Intel Xeon Gold 6130"           # where the machine hides its processor
"""

from __future__ import annotations

if __name__ == "__main__":
    from common.process import startup

    startup.begin()  # first of all: the imports below take most of a second

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from common import cli
from common.artifacts.folder import is_there
from common.files.configuration import Section
from common.graphs.number_formats import MEASURED_PEAKS
from common.power.bounded_value import given
from common.power.efficiency import Host, joules_per_token
from common.power.energy_model import read_energy_configuration
from common.power.estimate import KnownPower, estimate, is_processor_alone, measured_power, node_work, profile_rows
from common.power.host_power import HostPower, host_power, idle_fraction
from common.power.measured import measured_static
from common.power.processor_law import ProcessorLaw, read_processor_law
from common.power.processors import HostFacts, read_processors
from common.roofline import GIVEN
from common.table_rows import EfficiencyDocument
from common.view.node_labels import labels_of
from common.view.profile.energy_text import energy_report
from common.view.profile.generation_text import token_energy_lines


def arguments() -> cli.Parser:
    parser = cli.Parser("05_energy_estimate.py", __doc__ or "")
    watts: dict[str, Any] = {"type": cli.positive_float, "metavar": "W"}
    parser.setting("--avg-power-w", "--avg_power_w", help="mean power during the runs, from a power meter", **watts)
    parser.setting("--static-power-w", help="power of the same part of the machine when idle", **watts)
    parser.setting("--cpu", metavar="MODEL", help="name of the host's processor (default: as its system names it)")
    parser.shared("--ceilings")
    config = cli.ROOT / "configs/energy.yaml"
    text = "energy models and cost factors"
    parser.setting("--energy-config", type=cli.path, default=config, metavar="FILE", help=text)
    parser.setting("--energy-model", default="server-cpu", metavar="NAME", help="model that divides the energy by node")
    return parser


def known_host(stage: cli.StageRun, threads: int) -> Host:
    """Return cache size and ceilings: given to the roofline, else measured with these threads on an idle host."""
    settings, tables = stage.settings, stage.tables
    path = cli.ceilings_path(settings)
    measured: Mapping[str, Any] = {}
    if settings.ceilings or is_there(path):
        measured = tables.document("host_ceilings", path)
    is_of_device = tables.provenance("latency_summary").imported.get("is_of_device", False)
    given_to_roofline = {name: entry.get("value") for name, entry in tables.provenance("op_roofline").settings.items()}
    given_peak, given_bandwidth = given_to_roofline.get("peak_flops"), given_to_roofline.get("mem_bw")
    is_judge = bool(measured) and not (given_peak and given_bandwidth) and not is_of_device
    if is_judge and measured["threads"] != threads:
        stage.note(f"{path}: not measured with {threads} threads; rerun <host_ceilings> with them")
    elif is_judge and not measured["stable"]:
        remedy = "rerun <host_ceilings> on an idle host, or give <peak_flops> and <mem_bw>"
        stage.note(f"{path}: unstable ceilings, so shares of them are empty; {remedy}")
    is_of_host = measured.get("threads") == threads and not is_of_device
    ceilings = measured if is_of_host and measured["stable"] else {}
    peaks = {GIVEN: "", **MEASURED_PEAKS}
    rates = {roof: given_peak or ceilings.get(column) for roof, column in peaks.items()}
    bandwidth = given_bandwidth or ceilings.get("memory_bytes_per_s")
    return Host({roof: rate for roof, rate in rates.items() if rate}, bandwidth, measured.get("last_level_cache_bytes"))


def modelled_power(stage: cli.StageRun, law: ProcessorLaw, threads: int, provider: str) -> HostPower | None:
    """Return the power that the processor's name says; None where another device ran the model, or nobody names it."""
    cpu = stage.settings.cpu
    if not cpu and not is_processor_alone(provider):
        return None
    facts = HostFacts.of(stage.tables.provenance("latency_summary").host)
    return host_power(law, read_processors(), facts, threads, cpu)


def main(argv: Sequence[str] | None = None) -> int:
    with cli.stage(arguments(), argv) as stage:
        settings, tables = stage.settings, stage.tables
        configured = read_energy_configuration(Section.of_file(settings.energy_config))
        roofline, latency = tables.rows("op_roofline"), tables.document("latency_summary")
        samples, runs = tables.rows("power_samples"), tables.rows("run_latency")
        phase = cli.phase_of(tables)
        # the rows, gap included, add up to the median
        run_us = latency["p50_us"] or sum(row["node_latency_us"] for row in roofline)
        law = read_processor_law(Section.of_file(cli.ROOT / "configs/processors.yaml"))
        meter, (run_power, idle) = given(settings.avg_power_w), measured_power(samples, runs, latency["provider"])
        static, notes = measured_static(idle, None if meter else run_power)  # a meter covers more than a sensor
        result = estimate(
            {row["executed_node"]: node_work(row) for row in roofline},
            run_us,
            latency["threads"],
            power=KnownPower(
                meter or run_power,
                given(settings.static_power_w) or static,
                modelled_power(stage, law, latency["threads"], latency["provider"]),
                idle_fraction(law),
            ),
            dram_pj_per_byte=law.dram_pj_per_byte,
            model=configured.model(settings.energy_model),
            factors=configured.factors,
            host=known_host(stage, latency["threads"]),
        )
        if latency["p50_us"] is None:
            stage.note("energy: the unprofiled median is unknown; the run is assumed to take the sum of its node times")
        stage.note(*notes, *result.notes)
        per_token = joules_per_token(result.efficiency, phase)
        efficiency: EfficiencyDocument = {
            **result.efficiency,
            "p50_us": latency["p50_us"],
            "joules_per_token_j": per_token,
        }
        with stage.writing() as transaction:
            transaction.add_rows("ops_profile", profile := profile_rows(roofline, result.energy))
            transaction.add_document("energy_summary", result.summary)
            transaction.add_document("efficiency", efficiency)
        million = asdict(result.million)
        labels = labels_of(roofline)
        text = energy_report(profile, run_us, result.summary, result.efficiency, million, labels=labels)
        stage.show("\n".join([text, *token_energy_lines(phase, per_token)]))
    return 0


if __name__ == "__main__":
    cli.run(main)
