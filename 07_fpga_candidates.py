"""Plan which fused groups to offload to an FPGA board, and estimate the end-to-end speedup in latency and energy.

Reads   ops_profile.csv, op_schedule.csv, op_latency.csv, op_metrics.csv, op_edges.csv, node_map.csv,
        energy_summary.json, latency_summary.json; precision.csv and precision_mixtures.csv, where they exist; a
        board file.
Writes  fpga_candidates.csv (every group, and why the plan has it or not), offload_plan.csv (the kernels),
        offload_schedule.csv, offload_comparison.csv (baselines and what-if plans), board_resources.csv, speedup.csv
        (Amdahl's law, term by term), offload_verdict.csv (whether the plan pays),
        offload_uncertainty.csv (what makes the gain uncertain), offload_front.csv (plans for latency, throughput and
        energy, by batch and as a stream); with --objective throughput, replica_plans.csv (how
        several arrays fill the board), replica_rates.csv (frames per second of each resource), replica_schedule.csv.

Kernel models estimate the time of each group, and of each chain of groups, on every engine that fits the board. A
solver then chooses the engines and what each computes, so that one inference finishes earliest. All figures are
estimates with a pessimistic, a likely and an optimistic case.

EXAMPLE of input (ops_profile.csv) and output (offload_plan.csv), some columns:

    executed_node,row_kind,node_latency_us,energy_uj
    /conv1/Conv_nchwc,node,1830.2,98130.1

    kernel,engine,region,call_count,host_latency_share,kernel_latency_likely_us,dsp_count,comment
    K1,systolic-32x24x4-int8,SLR1,53,0.93,3410.2,1536,fuse BN/Relu/Add; kernel 4.9x (likely)

    python 07_fpga_candidates.py --board u280 --precision int8 --kernel-speedup K1=3.2 --what-if board=u50,clock-mhz=200
    python 07_fpga_candidates.py --board kv260 --precision int8 --engine dpu-b4096
    python 07_fpga_candidates.py --board u250 --objective throughput
    python 07_fpga_candidates.py --board u280 --designs out
    python 07_fpga_candidates.py --board u280 --precision int8 --mixed-with bf16   # after 28 --mixed
"""

from __future__ import annotations

if __name__ == "__main__":
    from common.process import startup

    startup.begin()  # first of all: the imports below take most of a second

from collections.abc import Sequence
from pathlib import Path
from typing import cast

from common import cli
from common.artifacts.frames import records
from common.cli.flags import plan_flags
from common.cli.plan_stage import CONFIGS, mixtures, require_host_tables, rows_of_designs, work_of_host
from common.files.configuration import Section
from common.fpga.array_designs import ArrayDesign, designs_of_rows
from common.fpga.coefficients import load_models
from common.fpga.device.board import DEFAULT_PRECISION, PLAN_PRECISIONS
from common.fpga.hand_off.files import hand_off_files, require_vitis
from common.fpga.plan_results import Results, plan_results, workload_from_rows
from common.fpga.planning.host_basis import HostBasis, HostScale, host_basis, host_scale, read_host_scale
from common.fpga.planning.problem_builder import LAUNCH_PER
from common.fpga.planning.request import (
    OBJECTIVES,
    Request,
    plan_requests,
    read_assumptions,
    read_batch,
    read_kernel_speedup,
)
from common.table_rows import Tables
from common.view.plan.answer.precision_text import is_judged_on_samples
from common.view.plan.answer.uncertainty_text import verdict_statements
from common.view.plan.fpga_text import offload_report
from common.workload.formats import WiderLayers, layers_of, written_mixture
from common.workload.workload import Workload, scaled

THRESHOLDS = " and the three --min flags"


def arguments() -> cli.Parser:
    parser = cli.Parser("07_fpga_candidates.py", __doc__ or "")
    add = parser.setting
    text = "plan for the least time of one inference, or for the most frames per second, on several arrays at once"
    add("--objective", default="latency", choices=OBJECTIVES, help=text)
    plan_flags.board_flags(parser, PLAN_PRECISIONS, DEFAULT_PRECISION, LAUNCH_PER)
    plan_flags.question_flags(parser, read_kernel_speedup, read_batch)
    plan_flags.threshold_flags(parser)
    plan_flags.search_flags(parser, more=THRESHOLDS)
    plan_flags.host_flags(parser, read_host_scale)
    plan_flags.design_flags(parser)
    return parser


