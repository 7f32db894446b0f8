"""The column dictionary: every column of every table, once, with the unit last in its name.

Two columns of one name mean one quantity; different quantities never share a name.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from common.graphs.number_formats import MEASURED_PEAKS, PRECISION_BITS

Kind = Literal["string", "integer", "number", "boolean", "names", "shape", "shapes", "variants", "mapping"]
JSON_KINDS = ("names", "shape", "shapes", "variants", "mapping")  # a cell holds one JSON array or object

# Longest suffix first, so that `_flop_per_byte` is not read as `_byte`.
UNITS = {
    "_flop_per_s_per_w": "FLOP/s/W",
    "_flop_per_byte": "FLOP/byte",
    "_flop_per_s": "FLOP/s",
    "_op_per_s": "operations/s",
    "_bytes_per_s": "byte/s",
    "_bytes_per_inference": "byte/inference",
    "_per_joule": "1/J",
    "_per_s": "1/s",
    "_usd": "USD",
    "_gco2e": "g CO2-equivalent",
    "_pj_cycles": "pJ·cycle",
    "_cycles": "cycle",
    "_mhz": "MHz",
    "_bytes": "byte",
    "_flops": "FLOP",
    "_macs": "MAC",
    "_us": "µs",
    "_uj": "µJ",
    "_pj": "pJ",
    "_kib": "KiB",
    "_mm2": "mm²",
    "_db": "dB",
    "_s": "s",
    "_j": "J",
    "_w": "W",
    **dict.fromkeys(("_share", "_fraction", "_probability"), "0 to 1"),
    "_factor": "1",
    "_count": "count",
    "_index": "index",
}


@dataclass(frozen=True, slots=True)
class Column:
    """One column; where it is ``nullable``, an unknown is an empty cell, never a zero."""

    name: str
    kind: Kind
    description: str
    nullable: bool = False
    minimum: float | None = None
    allowed: tuple[str, ...] | None = None

    @property
    def unit(self) -> str:
        """The unit that the name ends in, or an empty string for names and lists."""
        return next((unit for suffix, unit in UNITS.items() if f"_{self.name}".endswith(suffix)), "")


COLUMNS: dict[str, Column] = {}


def names_of(word: str) -> list[str]:
    """Return the names of the columns that a word of a declaration stands for.

    ``time±_us`` is a figure with its interval: ``time_us``, ``time_low_us``, ``time_high_us``. ``time_*_us`` is a
    three-point estimate: ``time_pessimistic_us``, ``time_likely_us``, ``time_optimistic_us``. Pessimistic is what is
    worse for the decision: a long time, a high energy. With ``?`` at its end, all of them may have empty cells.
    """
    for mark, parts in (("±", ("", "_low", "_high")), ("*", ("pessimistic", "likely", "optimistic"))):
        if mark in word:
            return [word.removesuffix("?").replace(mark, part) for part in parts]
    return [word.removesuffix("?")]


def declare(word: str, kind: Kind, description: str, *, minimum: float | None = None, allowed: str = "") -> None:
    """Declare the columns that a word stands for, each once; ``allowed`` has a comma between two values."""
    names, texts = names_of(word), [description]
    if "±" in word:
        texts += [f"{end} end of the interval of {names[0]}" for end in ("Lower", "Upper")]
    elif "*" in word:
        texts = [f"{description}, {case} case" for case in ("pessimistic", "likely", "optimistic")]
    values = tuple(allowed.split(", ")) if allowed else None
    for name, text in zip(names, texts, strict=True):
        if name in COLUMNS:
            raise ValueError(f"column {name} is declared twice")
        COLUMNS[name] = Column(name, kind, text, word.endswith("?"), minimum, values)


def _text(word: str, description: str) -> None:
    declare(word, "string", description)


def _choice(word: str, description: str, allowed: str) -> None:
    declare(word, "string", description, allowed=allowed)


def _list(word: str, kind: Kind, description: str) -> None:
    declare(word, kind, f"{description} (JSON)")


def _mapping(word: str, description: str) -> None:
    """A JSON object in each cell; an empty object means that there is nothing to say, not that it is unknown."""
    declare(word, "mapping", f"{description} (JSON)")


def _flag(word: str, description: str) -> None:
    declare(word, "boolean", description)


def _count(word: str, description: str, minimum: int = 0) -> None:
    declare(word, "integer", description, minimum=minimum)


def _amount(word: str, description: str) -> None:
    declare(word, "number", description, minimum=0)


def _rate(word: str, description: str) -> None:
    """A rate that was measured: it is never zero."""
    declare(word, "number", description, minimum=1)


def _signed(word: str, description: str) -> None:
    declare(word, "number", description)


# --- names and keys -------------------------------------------------------------------------------------------------
_mapping("dimensions", "Sizes of the dynamic dimensions that the row is about, where a stage sweeps them")
_text("source_node", "Node of the model file, by its name there; a node without a unique name is given one")
_text("executed_node", "Node of the graph that ONNX Runtime executed; `(gap)` is the time between nodes")
_text("op_type", "Kind of operator")
_text("domain", "Operator set; empty is ai.onnx")
_text(
    "provider",
    "ONNX Runtime execution provider that ran the node; of a profile from elsewhere, the program that recorded it",
)
_text("dtype", "Element type of the tensor, or of the first output of the node")
_text("tensor", "Name of the tensor")
_text("producer", "Node that writes the tensor; empty for a graph input or a weight")
_text("consumer", "Node that reads the tensor; empty for a graph output")
_choice("tensor_kind", "Where the tensor comes from or goes to", "input, weight, activation, output")
_choice(
    "rule",
    "Rule that matched the executed node to the source node",
    "nchwc_name, nhwc_name, fusion_name, output_tensor, node_name, epilogue, fill_upstream, fill_downstream, removed",
)
_choice("row_kind", "`node`: has source nodes; `inserted`: by the runtime; `gap`: between nodes", "node, inserted, gap")
_text("layout_of?", "For an inserted node: the executed node downstream whose layout it serves")
_text("body", "Body of a control-flow node that the node is in, `<owner>.<attribute>`; empty at the top level")
_list("source_nodes", "names", "Source nodes that the executed node computes")
_list("executed_nodes", "names", "Executed nodes, in execution order")
_list("op_types", "names", "Operator types of the group, in graph order")
_count("execution_index?", "Position in the order of execution")
_count("run_index", "Index of the run in its own series, warm-up included")
_count("position_index", "Position on the path, from the input")

# --- shapes and work ------------------------------------------------------------------------------------------------
_list("input_shapes", "shapes", "Shape of each operand, in operand order")
_list("output_shapes", "shapes", "Shape of each output")
_list("output_dtypes", "names", "Element type of each output")
_list(
    "shape_variants",
    "variants",
    "Every combination of shapes of a node that ran with several, as in a Loop whose state grows: shapes of the "
    "operands, shapes of the outputs, and events in all profiled runs; none: always those of the other columns",
)
_list("kernel_shape", "shape", "Kernel extent per spatial axis")
_list("strides", "shape", "Stride per spatial axis")
_count("groups?", "Convolution groups")
_mapping(
    "attributes",
    "Other attributes that decide what the node computes (pads, dilations, axis, head counts, …), with the "
    "operator's defaults filled in; docs/MODEL.md lists the names",
)
_count("batch_count?", "Independent GEMMs of the contraction (batch or groups)")
_count("m_count?", "M: rows of the equivalent GEMM (output pixels × batch for a convolution)")
_count("k_count?", "K: contraction length of the equivalent GEMM")
_count("n_count?", "N: columns of the equivalent GEMM (output channels of a group)")
_count("macs?", "Multiply-accumulates of contractions; padding taps count")
_count("executed_macs?", "MACs of the executed node by its own operator and the shapes that it ran with")
_count("flops?", "2 × MACs plus the documented per-element cost of everything else")
_count("weight_bytes?", "Initializers read, each once, at their stored width")
_count("input_bytes?", "Other distinct operands read, each once")
_count("output_bytes?", "Outputs written, each once")
_count("bytes?", "Compulsory traffic: weight + input + output bytes")
_count("tensor_bytes?", "Stored size of the tensor")
_count("read_bytes?", "Bytes that the consumer must read: none for a view, only the touched rows for a gather")
_count("written_bytes?", "Bytes that the producer writes: none for a view, a weight or a graph input")
_count(
    "dequantized_weight_count?",
    "Packed weights that the operator dequantizes, at 2 FLOPs each, which are not in flops; empty where unknown",
)
_count("execution_count?", "Executions in one run: passes of a Loop or a Scan; empty where data decide")
for _name, _phrase in (("macs", "MACs"), ("flops", "FLOPs"), ("bytes", "bytes")):
    _count(f"upper_bound_{_name}?", f"Upper bound of an unknown number of {_phrase}, where there is one")
_flag(
    "is_in_bound",
    "Whether the whole model's upper bound includes this one; of two branches only that of more FLOPs, if any",
)
for _name in ("macs", "flops", "weight_bytes", "input_bytes", "output_bytes", "bytes"):
    _text(f"{_name}_expression", f"The {_name} over the dimensions that were left unbound; the number is then empty")
_choice(
    "work_source?",
    "How the work is known: `counted` from the model's shapes; `executed` where data decide them (or the runtime "
    "inserted the node): from its own operator, the shapes that ran and how often; empty: MACs or FLOPs unknown",
    "counted, executed",
)
_flag("is_counted", "Whether the registry has a work formula for the operator; if not, flops is empty")

# --- host ceilings --------------------------------------------------------------------------------------------------
_count("threads", "Intra-op threads of the session", minimum=1)
_text("cpu_model", "Processor, as the operating system names it")
_count("last_level_cache_bytes?", "Size of the last-level cache")
_count("stream_array_bytes", "Size of each array of the streaming operator")
_amount("busy_processor_count", "Processors kept busy by other work in the half second before the measurement")
_count("cache_array_bytes", "Size of each array of the operator whose arrays stay in caches")
_count("one_thread_cache_array_bytes", "One-thread value of cache_array_bytes")
_rate("peak_flop_per_s", "Highest rate of any compute operator in float32")
_text("peak_operator", "Operator that reached the peak")
_rate("matmul_flop_per_s", "Highest rate of MatMul in float32")
_rate("gemm_flop_per_s", "Highest rate of Gemm in float32")
_rate("conv_flop_per_s", "Highest rate of Conv in float32")
_rate("int8_op_per_s?", "Highest rate of MatMulInteger, QLinearMatMul and QLinearConv; a MAC is 2 operations")
_text("int8_operator?", "Operator that reached int8_op_per_s")
for _name, _long in (("fp16", "float16"), ("bf16", "bfloat16")):
    _rate(f"{_name}_flop_per_s?", f"Highest rate of MatMul in {_long}; empty if the runtime casts it")
_rate("memory_bytes_per_s", "Highest rate of the streaming operator, in compulsory bytes")
_rate("cache_bytes_per_s", "Highest rate of the operator whose arrays stay in caches, in compulsory bytes")
for _name in ("peak_flop_per_s", "memory_bytes_per_s", "cache_bytes_per_s"):
    _rate(f"one_thread_{_name}", f"One-thread value of {_name}, from the same measurement")
for _name in ("int8_op_per_s", "fp16_flop_per_s", "bf16_flop_per_s"):
    _rate(f"one_thread_{_name}?", f"One-thread value of {_name}, from the same measurement")
_amount("peak_halves_difference_share", "Relative difference of the best compute slices of the two halves")
_amount("memory_halves_difference_share", "Relative difference of the best memory slices of the two halves")
_amount("int8_halves_difference_share?", "Relative difference of the best int8 slices of the two halves")
_amount("lost_to_threads_share", "Largest relative shortfall of a rate at all threads against one thread; 0 if none")
_flag("stable", "Whether the halves of each roof differ by at most 5 %, and lost_to_threads_share is at most 5 %")
_count("slice_count", "Slices measured per operator and thread count")
_amount("duration_s", "Duration of the measurement")

# --- latency --------------------------------------------------------------------------------------------------------
_flag("is_profiled", "Whether the run went through the profiled session")
_flag("is_warmup", "Whether the run is part of the warm-up, which no statistic counts")
_amount("start_us", "Start of the run, counted from the start of the first run")
_amount("latency_us", "Latency of the run")
_count("sample_count?", "Measured samples, warm-up excluded")
_count("events_per_run_count?", "Trace events of the node in one run (above 1 inside a loop)", minimum=1)
for _kind, _phrase in (("raw", "as traced"), ("corrected", "less the cost of profiling, floored at 0")):
    for _name, _long in (("median", "Median"), ("mean", "Mean"), ("min", "Minimum"), ("p95", "95th percentile")):
        _amount(f"{_kind}_{_name}_us?", f"{_long} time of the node in one run, {_phrase}")
    _amount(f"{_kind}_std_us?", f"Standard deviation of the node's time over runs, {_phrase}")
_amount(
    "raw_total_us",
    "Sum of the node's exclusive time over all measured profiled runs; of one run, where an imported profile has "
    "no number of runs",
)
_amount(
    "correction±_us?",
    "Cost of profiling inside the node's time in one run: median, with the quartiles as interval; empty: not corrected",
)
_flag("uses_thread_pool?", "Whether the node used the intra-op thread pool")
_amount("pool_thread_count?", "Threads that took part in the node's parallel loops, its own included")
_amount(
    "pool_balance_share?",
    "Working time over the time of all threads of the pool, in parallel loops (an upper bound); 1: none waited",
)
_amount("pool_wait_us?", "Time in one run that the node's own thread waited for others of the pool")
_count("peak_memory_bytes?", "Peak memory in use in the runtime's arena: of the node, or of all runs")
_count("live_memory_bytes?", "Memory requested and alive when the node began or ended, without padding")
_count("allocated_bytes?", "Memory that the node requested and kept")
_count("arena_bytes?", "Peak size of the runtime's arena")
_count("peak_resident_bytes?", "Peak resident memory of the process, with its sessions and the inputs")
_count("input_count", "Operands of the node, initializers included")
_flag("is_correction_dominated", "Whether the raw median is below four times the correction; such a node is not ranked")

for _name, _long in (("p50", "Median"), ("p90", "90th"), ("p95", "95th"), ("p99", "99th"), ("p99_9", "99.9th")):
    _amount(f"{_name}_us?", f"{_long} percentile of unprofiled runs" if _name != "p50" else "Median of unprofiled runs")
    _quarters = "; of the median, without a steady state, {} median of a quarter of the runs" if _name == "p50" else ""
    _amount(f"{_name}_low_us?", "Lower 95 % confidence limit (order statistic)" + _quarters.format("at most the least"))
    _amount(
        f"{_name}_high_us?",
        "Upper 95 % confidence limit; without one the percentile is empty" + _quarters.format("at least the largest"),
    )
_amount("mean±_us?", "Mean of unprofiled runs")
_amount("jitter±_us?", "Standard deviation of unprofiled runs")
_amount("min_us?", "Fastest unprofiled run")
_amount("max_us?", "Slowest unprofiled run")
_count("profiled_sample_count?", "Measured profiled runs")
_count("warmup_count", "Unprofiled runs that no statistic counts: requested warm-up, and all before the steady part")
_choice(
    "steady_state?",
    "When the series is steady: `flat` from its first run, `warm-up` after slower runs, `slowdown` after faster runs, "
    "or never (then all runs after the requested warm-up count)",
    "flat, warm-up, slowdown, no steady state",
)
_count("steady_start_index?", "First run of the steady part")
_amount("profiled_median_us?", "Median of profiled runs, wall clock")
_signed("profiling_overhead_fraction?", "Profiled over unprofiled median, less 1")
_flag(
    "is_alternating?",
    "Whether profiled runs were made between the unprofiled ones; those of a large model come after all of them, so a "
    "change of the host meanwhile counts as a cost of profiling",
)
_amount("session_creation_us?", "Time to create the unprofiled session")
_amount("first_run_us?", "First run of the unprofiled session, before any warm-up")
_amount("trace_total_us", "Kernel time of all measured profiled runs in the raw trace")
_count("trace_event_count", "Kernel events in the raw trace, warm-up included")
_amount(
    "matched_time_share?",
    "Share of an imported profile's time in layers that name a node of the model, or serve a layer that does",
)
_amount(
    "matched_contraction_share?",
    "Share of the model's convolutions and matrix products that an imported profile names, or computes alone",
)
_amount(
    "matched_operation_share?",
    "Share of the operations of an imported profile or of the model, whichever is less, that are in the same order; "
    "only where neither names nor sizes match",
)
_choice(
    "graph_optimization?",
    "Graph optimization level; empty for an imported trace",
    "disable, basic, extended, layout, all",
)

# --- power ----------------------------------------------------------------------------------------------------------
_signed("time_us", "Time since the start of the first run; negative before it")
_choice("phase", "`idle`: before the runs; `run`: while the model ran", "idle, run")
_text("quantity", "What was read, with its unit last; docs/MEASURING.md lists them")
_signed("value", "The reading, in the unit that the quantity ends in")
_text("sensor", "Sensor that gave the sample, by the library that reads it")
_text("sensor_domain", "What the sensor covers (package-0, package-0/dram, psys, gpu-0, host, process)")
_amount("measured_power_w", "Power over the time since the previous sample of the sensor and domain")

# --- layers of a provider -------------------------------------------------------------------------------------------
_count("layer_index", "Position of the layer in its provider's order of execution")
_text("layer", "Layer that the provider executed, as its own counters name it")
_text("layer_type", "The provider's name for the kind of layer")
_text("executed_type", "The implementation that the provider chose, as its counters name it")
_text("layer_node?", "Node of the model that the layer is named after; empty where the provider named it")
_amount("layer_mean_us", "Mean time of the layer over the counted runs, by the provider's own counters")
_amount("layer_share", "Time of the layer over the sum of all layers")

# --- counters of the processor --------------------------------------------------------------------------------------
_text("counter_source?", "Tool that counted; empty where nothing was counted")
_amount(
    "window_s",
    "Time over which events were counted, warm-up included: the runs of both sessions, or of the unprofiled one "
    "where they took no turns",
)
_count("run_count", "Runs in that time")
for _name, _phrase in (
    ("instructions", "Instructions"),
    ("cycles", "Cycles of the processors while threads of the process ran"),
    ("cache_references", "Cache references, as perf's generic event has them on this processor"),
    ("cache_misses", "Cache misses of the same kind"),
    ("vector_instructions", "Vector instructions; on AMD from Zen 4 on, packed floating-point operations"),
):
    _count(f"{_name}_count?", f"{_phrase}, in user mode; empty where they cannot be counted")
_amount("instructions_per_cycle?", "IPC: instructions over cycles")
_amount("cache_miss_share?", "Cache misses over cache references")
_amount(
    "vector_instruction_share?",
    "Vector instructions over instructions; on AMD from Zen 4 an upper bound: a fused multiply-add counts as two",
)
_amount(
    "counted_share?", "Smallest share of window_s in which a counter was active; below 1, its count is extrapolated"
)

# --- the operating system's events ----------------------------------------------------------------------------------
_count("event_index", "Position of the event in time")
_choice(
    "event_kind",
    "`preempted`, `waited`: a thread of this process wanted a processor and had none; others: counts over a period",
    "preempted, waited, involuntary_switch, voluntary_switch, minor_fault, major_fault, stolen, resident_memory",
)
_choice("event_source", "Recorder of the event", "tracefs, psutil")
_amount("duration_us", "Length of the interval, or of the counted period")
_count("event_count?", "1 for an interval, the count for a period")
_amount("lost_us?", "Time without a processor in the interval or run; for `stolen`, what the hypervisor took")
_count("thread_id?", "Thread of this process, by the kernel's number")
_flag("is_main_thread", "Whether the thread is the one that calls the runtime; False for counts")
_count("processor_index?", "Processor that the thread lost or waited for")
_text("other_process?", "Name of the thread that had the processor instead")
_count("other_process_id?", "The kernel's number of that thread")
_flag("is_own_thread", "Whether the other thread belongs to this process too")
_text(
    "crowding_process?", "Name of a thread of another process that made two threads of this process share one processor"
)
_count("crowding_process_id?", "The kernel's number of that thread")
_count("resident_bytes?", "Resident memory of the process")
_amount("excess_us", "Latency beyond the median of the run's series")
_amount("usual_lost_us", "Median of lost_us over the runs of the series that are not slow")
_amount("explained_share", "Share of the excess that was lost beyond the usual, at most 1")
_choice(
    "disturbance_cause",
    "Known cause of the slow run",
    "other_process, own_thread, unnamed_process, hypervisor, page_fault, none_recorded",
)
_amount("other_us?", "Time during which the other thread kept at least one thread of this process off")
_text("hit_node?", "Executed node that was running meanwhile; empty for an unprofiled run or between nodes")
_amount("hit_us?", "Overlap of the node with the intervals")
_amount("stolen_us", "Processor time that the hypervisor took in the periods that touch the run")
_count("major_fault_count", "Page faults that read a disk in the periods that touch the run")

# --- roofline -------------------------------------------------------------------------------------------------------
_amount("arithmetic_intensity_flop_per_byte?", "FLOPs over compulsory bytes of the fused group")
_amount("attained_flop_per_s?", "FLOPs over corrected latency; of a decoder's phase, over its calls' time")
_amount("attained_bytes_per_s?", "Compulsory bytes over corrected latency; of a decoder's phase, over its calls' time")
_amount("attainable_flop_per_s?", "min(peak of the roof, bandwidth × intensity)")
_choice(
    "roof?",
    "Peak of the host that the node is compared with: that of a number format, or the given one for all nodes",
    ", ".join((*MEASURED_PEAKS, "given")),
)
_amount("roof_share?", "Attained over attainable; empty under ceilings that are unstable or of another device")
_flag("is_above_roof", "Whether the share is above 1; roof_share_reason says why")
_choice(
    "roof_share_reason?",
    "Why the share is above 1, or empty: ceilings of an `other_device`; `unstable` ceilings; the profiler's "
    "`correction` is most of the time; counted work is `not_executed`; operands come from a `cache`; taps are on "
    "`padding`; `winograd`, an algorithm that may multiply less; or the `ceiling` is too low",
    "other_device, unstable, correction, not_executed, cache, padding, winograd, ceiling",
)
_choice("bound?", "Side of the ridge point; empty so near to it that unstable ceilings do not say", "compute, memory")
_signed(
    "latency_share",
    "Corrected latency over the unprofiled median (the gap's may be negative); for an imported trace, over the "
    "time of all nodes together",
)
_signed("node_latency_us", "Corrected median of the node; for the gap, the rest of the unprofiled median")

# --- critical path --------------------------------------------------------------------------------------------------
_amount("earliest_start_us", "Longest path to the node")
_amount("earliest_finish_us", "Earliest start plus latency")
_amount("latest_start_us", "Latest start that keeps the span")
_amount("slack_us", "Latest start less earliest start")
_flag("is_critical", "Whether critical_path.csv lists the node")
_amount("sequential_start_us", "Start in ONNX Runtime's sequential order, nodes back to back")
_amount("sequential_finish_us", "Finish in ONNX Runtime's sequential order")
_amount("cumulative_us", "Sum of the latencies on the path up to this node")
_amount("span_share?", "Latency over the span; empty while the span is zero")

# --- energy ---------------------------------------------------------------------------------------------------------
_SOURCES = "measured, given, modelled, unavailable"
_amount("energy±_uj?", "Energy of the node in one run")
_amount("compute_energy_uj?", "Part of the energy for arithmetic")
_amount("movement_energy_uj?", "Part of the energy for data movement")
_amount("static_energy_uj?", "Part of the energy for static power over the node's time")
_amount("energy_share?", "Energy over the energy of one run")
_choice("energy_source", "How the total is known; the division over nodes is always modelled", _SOURCES)
_text("energy_boundary", "What part of the host a modelled energy covers; empty where it is measured or given")
_amount("average_power_w?", "Energy of one run over its latency")
_amount("static_power_w?", "Power that flows independently of the computation")
_choice("static_power_source", "How the static power is known", _SOURCES)
_amount("closure_factor?", "Dynamic energy of the total over that of the energy model, which divides it")
_amount("joules_per_inference±_j?", "Energy of one inference")
_amount("inferences_per_joule?", "Inferences per joule")
_amount("model_flops?", "FLOPs of one inference")
_amount("efficiency_flop_per_s_per_w?", "Attained FLOP/s per watt")
_amount("whole_model_flop_per_s?", "FLOPs of one inference over the unprofiled median")
_amount("whole_model_bytes_per_s?", "Compulsory bytes of all executed nodes over the unprofiled median")
_amount(
    "peak_share?",
    "Time of all FLOPs at the peaks of their number formats, over the unprofiled median; empty under unstable ceilings",
)
_amount("bandwidth_share?", "Whole-model bytes/s over the host's bandwidth; empty under unstable ceilings")
_amount("million_inferences_gco2e?", "Emissions of one million inferences")
_amount("million_inferences_energy_usd?", "Price of the energy of one million inferences")
_amount("million_inferences_host_usd?", "Price of the host for the time of one million inferences")

# --- FPGA -----------------------------------------------------------------------------------------------------------
_text("candidate", "Name of the fused group (G1, G2, … by falling host latency) or of the chain of groups (C1, C2, …)")
_text(
    "kernel?",
    "Kernel: K1, K2, … of a plan, by falling host latency (empty: not in the plan); or its name in a kernel list",
)
_choice("kernel_kind", "Kind of the group", "conv, gemm, attention, rowwise, pool, pointwise, chain, none")
_text("kernel_class", "Kind and window of the groups (conv 3x3, gemm, …); the rule of thumb judges whole classes")
_text("pattern", "Operator types of the candidate in graph order, joined by `+`")
_mapping("pattern_counts", "Groups of the kernel by pattern: each pattern, and how many groups have it")
_text("engine?", "The engine on the board: kernel model, shape and number format")
_choice("engine_kind", "Kernel model of the engine", "systolic, streaming, overlay, attention, rowwise")
_text("board", "Board that the figures are for")
_text("region", "Super logic region of the board; `board` is the whole board")
_choice("precision", "Number format on the board", ", ".join(PRECISION_BITS))
_text("wider_precision?", "Number format of layers that a mixture of 28 leaves in float; empty in a plan of one format")
_amount("clock_mhz", "Likely clock of the kernel; a given one is taken to be reached")
_amount("clock_*_mhz?", "Clock at which designs like the kernel close")
_flag("is_chosen", "Whether the candidate is in the plan")
_text("reason", "Why the candidate is in the plan or not")
_text("comment", "What is fused into the kernel, its speedup, and its share of the critical path")
_count("group_count", "Fused groups that the row counts", minimum=1)
_amount("host_latency_us", "Time of the group on the host in one run")
_amount("host_latency_share", "Time of the group on the host over the unprofiled median")
_amount("host_energy_uj?", "Energy of the group on the host in one run")
_amount("host_energy_share?", "Energy of the group on the host over the energy of one run")
_flag("is_large", "Whether the share of its kernel class in latency or energy exceeds the threshold")
_flag("is_regular", "Whether it is a dense contraction without data-dependent control")
_flag("is_intense", "Whether the arithmetic intensity of its kernel class reaches the threshold")
_flag("is_fusable", "Whether the share of the class's unfused traffic that stays on the chip reaches the threshold")
_choice(
    "board_bound?",
    "What limits the largest part of the kernel's likely time; `given`: its speedup was given",
    "compute, memory, fixed, given",
)
_amount("kernel_*_cycles?", "Estimated cycles on the board in one run")
_amount("kernel_latency_*_us?", "Estimated time on the board in a run, with copies and conversions that calls wait for")
_amount("kernel_energy_*_uj?", "Estimated energy of the card while the kernel works (static included)")
_amount("kernel_power_*_w?", "Estimated power of the card while the kernel works (static included)")
_amount("lut_count", "Lookup tables of the kernel with the design around it")
_amount("ff_count", "Flip-flops of the kernel with the design around it")
_amount("bram36_count", "Block RAMs of 36 Kb of the kernel with the design around it")
_amount("uram_count", "UltraRAM blocks of the kernel with the design around it")
_amount("dsp_count", "DSP slices of the kernel with the design around it")
for _resource, _meaning in (("lut", "Lookup tables"), ("ff", "Flip-flops"), ("bram36", "Block RAMs"), ("dsp", "DSPs")):
    _amount(f"{_resource}_*_count?", f"{_meaning} of the kernel, known of arrays")
_amount(
    "memory_channel_count",
    "Memory channels of the card that the kernel uses; 1 on a board with one channel, however many ports lead to it",
)
_count("call_count", "Calls in one inference", minimum=1)
_count("launch_count?", "Kernel launches in one run")
_amount("launch_us?", "Time of all launches in one run")
_count("onboard_weight_bytes?", "Weights that stay in the board's memory")
_text("term", "Term of Amdahl's law")
_choice("objective", "What the term describes", "latency, energy, throughput")
_signed("*?", "Value")
_text("term_unit", "Unit of the three values")
_choice(
    "verdict",
    "Whether the plan pays: with a probability of at least 0.95, or of at most 0.05, and `undecided` between them; "
    "`host alone`: nothing goes to the card; `not judged`: the host was disturbed or unstable; `not judged for this "
    "host`: the board has a processor of its own, and the times are those of another",
    "pays, undecided, does not pay, host alone, not judged, not judged for this host, unknown",
)
_amount("pays_probability?", "Probability that the plan gains, over all draws; empty without a verdict")
for _percent in (5, 25, 50, 75, 95):
    _amount(f"speedup_p{_percent}_factor?", f"{_percent} % quantile of the speedup over all draws")
_choice(
    "what_if_subject",
    "What the question changes, one thing at a time; `plan`: nothing",
    "plan, clock, link, precision, mixture, board",
)
_text("what_if_setting", "The value in question")
_count("planned_mixture_index?", "Mixture of 28 that is planned; empty in a plan of one number format")
_rate("link_bytes_per_s", "Likely rate of the link between host and card, in one direction")
_text("uncertain_term", "A cause of uncertainty, which all times or energies that share it have in common")
_amount("variance_share", "Share of the variance of the speedup's logarithm that this term alone explains")
_amount("known_pays_probability?", "Probability of a gain if this term has its likely value; empty without a verdict")
_amount(
    "information_value?",
    "Expected saving of one inference, beyond that of deciding today, if this term were known before deciding; "
    "empty without a verdict",
)
_flag("is_judged", "Whether the host's times say something about the host of the plan; if not, no speedup follows")
_flag("is_other_host", "Whether the board has a processor of its own, and the host's times are those of another")
_choice(
    "host_basis",
    "Where the host's times come from: `profiled`: this folder; `scaled`: this folder, times a factor; `measured`: a "
    "profile of the board's own processor",
    "profiled, scaled, measured",
)
_text("judged_host", "The host that the verdict is about, and where its times come from")
_list("doubts", "names", "Why the host's times decide nothing, or nothing about the host of a board")
_text("weaker_side", "Which side of the energy is known less well, host or card; empty for other objectives")
_text("boundary", "What the energy of both sides covers and leaves out; empty for other objectives")
_choice(
    "operation",
    "`one by one`: a batch starts when the last one has ended; `streaming`: as soon as every resource can take it",
    "one by one, streaming",
)
_count("inference_count", "Inferences that each call computes together", minimum=1)
_count("in_flight_count", "Least number of inferences under way at once at this rate (Little's law)", minimum=1)
_amount("*_inferences_per_s", "Inferences per second")
_amount("inference_energy_*_uj?", "Energy of one inference on host and card")
_list("engines", "names", "Engines that the plan has on the board")
_count("batch_call_count", "Calls of one batch")
_choice(
    "division",
    "What the replicas of an array divide: the frames, the layers of a frame, or the heads (or images) of each call; "
    "`one array`: nothing, there is one for the whole board",
    "frames, layers, heads, one array",
)
_flag("is_quickest", "Whether it has the highest likely rate of all divisions")
_count("accelerator_count", "Equal accelerators on the board", minimum=1)
_mapping("region_replicas", "Accelerators in each region of the board; `board` where one spans several")
_count("stage_count", "Accelerators that a frame passes one after the other", minimum=1)
_count("call_frame_count", "Frames that each call computes together", minimum=1)
_amount("card_*_inferences_per_s", "Inferences per second on a host that takes no time")
_amount("bound_inferences_per_s", "Inferences per second that no mix of the tried accelerators exceeds, likely case")
_RESOURCES = "host, link to the card, link to the host, launches, arrays, attention, rows and pools, memory, power"
_choice("stream_bottleneck", "The resource that bounds the likely rate", _RESOURCES)
_choice("stream_resource", "What all frames in flight share, or the slowest engines of one kind", _RESOURCES)
_amount("frame_busy_*_us", "Time that the resource gives to each frame")
_amount("*_resource_inferences_per_s?", "Inferences per second that the resource allows (empty: it has nothing to do)")
_flag("is_bottleneck", "Whether the resource bounds the likely rate")
_count("resident_weight_bytes", "Weights that stay on the chip from frame to frame")
_count("resident_activation_bytes", "Memory on the chip of one accelerator that keeps activations between calls")
_list("resident_tensors", "names", "Activations that stay on the chip of the accelerator that computes them")
_count("frame_memory_bytes", "Bytes that all calls of one frame read from the card's memory and write to it")
_mapping("accelerator_resources", "Resources of an accelerator, by name, with its memories for weights and activations")
_count("stream_memory_bytes", "Weights and frames in flight in the card's memory")
_text("call_frames", "Frames that are computed together, by their numbers in the stream: `1 to 32`")
_flag("is_on_front", "Whether no other row is as good in latency, rate and energy and better in one, likely case")
_text("alternative", "The plan, its baselines, and the what-if plans")
_choice("launch_per", "What the host launches: each group, or each phase on the card", "group, phase")
_choice(
    "plan_status?",
    "`optimal`: no better plan exists; `feasible`: no better plan was found, but one may exist",
    "optimal, feasible",
)
_amount("plan_latency_*_us?", "End of one inference")
_amount("latency_speedup_factor?", "Latency of the host alone over that of the plan, likely case")
for _percent in (5, 95):
    _amount(
        f"latency_speedup_p{_percent}_factor?",
        f"{_percent} % quantile of the latency speedup over all draws; empty for baselines, and without a verdict",
    )
_amount("latency_pays_probability?", "Probability of a shorter inference; empty for baselines, and without a verdict")
_amount("energy_speedup_factor?", "Energy of one inference on the host alone over that with the plan, likely case")
_count("interval_index", "Order of the interval, by scenario and start")
_choice("scenario", "One inference on the host alone, or with the plan", "before, after")
_text(
    "lane",
    "The host, an engine or an accelerator on the card, the link to the card (h2d) or back (d2h), or the "
    "converter on the card",
)
_choice("activity", "What the lane does", "host, launch, kernel, transfer, conversion")
_text("item", "What runs: a candidate, an executed node, or the tensor that travels")
_amount("interval_start_us", "Start since the inference began")
_amount("interval_finish_us", "Finish since the inference began")
_choice(
    "resource",
    "Kind of resource; memory_channels of a board with one channel are ways to it, of which each kernel counts as one",
    "lut, ff, bram36, uram, dsp, memory_channels",
)
_amount("used_count", "Amount that the plan uses")
_amount("budget_count", "Amount up to which timing closes")
_amount("usable_count", "Amount that the shell leaves")
_amount("total_count", "Amount on the device")
_text("engine_layer", "Fused group as the engine runs it, named after its first contraction, else its first node")
_text("unit", "Part of the engine that computes the layer")
_amount("engine_cycles", "Cycles of the engine's clock")
_amount("compute_us", "Time of the arithmetic")
_amount("memory_us", "Time of the traffic over the memory ports")
_amount("fixed_us", "Time that does not depend on the size of the layer")
_count("moved_bytes", "Bytes over the memory ports")

_amount("batch_latency_*_us", "Time from the first input of a batch to its last result, where nothing else delays it")
_amount("*_frames_per_s", "Images per second with the configured number of host threads")
_amount("pipelined_frames_per_s", "Images per second with enough host threads to keep the engines busy, likely case")
_count("image_count", "Images that are computed together", minimum=1)
_amount("engine_us", "Time of one batch on the engine")
_amount("host_us", "Time of one batch on the host")

# --- kernel lists ---------------------------------------------------------------------------------------------------
_count("m", "M: rows of the kernel's product in one call (tokens); rows of a row-wise kernel")
_count("k?", "K: contraction length of the kernel's product; empty for a row-wise kernel")
_count("n", "N: columns of the kernel's product; width of a row")
_count("total_flops", "FLOPs of all calls")
_count("total_bytes", "Bytes of all calls, every operand crossing the card's memory")
_count("fused_bytes", "Bytes of one call that still cross the card's memory once its group is one kernel")
_count("total_fused_bytes", "Bytes of all calls that still cross the card's memory once the group is one kernel")
_amount("roof_us", "Time of all calls under the roof of the board, unfused: a bound, not an estimate")
_amount("fused_roof_us", "Time of all calls under the roof of the board with the fused traffic")
_amount("kernel_peak_flop_per_s", "Peak of the board in the number format of the kernel")
_amount("board_memory_bytes_per_s", "Bandwidth of the board's memory behind the ceiling")
_amount("ridge_flop_per_byte", "Intensity at which peak and bandwidth meet")
_text("ceiling_source", "Origin of the ceilings")

# --- design space ---------------------------------------------------------------------------------------------------
_text("design", "Accelerator with the sizes that a sweep gives it")
_text("hardware", "Accelerator, by the name of its file")
_choice(
    "search_engine",
    "How its schedule was searched",
    "exact, fa-dosa, gradient, two-step, random, cma, nevergrad, optuna",
)
_choice(
    "accounting", "What is counted: repeated reads and halos (tiled), or each tensor once as in FA-DOSA", "tiled, once"
)
_count("array_row_count", "Rows of the array of multipliers", minimum=1)
_count("array_column_count", "Columns of the array of multipliers", minimum=1)
_mapping("memory_sizes_kib", "Size of each memory on the chip, all of its copies together")
_amount("chip_mm2?", "Area of the parts whose area the accelerator's file gives")
_amount(
    "modelled_cycles?",
    "Cycles of the accelerator; of a contraction, those of one run; empty for a design where nothing fits",
)
_choice(
    "cycle_model",
    "What the search counts as cycles: analytic, or rtl, which are at least those of the accelerator's RTL",
    "analytic, rtl",
)
for _end, _which in (("low_", "Fewest"), ("", "Likely"), ("high_", "Most")):
    _amount(
        f"rtl_{_end}cycles?",
        f"{_which} cycles by the costs of the RTL; of a contraction, those of one run; empty without such costs",
    )
_amount(
    "modelled_energy_pj?",
    "Energy of the accelerator and its memory; of a contraction, that of one run; empty where nothing fits",
)
_amount("edp_pj_cycles?", "Energy-delay product of an inference: all energy times all cycles; empty where nothing fits")
_amount(
    "bound_edp_pj_cycles?",
    "Physical floor: the energy-delay product of compulsory traffic and of multipliers that never wait",
)
_amount("gap_share?", "How far the energy-delay product is above the physical floor")
_amount(
    "space_best_edp_pj_cycles?",
    "Best of this space, or a product that no schedule of it is below where the search ended early; empty if unknown",
)
_amount(
    "space_gap_share?",
    "How far the energy-delay product is above the best of this space, or above its lower bound where the search "
    "ended early; empty where the optimum is proven",
)
_flag(
    "is_pareto",
    "Whether no other design is better in latency, energy or area and as good in the rest; without areas in the two",
)
_text("problem?", "Why no schedule fits on the design; empty where one does")
_amount("area_budget_mm2", "Area that a design may have")
_choice("design_objective", "What the best design has the least of", "edp, log-sum")
_amount(
    "contraction_edp_pj_cycles?",
    "Least energy-delay product of the contractions alone, layer by layer; empty for one buffer",
)
_amount("unfused_edp_pj_cycles?", "Least energy-delay product without fusion")
_text("algorithm", "What searched: an engine, by its name")
_count("seed", "Seed of all that the search draws")
_count("evaluation_count?", "Schedules whose cost was computed; empty for an exact search of fused groups")
_count("improvement_index", "Number of the improvement, in the order of the search")
_amount("best_edp_pj_cycles", "Energy-delay product of the best schedule so far")
_amount("search_s", "Time of the search")
_flag("is_complete", "Whether the search went on to its end; Ctrl-C leaves the best so far")
_count("design_count", "Designs that were evaluated", minimum=1)
_text("array_design", "An array on a board: rows, columns and products of an element, its tile, its ports, its place")
_count("simd_count", "Products that an element of the array adds in a cycle", minimum=1)
_count("row_fold_count", "Folds of the tile along the rows of the array", minimum=1)
_count("column_fold_count", "Folds of the tile along the columns of the array", minimum=1)
_count(
    "tile_step_count", "Steps of depth of the tile; each takes the products that an element adds in a cycle", minimum=1
)
_count("memory_port_count", "Ports to the memory of the card", minimum=1)
_flag("spans_regions", "Whether the array is laid over all regions of the board; else it is in one")
_amount("board_share", "Largest share that the array takes of a resource of the budget")
_amount("modelled_latency_us", "Cycles of all contractions over the clock, by the cost of the design space")
_amount("compute_cycles", "Of these cycles those in which the array multiplies, of the same runs")
_text("loop_nest", "Contraction as a loop nest: the iterations of each loop that has several")
_amount("equation_cycles", "Cycles of one run by the equation of the array, with operands always present")
_count("simulated_fold_count", "Folds of the contraction that were simulated", minimum=1)
_count("fold_count", "Folds of the contraction, each as many sums as the array has elements", minimum=1)
_count("simulated_cycles", "Cycles that Verilator counts for the simulated folds in the generated Verilog", minimum=1)
_amount("simulated_equation_cycles", "Cycles of the same folds by the equation of the array")
_count("call_index", "Call of the engine, in the order of computation")
_amount("planned_cycles", "Cycles of the engine that are planned for the call")
_amount("planned_us", "Time that is planned, at the clock that is expected")
_count("simulated_call_cycles?", "Cycles of the call on the engine's Verilog", minimum=1)
_amount("simulated_us?", "These cycles at the clock that is expected")
_mapping("cycles_by_cause", "Cycles in which the array computed, and in which it waited, by their cause")
_choice("cell_kind", "Kind of cells, as nextpnr counts them", "lut, ff, block_ram, multiplier")
_amount("planned_count", "Amount that the plan expects")
_amount("routed_count?", "Amount that the routed design takes, with its pins")
_text("part", "Part number of the device")
_text("engine_design", "Engine, by the name of its Verilog module")
_amount("expected_clock_*_mhz", "Clock at which such engines close")
_amount("closed_clock_mhz?", "Clock at which the routed design closed")
_amount("replanned_us?", "Time of the network that is planned at the clock that closed")
_count("nest_index", "Loop nest of the node, in the order of computation")
_count("nest_row_count", "Rows of results of one run; those of a row tile where layers run depth first", minimum=1)
_text("mapping", "Steps of each loop at each level, from DRAM to the registers; X is a loop in space")
_count("array_element_count", "Elements of the array that multiply at once in the mapping", minimum=1)
_amount("array_use_share", "Multiply-accumulates over those that the array could do in these cycles")
for _operand in ("weight", "input", "output"):
    _amount(f"dram_{_operand}_bytes", f"Bytes of the {_operand} that one run reads and writes at DRAM")
_amount("dram_beside_bytes", "Bytes that the operators fused to the contraction move at DRAM beside it in one run")
_text("resident_operands?", "Resident operands, which stay on the chip: input, output, weight")
_text("resident_level?", "Memory in which the resident operands are")
_amount("resident_tensor_bytes", "Bytes of all maps, and of weights of row tiles, that are resident beside its tiles")
_text("bound_by", "Part that takes all the cycles: multipliers, a memory, or the commands of the RTL (rtl)")
_mapping("moved_words", "Words that one run reads and writes, by memory and operand")
_mapping("energy_parts_pj", "Energy of the multipliers and of each memory; of a contraction, in one run")
_count("group_index", "Position of the group in the order of computation")
_text("first_layer", "First layer of the group, named after its last source node")
_text("last_layer", "Last layer of the group, named after its last source node")
_count("layer_count", "Layers of the group", minimum=1)
_count("tile_row_count?", "Rows of a tile of the group's results; empty where no layers share tiles")
_count("tile_column_count?", "Columns of a tile of the group's results")
_choice("halo?", "Whether rows that two tiles share are kept or recomputed", "kept, recomputed")
_count("resident_weight_count?", "Layers whose weights stay on the chip for the whole run of the group")
_count("resident_tensor_count", "Tensors that are on the chip as a whole before or after the group")
_amount("dram_bytes", "Bytes that the group reads and writes at DRAM")
_amount("recomputed_share", "Multiply-accumulates that tiles repeat, over those of the layers")
_amount(
    "staying_weight_bytes?",
    "Bytes of weights that stay on the chip from one inference to the next; empty where none may",
)
_amount("buffer_peak_bytes?", "Most that the group needs of the buffer at once; empty in accounting once")

# --- profiles of NPUs -----------------------------------------------------------------------------------------------
_count("npu_run_index", "Index of the run in the profile")
_count("session_index", "Sessions of the measurement before that of the run")
_count("netrun_us?", "The run as qnn-net-run sees it, with input and output")
_count("qnn_execute_us?", "The run as the host sees it: QNN (execute) time")
_count("rpc_execute_us?", "The remote call in it: RPC (execute) time; only devices have it")
_count("qnn_accelerator_us?", "The device's side of the call: QNN accelerator (execute) time; only devices have it")
_count("accelerator_us?", "The execution of the graph: Accelerator (execute) time")
_count("accelerator_busy_us?", "The execution of the graph without waiting; only devices report it")
_count("vtcm_acquire_us?", "Time for initial VTCM acquire")
_count("power_up_us?", "Time for HVX + HMX power on and acquire")
_count("accelerator_cycles?", "Accelerator (execute) time in cycles: the sum over all nodes and threads")
_count("hvx_thread_count?", "Number of HVX threads used; 0 on the emulator")
_count("yield_count?", "How often the run yielded the processor")
_flag("is_emulated", "Whether the profile is of the emulator, whose times and cycles mean nothing")
_count("npu_op_id", "QNN's id of the node in the profile")
_text("npu_node", "Node as QNN names it")
_text("qnn_op_type?", "Kind of operator as QNN calls it, from the op trace")
_list("fused_into", "names", "NPU nodes that compute this one, which has no HTP operator of its own")
_choice("npu_operator_kind", "What the row is of", "QNN operator type, QNN node, HTP operator type")
_text("npu_operator", "Type of the operators, or name of the node, as QNN has it")
_amount("dominant_path_cycles?", "Cycles on the dominant path through the hardware threads, as QHAS gives them")
_amount("npu_cycles?", "Cycles of the node over all hardware threads, median of the runs")
_amount(
    "npu_cycles_share?",
    "Part of the run's cycles; empty on the emulator. Threads run side by side, so it is an allocation of the "
    "run's time, not a time",
)
_amount(
    "attributed_npu_time_us?",
    "Part of Accelerator (execute) time of the median run by the node's share of cycles; empty on the emulator",
)
_count("htp_op_count?", "HTP operators that compute the node")
for _unit, _engine in (("hvx", "vector unit"), ("hmx", "matrix unit"), ("dma", "DMA engine")):
    _count(f"{_unit}_op_count?", f"HTP operators of the node that use the {_engine}")
for _memory, _place in (("dram", "DRAM"), ("vtcm", "VTCM, the memory on the chip")):
    for _way, _verb in (("read", "reads from"), ("write", "writes into")):
        _count(f"{_memory}_{_way}_bytes?", f"Bytes that the node {_verb} {_place} in one run")
_count("soc_model", "Qualcomm's number of the chip")
_count("npu_node_count", "Nodes of the profile")
_count("fused_node_count?", "Nodes that others compute; known only from a schematic")
_count("moved_node_count", "Nodes that the first chip of the table places otherwise")
_flag("is_moved", "Whether the first chip of the table computes the node by other operators, or within other nodes")
_count("vtcm_peak_bytes?", "End of the highest block of VTCM")
_amount("max_error?", "Largest difference between a result and the CPU's")
_count("spill_bytes?", "Bytes that the node moves from VTCM into DRAM for want of room")

# --- bottlenecks ----------------------------------------------------------------------------------------------------
_count("finding_index", "Position of the finding; those that gain most come first, those of unknown gain last")
_text("finding", "Rule that found it; configs/bottlenecks.yaml has all rules")
_flag("is_near_miss", "Whether a figure fails a threshold of the rule, but not its second one; these come last")
_list("also_found_by", "names", "Other rules that found the same cause, with less to gain")
_text("finding_subject", "What the finding is about: an executed node, several of them, the runs, or a node of the NPU")
_amount(
    "gain±_us?",
    "By how much the makespan of one inference falls: the critical path evaluated again, times the share of that which "
    "measured remedies gained; at most the latency, and empty where no table says. Gains overlap and do not add up",
)
_amount("span_gain_us?", "By how much the span would fall at most")
_list("conditions", "names", "What was tested: the rule's conditions with their thresholds")
_mapping("evidence", "Figures of the finding, by the table that they are in or follow from")
_text("hazard", "What can go wrong with the remedy, or with the finding")
_text("remedy", "What to do")
_text("rule_source", "Where the rule comes from")

# --- mends ----------------------------------------------------------------------------------------------------------
_choice(
    "mend_outcome",
    "What mending the findings of the rule did to the latency; not mended: no rewrite applies; outputs differ: by more "
    "than the number format explains, so nothing was measured",
    "gains, no gain, loses, undecided, not mended, outputs differ",
)
_text("mend_problem", "Why no rewrite applies, how far outputs differ, or why the gain is undecided; often empty")
_list("mends", "names", "Rewrites that applied, in their order")
_list("mended_nodes", "names", "Source nodes, weights or dimensions that they changed")
_signed(
    "measured_gain_us?",
    "What mending took off the median latency, by pairs of runs in turn; less than 0 where it added to it",
)
_signed("measured_gain_low_us?", "Lower end of its interval, at 95 %")
_signed("measured_gain_high_us?", "Upper end of its interval, at 95 %")
_flag("is_as_predicted?", "Whether the intervals of the predicted and of the measured gain have a point in common")
_amount(
    "output_error_share?",
    "Largest error of an output of the mended model, over the largest magnitude of the output; empty where an output "
    "is not finite, or of another shape, in one of both models",
)
_amount("output_tolerance_share?", "Largest error that the number format of the model explains")

# --- load tests -----------------------------------------------------------------------------------------------------
_count("request_index", "Number of the request, in the order in which they came")
_choice(
    "outcome",
    "What became of the request: answered; turned away, since the queue was full or no bucket is long enough; failed, "
    "or not answered within the timeout; cancelled, since it waited too long or the run ended",
    "completed, rejected, failed, cancelled",
)
_flag("is_warmup_request", "Whether the request came before the service was steady; no statistic counts it then")
_count("step_index", "Step of the load: a time of one rate, or of a rate that changes evenly")
_amount("step_start_us", "Begin of the step, from the start of the run")
_amount("step_duration_us", "Length of the step")
_amount("begin_requests_per_s?", "Rate that is asked for at the begin of the step")
_amount("end_requests_per_s?", "Rate that is asked for at its end")
_count("request_length", "Length of the request along the variable axis; 0 where all have one size")
_count("load_batch_index?", "Number of the batch, in the order in which they were formed")
_count("queue_depth_count", "Requests that waited when the request came, itself left out where it started at once")
_amount("intended_us", "Intended start of the request, from the start of the load")
_amount("queued_us", "When the generator put it into the queue: at once, or when the next busy worker became free")
_amount("batched_us?", "When the batch was formed, from the start of the run")
_amount("started_us?", "When a worker called the service with the batch")
_amount("ended_us?", "When the service returned, or failed; of a token, when it came")
_amount(
    "request_latency_us?",
    "Time from the intended start of the request until its caller had the answer, or knew that there is none. Empty "
    "for one that was turned away, or that a signal cut",
)
_count("worker_index", "Worker that served the batch")
_count("request_count", "Requests in the batch", minimum=1)
_count("padded_request_count", "Requests that the call computed, with those that only fill it up", minimum=1)
_count("padded_length", "Length that all requests of the batch were padded to; 0 where there is no variable axis")
_amount("formation_us", "Age of the oldest request when the batch was formed")
_amount(
    "generator_late_us",
    "How long the batch waited although the policy allowed it and its worker was free: the generator's own delay",
)
_amount("decode_us?", "Time to decode the images of the batch; its requests wait for all of it")
_amount("resize_us?", "Time to resize and crop them; its requests wait for all of it")
_amount(
    "normalize_us?",
    "Time to normalize them, and to put their channels in the order of the input; its requests wait for all of it",
)
_amount("assemble_us?", "Time to copy the requests into one batch in host memory; its requests wait for all of it")
_amount("host_to_device_us?", "Time to copy the batch to the device; its requests wait for all of it")
_amount("session_run_us?", "Time of the session's run; its requests wait for all of it")
_amount("device_to_host_us?", "Time to copy the outputs from the device; its requests wait for all of it")
_amount("postprocess_us?", "Time to find the top classes of the batch; its requests wait for all of it")
_amount(
    "round_trip_us?",
    "Time from sending the batch to an endpoint until its answer was read; its requests wait for all of it",
)
_amount("padding_share?", "Share of the computed requests or tokens that nobody asked for")
_amount("padding_flops_share?", "Share of the computed FLOPs that nobody asked for, by the expressions of 02")
_choice(
    "validity",
    "What the load is worth: `failing` if too many requests failed in the service; `overload` if requests came faster "
    "than they were answered, or too many were turned away; `invalid` if the generator held up more than 1 % of them, "
    "and that makes more than 10 % of the latency. Only a `valid` load has percentiles",
    "valid, overload, failing, invalid",
)
_text("validity_reason?", "Why the load is not valid")
_flag("is_interrupted", "Whether a signal ended the load before its time")
_text("precision_goal?", "Figure, and how near its limits were to be; the load ended when they were")
_amount("precision_reached_share?", "How near these limits are; empty without a goal or limits")
_text("arrivals", "How requests came: by a schedule, or from users who wait for answers (closed)")
_count("sent_count", "Requests that came: those of all outcomes")
_count("completed_count", "Requests that were answered")
_count("rejected_count", "Requests that found the queue full, or no bucket long enough")
_count("failed_count", "Requests that failed in the service, or were not answered within the timeout")
_count("cancelled_count", "Requests that waited beyond the timeout, or were not answered when the run ended")
_count("expired_count", "Requests that waited beyond the timeout (they are among the cancelled ones)")
_mapping("failure_reasons", "Requests that failed, by reason")
_amount("offered_requests_per_s?", "Rate at which requests came")
_amount("answered_requests_per_s", "Answers per second until the last one, or of the step in which they came")
_amount(
    "error_share",
    "Share of the requests that failed, expired, were turned away, or were not served before the load ended; "
    "requests that a signal cut are not counted",
)
_amount("max_error_share", "Most requests that may, for a valid load")
_amount(
    "goodput_requests_per_s?",
    "Requests per second that were answered within the bounds: their share of the requests, times the rate of the "
    "schedule; without a schedule, and for token streams, their count over the time to the last answer. Without a "
    "bound any answer counts",
)
_amount("goodput_bound_us?", "Latency within which an answer counts as goodput; empty where any does")
_amount("utilization_share?", "Share of the workers' time in calls, between the first arrival and the last")
_amount("generator_late_share", "Share of requests that the generator held up for over 1 ms and 1 % of their latency")
_amount(
    "generator_delay_share",
    "Share of the latency that delays of the generator of over 1 ms make, of a request and of those before it. "
    "The lower limits of the latency are those without them",
)
_amount("generator_late_p99_us?", "99th percentile of the generator's delay")
_amount("mean_queue_depth_count?", "Mean of the requests that waited when one came")
_count("most_queue_depth_count?", "Most requests that waited when one came")
_count("load_batch_count", "Batches that were formed")
_amount("mean_request_count?", "Mean size of a batch")
_choice(
    "batch_steady_state",
    "When the batches' times are steady, each over the usual time of its size: from the first on, later, or never",
    "flat, warm-up, slowdown, no steady state",
)
_count("warmup_request_count", "Requests before the steady part, which no statistic counts")
_count("counted_request_count", "Answered requests that the percentiles count")
_mapping(
    "counts_for_limits",
    "Figures whose limits are left out, and how many samples would about do: neighbours depend on each other",
)
for _name in ("p50", "p90", "p95", "p99", "p99_9", "mean", "jitter"):
    _percentile = f"{_name[1:].replace('_', '.')}th percentile"
    _phrase = {"mean": "Mean", "jitter": "Standard deviation"}.get(_name, _percentile)
    _amount(f"request_{_name}±_us?", f"{_phrase} of the latency from the intended start")
_amount("request_min_us?", "Fastest answer")
_amount("request_max_us?", "Slowest answer")
_amount("queue_p50_us?", "Median time from the intended start to the start of the batch")
_amount("queue_p99_us?", "99th percentile of that time")
_mapping(
    "latency_shares",
    "Share of each stage in the latencies of the counted requests: until the batch was formed (queue), until a worker "
    "called the service (dispatch), the stages of the call, the rest. They add up to 1",
)
_text("image_normalization?", "How the images of the requests are normalized; empty without images")
_count("sample_image_count?", "Different images, which requests bring in turn")
_count("top_class_count?", "Classes that a request is answered; empty without post-processing")
_amount(
    "copy_overlap_share?",
    "Share of the time of copies to the device and back in which the session ran for another worker",
)
_text("device_copies_unavailable?", "Why no copies to a device are known")
_amount("pcie_tx_bytes_per_s?", "Mean PCIe traffic that the GPU sent during the load")
_amount("pcie_rx_bytes_per_s?", "Mean PCIe traffic that the GPU received during the load")
_text("pcie_unavailable?", "Why PCIe traffic is unknown")
_mapping(
    "standard_metrics",
    "The same run by the names of Triton Inference Server's counters and OpenTelemetry's process metrics, such as "
    "nv_inference_request_success; LOAD.md has all of them",
)
_mapping("loadgen_results", "What MLPerf LoadGen's log says of its result, by its names; empty without a scenario")
_mapping(
    "interference",
    "What running together does to the service (`main`) and to the one of the other model (`other`), each with the "
    "factors of load_interference; empty without another model",
)
_choice("model_role", "Whose service it is: the model's (`main`), or the other model's", "main, other")
_choice("load_state", "Whether the service ran alone, or together with the other one", "alone, together")
_text("served_model", "Model that the service answers with: its file, or its name at the endpoint")
_text("endpoint", "Address of the endpoint that was loaded; empty for sessions of this program")
_text("served_version?", "Version of the model that was asked for; empty where the endpoint chooses")
_text("endpoint_platform?", "What runs the model there, as the endpoint says it")
_choice("tensor_encoding", "How values are sent: as bytes, or as the text of JSON", "bytes, text")
_mapping("endpoint_inputs", "Type and shape of each input, as the endpoint says them; -1 is any size")
_mapping("endpoint_outputs", "Type and shape of each output, as the endpoint says them; -1 is any size")
for _name, _description in (("p50", "Median latency"), ("p99", "99th percentile of the latency")):
    _amount(f"request_{_name}_slowdown±_factor?", f"{_description} together over that alone")
_amount("answered_rate±_factor?", "Answers per second together over those alone")
_count(
    "session_count",
    "Sessions that serve requests, or connections to an endpoint, each for batches of its own",
    minimum=1,
)
_count("replica_count", "Runs that share each session at a time", minimum=1)
_choice("session_workers", "Whether sessions share a process, or have one each", "threads, processes")
_choice("thread_pool", "Whether each session has a pool of intra-op threads, or all share one", "own, shared")
_choice("execution_mode", "Whether nodes run one after another, or several at once", "sequential, parallel")
_count(
    "inter_op_threads",
    "Threads of parallel execution: one waits, the others run different nodes at once; 0 in sequential execution",
)
_choice("spinning", "When threads without work spin: while a run lasts, always, or never", "runs, always, never")
_choice("affinity", "Whether each thread stays on a processor of its own", "free, pinned")
_count("batch_max_count", "Largest batch that the batcher forms", minimum=1)
_amount("batch_wait_us", "How long the oldest request may wait for others")

# --- load tests: the search, the long load, the providers -----------------------------------------------------------
_count("measured_call_count", "Full batches that were timed", minimum=1)
_amount("call_mean_us", "Mean time of a call with a full batch while all sessions are busy")
_amount("call_p50±_us?", "Median time of a call with a full batch while all sessions are busy")
_amount("full_requests_per_s", "Requests per second that full batches in all sessions answer")
_amount("load_power_w?", "Mean power while the load ran")
_amount("requests_per_joule?", "Requests that full batches answer per joule")
_count("trial_index", "Number of the run, in the order of the table")
_choice("trial_kind", "Whether the run was part of the search or of the best one's curve", "search, curve")
_count("rung_index?", "Rung of the halving; later rungs have fewer configurations and longer runs")
_amount("predicted_p50_us?", "Median latency that the queue is predicted to have; empty where it would grow")
_amount("predicted_p99_us?", "Predicted 99th percentile of the latency")
_amount("predicted_utilization_share?", "Predicted share of the sessions' time in calls")
_text("prediction_doubt?", "Why prediction and measurement differ by over 10 % below 80 % utilization")
_flag("is_within_bound", "Whether the load is valid and its 99th percentile is within the bound")
_flag("is_on_load_front", "Whether no other load answers more requests with no higher 99th percentile")
_amount("request_energy_j?", "Energy of one request")
_amount("million_requests_usd?", "Price of a million requests: the configuration's share of the host's")
_amount("bound_us", "Limit of the 99th percentile")
_flag("is_bound_met", "Whether any configuration meets the bound")
_mapping(
    "best_by",
    "The best configuration by `rate`, and by `energy` and `cost` if these are known. Each has its sustained rate, its "
    "goodput (which ranks it), the highest rate that surely meets the bound, and the lowest that surely does not",
)
_mapping("runner_up", "The second configuration by goodput")
_signed("margin_share?", "Goodput of the best one over the runner-up's, less 1")
_signed("margin_low_share?", "Lower end of what the limits of both rates allow")
_signed("margin_high_share?", "Upper end of what the limits of both rates allow")
_mapping("nearest", "Run with the lowest 99th percentile; empty where no run was valid")
_text("model_file", "The model's file")
_text("hostname", "Name of the host that measured it")
_count("processor_count", "Processors that the process may use there", minimum=1)
_text("runtime_version", "Version of ONNX Runtime there")
_count("untimed_shape_count", "Ways to divide and share the host for which the budget was too short")
_count("trial_count", "Runs of the search and of the curve")
_count("invalid_trial_count", "Runs of the search that were invalid, and cannot be judged against the bound")
_text("invalid_trial_reason?", "Why the last one of them was")
_count("failing_trial_count", "Runs of the search in which too many requests failed")
_text("failing_trial_reason?", "What failed in the last one of them")
_list("prediction_doubts", "names", "Why prediction and measurement differ, for each rate at which they do")
_count("part_index", "Number of the part: a minute of a long load")
_amount("part_start_us", "Begin of the part, from the begin of the load")
_amount("part_duration_us", "Length of the part")
_amount("call_us?", "Median time of a call")
_count("handle_count?", "Files, sockets and other handles that the process had open")
_count("process_thread_count?", "Threads of the process")
_amount("cpu_frequency_mhz?", "Processor clock, mean over the logical processors")
for _stem, _phrase in (("leak", "Growth of resident memory"), ("leak_low", "Lower"), ("leak_high", "Upper")):
    _end = "" if _stem == "leak" else " end of its 95 % interval"
    _signed(f"{_stem}_bytes_per_inference?", f"{_phrase}{_end}")
_flag("is_leak", "Whether memory grows beyond doubt: the interval of its growth is above 0")
_choice(
    "call_steady_state?",
    "Course of the time of a call, second by second; empty where nothing was answered",
    "flat, warm-up, slowdown, no steady state",
)
_signed("call_drift_share?", "Last level of the time of a call over the first one, less 1")
_choice(
    "slowdown_cause?",
    "`throttling` where the processor's clock was lower while calls took longest, else `drift`; empty where calls hold",
    "throttling, drift",
)
_mapping("call_levels", "Levels of the time of a call in µs, by the time in s from which on they hold")
_text("compared_provider", "Execution provider")
_text("output_name", "Output of the model; empty for a provider or a format that does not run")
_text("provider_problem?", "Why the provider does not run the model")
_flag("is_equal_shape", "Whether the output has the shape that it has on the CPU")
_amount("max_abs_error?", "Largest difference from the output of the CPU, or of the model in float")
_amount("max_rel_error?", "Largest difference over the magnitude of the CPU's element, where that is not 0")
_amount("cosine_error?", "1 less the cosine of the angle to the output of the CPU, or of the model in float")

# --- comparison -----------------------------------------------------------------------------------------------------
_text("compared_folder", "Folder, or model, that is compared with the baseline")
_choice(
    "compared_kind",
    "What the figure is about",
    "end_to_end, node, op_type, ceiling, energy, plan, load, memory, counter",
)
_text("compared_figure", "Column that is compared; both values are in its unit")
_text(
    "compared_subject",
    "Executed node of the baseline, operator type, objective of a plan or resource of a board; empty for a figure "
    "of the whole",
)
_count("history_run", "Number of the record in the history, counted from 1", minimum=1)
_text("recorded_at", "When the record was entered, in UTC")
_text("commit_name", "Commit of the working tree at the time of the record, or the given one, or `unknown`")
_flag("is_dirty_tree?", "Whether files that git tracks differed from that commit")
_signed("figure_value", "Figure of the record, in the unit of its column")
_signed("level_value?", "Median of the records at the same level of the figure")
_signed("level_change_share?", "The change from the level before, over that")
_amount("level_p_value?", "P-value of the change, for all figures of its kind together")
_flag("is_change_point", "Whether another level begins with this record")
_text("commit_before?", "Commit of the last record of the level before, where another one begins")
_list("changed_conditions", "names", "What else differs from the last record of the level before")
_text("run_doubt?", "Why the figure of this record decides nothing")
_count("level_run_count", "Records at the level that the last record is compared with")
_count("recorded_run_count", "Records of the history that have the figure", minimum=1)
_choice(
    "comparison_verdict",
    "Whether the difference is real: beyond chance, its interval without 0, and above what a repeat scatters",
    "regressed, improved, unchanged, undecided, not judged",
)
_amount("baseline_value", "Median or stated figure of the baseline")
_amount("candidate_value", "Median or stated figure of what is compared")
_signed(
    "difference_share?",
    "The difference over the baseline; of pairs the median one; empty for a node that the baseline lacks",
)
_signed("difference_low_share?", "Lower end of its interval, at 95 %")
_signed("difference_high_share?", "Upper end of its interval, at 95 %")
_amount("noise_floor_share?", "How far a repeat on the same machine may be away")
_signed("latency_change_share?", "The difference over the baseline's median latency")
_amount("adjusted_p_value?", "P-value of the rank test, by Holm's correction for all nodes")
_signed("cliffs_delta?", "How much more often a run of the candidate takes longer than one of the baseline")
_count("baseline_run_count?", "Runs of the baseline that count")
_count("candidate_run_count?", "Runs of what is compared that count")
_count("runs_needed_count?", "Runs of each side that would decide an undecided difference")
_text("verdict_reason?", "Why nothing is decided, or which side alone executes a node")
_list("baseline_nodes", "names", "Executed nodes of the baseline that compute the source nodes")
_list("candidate_nodes", "names", "Executed nodes of what is compared that compute them")

# --- token streams ---------------------------------------------------------------------------------------------------
_count("input_token_count", "Tokens of the prompt of the request", minimum=1)
_count("output_token_count", "Tokens of the answer to the request", minimum=1)
_amount("admitted_us", "When the service began with the prompt, from the start of the load")
_amount("time_to_first_token_us", "Time from the request's intended start to its first token (TTFT of MLPerf LoadGen)")
_amount(
    "time_per_output_token_us?",
    "Mean time between two tokens of the request (TPOT of MLPerf LoadGen); empty for a single token",
)
for _quantile in ("p50", "p90", "p95", "p99"):
    _amount(f"time_to_first_token_{_quantile}±_us?", f"The {_quantile} of the times to first token")
    _amount(
        f"inter_token_{_quantile}±_us?",
        f"The {_quantile} of the times between two tokens of a stream (inter-token latency of GenAI-Perf)",
    )
_choice(
    "batching_policy",
    "When streams are admitted: together when no stream is in flight (static), or between two tokens (continuous)",
    "static, continuous",
)
_count("most_in_flight_count", "Most streams that may be in flight", minimum=1)
_amount("streams_in_flight_count", "Mean number of streams in flight until the last token")
_flag("is_batched", "Whether one call gives all streams in flight a token")
_amount("input_tokens_per_s", "Tokens of prompts per second until the last token")
_amount("output_tokens_per_s", "Answered tokens per second until the last one (output token throughput of GenAI-Perf)")
_amount("first_token_bound_us?", "Time to first token within which a request is goodput")
_amount("inter_token_bound_us?", "Time per output token within which a request is goodput")

# --- generation -----------------------------------------------------------------------------------------------------
_count("answer_index", "Place of the answer in the series; answers of one length have the same prompt")
_count("token_index", "Place of the token in its answer")
_choice(
    "generation_phase",
    "Phase of a call of a decoder: it takes a whole prompt (prefill), or one token after others (decode)",
    "prefill, decode",
)
_choice(
    "model_part",
    "Part of the model: `embedding` looks tokens up in a table, `head` is the product that gives the logits, "
    "`sampling` reads the logits, `layers` are the rest, and `model` is all parts",
    "model, embedding, layers, head, sampling",
)
for _name in ("macs", "flops", "weight_bytes", "cache_bytes", "bytes"):
    _text(
        f"phase_{_name}_expression?",
        f"The {_name} over the tokens of the prompt (prefill), or in the caches before the call (decode); empty if "
        "unknown",
    )
_amount("joules_per_token_j?", "Energy of calls over the tokens that a decoder takes in them; empty for other models")
_count("past_token_count", "Tokens in the caches before the call")
_count("new_token_count", "Tokens that the call took")
_amount(
    "token_us", "Time from the choice of the token before, or from the begin of the answer, to the choice of this token"
)
_amount("sampling_us", "Part of the time of a token in which it was chosen by its logits; of several calls, the median")
_amount("token_mean_us", "Mean time of a call of the phase, with the choice of its token")
_count("length_index", "Place of the length in the order of measurement")
_count("phase_call_count", "Calls of the phase, without those of the warm-up", minimum=1)
_count("token_id", "Number of the chosen token in the vocabulary")
_count("cache_bytes?", "Bytes of all caches that are valid after the call")
_count("prompt_token_count?", "Tokens of the longest prompt", minimum=1)
_count("answer_token_count", "Tokens of each answer that were asked for", minimum=1)
_count("answer_count", "Answers to all prompts, without the warm-up", minimum=1)
_amount(
    "first_token±_us?",
    "Mean time to the first token of the longest prompt; its interval ends at the fastest and at the slowest answer",
)
_amount("token_p50±_us?", "Median time of a call of the phase (in the summary: of decode), with limits at 95 %")
_amount("tokens_per_s?", "Tokens that the calls of a phase (in the summary: of decode) take, over their time")
_amount("memory_roof_share?", "Compulsory bytes per second of the calls, over the given memory bandwidth")
_amount("compute_roof_share?", "FLOP/s of the calls, over the given peak")

# --- decoding on a card ---------------------------------------------------------------------------------------------
_text("weight_format", "Format of the matrices of weights on the card; activations and caches stay in 16 bits")
for _phase in ("prefill", "decode"):
    _choice(f"{_phase}_side", f"Where {_phase} runs: on the host or on the card", "host, card")
_flag("fits_memory", "Whether weights and caches of the longest answer fit the card's memory")
_flag("is_best_plan", "Whether its likely answer takes the least time of all rows")
_text(
    "prefill_engines?",
    "Kernels of a prompt on the card, the array first; empty for a prompt on the host or by published decoders",
)
_text(
    "prefill_regions?",
    "Region of the board that holds each of these kernels, in their order; `board` for one that spans several",
)
_text(
    "decode_engine?",
    "GEMV engines of decode on the card, on all ports of the memory but one; empty where they do not fit the board",
)
_count("card_resident_bytes", "Weights, and caches after the last token, in the card's memory")
_count("card_memory_bytes", "Memory of the card")
_amount("planned_first_token_*_us?", "Time to the first token, launch included")
_amount("planned_token_*_us?", "Time of one token after the first; in a plan the mean, launch and link included")
_amount("planned±_tokens_per_s?", "Tokens after the first, per second, with the interval of published designs")
_amount("planned_answer_*_us?", "Time of the whole answer")
_amount("host_answer_us", "Time of the whole answer on the host alone")
_amount("host_first_token_us", "Time to the first token on the host alone")
_amount("host_tokens_per_s?", "Tokens after the first, per second, on the host alone")
_amount("moved_share?", "Share of the host's answer that moves to the card: the fraction of Amdahl's law")
_count("answer_link_bytes?", "Bytes that cross the link for the whole answer")
_count(
    "token_link_bytes?",
    "Bytes that cross the link for each token after the first: the token before, and the chosen one",
)
_amount("logits_link_us", "Time that the scores of one token would take over the link, if the host chose the token")
_amount("card_token_*_j?", "Energy of the card for one token after the first, static power included")
_amount("host_token_us", "Time of one token on the host, by a line through the tokens that were measured")
_amount("memory_roof_us", "Time in which the card's memory reads weights and caches at its theoretical rate: a bound")
_count("card_read_bytes", "Weights and caches that the call reads from the card's memory")
_count("card_cache_bytes", "Caches in the card's memory after the call")
_count("planned_prompt_count", "Tokens of the prompt")
_count("planned_output_count", "Tokens of the answer", minimum=1)
_count("measured_length_count", "Tokens in the caches at the longest call that was measured")

# --- precision ------------------------------------------------------------------------------------------------------
_choice(
    "number_format",
    "Number format: of the operands of contractions, or of the whole model, as the scheme says",
    "fp32, fp16, bf16, int16, int8, int4",
)
_text(
    "quantization_scheme",
    "How the model is converted to the format: what has it, how weights are scaled, how ranges are found",
)
_choice(
    "format_verdict",
    "Whether the model survives the format. Both limits of the agreement reach the bound: survives; only the upper: "
    "undecided; none, or the signal-to-noise ratio is below its bound: breaks",
    "survives, undecided, breaks, not judged",
)
_text("format_problem?", "Why the model cannot be made or run in the format")
_flag("is_arithmetic", "Whether activations have the format, too, so that a kernel can compute in the format")
_flag("is_written_model", "Whether quantized.onnx is this model")
_choice("sample_source", "Whether the user gave the samples, or they are random", "given, random")
_count("judged_sample_count", "Samples on which the outputs are compared", minimum=1)
_count("calibration_sample_count", "Samples that calibrate the ranges of activations", minimum=1)
_list("converted_op_types", "names", "Kinds of the contractions that are in the format")
_count("converted_node_count", "Contractions that are in the format")
_list(
    "float_nodes",
    "names",
    "Contractions that stay in float: no tool converts them, a value is not finite, or the mixture leaves them out",
)
_signed(
    "sqnr_db?",
    "Signal-to-noise ratio: energy of the output in float over that of its error; 999 without an error, empty "
    "where an output is not finite",
)
_signed(
    "calibration_sqnr_db?",
    "The same ratio on the samples that calibrate, which take no part in the judgement: it chooses the scheme of "
    "a format, and the mixture",
)
_amount(
    "calibration_top1_agreement_share?",
    "Share of the samples that calibrate whose likeliest class is the same as in float; it chooses the mixture",
)
_signed(
    "kernel_sqnr_db?",
    "The same ratio, for ONNX Runtime's own kernels on this processor. On x86 without VNNI, int8 sums saturate at 16 "
    "bits, which is no property of the format; empty where the runtime does not run the model",
)
for _stem, _phrase in (
    ("top1_agreement", "Share of samples whose likeliest class is the same as in float"),
    ("top5_agreement", "Share of samples whose likeliest class in float is among the five likeliest"),
    ("accuracy", "Share of samples whose likeliest class is their label"),
):
    _amount(f"{_stem}±_share?", f"{_phrase}, with limits at 95 %; empty without classes or labels")
_count("mixture_index", "Place of the mixture; the one with the least predicted noise is first")
_amount("format_macs_share", "MACs of the contractions in the format, over the MACs of all contractions")
_signed(
    "predicted_sqnr_db",
    "Signal-to-noise ratio of the mixture on the samples that calibrate, if the noise powers of its layers add up",
)
_flag(
    "is_within_bounds",
    "Whether agreement and signal-to-noise ratio reach their bounds on the samples that calibrate, which choose "
    "the mixture",
)
_text("layer_problem?", "Why the layer was not judged")
