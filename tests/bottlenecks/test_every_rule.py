"""Every rule of configs/bottlenecks.yaml finds what it is about, and does not find what is just as it should be."""

import pytest

from common.bottlenecks.judge import bottleneck_rows, findings
from common.bottlenecks.rules import DERIVED_FIGURES
from common.bottlenecks.subjects import measured, subjects
from tests.support.tables.bottlenecks import CPU, RULES, SUMMARY, node, tables
from tests.support.tables.energy import P50_US

CUDA = "CUDAExecutionProvider"
SMALL = {"latency_us": 3.0}
CHANNELS = {"op_type": "Conv", "dtype": "float32", "roof_share": 0.4}
GELU = "Div Erf Add Mul Mul"
NORM = "ReduceMean Sub Pow ReduceMean Add Sqrt Div Mul Add"
IN_NORM = [*((f"n{index}", f"n{index + 1}") for index in range(8)), ("n1", "n6")]


def one(**facts):
    return tables([node("n", **{"latency_us": 503.0, **facts})])


def many(op_type, **facts):
    return tables([node(f"n{index}", op_type, **facts) for index in range(3)])


def chain(text, edges=None, **facts):
    return tables([node(f"n{index}", kind, **facts) for index, kind in enumerate(text.split())], edges)


def island(inside, around):
    """Conv > around > inside > around > Conv, each a little faster than the one before it."""
    kinds = ("Conv", around, inside, around, "Conv")
    return tables([node(f"n{index}", kind, 97.0 - index) for index, kind in enumerate(kinds)])


def copies(kind):
    return tables([node("a", provider=CUDA), node("copy", kind, provider=CPU), node("b", provider=CPU)])


def tiny(latency_us):
    return tables([node(f"n{index}", latency_us=latency_us) for index in range(11)], gap_us=0.5 * P50_US)


def runs(latencies=(7.0,) * 5):
    return [
        {"is_profiled": False, "run_index": index, "is_warmup": False, "start_us": 10.0 * index, "latency_us": us}
        for index, us in enumerate(latencies)
    ]


def sampled(quantity, *values):
    """The first value is from before the runs."""
    phases = ("idle", *("run",) * (len(values) - 1))
    of_one = {"quantity": quantity, "sensor_domain": "device0"}
    return {"host_samples": [{**of_one, "phase": p, "value": v} for p, v in zip(phases, values, strict=True)]}


def faults(count):
    event = {"event_kind": "minor_fault", "time_us": 0.0, "duration_us": 50.0, "event_count": count}
    return {"run_latency": runs(), "os_events": [event]}


def slow(cause):
    run = {"disturbance_cause": cause, "excess_us": 50.0, "explained_share": 0.4}
    return {"run_latency": runs(), "run_disturbances": [run]}


def slowdown(kind):
    return {"run_latency": runs((4.0, 4.0, 9.0, 9.0)), **many("Relu")}, {"steady_state": kind, "steady_start_index": 2}


def npu_node(name="conv", **facts):
    cells = dict.fromkeys(("qnn_op_type", "dram_write_bytes", "vtcm_read_bytes", "vtcm_write_bytes"))
    counts = {"htp_op_count": 100, "hvx_op_count": 10, "hmx_op_count": 60, "dma_op_count": 30}
    return {"npu_node": name, **cells, **counts, "dram_read_bytes": 997, "spill_bytes": 0, **facts}


def npu(*nodes, emulated=False, **times):
    whole = {"qnn_execute_us": 1000, "rpc_execute_us": 990, "qnn_accelerator_us": 980, "accelerator_us": 900}
    parts = {"accelerator_busy_us": 899, "vtcm_acquire_us": 3}
    run = {"session_index": 0, "is_emulated": emulated, **whole, **parts, **times}
    return {"npu_nodes": list(nodes or (npu_node(),)), "npu_runs": [run, run]}


def used(**percent):
    return npu(), {"resource_utilization": percent}


