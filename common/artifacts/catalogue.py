"""Every artifact, declared once; the header, both checks and the documentation follow from it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from common.artifacts.columns import COLUMNS, Column, names_of

Form = Literal["table", "document", "file", "picture", "page"]  # a page shows another file, and has no sidecar


@dataclass(frozen=True, slots=True)
class Artifact:
    """One file in ``out/``: a CSV table, a flat JSON document, a file of a foreign format, a picture, or a page."""

    name: str
    file: str
    form: Form
    description: str
    columns: tuple[Column, ...] = ()
    key: tuple[str, ...] = ()
    may_be_empty: bool = False  # a table without rows says something


# Tables of what a host or a profile from elsewhere may lack, a run may be spared, or a plan may leave out.
MAY_BE_EMPTY = (
    "run_latency session_latency power_samples host_samples provider_layers os_events run_disturbances "
    "fpga_candidates offload_plan offload_schedule board_resources load_requests load_batches load_disturbances "
    "design_convergence design_budgets design_mappings design_groups design_simulation npu_nodes npu_chip_nodes "
    "bottlenecks npu_bottlenecks mend_trials replica_plans replica_rates replica_schedule precision_layers "
    "precision_mixtures phase_work"
)
ARTIFACTS: dict[str, Artifact] = {}


def _add(name: str, file: str, form: Form, description: str, columns: str = "", key: str = "") -> None:
    """Declare an artifact; a column with ``?`` after it may have empty cells in this file, where others have none."""
    picked = tuple(
        replace(COLUMNS[column], nullable=True) if word.endswith("?") else COLUMNS[column]
        for word in columns.split()
        for column in names_of(word)
    )
    ARTIFACTS[name] = Artifact(name, file, form, description, picked, tuple(key.split()), name in MAY_BE_EMPTY.split())


def _table(name: str, description: str, columns: str, stem: str = "") -> None:
    """Declare a table, the columns of its key before a bar."""
    key, _, others = columns.partition(" | ")
    _add(name, f"{stem or name}.csv", "table", description, f"{key} {others}", key)


def _document(name: str, description: str, columns: str) -> None:
    _add(name, f"{name}.json", "document", description, columns)


def _file(file: str, description: str, name: str = "") -> None:
    """Declare a file of a foreign format, under its stem unless it has another name."""
    _add(name or file.partition(".")[0], file, "file", description)


_document(
    "host_ceilings",
    "Peak FLOP/s, int8 operations/s and bytes/s of the host as ONNX Runtime reaches them, at the chosen thread count "
    "and at one thread. Operators are measured in short slices of time; the fastest slice counts.",
    "threads cpu_model last_level_cache_bytes stream_array_bytes cache_array_bytes one_thread_cache_array_bytes "
    "busy_processor_count peak_flop_per_s peak_operator matmul_flop_per_s gemm_flop_per_s conv_flop_per_s "
    "int8_op_per_s int8_operator fp16_flop_per_s bf16_flop_per_s memory_bytes_per_s cache_bytes_per_s "
    "one_thread_peak_flop_per_s one_thread_int8_op_per_s one_thread_fp16_flop_per_s one_thread_bf16_flop_per_s "
    "one_thread_memory_bytes_per_s one_thread_cache_bytes_per_s peak_halves_difference_share "
    "int8_halves_difference_share memory_halves_difference_share lost_to_threads_share stable slice_count duration_s",
)
_file("ort_trace.json", "The raw trace of the profiled session, as ONNX Runtime wrote it (Chrome trace format).")
_file(
    "executed_graph.onnx",
    "The graph that ONNX Runtime executed after its optimizations, without weights. Small int64 tensors of one axis, "
    "from which shapes are computed, are the only values in it.",
)
_table(
    "op_latency",
    "Time of every executed node in the profiled runs, raw and corrected for the profiler's own cost.",
    "executed_node | op_type domain provider execution_index input_count uses_thread_pool input_shapes output_shapes "
    "output_dtypes shape_variants sample_count pool_thread_count pool_balance_share pool_wait_us peak_memory_bytes "
    "live_memory_bytes allocated_bytes events_per_run_count raw_median_us raw_mean_us raw_min_us raw_p95_us raw_std_us "
    "corrected_median_us corrected_mean_us corrected_min_us corrected_p95_us corrected_std_us correction±_us "
    "is_correction_dominated raw_total_us",
)
_table(
    "run_latency",
    "Latency of every run, profiled and unprofiled, warm-up included.",
    "is_profiled run_index | is_warmup start_us latency_us",
)
_table(
    "session_latency",
    "Latency of every unprofiled run of later sessions, warm-up included; each session has a process of its own.",
    "session_index run_index | is_warmup start_us latency_us",
)
_document(
    "latency_summary",
    "Latency of the unprofiled runs with confidence limits, and what profiling cost.",
    "provider graph_optimization threads sample_count profiled_sample_count warmup_count steady_state "
    "steady_start_index session_creation_us first_run_us p50±_us p90±_us p95±_us p99±_us p99_9±_us mean±_us jitter±_us "
    "min_us max_us counts_for_limits profiled_median_us profiling_overhead_fraction is_alternating trace_total_us "
    "trace_event_count pool_balance_share peak_memory_bytes arena_bytes peak_resident_bytes matched_time_share "
    "matched_contraction_share matched_operation_share",
)
_table(
    "power_samples",
    "Power that each sensor measured before and during the runs; no rows where the host has no sensor.",
    "sensor sensor_domain time_us | phase measured_power_w",
)
_table(
    "host_samples",
    "Readings of the other sensors before and during the runs: processor, memory, context switches, GPU.",
    "sensor sensor_domain quantity time_us | phase value",
)
_document(
    "hardware_counters",
    "Hardware counters of the processor over the runs; empty where an event cannot be counted.",
    "counter_source window_s run_count instructions_count cycles_count cache_references_count cache_misses_count "
    "vector_instructions_count instructions_per_cycle cache_miss_share vector_instruction_share counted_share",
)
_table(
    "provider_layers",
    "Times of layers inside the nodes of a provider that compiles subgraphs, by its own counters; else no rows.",
    "layer_index | layer layer_type executed_type layer_node layer_mean_us layer_share counter_source",
)
_table(
    "os_events",
    "Events of the operating system: when a thread of this process had no processor and which thread had it, and "
    "counts of context switches, page faults and stolen time.",
    "event_index | event_kind event_source time_us duration_us event_count lost_us thread_id is_main_thread "
    "processor_index other_process other_process_id is_own_thread crowding_process crowding_process_id resident_bytes",
)
_table(
    "run_disturbances",
    "Every slow run after the warm-up: the time that it lost, the thread that took it, and the node that was hit.",
    "is_profiled run_index | latency_us excess_us lost_us usual_lost_us explained_share disturbance_cause "
    "other_process other_process_id other_us processor_index thread_id is_main_thread hit_node hit_us stolen_us "
    "major_fault_count",
)
_table(
    "op_metrics",
    "Work and compulsory traffic of every node of the model file.",
    "source_node | op_type domain body model_part? execution_count dtype input_shapes output_shapes kernel_shape "
    "strides groups attributes batch_count m_count k_count n_count macs flops dequantized_weight_count weight_bytes "
    "input_bytes output_bytes bytes is_counted upper_bound_macs upper_bound_flops upper_bound_bytes is_in_bound "
    "macs_expression flops_expression weight_bytes_expression input_bytes_expression output_bytes_expression "
    "bytes_expression",
)
_table(
    "op_edges",
    "Every tensor between two nodes of the model file.",
    "tensor producer consumer | tensor_bytes read_bytes written_bytes dtype tensor_kind",
)
_table(
    "op_roofline",
    "One row per executed node, and one for the gap between nodes: work of its source nodes, traffic across the "
    "group's border, and its place under the roof.",
    "executed_node | row_kind op_type domain execution_index events_per_run_count source_nodes op_types layout_of "
    "dtype macs executed_macs flops weight_bytes input_bytes output_bytes bytes work_source raw_total_us raw_median_us "
    "node_latency_us latency_share is_correction_dominated arithmetic_intensity_flop_per_byte attained_flop_per_s "
    "attained_bytes_per_s attainable_flop_per_s roof roof_share is_above_roof roof_share_reason bound",
)
_table(
    "node_map",
    "Which source nodes each executed node computes, and by which rule they were matched.",
    "executed_node source_node | rule",
)
_table("executed_edges", "Every tensor between two executed nodes.", "tensor producer consumer | tensor_bytes")
_table(
    "critical_path",
    "The longest chain of dependent nodes, from the input.",
    "position_index | executed_node op_type node_latency_us cumulative_us span_share",
)
_table(
    "op_schedule",
    "When each executed node could start and must start, and when the sequential executor starts it.",
    "executed_node | op_type execution_index node_latency_us earliest_start_us earliest_finish_us latest_start_us "
    "slack_us is_critical sequential_start_us sequential_finish_us",
)
_table(
    "ops_profile",
    "Latency, FLOPs, bytes and energy of every executed node, and of the gap.",
    "executed_node | row_kind op_type source_nodes node_latency_us latency_share macs flops bytes work_source "
    "compute_energy_uj movement_energy_uj static_energy_uj energy±_uj energy_share energy_source",
)
_document(
    "energy_summary",
    "Energy of one inference and how it is known.",
    "energy_source energy_boundary average_power_w static_power_w static_power_source energy±_uj compute_energy_uj "
    "movement_energy_uj static_energy_uj closure_factor",
)
_document(
    "efficiency",
    "What the whole model attains on the host, and what an inference costs in energy, emissions and money.",
    "energy_source p50_us model_flops whole_model_flop_per_s peak_share whole_model_bytes_per_s bandwidth_share "
    "joules_per_inference±_j joules_per_token_j inferences_per_joule efficiency_flop_per_s_per_w "
    "million_inferences_gco2e million_inferences_energy_usd million_inferences_host_usd",
)
_table(
    "fpga_candidates",
    "Every fused group and every chain of groups: its cost on the host, the estimate of its best engine, and why "
    "it is in the plan or not.",
    "candidate | kernel kernel_kind kernel_class pattern source_nodes executed_nodes group_count macs flops bytes "
    "arithmetic_intensity_flop_per_byte host_latency_us host_latency_share host_energy_uj host_energy_share is_large "
    "is_regular is_intense is_fusable engine board_bound kernel_*_cycles kernel_latency_*_us is_chosen reason",
)
_table(
    "offload_plan",
    "The engines of the plan, and what each computes in one run.",
    "kernel | engine engine_kind pattern_counts board region precision clock_mhz group_count call_count macs flops "
    "bytes arithmetic_intensity_flop_per_byte host_latency_us host_latency_share host_energy_share board_bound "
    "kernel_*_cycles kernel_latency_*_us lut_count ff_count bram36_count uram_count dsp_count memory_channel_count "
    "clock_*_mhz lut_*_count ff_*_count bram36_*_count dsp_*_count launch_count launch_us onboard_weight_bytes "
    "kernel_power_*_w kernel_energy_*_uj comment",
)
_table(
    "offload_schedule",
    "One inference before and after offloading: what each lane does when.",
    "interval_index | scenario lane activity item interval_start_us interval_finish_us",
)
_table(
    "offload_comparison",
    "The plan, its baselines (host alone, a greedy plan, the rule of thumb, the proven bound) and the what-if plans.",
    "alternative | board precision wider_precision clock_mhz launch_per plan_status plan_latency_*_us "
    "latency_speedup_factor latency_speedup_p5_factor latency_speedup_p95_factor latency_pays_probability "
    "energy_speedup_factor is_judged",
)
_table(
    "board_resources",
    "Resources that the plan uses in each region of the board.",
    "region resource | board used_count budget_count usable_count total_count",
)
_table(
    "speedup",
    "Speedup in latency, energy and throughput by Amdahl's law, one term per row.",
    "objective term | * term_unit is_judged",
)
_table(
    "offload_verdict",
    "The verdict on the plan for each objective, with the end-to-end speedup behind it.",
    "objective | verdict is_judged host_basis judged_host * pays_probability speedup_p5_factor speedup_p25_factor "
    "speedup_p50_factor speedup_p75_factor speedup_p95_factor doubts weaker_side boundary",
)
_table(
    "offload_uncertainty",
    "What each uncertain term does to the speedup of the plan, and what knowing it would be worth.",
    "objective uncertain_term | variance_share known_pays_probability information_value term_unit is_judged",
)
_table(
    "what_if_plans",
    "The plan with another clock, link, number format, mixture of formats or board, one at a time, each planned anew.",
    "what_if_subject what_if_setting | planned_mixture_index board precision wider_precision clock_mhz "
    "link_bytes_per_s plan_status plan_latency_*_us latency_speedup_factor latency_speedup_p5_factor "
    "latency_speedup_p95_factor latency_pays_probability energy_speedup_factor is_judged is_other_host",
)
_table(
    "offload_front",
    "Plans for the least latency, the highest throughput and the least energy, by batch, one batch after another and "
    "as a stream. `objective` is what the plan was searched for.",
    "objective operation inference_count | in_flight_count plan_status batch_latency_*_us *_inferences_per_s "
    "inference_energy_*_uj engines batch_call_count is_on_front is_judged",
)
_table(
    "replica_plans",
    "How several equal accelerators fill the board (`--objective throughput`): the best plan for each way to "
    "divide the frames over them, the quickest first.",
    "division | is_quickest launch_per engine engines accelerator_count region_replicas stage_count call_frame_count "
    "in_flight_count *_inferences_per_s card_*_inferences_per_s bound_inferences_per_s stream_bottleneck "
    "batch_latency_*_us clock_*_mhz resident_weight_bytes resident_activation_bytes resident_tensors "
    "frame_memory_bytes accelerator_resources stream_memory_bytes is_judged",
)
_table(
    "replica_rates",
    "Frames per second of each resource of those plans, and which one bounds the rate.",
    "division stream_resource | frame_busy_*_us *_resource_inferences_per_s is_bottleneck",
)
_table(
    "replica_schedule",
    "The first frames of the quickest of those plans: what host, link and accelerators do when, likely case.",
    "interval_index | lane activity call_frames interval_start_us interval_finish_us",
)
_table(
    "overlay_layers",
    "The whole model on an overlay engine, layer by layer.",
    "engine_layer | op_types unit macs weight_bytes moved_bytes engine_cycles compute_us memory_us fixed_us "
    "kernel_latency_likely_us board_bound",
)
_document(
    "overlay_summary",
    "The whole model on an overlay engine: latency and frames per second, and the roofline bound beside them.",
    "engine board clock_mhz image_count macs batch_latency_*_us engine_us host_us *_frames_per_s "
    "pipelined_frames_per_s roof_us",
)
_table(
    "kernels",
    "The kernels of a list, as their source counts them: one call, every operand once.",
    "kernel precision | m k n flops bytes arithmetic_intensity_flop_per_byte weight_bytes",
)
_table(
    "kernels_corrected",
    "The same kernels and those that the source leaves out, with their calls and the traffic that fusion saves.",
    "kernel precision | m k n batch_count call_count flops bytes arithmetic_intensity_flop_per_byte weight_bytes "
    "fused_bytes total_flops total_bytes total_fused_bytes attainable_flop_per_s bound roof_us fused_roof_us",
)
_table(
    "kernel_ceilings",
    "The roofs that both kernel tables are drawn under.",
    "board precision | kernel_peak_flop_per_s board_memory_bytes_per_s ridge_flop_per_byte ceiling_source",
)
_POINT = (
    "hardware search_engine accounting seed array_row_count array_column_count memory_sizes_kib chip_mm2 "
    "cycle_model modelled_cycles rtl_low_cycles rtl_cycles rtl_high_cycles modelled_energy_pj edp_pj_cycles "
    "bound_edp_pj_cycles gap_share space_best_edp_pj_cycles "
    "space_gap_share contraction_edp_pj_cycles "
    "unfused_edp_pj_cycles staying_weight_bytes evaluation_count problem is_pareto is_complete"
)
_table(
    "design_points",
    "Every evaluated accelerator with the best schedule of each search, the best of its space, and the physical floor.",
    f"design search_engine | {_POINT.replace('search_engine ', '')}",
)
_table(
    "design_comparison",
    "What each algorithm found on each accelerator, above the best of its space and the floor. Seconds leave out both.",
    "design algorithm | seed edp_pj_cycles modelled_cycles modelled_energy_pj chip_mm2 evaluation_count search_s "
    "gap_share space_gap_share is_complete",
)
_table(
    "design_convergence",
    "After how many evaluations the best product of a search fell, and to what. No rows for fused groups, exactly.",
    "design search_engine seed improvement_index | evaluation_count best_edp_pj_cycles",
)
_table(
    "design_budgets",
    "The design of the least energy-delay product within each area; without given areas, those at which a larger "
    "design is better than all smaller ones. No rows for an accelerator whose file gives no areas.",
    "area_budget_mm2 | design search_engine chip_mm2 modelled_cycles modelled_energy_pj edp_pj_cycles "
    "bound_edp_pj_cycles gap_share",
)
_table(
    "design_mappings",
    "The mapping of every contraction, and which of its operands are resident. No rows for one buffer.",
    "design source_node nest_index nest_row_count | execution_count macs mapping array_element_count array_use_share "
    "bound_by dram_weight_bytes dram_input_bytes dram_output_bytes moved_words dram_beside_bytes resident_operands "
    "resident_level resident_tensor_bytes modelled_cycles rtl_low_cycles rtl_cycles rtl_high_cycles modelled_energy_pj "
    "energy_parts_pj",
)
_table(
    "design_groups",
    "All layers in fused groups. With several memories, a group ends where nothing is resident.",
    "design group_index | first_layer last_layer layer_count tile_row_count tile_column_count halo "
    "resident_weight_count resident_tensor_count dram_bytes recomputed_share modelled_cycles modelled_energy_pj "
    "energy_parts_pj buffer_peak_bytes",
)
_table(
    "design_engines",
    "Arrays for a board on the front of latency, energy and share of the board, which 07 takes with --designs.",
    "array_design | board precision array_row_count array_column_count simd_count row_fold_count column_fold_count "
    "tile_step_count memory_port_count spans_regions clock_mhz lut_count ff_count bram36_count uram_count dsp_count "
    "memory_channel_count board_share modelled_cycles compute_cycles modelled_latency_us modelled_energy_pj "
    "kernel_latency_*_us",
)
_table(
    "design_simulation",
    "The fastest array of design_engines: folds of contractions, simulated on its Verilog. No rows without --simulate.",
    "array_design loop_nest | execution_count modelled_cycles compute_cycles equation_cycles fold_count "
    "simulated_fold_count simulated_cycles simulated_equation_cycles",
)
_table(
    "engine_calls",
    "Layers of a quantized network on the engine that was planned for a board: planned cycles, and simulated ones "
    "where 32 ran with --simulate.",
    "call_index | source_node planned_cycles planned_us simulated_call_cycles simulated_us cycles_by_cause",
)
_table(
    "engine_cells",
    "Cells of that engine: planned, and routed where 32 ran with --route.",
    "cell_kind | planned_count routed_count budget_count total_count",
)
_document(
    "engine_summary",
    "The engine that was planned for a quantized network on a board, and the clock that closed.",
    "board part engine_design expected_clock_*_mhz closed_clock_mhz planned_us replanned_us",
)
_document("design_summary", "The best of the evaluated accelerators.", f"design design_objective design_count {_POINT}")
_file(
    "trace.json",
    "Timeline of the measured runs for Perfetto or chrome://tracing, on the clock of run_latency: runs, executed nodes "
    "with source nodes, work, bound and energy, disturbances, samples of sensors, arrows along the critical path. A "
    "load test in the folder is shown on its own clock: requests, how many wait, batches that form, sessions.",
)
_file(
    "plan_trace.json",
    "The likely case of the offload plan for Perfetto or chrome://tracing: one inference on the host alone, and with "
    "the plan on host, link and engines; the intervals of offload_schedule, with what is known of each candidate.",
)
_file(
    "npu_trace.json",
    "Runs of an NPU and the nodes of the median one for Perfetto or chrome://tracing, from a device's profile, on a "
    "clock of its own. The time of a node is an allocation by its share of the cycles. No times of an emulator.",
)
_file(
    "flamegraph.folded",
    "Node times by module path, in whole µs, as folded stacks for speedscope or flamegraph.pl. They add up to the sum "
    "of node_latency_us in op_roofline, rounded; a gap below zero is left out.",
)
_file(
    "annotated.onnx",
    "The model's graph without its weights, for Netron: each node has its work, and the latency, share, bound and "
    "energy of the executed node that computes it, in its metadata_props.",
)
FINDING = (
    "finding is_near_miss also_found_by finding_subject executed_nodes gain_us gain_low_us gain_high_us span_gain_us "
    "doubts conditions evidence hazard remedy rule_source"
)
_table(
    "bottlenecks",
    "What makes an inference slow, with the evidence, what mending it gains, hazard and remedy; no rows where no "
    "rule finds anything.",
    f"finding_index | {FINDING}",
)
_table(
    "npu_bottlenecks",
    "What makes an inference on an NPU slow: columns as in bottlenecks, findings from the profile of the NPU alone.",
    f"finding_index | {FINDING}",
)
_table(
    "mend_trials",
    "Findings that were tried: the model was mended, and both models were measured in turn. The predicted gain is that "
    "of all findings of the rule together, and at most the median. No rows where no finding has a rewrite.",
    "finding | mend_outcome mend_problem mends mended_nodes gain±_us doubts measured_gain±_us is_as_predicted "
    "output_error_share output_tolerance_share",
)
_file(
    "mended.onnx",
    "The model, mended by the rule that gained most when measured. Every stage that takes a model takes this file.",
    "mended_model",
)
_table(
    "npu_nodes",
    "Nodes of an NPU's profile with their HTP operators and traffic. Traffic was decided when the graph was compiled: "
    "it holds on the emulator as well, where times and cycles do not.",
    "npu_op_id | npu_node qnn_op_type source_nodes fused_into npu_cycles npu_cycles_share dominant_path_cycles "
    "attributed_npu_time_us htp_op_count hvx_op_count hmx_op_count dma_op_count dram_read_bytes dram_write_bytes "
    "vtcm_read_bytes vtcm_write_bytes spill_bytes is_emulated",
)
_table(
    "npu_operators",
    "Operators of a device's QHAS: each type of QNN and of HTP operators, and the slowest nodes; only with `--qhas`.",
    "npu_operator_kind npu_operator | qnn_op_type npu_cycles npu_cycles_share dominant_path_cycles htp_op_count "
    "dram_read_bytes dram_write_bytes vtcm_read_bytes vtcm_write_bytes",
)
_table(
    "npu_chips",
    "Chips that a model was compiled for, with their traffic and operators (`--soc` with several numbers).",
    "soc_model | npu_node_count fused_node_count moved_node_count htp_op_count hvx_op_count hmx_op_count dma_op_count "
    "dram_read_bytes dram_write_bytes vtcm_read_bytes vtcm_write_bytes spill_bytes vtcm_peak_bytes max_error",
)
_table(
    "npu_chip_nodes",
    "Nodes of each chip of npu_chips: what computes them there, and with which traffic.",
    "soc_model npu_op_id | npu_node qnn_op_type source_nodes fused_into htp_op_count hvx_op_count hmx_op_count "
    "dma_op_count dram_read_bytes dram_write_bytes vtcm_read_bytes vtcm_write_bytes spill_bytes is_moved",
)
_table(
    "npu_runs",
    "Runs of an NPU's profile. Each time is a part of the one before it; node cycles were checked to add up.",
    "npu_run_index | session_index netrun_us qnn_execute_us rpc_execute_us qnn_accelerator_us accelerator_us "
    "accelerator_busy_us accelerator_cycles vtcm_acquire_us power_up_us hvx_thread_count yield_count is_emulated",
)
_file(
    "npu_summary.json",
    "Figures of an NPU's profile: `execution_summary` and `resource_utilization`, with the `source` of each figure, or "
    "why it is `unavailable` (then null). Units are in the names; kb is 1024 bytes, mbps is 10⁶ bytes/s. `precision` "
    "compares each result of the NPU with the CPU's, where both were computed.",
)
_add("npu_page", "npu_summary.html", "page", "The same as a page: figures, sources, chips, changes, and all nodes.")
_file("qnn_profile.csv", "The profile of the runs, as QNN wrote it.")
_file("qnn_schematic.bin", "The graph that QNN compiled for the NPU, as its compiler wrote it (text).")
_file("qnn_op_trace.json", "What each node of QNN was made of, as ONNX Runtime's QNN provider wrote it.")
_STAGES = (
    "decode_us resize_us normalize_us assemble_us host_to_device_us session_run_us device_to_host_us postprocess_us "
    "round_trip_us"
)
SHARING = "session_workers thread_pool execution_mode inter_op_threads spinning affinity"  # of sessions of a load test
_table(
    "load_requests",
    "Every request of a load test: when it was intended, queued, batched, started and ended.",
    "request_index | outcome is_warmup_request step_index request_length load_batch_index queue_depth_count "
    f"intended_us queued_us batched_us started_us ended_us request_latency_us {_STAGES}",
)
_table(
    "load_batches",
    "Every batch of a load test: how it was formed and padded, and what it took.",
    "load_batch_index | worker_index request_count padded_request_count padded_length batched_us started_us ended_us "
    f"formation_us generator_late_us {_STAGES} padding_share padding_flops_share",
)
_document(
    "load_summary",
    "What a service on this session delivers under the load: latency from the intended start, rates, queue, batches.",
    "validity validity_reason is_interrupted precision_goal precision_reached_share served_model endpoint? provider? "
    f"graph_optimization? threads? session_count replica_count {SHARING.replace(' ', '? ')}? arrivals batch_max_count "
    "batch_wait_us sent_count completed_count rejected_count failed_count cancelled_count expired_count "
    "failure_reasons error_share max_error_share offered_requests_per_s answered_requests_per_s "
    "goodput_requests_per_s goodput_bound_us utilization_share generator_late_share generator_delay_share "
    "generator_late_p99_us mean_queue_depth_count most_queue_depth_count load_batch_count mean_request_count "
    "padding_share padding_flops_share batch_steady_state warmup_request_count counted_request_count "
    "counts_for_limits request_p50±_us request_p90±_us request_p95±_us request_p99±_us request_p99_9±_us "
    "request_mean±_us request_jitter±_us request_min_us request_max_us queue_p50_us queue_p99_us latency_shares "
    "sample_image_count image_normalization top_class_count copy_overlap_share device_copies_unavailable "
    "pcie_tx_bytes_per_s pcie_rx_bytes_per_s pcie_unavailable standard_metrics loadgen_results interference "
    "peak_resident_bytes resident_bytes handle_count process_thread_count",
)
_table(
    "load_steps",
    "A load step by step: the rate that was asked for, what became of the requests that came in the step, and their "
    "latency. A ramp has another rate at its end; a load of one rate is one step.",
    "step_index | step_start_us step_duration_us begin_requests_per_s end_requests_per_s validity validity_reason "
    "sent_count completed_count rejected_count failed_count cancelled_count answered_requests_per_s utilization_share "
    "request_p50±_us request_p90±_us request_p99±_us request_mean±_us ",
)
_file(
    "load_histogram.hlog",
    "Latencies of all answered requests from the intended start, second by second, as a log of HdrHistogram (format "
    "V2, in ns), which its HistogramLogAnalyzer reads.",
)
_document(
    "load_endpoint",
    "The endpoint of a load test, and what it says of its model.",
    "endpoint served_model served_version endpoint_platform tensor_encoding endpoint_inputs endpoint_outputs",
)
_file("loadgen_summary.txt", "MLPerf LoadGen's own summary of the run, as it wrote it.")
_table(
    "load_batch_times",
    "What a full batch of each size takes while all sessions are busy, for each division of the processors and "
    "each way in which sessions share the host.",
    f"session_count threads {SHARING} request_count | measured_call_count call_mean_us call_p50±_us "
    "full_requests_per_s load_power_w requests_per_joule",
)
_table(
    "load_search",
    "Runs of the search for the best configuration, and of the best one's curve beside what the queue is predicted to "
    "do. Arrivals are Poisson; the first quarter of a run is not counted.",
    f"trial_index | trial_kind rung_index batch_max_count batch_wait_us session_count threads {SHARING} "
    "offered_requests_per_s answered_requests_per_s goodput_requests_per_s failed_count validity request_p50±_us "
    "request_p99±_us predicted_p50_us predicted_p99_us predicted_utilization_share prediction_doubt is_within_bound "
    "is_on_load_front load_power_w request_energy_j million_requests_usd",
)
_document(
    "load_best",
    "The best configurations within the bound, the runner-up with its margin, or what is nearest to an unmet bound.",
    "bound_us is_bound_met best_by runner_up margin±_share nearest untimed_shape_count trial_count max_error_share "
    "failing_trial_count failing_trial_reason invalid_trial_count invalid_trial_reason prediction_doubts",
)
_table(
    "load_fleet",
    "Load tests of many models, each on the host of the worker that took it: the host, its set-up, what it delivers.",
    "model_file | hostname cpu_model processor_count runtime_version provider session_count threads replica_count "
    f"batch_max_count batch_wait_us {SHARING} validity validity_reason sent_count completed_count rejected_count "
    "failed_count cancelled_count error_share offered_requests_per_s answered_requests_per_s goodput_requests_per_s "
    "utilization_share request_p50±_us request_p99±_us",
)
_table(
    "endurance",
    "A long load minute by minute: what was delivered, and what the process held at the end of each.",
    "part_index | part_start_us part_duration_us sent_count completed_count rejected_count failed_count "
    "cancelled_count answered_requests_per_s validity request_p50±_us request_p99±_us call_us resident_bytes "
    "handle_count process_thread_count cpu_frequency_mhz",
)
_document(
    "endurance_summary",
    "Whether memory grows with the inferences, whether the service slows down, and the latency over all valid parts.",
    "counted_request_count request_p50±_us request_p90±_us request_p95±_us request_p99±_us request_p99_9±_us "
    "leak±_bytes_per_inference is_leak call_steady_state call_drift_share slowdown_cause call_levels",
)
_document(
    "dashboard_summary",
    "What the live dashboard saw from its start to its end.",
    "run_count p50±_us p90±_us p95±_us p99±_us p99_9±_us mean_us jitter_us min_us max_us",
)
_table(
    "load_disturbances",
    "Every slow call of a load test's one run, over the usual time of its worker and size: the time that it lost, "
    "and the thread that took it.",
    "load_batch_index | worker_index request_count latency_us excess_us lost_us usual_lost_us explained_share "
    "disturbance_cause other_process other_process_id other_us processor_index thread_id is_main_thread stolen_us "
    "major_fault_count",
)
_table(
    "load_interference",
    "How two services that run together slow each other down: each alone and both together, under the same requests. "
    "The first quarter of each run is not counted.",
    "model_role load_state | served_model validity validity_reason sent_count completed_count rejected_count "
    "failed_count cancelled_count error_share offered_requests_per_s answered_requests_per_s utilization_share "
    "request_p50±_us request_p99±_us request_p50_slowdown±_factor request_p99_slowdown±_factor answered_rate±_factor",
)
_table(
    "phase_work",
    "Work and traffic of one call of a decoder: each part of the model in each phase, at each given length. No rows of "
    "a model without caches, or without lengths.",
    "dimensions generation_phase model_part | past_token_count new_token_count macs? flops? dequantized_weight_count "
    "weight_bytes? cache_bytes bytes? arithmetic_intensity_flop_per_byte phase_macs_expression phase_flops_expression "
    "phase_weight_bytes_expression phase_cache_bytes_expression phase_bytes_expression",
)
_table(
    "generation",
    "Every token that a decoder generated in a loop over its caches, with the work of the call that gave it.",
    "answer_index token_index | is_warmup generation_phase past_token_count new_token_count token_us sampling_us "
    "token_id? macs flops weight_bytes cache_bytes bytes",
)
_table(
    "generation_phases",
    "Prefill and decode at each length, with their shares of the roofs of the host, from the calls after the warm-up.",
    "length_index generation_phase | past_token_count new_token_count phase_call_count token_mean_us token_p50±_us "
    "sampling_us tokens_per_s macs weight_bytes cache_bytes arithmetic_intensity_flop_per_byte attained_flop_per_s "
    "attained_bytes_per_s compute_roof_share memory_roof_share bound joules_per_token_j",
)
_document(
    "generation_summary",
    "Time to the first token of the longest prompt, time per token after the longest past, and what a token moves.",
    "threads prompt_token_count answer_token_count answer_count first_token±_us token_p50±_us tokens_per_s "
    "weight_bytes cache_bytes arithmetic_intensity_flop_per_byte attained_bytes_per_s memory_roof_share "
    "compute_roof_share bound joules_per_token_j",
)
_table(
    "decode_plans",
    "A decoder on a card: an answer in each format of the weights, with each phase on the host or on the card.",
    "weight_format prefill_side decode_side | board fits_memory is_best_plan prefill_engines prefill_regions "
    "decode_engine card_resident_bytes card_memory_bytes planned_first_token_*_us planned_token_*_us "
    "planned±_tokens_per_s planned_answer_*_us host_answer_us moved_share answer_link_bytes token_link_bytes "
    "logits_link_us card_token_*_j verdict pays_probability speedup_p5_factor speedup_p25_factor speedup_p50_factor "
    "speedup_p75_factor speedup_p95_factor",
)
_table(
    "decode_lengths",
    "The time of one token over the length of the caches: on the host, on the card, and under the card's roof.",
    "weight_format past_token_count | host_token_us planned_token_*_us memory_roof_us card_read_bytes card_cache_bytes",
)
_document(
    "decode_summary",
    "The plan of a decoder with the shortest answer, beside the host.",
    "board weight_format prefill_side decode_side planned_prompt_count planned_output_count planned±_tokens_per_s "
    "planned_first_token_likely_us planned_answer_likely_us host_answer_us host_first_token_us host_tokens_per_s "
    "card_token_likely_j token_link_bytes verdict pays_probability speedup_p5_factor speedup_p50_factor "
    "speedup_p95_factor measured_length_count bound memory_roof_share joules_per_token_j doubts",
)
_table(
    "stream_requests",
    "Every request of a load of token streams that was answered.",
    "request_index | input_token_count output_token_count intended_us admitted_us time_to_first_token_us "
    "time_per_output_token_us request_latency_us",
)
_table("stream_tokens", "When each token of each stream came.", "request_index token_index | ended_us")
_document(
    "stream_summary",
    "A load of token streams: rates, times to the first token and between tokens, and goodput under two bounds.",
    "threads batching_policy most_in_flight_count is_batched sent_count completed_count input_tokens_per_s "
    "output_tokens_per_s offered_requests_per_s answered_requests_per_s goodput_requests_per_s first_token_bound_us "
    "inter_token_bound_us streams_in_flight_count validity validity_reason time_to_first_token_p50±_us "
    "time_to_first_token_p90±_us time_to_first_token_p95±_us time_to_first_token_p99±_us inter_token_p50±_us "
    "inter_token_p90±_us inter_token_p95±_us inter_token_p99±_us request_p50±_us request_p90±_us request_p95±_us "
    "request_p99±_us",
)
_table(
    "format_precision",
    "What each number format does to each output of the model, for each scheme that converts to the format. Of the "
    "schemes for a format, the one with the largest ratio on the samples that calibrate is that of layers and plan.",
    "number_format quantization_scheme output_name | format_verdict format_problem is_arithmetic is_written_model "
    "sample_source judged_sample_count calibration_sample_count converted_op_types converted_node_count float_nodes "
    "sqnr_db calibration_sqnr_db kernel_sqnr_db cosine_error max_abs_error top1_agreement±_share top5_agreement±_share "
    "accuracy±_share",
    "precision",
)
_table(
    "precision_layers",
    "What each layer does to the output if it alone is in the format of the written model.",
    "source_node | op_type macs number_format quantization_scheme layer_problem sqnr_db cosine_error max_abs_error "
    "top1_agreement±_share",
)
_table(
    "precision_mixtures",
    "Mixtures of layers in the format and in float. Each has the most MACs in the format under a bound on the sum of "
    "the noise of its layers; a run says what its noise is. No rows where no mixture was asked for.",
    "mixture_index | number_format quantization_scheme format_verdict sample_source judged_sample_count "
    "converted_node_count format_macs_share predicted_sqnr_db sqnr_db calibration_sqnr_db "
    "calibration_top1_agreement_share top1_agreement±_share is_within_bounds is_written_model float_nodes",
)
_file(
    "quantized.onnx",
    "The model in the chosen format, with its weights. Every stage that takes a model takes this file.",
    "quantized_model",
)
_table(
    "provider_comparison",
    "Every execution provider of the build: whether it runs the model, and how far its outputs are from the CPU's.",
    "compared_provider output_name | provider_problem call_us is_equal_shape max_abs_error max_rel_error cosine_error",
)
for _name, _prefix, _description in (
    ("comparison", "comparison", "What differs from the baseline"),
    ("paired_comparison", "paired", "What differs between two models that ran in turn"),
):
    _table(
        _name,
        f"{_description}, figure by figure and node by node: by how much, and whether that is real.",
        "compared_folder compared_kind compared_figure compared_subject | comparison_verdict baseline_value "
        "candidate_value difference±_share noise_floor_share latency_change_share adjusted_p_value cliffs_delta "
        "baseline_run_count candidate_run_count runs_needed_count verdict_reason source_nodes baseline_nodes "
        "candidate_nodes",
    )
    _add(f"{_prefix}_text", f"{_name}.md", "page", "The comparison as Markdown, for a pull request.")
    _add(f"{_prefix}_page", f"{_name}.html", "page", "The comparison as a page, with every row.")
    _file(
        f"{_prefix}_stacks.folded",
        "Node times of the baseline and of what is compared with it, in whole µs, as folded stacks with two numbers: "
        "flamegraph.pl draws them as a differential flame graph.",
    )
_table(
    "run_history",
    "Every figure of the newest record in all records of its history, with its level and where that changed.",
    "compared_kind compared_figure compared_subject history_run | recorded_at commit_name is_dirty_tree figure_value "
    "level_value level_change_share level_p_value is_change_point commit_before changed_conditions run_doubt",
)
_table(
    "history_trends",
    "What the newest record did to each of its figures, against the level of the records before it.",
    "compared_kind compared_figure compared_subject | comparison_verdict level_value figure_value difference±_share "
    "noise_floor_share latency_change_share level_run_count recorded_run_count verdict_reason",
)
_add("history_text", "run_history.md", "page", "The history as Markdown: verdicts of the newest record, and changes.")
_add("history_page", "run_history.html", "page", "The history as a page, with every figure, change and run.")
_file("metrics.prom", "Figures of the run as OpenMetrics text; docs/METRICS.md has the names.")
_file("metric_lines.jsonl", "The same figures, a JSON object per line.")
# The pictures of a folder, with their captions.
PICTURES = {
    "roofline": "Executed nodes under the roof of the host",
    "energy": "Energy by operator type and node, split into compute, movement and static",
    "schedule": "The sequential schedule, and the earliest starts with their slack",
    "latency": "Latency run by run, and its distribution",
    "token_times": "Time of a token over the length of the caches, on host and card with their roofs, and the caches",
    "offload": "What an inference costs before and after offloading, part by part",
    "timeline": "One inference before and after offloading, lane by lane",
    "front": "Plans for latency, throughput and energy, by batch and as a stream",
    "what_if": "How far one inference moves with each clock, link, number format and board",
    "formats": "End-to-end speedup of the plan in each number format, against how often its outputs agree with float",
    "resources": "Resources of the board that the plan uses",
    "engine": "The engine on a board with open tools: use of the device, planned and simulated time of each layer",
    "design_front": "Evaluated accelerators by cycles, energy, area and their product, and those that none beats",
    "design_buffer": "The energy-delay product against the size of a memory: fused, without fusion, and the bound",
    "design_energy": "Energy of accelerators by part, and of the best one's groups of layers",
    "design_nest": "The mapping of the contraction that takes most energy, as a loop nest, with the words that move",
    "load": "Requests that wait over time, sizes of batches, and the share of computation that padding wastes",
    "load_curve": "Latency against the rate, measured and predicted, and every run of the search",
    "long_load": "Memory, latency and rate of a long load over time",
    "load_pair": "Two models on one host: the latency of each alone and together, and the ratios",
    "fleet": "Load tests of many models: the rate that each answers, and its latency with limits",
    "history": "Figures over the records, with their levels and the commits that changed them",
    "differences": "Differences from the baseline with their intervals, and what a repeat scatters",
    "paired_differences": "Differences between two models that ran in turn, and what a repeat scatters",
    "design_progress": "The best product of each search so far, over the bound, by evaluations",
}
_beside = "; a PNG of the same picture is beside it."
for _name, _caption in PICTURES.items():
    _add(f"{_name}_plot", f"plots/{_name}.svg", "picture", f"{_caption}{_beside} The report's sidecar covers both.")
for _name, _stem in (("kernels", "kernel_roofline"), ("kernels_corrected", "kernel_roofline_corrected")):
    _add(f"{_name}_plot", f"plots/{_stem}.svg", "picture", f"{_name}.csv under the roofs of the board{_beside}")
_file("report.html", "Tables and pictures of everything in the folder, in one file.")
_file("summary.txt", "The closing summary: what an engineer needs to decide.")
