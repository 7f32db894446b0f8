"""Figures that rules may name besides the columns of the tables: what follows from them, by the table it is of."""

from __future__ import annotations

_CAUSES = ("other_process", "own_thread", "unnamed_process", "hypervisor", "page_fault", "none_recorded")
_WAITS = {
    "vtcm_acquire": "for VTCM",
    "accelerator_wait": "on the accelerator: its time less the time without waiting",
    "rpc": "in the remote call: its time less the device's part",
}
OF_NODES = {
    "unpadded_share": "op_roofline: macs over executed_macs",
    "roof_us": "op_roofline: the time of the node at its roof, at most its own",
    "fastest_share": "op_latency: corrected_min_us over corrected_median_us",
    "is_fallback": "op_latency: whether the CPU ran the node of a session on another provider",
    "result_axis_count": "op_latency: axes of the first result",
    "one_thread_share": "latency_summary: 1 over its threads",
}
OF_GROUPS = {
    "node_count": "nodes of the subject",
    "node_count_share": "node_count over all executed nodes",
    "freed_gap_us": "time between nodes that goes with the subject's nodes",
    "overhead_share": "times of the nodes and freed_gap_us, over the median",
    "match_count": "matches of a pattern",
    "operand_node_count": "executed_edges: nodes that the first node of a match reads",
    "enclosed_count": "executed_edges: nodes of an island",
    "enclosed_types": "executed_edges: operator types of an island with their counts",
    "tensor_count": "executed_edges: tensors from one provider to another",
}
OF_RUNS = {
    "early_median_us": "run_latency: median of the faster runs before a slowdown",
    "early_share": "run_latency: early_median_us over the median",
    "clock": "host_samples: the quantity of clock_share",
    "clock_share": "host_samples: mean clock during the runs over the highest one seen",
    "throttled_by": "host_samples: the reason of throttled_share",
    "throttled_share": "host_samples: share of the samples in the runs with reduced clocks, of the commonest reason",
    **{
        f"{kind}_faults_per_run_count": "os_events: page faults of a run after the warm-up"
        for kind in ("minor", "major")
    },
    **{f"{cause}_run_count": "run_disturbances: slow runs of this cause" for cause in _CAUSES},
    **{f"{cause}_excess_us": "run_disturbances: what this cause took of the mean run" for cause in _CAUSES},
}
OF_NPUS = {
    "dram_bytes": "npu_nodes: bytes read from DRAM and written there",
    "dram_bytes_share": "npu_nodes: dram_bytes over those of all nodes",
    **{f"{unit}_op_share": "npu_nodes: HTP operators that use the unit over all" for unit in ("hvx", "hmx", "dma")},
    "contraction_count": "npu_nodes: convolutions and matrix products, by qnn_op_type",
    **{f"{name}_us": f"npu_runs: wait {text}, median; _low and _high are the ends" for name, text in _WAITS.items()},
    **{f"{name}_share": f"npu_runs: wait {text}, over the run" for name, text in _WAITS.items()},
    **dict.fromkeys(
        ("hvx_utilization_percent", "hmx_utilization_percent", "vtcm_peak_usage_kb", "ddr_bandwidth_mbps"),
        "npu_summary",
    ),
}
DERIVED_FIGURES = {**OF_NODES, **OF_GROUPS, **OF_RUNS, **OF_NPUS}