# rule: (in which it finds something, in which it finds nothing): tables, or tables and fields of a summary
CASES = {
    "below_memory_roof": (one(bound="memory", roof_share=0.3), one(bound="memory", roof_share=0.9)),
    "below_compute_roof": (one(bound="compute", roof_share=0.2), one(bound="compute", roof_share=0.9)),
    "unsteady_nodes": (one(corrected_min_us=200.0), one(corrected_min_us=300.0)),
    "slow_functions": (
        one(op_type="Softmax", bound="memory", roof_share=0.15),
        one(op_type="Softmax", bound="memory", roof_share=0.4),
    ),
    "provider_fallback": ((one(provider=CPU), {"provider": CUDA}), (one(provider=CUDA), {"provider": CUDA})),
    "provider_border": (copies("Relu"), many("Relu")),
    "provider_copies": (copies("MemcpyToHost"), copies("Relu")),
    "layout_conversions": (
        chain("Conv ReorderOutput ReorderInput Conv"),
        chain("ReorderInput Conv ReorderOutput", [("n0", "n1"), ("n1", "n2"), ("n2", "")]),
    ),
    "transposes": (many("Transpose"), many("Reshape")),
    "format_conversions": (chain("Relu Cast Cast Relu"), chain("Relu Cast Cast Relu", **SMALL)),
    "format_island": (island("Softmax", "Cast"), island("Softmax", "Relu")),
    "unfused_conv": (
        chain("Conv Relu", latency_us=303.0),
        chain("Conv Relu Add", [("n0", "n1"), ("n0", "n2"), ("n1", "n2")]),
    ),
    "unfused_product": (chain("MatMul Add"), chain("MatMul Relu Add", [("n0", "n2"), ("n1", "n2")])),
    "unfused_gelu": (chain(GELU), chain("Div Erf Add Mul Relu".replace("Mul", "Sub"))),
    "unfused_norm": (chain(NORM, IN_NORM), chain(NORM, [*IN_NORM, ("n4", "")])),
    "single_thread": (one(uses_thread_pool=False), one(uses_thread_pool=True)),
    "pool_imbalance": (one(pool_balance_share=0.6), one(pool_balance_share=0.9)),
    "tiny_nodes": (tiny(3.0), tiny(7.0)),
    "outside_blocked_layout": (
        one(**CHANNELS, input_shapes=[[1, 30, 5, 5]]),
        one(**CHANNELS, input_shapes=[[1, 30, 5, 5]], domain="com.microsoft.nchwc"),
    ),
    "odd_channels": (
        one(**CHANNELS, input_shapes=[[1, 17, 5, 5]]),
        one(**CHANNELS, input_shapes=[[1, 30, 5, 5]]),
    ),
    "normalization_as_convolution": (
        one(op_type="Conv", macs=0, op_types=["BatchNormalization"]),
        one(op_type="Conv", macs=71, op_types=["Conv", "BatchNormalization"]),
    ),
    "element_wise_chain": (chain("Add Mul Relu"), chain("Add Softmax Relu")),
    "gathers": (one(op_type="Gather", roof_share=0.4), one(op_type="Gather", roof_share=0.99)),
    "einsum": (one(op_type="Einsum", roof_share=0.4), one(op_type="MatMul", roof_share=0.4)),
    "padding": (one(macs=61, executed_macs=71), one(macs=67, executed_macs=71)),
    "throttled": (sampled("is_throttled_by_temperature", 0, 1, 1, 0), sampled("is_throttled_by_temperature", 1, 0, 0)),
    "falling_clock": (sampled("cpu_frequency_mhz", 3000, 2500, 2700), sampled("cpu_frequency_mhz", 3000, 2900, 2900)),
    "slowdown": (slowdown("slowdown"), slowdown("warm-up")),
    "page_faults": (faults(3000), faults(300)),
    "page_faults_from_disk": (slow("page_fault"), slow("other_process")),
    "cold_first_run": ((many("Relu"), {"first_run_us": 20_000.0}), (many("Relu"), {"first_run_us": 9_000.0})),
    "unused_gpu": (
        sampled("sm_clock_mhz", 1000, 1000),
        (sampled("sm_clock_mhz", 1000, 1000), {"provider": CUDA}),
    ),
    "oversubscription": ((many("Relu"), {"processor_count": 2}), (many("Relu"), {"processor_count": 3})),
    "vtcm_spills": (npu(npu_node(spill_bytes=4096)), npu(npu_node(spill_bytes=0))),
    "vtcm_wait": (npu(vtcm_acquire_us=199), npu(vtcm_acquire_us=19)),
    "npu_wait": (npu(accelerator_busy_us=701), npu(accelerator_busy_us=899)),
    "remote_call": (npu(rpc_execute_us=999, qnn_accelerator_us=797), npu()),
    "dma_bound": (npu(npu_node(dma_op_count=61)), npu(npu_node("Input", dma_op_count=100))),
    "low_hmx_operators": (
        npu(npu_node(qnn_op_type="Conv2d", hmx_op_count=1)),
        npu(npu_node(qnn_op_type="ElementWiseAdd", hmx_op_count=0)),
    ),
    "low_hmx_use": (used(hmx_utilization_percent=23.0), used(hmx_utilization_percent=None)),
    "low_hvx_use": (used(hvx_utilization_percent=23.0), used(hvx_utilization_percent=71.0)),
}