def given_designs(stage: cli.StageRun, request: Request) -> tuple[ArrayDesign, ...]:
    """Return the arrays that 29 found for the board; none without --designs."""
    if not stage.settings.designs:
        return ()
    folder = stage.folder(stage.settings.designs)
    designs = designs_of_rows(rows_of_designs(folder), request.board, request.precision)
    stage.enter_reads([folder])
    return designs


def wider_layers(stage: cli.StageRun, request: Request) -> WiderLayers | None:
    """Return the layers that the written mixture of 28 leaves in float; None for a plan of one number format."""
    wider = stage.settings.mixed_with
    return layers_of(written_mixture(mixtures(stage.tables), request.precision), wider) if wider else None


def host_work(stage: cli.StageRun, scale: HostScale | None) -> tuple[Workload, HostBasis]:
    """Return the work that the plan divides, with the times of its host, and the source of these times."""
    tables = stage.folder(stage.settings.host_tables)
    work, processor = work_of_host(tables, workload_from_rows)
    stage.enter_reads([tables])
    basis = host_basis(processor, scale, may_be_of_board=bool(stage.settings.host_tables))
    return (work if scale is None else scaled(work, scale.factor)), basis


def accuracy_tables(stage: cli.StageRun) -> Tables:
    """Return what 28 found about number formats and mixtures; nothing where it did not run for this model."""
    names = ["format_precision", "precision_mixtures"]
    return stage.beside(names, "accuracy", lambda: stage.tables.tables(names)) or {}


def hand_off_texts(stage: cli.StageRun, results: Results, accuracy: Tables) -> dict[str, str]:
    """Return the files of a hand-off, with what is known of the gain."""
    tables = cast("Tables", {**results.rows, **accuracy})
    verdict = [stage.plain(line) for line in (*verdict_statements(tables), *results.notes)]
    return hand_off_files(results.plan, Path(stage.record.model_path).name, verdict, results.streams)


def main(argv: Sequence[str] | None = None) -> int:
    with cli.stage(arguments(), argv) as stage:
        file = stage.settings.fpga_config
        settings = stage.take_defaults(read_assumptions(Section.of_file(file)), file.name)
        watch = cli.SearchWatch(settings, settings.time_limit)
        requests = plan_requests(settings.values, CONFIGS, watch)
        scale = host_scale(settings.host_scale, settings.host_scale_source, has_tables=bool(settings.host_tables))
        if settings.host_tables:
            require_host_tables(settings.host_tables)
        if settings.hand_off:
            require_vitis(requests.request.board)
            requests = requests.without_chains()
        stage.end_of_checks()
        requests = requests.with_designs(given_designs(stage, requests.request))
        requests = requests.with_wider(wider_layers(stage, requests.request))
        work, basis = host_work(stage, scale)
        requests, models, accuracy = requests.of_host(basis), load_models(CONFIGS), accuracy_tables(stage)
        is_judged = is_judged_on_samples(accuracy.get("format_precision", ()), settings.precision)
        # A folder that cannot be written fails before the search, not after it.
        with stage.writing() as transaction, stage.writing_folder(settings.hand_off, "hand_off") as texts:
            with watch:
                results = plan_results(work, requests, models, settings.batch, is_accuracy_judged=is_judged)
            if settings.hand_off:
                texts.update(hand_off_texts(stage, results, accuracy))
            stage.note(*watch.notes, *results.notes)
            written = {name: transaction.add_rows_by_name(name, rows) for name, rows in results.rows.items()}
        tables = {name: records(frame) for name, frame in written.items()}
        stage.show(offload_report(cast("Tables", {**tables, **accuracy}), stage.plain))
    return 0


if __name__ == "__main__":
    cli.run(main)
