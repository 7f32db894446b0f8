"""Which stage reads and which one alone writes each artifact: the data flow of docs/DESIGN.md as data."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Stage:
    """One numbered script: what it reads from ``out/`` and what it alone writes there."""

    script: str
    reads: tuple[str, ...]
    writes: tuple[str, ...]


STAGES: dict[str, Stage] = {
    stage.script: stage
    for stage in (
        Stage("00_host_ceilings.py", (), ("host_ceilings",)),
        Stage(
            "01_profile_onnx.py",
            (),
            (
                *("ort_trace", "executed_graph", "op_latency", "run_latency", "latency_summary", "power_samples"),
                *("host_samples", "hardware_counters", "provider_layers", "os_events", "run_disturbances"),
            ),
        ),
        Stage("02_shapes_flops_bytes.py", (), ("op_metrics", "op_edges")),
        Stage(
            "03_merge_profile_metrics.py",
            ("host_ceilings", "executed_graph", "op_latency", "latency_summary", "op_metrics", "op_edges"),
            ("op_roofline", "node_map", "executed_edges"),
        ),
        Stage("04_critical_path.py", ("op_roofline", "executed_edges"), ("critical_path", "op_schedule")),
        Stage(
            "05_energy_estimate.py",
            ("op_roofline", "latency_summary", "run_latency", "power_samples", "host_ceilings"),
            ("ops_profile", "energy_summary", "efficiency"),
        ),
        Stage(
            "07_fpga_candidates.py",
            ("ops_profile", "op_schedule", "op_metrics", "op_edges", "node_map", "energy_summary"),
            (
                *("fpga_candidates", "offload_plan", "offload_schedule", "offload_comparison", "board_resources"),
                *("speedup", "overlay_layers", "overlay_summary"),
            ),
        ),
        Stage(
            "python -m common.fpga kernels",
            (),
            ("kernels", "kernels_corrected", "kernel_ceilings", "kernels_plot", "kernels_corrected_plot"),
        ),
        Stage(
            "06_plots.py",
            (
                *("host_ceilings", "run_latency", "latency_summary", "hardware_counters", "op_roofline"),
                *("critical_path", "op_schedule", "ops_profile", "energy_summary", "efficiency"),
                *("fpga_candidates", "offload_plan", "offload_schedule", "offload_comparison", "board_resources"),
                *("speedup",),
            ),
            (
                *("report", "summary", "roofline_plot", "energy_plot", "schedule_plot", "latency_plot"),
                *("offload_plot", "timeline_plot", "resources_plot"),
            ),
        ),
    )
}

WRITER: dict[str, str] = {name: stage.script for stage in STAGES.values() for name in stage.writes}
