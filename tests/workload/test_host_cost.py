from __future__ import annotations

import pytest

from common.messages.errors import PipelineError
from common.workload.host_cost import ExecutedCost, SourceWork, divide_over_groups

CONV, RELU, MATMUL = SourceWork(7, 14), SourceWork(0, 3), SourceWork(11, 22)
ADD, VIEW, UNKNOWN = SourceWork(0, 5), SourceWork(0, 0), SourceWork(None, None)


def divide(sources: dict[str, list[str]], groups: list[list[str]], work: dict[str, SourceWork], **costs: float):
    executed = [ExecutedCost(name, latency, 10 * latency, name != "off_path") for name, latency in costs.items()]
    group_of = {name: index for index, members in enumerate(groups) for name in members}
    return divide_over_groups(executed, sources, group_of, work, len(groups))


def test_a_group_over_two_executed_nodes_gets_both():
    (cost,) = divide(
        {"a": ["conv"], "off_path": ["relu"]}, [["conv", "relu"]], {"conv": CONV, "relu": RELU}, a=101.0, off_path=13.0
    )
    assert (cost.latency_us, cost.energy_uj) == (114.0, 1140.0)
    assert cost.critical_latency_us == 101.0
    assert cost.executed_nodes == ["a", "off_path"]


def test_the_only_group_with_multiplications_gets_the_whole_node():
    costs = divide({"a": ["conv", "relu"]}, [["conv"], ["relu"]], {"conv": CONV, "relu": RELU}, a=101.0)
    assert [cost.latency_us for cost in costs] == [101.0, 0.0]
    assert costs[1].executed_nodes == ["a"]


def test_two_groups_with_multiplications_share_by_flops():
    costs = divide({"a": ["conv", "mm"]}, [["conv"], ["mm"]], {"conv": CONV, "mm": MATMUL}, a=36.0)
    assert [cost.latency_us for cost in costs] == [36.0 * 14 / 36, 36.0 * 22 / 36]


def test_groups_without_multiplications_share_by_flops_and_without_flops_equally():
    costs = divide({"a": ["relu", "add"]}, [["relu"], ["add"]], {"relu": RELU, "add": ADD}, a=16.0)
    assert [cost.latency_us for cost in costs] == [6.0, 10.0]
    costs = divide({"a": ["v", "w"]}, [["v"], ["w"]], {"v": VIEW, "w": VIEW}, a=16.0)
    assert [cost.latency_us for cost in costs] == [8.0, 8.0]
    costs = divide({"a": ["u", "add"]}, [["u"], ["add"]], {"u": UNKNOWN, "add": ADD}, a=16.0)
    assert [cost.latency_us for cost in costs] == [8.0, 8.0]


def test_a_node_that_the_runtime_inserted_is_nobodys():
    (cost,) = divide({"a": ["conv"]}, [["conv"]], {"conv": CONV}, a=101.0, reorder=17.0)
    assert cost.latency_us == 101.0


def test_every_microsecond_is_in_one_group():
    sources = {"a": ["conv", "relu", "add"], "b": ["mm", "conv"], "c": ["v", "u"], "d": ["mm"]}
    work = {"conv": CONV, "relu": RELU, "add": ADD, "mm": MATMUL, "v": VIEW, "u": UNKNOWN}
    costs = divide(sources, [["conv", "relu"], ["add", "u"], ["mm"], ["v"]], work, a=101.0, b=53.0, c=7.0, d=29.0)
    assert sum(cost.latency_us for cost in costs) == pytest.approx(101 + 53 + 7 + 29)


def test_energy_is_unknown_as_soon_as_one_node_has_none():
    executed = [
        ExecutedCost("a", 3.0, 5.0, True),
        ExecutedCost("b", 3.0, None, True),
        ExecutedCost("c", 3.0, 5.0, True),
    ]
    work = {"conv": CONV}
    (cost,) = divide_over_groups(executed, {name: ["conv"] for name in "abc"}, {"conv": 0}, work, 1)
    assert cost.latency_us == 9.0
    assert cost.energy_uj is None


def test_a_source_node_that_the_model_lacks_is_refused():
    with pytest.raises(
        PipelineError, match="executed node a is mapped to ghost, which is no node of the model; rerun <op_roofline>"
    ):
        divide({"a": ["ghost"]}, [["conv"]], {"conv": CONV}, a=1.0)