def measured_of(case):
    rows, given = case if isinstance(case, tuple) else (case, {})
    if "resource_utilization" in given:
        return measured(rows, SUMMARY, given)
    summary = {key: value for key, value in given.items() if key != "processor_count"}
    return measured(rows, {**SUMMARY, **summary}, processor_count=given.get("processor_count"))


def found(name, case):
    return bottleneck_rows([RULES[name]], measured_of(case))


def test_every_rule_has_a_case():
    assert CASES.keys() == RULES.keys()


def test_every_derived_figure_is_made():
    """A figure that nothing makes would silence the rules that name it."""
    utilization = dict.fromkeys(("vtcm_peak_usage_kb", "ddr_bandwidth_mbps", "hvx_utilization_percent"))
    causes = [slow(cause) for cause in ("own_thread", "unnamed_process", "hypervisor", "none_recorded")]
    events = {**faults(1), "os_events": [{**faults(1)["os_events"][0], "event_kind": "major_fault"}]}
    more = [(name, case) for name in RULES for case in (*causes, events, used(**utilization))]
    made = {
        figure
        for name, case in [*((name, case) for name, cases in CASES.items() for case in cases), *more]
        for subject in subjects(RULES[name], measured_of(case))
        for row in subject.facts.values()
        for figure in row
    }
    # A match is selected by the one, and the other one follows from the gain.
    assert DERIVED_FIGURES.keys() - made == {"operand_node_count", "gain_share"}


@pytest.mark.parametrize("name", CASES)
def test_a_rule_finds_what_it_is_about(name):
    rows = found(name, CASES[name][0])
    assert rows
    for row in rows:
        assert row["finding"] == name
        assert all(row[key] for key in ("finding_subject", "conditions", "hazard", "remedy", "rule_source"))
        told = {key for figures in row["evidence"].values() for key in figures}
        assert {condition.fact for condition in RULES[name].when} - {"gain_share"} <= told
        assert not row["is_near_miss"]


@pytest.mark.parametrize("name", CASES)
def test_a_rule_does_not_find_what_is_as_it_should_be(name):
    assert found(name, CASES[name][1]) == []


@pytest.mark.parametrize(
    ("name", "gain_us"),
    [
        ("below_memory_roof", 503.0 * 0.7),  # to the roof
        ("slow_functions", 503.0 * 0.85),
        ("unsteady_nodes", 503.0 - 200.0),
        ("single_thread", 503.0 * 2 / 3),  # two of three threads
        ("pool_imbalance", 503.0 * 0.4),
        ("padding", 503.0 * 10 / 71),
        ("outside_blocked_layout", 503.0 * 0.6),
        ("odd_channels", 503.0 * (1 - 0.4 * (16 / 17) ** 2)),
        ("normalization_as_convolution", 503.0),
        ("element_wise_chain", 303.0),  # of its 45 bytes, 68 are those between its nodes
        ("layout_conversions", 202.0),  # both go
        ("format_island", 96.0 + 94.0),  # the casts go, what they enclose stays
        ("unfused_conv", 303.0),  # the convolution stays
        ("unfused_norm", 909.0),
        ("tiny_nodes", 11 * 3.0 + 11 * 5.0),  # the nodes, and five µs between each of them
        ("slowdown", 303.0 * (1 - 4 / SUMMARY["p50_us"])),  # to the level before
        ("vtcm_wait", 199.0),
        ("page_faults_from_disk", 50.0 * 0.4 / 5),  # of the mean of five runs
    ],
)
def test_the_gain_is_what_the_nodes_would_no_longer_take_and_mends_gained_of_that(name, gain_us):
    rule = RULES[name]
    share = 1.0 if rule.gain_from else rule.realized.likely
    assert found(name, CASES[name][0])[0]["gain_us"] == pytest.approx(share * gain_us)


def test_nodes_of_one_operator_are_one_finding():
    """Four sums with one cause have one remedy; a product beside them is another finding."""
    slow = {"bound": "memory", "roof_share": 0.3}
    rows = tables([*(node(f"n{index}", "CumSum", **slow) for index in range(4)), node("m", "Resize", **slow)])
    first, second = found("below_memory_roof", rows)
    assert (first["finding_subject"], second["finding_subject"]) == ("4 nodes from 'n0'", "m")
    assert first["evidence"]["op_roofline"]["roof_share"] == pytest.approx(0.3)


def test_a_convolution_of_dequantized_operands_is_in_no_layout_question():
    """Measured with QDQ: neither padding nor constant weights gained anything there."""
    conv = node("conv", "Conv", 503.0, dtype="float32", roof_share=0.4, input_shapes=[[1, 30, 5, 5]])
    assert found("outside_blocked_layout", tables([node("before", "Relu"), conv]))
    assert found("outside_blocked_layout", tables([node("before", "DequantizeLinear"), conv])) == []


