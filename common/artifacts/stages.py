"""Stages as data: what each one reads, what it alone writes, and its settings. docs/DESIGN.md draws them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Stage:
    """One numbered script, or the command that runs it, with the artifacts that it reads from the folder."""

    script: str
    reads: tuple[str, ...]
    writes: tuple[str, ...]  # a message about one of them names this stage
    settings: tuple[str, ...]  # besides those that every stage has
    configurations: tuple[str, ...]  # files of configs/ that it reads whatever its settings are
    writes_too: tuple[str, ...]  # artifacts of another stage that it writes in the same form
    primary: str  # by which make and messages know all that it writes; its sidecar is that of the stage
    is_measurement: bool  # its tables are raw data, which an edited script does not make out of date
    is_aside: bool  # it answers a question of its own, which `make run` leaves out

    @property
    def leaves(self) -> tuple[str, ...]:
        return (*self.writes, *self.writes_too)


# Artifacts of one load, whichever test it belongs to.
LOAD = "load_requests load_batches load_summary load_steps load_histogram"
# Settings of load tests, by subject.
SCHEDULE = "rate arrivals burst duration seed"
USERS = "users think"
LENGTHS = "lengths length_dim buckets"
PAYLOAD = "images normalize top_k"
BATCHING = "batch_max batch_wait batch_preferred batch_pad queue_max timeout"
ERRORS = "max_error_share"
GOODPUT = "min_goodput goodput_bound"
SHARING = "replicate threads workers pool execution inter_threads spinning affinity provider optimization run_timeout"
TELEMETRY = "post post_token"
SEARCH = "p99_bound budget"
MODEL = "model dim input"
# What a measurement is compared by, wherever it is there.
COMPARED = (
    "run_latency session_latency latency_summary op_latency ort_trace executed_graph host_samples hardware_counters "
    "op_metrics op_edges node_map op_roofline host_ceilings energy_summary load_summary load_best offload_verdict "
    "offload_comparison offload_plan board_resources"
)
STAGES: dict[str, Stage] = {}


def _stage(
    script: str,
    reads: str,
    writes: str,
    settings: str = "",
    *,
    primary: str = "",
    configurations: str = "",
    writes_too: str = "",
    is_measurement: bool = False,
    is_aside: bool = False,
) -> None:
    """Declare a stage. Each field of names is one text, as in the catalogue; the first artifact is the primary one."""
    fields = (reads, writes, settings, configurations, writes_too)
    read, written, set_by, configured, also_written = (tuple(text.split()) for text in fields)
    first = primary or written[0]
    STAGES[script] = Stage(script, read, written, set_by, configured, also_written, first, is_measurement, is_aside)


def _measurement(script: str, writes: str, settings: str, *, reads: str = "", **options: Any) -> None:
    """Declare a measurement that answers a question of its own; most of them read nothing from the folder."""
    _stage(script, reads, writes, settings, is_measurement=True, is_aside=True, **options)


_stage("00_host_ceilings.py", "", "host_ceilings", "threads seconds", is_measurement=True)
_stage(
    "01_profile_onnx.py",
    "",
    "ort_trace executed_graph op_latency run_latency latency_summary power_samples host_samples hardware_counters "
    "provider_layers os_events run_disturbances session_latency",
    "model dim input runs duration warmup threads provider optimization seed sessions run_timeout sensor_rate_hz idle "
    "powercap_root from_trace executed_graph execution inter_threads accept_partial",
    primary="op_latency",
    is_measurement=True,
)
_stage("02_shapes_flops_bytes.py", "", "op_metrics op_edges phase_work", "model dim input phase cache")
_stage(
    "03_merge_profile_metrics.py",
    "host_ceilings executed_graph op_latency latency_summary op_metrics op_edges phase_work",
    "op_roofline node_map executed_edges",
    "peak_flops mem_bw ceilings",
)
_stage(
    "04_critical_path.py",
    "op_roofline executed_edges phase_work",
    "critical_path op_schedule",
    "model what_if",
    primary="op_schedule",
)
_stage(
    "05_energy_estimate.py",
    "op_roofline latency_summary run_latency power_samples host_ceilings phase_work",
    "ops_profile energy_summary efficiency",
    "avg_power_w static_power_w cpu ceilings energy_config energy_model",
    configurations="energy.yaml processors.csv processors.yaml",
)
_measurement(
    "28_precision.py",
    "format_precision precision_layers precision_mixtures quantized_model",
    "model dim input samples images normalize labels scores random precision min_agreement min_sqnr_db budget mixed "
    "for_engine threads run_timeout seed",
)
_stage(
    "07_fpga_candidates.py",
    "ops_profile op_schedule op_metrics op_edges node_map energy_summary op_latency latency_summary format_precision "
    "precision_mixtures",
    "fpga_candidates offload_plan offload_schedule offload_comparison board_resources speedup offload_verdict "
    "offload_uncertainty offload_front replica_plans replica_rates replica_schedule",
    "objective board precision mixed_with launch_per kernel_speedup what_if time_limit effort batch engine min_share "
    "min_intensity_flop_per_byte min_fused_share host_scale host_scale_source host_tables fpga_config hand_off designs",
    primary="offload_plan",
    configurations="fpga.yaml systolic_rtl.yaml streaming.yaml dataflow.yaml card_energy.yaml replicas.yaml",
)
_stage(
    "24_what_if.py",
    "ops_profile op_schedule op_metrics op_edges node_map energy_summary op_latency latency_summary precision_mixtures",
    "what_if_plans",
    "board precision mixed_with launch_per time_limit effort fpga_config",
    configurations="fpga.yaml systolic_rtl.yaml streaming.yaml dataflow.yaml card_energy.yaml",
    is_aside=True,
)
_stage("23_overlay_estimate.py", "op_metrics op_edges", "overlay_layers overlay_summary", "board engine", is_aside=True)
_stage(
    "python -m common.fpga kernels", "", "kernels kernels_corrected kernel_ceilings kernels_plot kernels_corrected_plot"
)
_stage(
    "08_design_space.py",
    "op_metrics op_edges",
    "design_points design_comparison design_convergence design_budgets design_mappings design_groups design_summary",
    "hardware sweep objective area_budget_mm2 engine experiments evaluations seed most_layers weights_stay accounting "
    "cycle_model jobs cluster cluster_address cache cache_mb",
    is_aside=True,
)
_stage(
    "29_board_arrays.py",
    "op_metrics op_edges",
    "design_engines design_simulation",
    "board precision board_budget simulate",
    is_aside=True,
)
_stage(
    "32_build_engine.py",
    "",
    "engine_calls engine_cells engine_summary",
    "model dim seed board array_rows array_cols array_simd simulate route open_tools build",
    primary="engine_summary",
    is_aside=True,
)
_measurement(
    "14_load_search.py",
    "load_search load_batch_times load_best",
    f"{MODEL} batch_max {SHARING} {SEARCH} {ERRORS} usd_per_hour avg_power_w {PAYLOAD} seed {TELEMETRY}",
    primary="load_best",
)
_measurement(
    "10_load_test.py",
    f"{LOAD} load_disturbances",
    f"{MODEL} {SCHEDULE} profile replay until {USERS} {LENGTHS} {PAYLOAD} {BATCHING} sessions {SHARING} {ERRORS} "
    f"{GOODPUT} {TELEMETRY} best",
    reads="load_best load_search",
    primary="load_summary",
)
_measurement(
    "18_load_fleet.py",
    "load_fleet",
    f"models dim {SCHEDULE} {BATCHING} sessions {SHARING} search {SEARCH} {ERRORS} {GOODPUT} cluster cluster_address",
)
_measurement(
    "19_endurance_test.py",
    "endurance endurance_summary",
    f"{MODEL} {SCHEDULE} part {USERS} {LENGTHS} {PAYLOAD} {BATCHING} sessions {SHARING} {ERRORS} {TELEMETRY}",
    primary="endurance_summary",
    writes_too=LOAD,
)
_measurement(
    "20_load_interference.py",
    "load_interference",
    f"with_model with_dim with_rate {MODEL} {SCHEDULE} {PAYLOAD} {BATCHING} sessions {SHARING} {ERRORS} {TELEMETRY}",
    writes_too=LOAD,
)
_measurement(
    "21_loadgen_scenario.py",
    "loadgen_summary",
    f"scenario p99_bound {MODEL} rate duration seed {PAYLOAD} {BATCHING} sessions {SHARING} {ERRORS} min_goodput "
    f"{TELEMETRY}",
    writes_too=LOAD,
)
_measurement(
    "25_load_endpoint.py",
    "load_endpoint",
    f"endpoint served_model served_version endpoint_token tensors connections dim input {SCHEDULE} profile replay "
    f"until {USERS} {BATCHING} {ERRORS} {GOODPUT} {TELEMETRY}",
    writes_too=LOAD,
)
_measurement("22_provider_comparison.py", "provider_comparison", f"{MODEL} threads optimization seed run_timeout")
_measurement(
    "26_generation.py",
    "generation generation_phases generation_summary",
    "model dim prompt tokens answers phase cache cache_room peak_flops mem_bw avg_power_w threads optimization "
    f"run_timeout seed {TELEMETRY}",
    primary="generation_summary",
    configurations="processors.csv processors.yaml",
)
_stage(
    "31_decode_plan.py",
    "generation generation_summary",
    "decode_plans decode_lengths decode_summary",
    "model dim cache board weight_format prompt tokens",
    primary="decode_summary",
    configurations="decoding.yaml card_energy.yaml systolic_rtl.yaml streaming.yaml dataflow.yaml",
    is_aside=True,
)
_measurement(
    "27_token_streams.py",
    "stream_summary stream_requests stream_tokens",
    f"model dim cache {SCHEDULE} replay input_tokens output_tokens batching in_flight cache_room first_token_bound "
    f"inter_token_bound min_goodput threads optimization run_timeout {TELEMETRY}",
)
_measurement(
    "13_npu_profile.py",
    "npu_summary npu_page npu_trace npu_nodes npu_runs npu_operators npu_chips npu_chip_nodes npu_bottlenecks "
    "qnn_profile qnn_schematic qnn_op_trace",
    "model dim input runs rules soc level performance run_timeout seed qnn_csv schematic qhas op_trace graph baseline "
    "accept_partial",
    configurations="bottlenecks.yaml",
)
_stage(
    "09_trace_report.py",
    "run_latency latency_summary op_latency ort_trace os_events run_disturbances power_samples host_samples op_metrics "
    "op_roofline executed_edges critical_path ops_profile executed_graph fpga_candidates offload_schedule "
    "offload_comparison offload_plan offload_verdict replica_plans replica_schedule load_requests load_batches "
    "load_summary npu_runs npu_nodes",
    "trace plan_trace flamegraph annotated bottlenecks",
    "runs rules",
    configurations="bottlenecks.yaml",
)
_stage(
    "11_compare_runs.py",
    COMPARED,
    "comparison comparison_text comparison_page comparison_stacks",
    "baseline candidate across_models fail_above",
    is_aside=True,
)
_measurement(
    "15_paired_runs.py",
    "paired_comparison paired_text paired_page paired_stacks",
    "ab b_with runs warmup dim input seed threads provider optimization run_timeout fail_above",
)
_measurement(
    "30_try_mend.py",
    "mend_trials mended_model",
    "model dim input rule runs warmup seed threads provider optimization run_timeout",
    reads="bottlenecks node_map latency_summary",
)
_stage(
    "16_run_history.py",
    "",
    "run_history history_trends history_text history_page",
    "history last across_models fail_above",
    is_aside=True,
)
_stage("17_record_run.py", COMPARED, "metrics metric_lines", "append_to commit", is_aside=True)
_measurement(
    "12_dashboard.py",
    "dashboard_summary",
    "model dim input attach port threads provider optimization run_timeout seed avg_power_w usd_per_hour ceilings "
    "alarms public tls_cert tls_key",
    reads="host_ceilings",
    configurations="dashboard.yaml energy.yaml",
)
_stage(
    "06_plots.py",
    "host_ceilings run_latency latency_summary hardware_counters op_roofline executed_edges critical_path op_schedule "
    "ops_profile energy_summary efficiency fpga_candidates offload_plan offload_schedule offload_comparison "
    "board_resources speedup offload_verdict offload_uncertainty offload_front what_if_plans replica_plans "
    "replica_rates design_points design_mappings design_groups design_convergence design_comparison design_summary "
    "bottlenecks npu_bottlenecks load_requests load_batches load_summary load_steps load_batch_times load_search "
    "load_best endurance endurance_summary load_interference load_fleet provider_comparison comparison "
    "paired_comparison run_history history_trends format_precision precision_layers precision_mixtures generation "
    "generation_phases generation_summary decode_plans decode_lengths decode_summary engine_calls engine_cells "
    "engine_summary",
    "roofline_plot energy_plot schedule_plot latency_plot offload_plot timeline_plot resources_plot engine_plot "
    "front_plot what_if_plot formats_plot token_times_plot design_front_plot design_buffer_plot design_energy_plot "
    "design_nest_plot design_progress_plot load_plot load_curve_plot long_load_plot load_pair_plot fleet_plot "
    "differences_plot paired_differences_plot history_plot summary report",
    "ceilings",
    primary="report",
)

WRITER: dict[str, str] = {name: stage.script for stage in STAGES.values() for name in stage.writes}

# Artifacts whose figures do not follow from another one, although their stage or an earlier one reads it. They stay
# right when that one is written again: node times and graphs are what they are under any roof, a load that was measured
# is none of the search that found its configuration, and only the timeline shows a load test.
UNAFFECTED: dict[str, frozenset[str]] = {
    **dict.fromkeys([*LOAD.split(), "load_disturbances"], frozenset({"load_best", "load_search"})),
    **dict.fromkeys(("node_map", "executed_edges", "critical_path", "op_schedule"), frozenset({"host_ceilings"})),
    **dict.fromkeys(
        ("plan_trace", "flamegraph", "annotated", "bottlenecks"),
        frozenset({"load_requests", "load_batches", "load_summary"}),
    ),
}
