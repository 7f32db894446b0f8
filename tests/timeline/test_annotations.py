"""What stands at the nodes of the model's graph: each time once, so that all of them add up."""

from common.timeline.annotations import model_texts, node_texts


def node(name, latency_us, sources=(), row_kind="node", **more):
    facts = {"executed_node": name, "row_kind": row_kind, "source_nodes": [*sources], "node_latency_us": latency_us}
    return {**facts, "latency_share": latency_us / 100, "bound": "compute", "roof_share": None, **more}


METRICS = [{"source_node": name, "macs": macs, "flops": 2 * macs, "bytes": None} for name, macs in (("a", 3), ("b", 7))]


def test_a_time_stands_at_the_node_of_most_work():
    nodes = [node("ab", 17.25, ["a", "b"])]
    texts = node_texts(nodes, METRICS, [{"executed_node": "ab", "energy_uj": 1.5}])
    assert texts["a"] == {"macs": "3", "flops": "6", "computed_with": "b"}
    assert texts["b"] == {
        **{"macs": "7", "flops": "14", "executed_node": "ab", "node_latency_us": "17.25", "latency_share": "0.1725"},
        **{"energy_uj": "1.5", "bound": "compute"},
    }


def test_times_of_several_executed_nodes_are_added():
    texts = node_texts([node("x", 5.5, ["a"]), node("y", 11.0, ["a"])], METRICS, [])
    assert texts["a"] == {
        **{"macs": "3", "flops": "6", "executed_node": "x, y", "node_latency_us": "16.5", "latency_share": "0.165"}
    }
    assert texts["b"] == {"macs": "7", "flops": "14"}


def test_the_model_has_the_time_of_no_node():
    kinds = {"in": "inserted", "out": "inserted", "(gap)": "gap"}
    times = {"in": 2, "out": 3, "(gap)": -5}
    nodes = [node("ab", 17, ["a"]), *(node(name, times[name], row_kind=kind) for name, kind in kinds.items())]
    assert model_texts(nodes) == {"inserted_nodes_latency_us": "5", "gap_us": "-5"}