def test_two_rules_on_the_same_nodes_are_one_finding_by_the_one_with_more_to_gain():
    rows = tables([node("n", "CumSum", 503.0, bound="memory", roof_share=0.01, uses_thread_pool=False)])
    held = measured(rows, {**SUMMARY, "threads": 2})
    (row,) = bottleneck_rows([RULES["single_thread"], RULES["below_memory_roof"]], held)
    assert {row["finding"], *row["also_found_by"]} == {"single_thread", "below_memory_roof"}
    gains = [findings([RULES[name]], held)[0].gain.gain_us for name in ("single_thread", "below_memory_roof")]
    assert row["gain_us"] == max(gains)


def test_a_convolution_outside_the_layout_and_not_fused_for_one_cause_is_one_finding_about_both_nodes():
    conv = node("conv", "Conv", 503.0, dtype="float32", roof_share=0.4, input_shapes=[[1, 30, 5, 5]])
    held = measured(tables([conv, node("norm", "BatchNormalization")]), SUMMARY)
    rules = [RULES["unfused_conv"], RULES["outside_blocked_layout"]]
    (row,) = bottleneck_rows(rules, held)
    assert {row["finding"], *row["also_found_by"]} == {"unfused_conv", "outside_blocked_layout"}
    assert {*row["executed_nodes"]} == {"conv", "norm"}
    assert row["gain_us"] == max(findings([rule], held)[0].gain.gain_us for rule in rules)


def test_what_fails_a_threshold_by_little_is_a_near_miss_and_comes_last():
    """Channels at 40 % of the roof: the rule asks for less than 25 %, and for less than 85 % of near misses."""
    near = node("near", "Conv", 700.0, bound="compute", roof_share=0.4)
    rows = tables([near, node("far", "Gemm", 101.0, bound="compute", roof_share=0.1)])
    first, second = found("below_compute_roof", rows)
    assert (first["finding_subject"], first["is_near_miss"]) == ("far", False)
    assert (second["finding_subject"], second["is_near_miss"]) == ("near", True)
    assert second["gain_us"] > first["gain_us"]


@pytest.mark.parametrize("name", CASES)
def test_no_gain_is_more_than_the_latency(name):
    """The nodes take more than the median where their correction is too small."""
    case = CASES[name][0]
    rows, given = case if isinstance(case, tuple) else (case, {})
    held = measured_of((rows, {**given, "p50_us": 7.0} if "resource_utilization" not in given else given))
    for row in bottleneck_rows([RULES[name]], held):
        for key in ("gain_us", "gain_low_us", "gain_high_us", "span_gain_us"):
            assert row[key] is None or row[key] <= (7.0 if row["executed_nodes"] else 1000.0)


def test_what_an_island_computes_in_fp64_gains_as_well():
    """The casts are 96 and 94 us; the Softmax between them takes most of the time, 950 us, at its roof 40 % of that."""
    rows = island("Softmax", "Cast")
    for table in ("op_roofline", "op_latency"):
        rows[table] = [
            {**row, "dtype": "float64", "roof_share": 0.4, "node_latency_us": 950.0}
            if row["op_type"] == "Softmax"
            else row
            for row in rows[table]
        ]
    row, *others = found("format_island", rows)  # the convolutions are islands, too
    assert not any("n2" in other["executed_nodes"] for other in others)
    assert row["gain_us"] == pytest.approx(RULES["format_island"].realized.likely * (96.0 + 94.0 + 0.6 * 950.0))
    assert row["executed_nodes"] == ["n1", "n3", "n2"]


def test_a_convolution_that_stays_unfused_outside_the_blocked_layout_gains_as_well():
    """With weights that are inputs, the normalization is 101 us, and the convolution at its roof gains 60 % of 503."""
    conv = node("conv", "Conv", 503.0, dtype="float32", roof_share=0.4, input_shapes=[[1, 16, 5, 5]])
    (row,) = found("unfused_conv", tables([conv, node("norm", "BatchNormalization")]))
    assert row["gain_us"] == pytest.approx(RULES["unfused_conv"].realized.likely * (101.0 + 0.6 * 503.0))
    assert row["executed_nodes"] == ["norm", "conv"]


def test_what_the_runs_do_names_no_node():
    (row,) = found("slowdown", CASES["slowdown"][0])
    assert row["executed_nodes"] == []
    assert row["evidence"]["run_latency"]["early_median_us"] == 4.0


def test_emulated_times_lead_to_nothing():
    emulated = npu(vtcm_acquire_us=500, accelerator_busy_us=1, qnn_accelerator_us=1, emulated=True)
    assert [row["finding"] for name in RULES for row in found(name, emulated)] == []
