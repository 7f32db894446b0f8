"""The longest path against a brute force over all paths, against networkx, and on graphs worked out by hand."""

import itertools

import networkx as nx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.dag import build_dag, longest_path, schedule, what_if
from common.messages.errors import UnusableValueError, UpstreamError
from tests.support.tables.dag import EDGES, NODES

LATENCY_US = {name: latency_us for name, _, latency_us in NODES}
OP_TYPES = {name: op_type for name, op_type, _ in NODES}


def dag_of(latency_us, edges):
    return build_dag(latency_us, edges, nodes_from="op_roofline.csv", edges_from="executed_edges.csv")


@pytest.fixture
def block():
    return dag_of(LATENCY_US, EDGES)


def test_span_work_and_parallelism_of_the_block(block):
    assert block.span_us == 101 + 23 + 29 + 7 + 11 == 171
    assert block.work_us == 171 + 37 == 208
    assert block.parallelism == pytest.approx(208 / 171)
    assert longest_path(block) == ["stem", "left_a", "left_b", "add", "tail"]


def test_schedule_of_the_block(block):
    times = schedule(block)
    assert {name: (row.earliest_start_us, row.earliest_finish_us) for name, row in times.items()} == {
        "stem": (0, 101),
        "left_a": (101, 124),
        "right": (101, 138),
        "left_b": (124, 153),
        "add": (153, 160),
        "tail": (160, 171),
    }
    assert {name: row.slack_us for name, row in times.items() if row.slack_us} == {"right": 23 + 29 - 37}
    assert times["right"].latest_start_us == 101 + 15
    in_order = [(row.sequential_start_us, row.sequential_finish_us) for row in times.values()]
    assert in_order == [(0, 101), (101, 124), (124, 161), (161, 190), (190, 197), (197, 208)]


# --- a second way ---------------------------------------------------------------------------------------------------


@st.composite
def small_graphs(draw):
    """Up to seven nodes, any edges that follow one order; latencies that tie, are zero, and do not add exactly."""
    count = draw(st.integers(1, 7))
    values = draw(st.lists(st.sampled_from([0.0, 0.1, 0.2, 0.3, 0.7, 3.0, 5.0]), min_size=count, max_size=count))
    pairs = [(i, j) for j in range(count) for i in range(j)]
    chosen = draw(st.lists(st.sampled_from(pairs), unique=True)) if pairs else []
    topological = draw(st.permutations(range(count)))  # the execution order need not be the order of the edges
    return {f"n{i}": values[i] for i in range(count)}, [(f"n{topological[i]}", f"n{topological[j]}") for i, j in chosen]


def all_paths(nodes, edges):
    """Every path from a node without producers to one without consumers."""
    consumers = {node: [b for a, b in edges if a == node] for node in nodes}
    complete, open_paths = [], [[node] for node in nodes if node not in {b for _, b in edges}]
    while open_paths:
        path = open_paths.pop()
        following = consumers[path[-1]]
        open_paths += [[*path, node] for node in following]
        complete += [] if following else [path]
    return complete


@pytest.mark.slow
@given(small_graphs())
def test_brute_force_over_all_paths(graph):
    latency_us, edges = graph
    length = {tuple(path): sum(latency_us[node] for node in path) for path in all_paths(latency_us, edges)}
    dag = dag_of(latency_us, edges)
    assert dag.span_us == pytest.approx(max(length.values()), abs=1e-9)
    assert length[tuple(longest_path(dag))] == pytest.approx(dag.span_us, abs=1e-9)
    for node, row in schedule(dag).items():
        through = max(total for path, total in length.items() if node in path)
        assert row.slack_us == pytest.approx(dag.span_us - through, abs=1e-9)
        before = [sum(latency_us[step] for step in path[: path.index(node)]) for path in length if node in path]
        assert row.earliest_start_us == pytest.approx(max(before), abs=1e-9)


@pytest.mark.slow
@given(small_graphs())
def test_slack_is_zero_exactly_on_a_longest_path_and_never_negative(graph):
    latency_us, edges = graph
    dag = dag_of(latency_us, edges)
    times = schedule(dag)
    assert all(times[node].slack_us == 0 for node in longest_path(dag))
    assert all(row.slack_us >= 0 for row in times.values())
    for producer, consumer in edges:
        assert times[producer].earliest_finish_us <= times[consumer].earliest_start_us
    ends = [row.sequential_finish_us for row in times.values()]
    assert ends[-1] == dag.work_us >= dag.span_us


@pytest.mark.slow
@given(small_graphs())
def test_networkx_finds_the_same_length(graph):
    """A node's latency on each of its outgoing edges, and on an edge to one common end."""
    latency_us, edges = graph
    weighted = nx.DiGraph()
    weighted.add_weighted_edges_from((a, b, latency_us[a]) for a, b in edges)
    weighted.add_weighted_edges_from((node, "end", value) for node, value in latency_us.items())
    assert dag_of(latency_us, edges).span_us == pytest.approx(nx.dag_longest_path_length(weighted), abs=1e-9)


# --- ties and edges of the data -------------------------------------------------------------------------------------


def test_of_equal_branches_the_one_executed_first_is_critical():
    """0.1 + 0.2 + 0.3 and 0.3 + 0.2 + 0.1 differ as floats; as times they do not."""
    forward, backward = ("a1", "a2", "a3"), ("b1", "b2", "b3")
    values = dict(zip(forward, (0.1, 0.2, 0.3), strict=True)) | dict(zip(backward, (0.3, 0.2, 0.1), strict=True))
    edges = [*itertools.pairwise(forward), *itertools.pairwise(backward)]
    edges += [("a3", "end"), ("b3", "end")]
    first_a = {name: values[name] for name in (*forward, *backward)} | {"end": 1.0}
    first_b = {name: values[name] for name in (*backward, *forward)} | {"end": 1.0}
    assert longest_path(dag_of(first_a, edges)) == ["a1", "a2", "a3", "end"]
    assert longest_path(dag_of(first_b, edges)) == ["b1", "b2", "b3", "end"]
    assert {row.slack_us for row in schedule(dag_of(first_a, edges)).values()} == {0.0}


def test_nodes_that_take_no_time_are_on_the_path_where_they_connect():
    dag = dag_of({"view": 0.0, "conv": 3.0, "flatten": 0.0}, [("view", "conv"), ("conv", "flatten")])
    assert longest_path(dag) == ["view", "conv", "flatten"]


def test_a_graph_that_takes_no_time_has_no_parallelism():
    dag = dag_of({"a": 0.0, "b": 0.0}, [("a", "b")])
    assert (dag.span_us, dag.work_us, dag.parallelism) == (0.0, 0.0, None)
    assert longest_path(dag) == ["a", "b"]


def test_a_graph_without_nodes():
    dag = dag_of({}, [])
    assert (dag.span_us, longest_path(dag), schedule(dag)) == (0.0, [], {})


def test_several_tensors_between_two_nodes_are_one_dependence():
    dag = dag_of({"split": 2.0, "add": 3.0}, [("split", "add"), ("split", "add")])
    assert dag.span_us == 5.0


def test_a_long_chain_needs_no_recursion():
    names = [f"n{index}" for index in range(5000)]
    dag = dag_of(dict.fromkeys(names, 1.0), itertools.pairwise(names))
    assert dag.span_us == 5000.0
    assert longest_path(dag) == names


@pytest.mark.parametrize(
    ("latency_us", "edges", "message"),
    [
        (
            {"a": 1.0, "b": 1.0},
            [("a", "b"), ("b", "a")],
            r"edges\.csv: corrupt \(a cycle: . -> . -> .\); rerun <op_",
        ),
        ({"a": 1.0}, [("a", "a")], r"edges\.csv: corrupt \(a cycle: a -> a\)"),
        ({"a": 1.0}, [("a", "ghost")], r"edges\.csv: corrupt \('ghost' is not in op_roofline\.csv\)"),
        ({"a": 1.0}, [("ghost", "")], r"edges\.csv: corrupt \('ghost' is not in op_roofline\.csv\)"),
        ({"a": -1.0}, [], r"roofline\.csv: corrupt \(node 'a' takes -1\.0 µs\)"),
        ({"a": float("nan")}, [], r"roofline\.csv: corrupt \(node 'a' takes nan µs\)"),
    ],
)
def test_corrupt_tables(latency_us, edges, message):
    with pytest.raises(UpstreamError, match=message):
        dag_of(latency_us, edges)


def test_a_long_cycle_is_shown_in_short():
    names = [f"n{index}" for index in range(7)]
    with pytest.raises(UpstreamError, match=r"cycle: n\d -> n\d -> n\d -> n\d -> … -> n\d\)"):
        dag_of(dict.fromkeys(names, 1.0), zip(names, [*names[1:], names[0]], strict=True))


# --- what if --------------------------------------------------------------------------------------------------------


def test_a_faster_node_hands_the_path_to_the_other_branch(block):
    found = what_if(block, OP_TYPES, "left_b", 4.0, 13.0)
    assert found.span_us == 101 + 37 + 7 + 11  # left: 23 + 29/4 = 30.25 < 37
    assert found.sequential_us == pytest.approx(208 - 29 + 29 / 4 + 13)
    assert found.node_count == 1


def test_a_faster_operator_type_changes_all_its_nodes(block):
    found = what_if(block, OP_TYPES, "Conv", 2.0, 13.0)
    assert found.node_count == 3
    assert found.span_us == pytest.approx(101 / 2 + 37 + 7 + 11)  # left: 11.5 + 14.5 = 26 < 37
    assert found.sequential_us == pytest.approx((101 + 23 + 29) / 2 + 37 + 7 + 11 + 13)


def test_a_node_off_the_path_shortens_only_the_makespan(block):
    found = what_if(block, OP_TYPES, "right", 2.0, 0.0)
    assert (found.span_us, found.sequential_us) == (171.0, 208 - 37 / 2)


def test_a_factor_of_one_changes_nothing_and_the_graph_itself_never_changes(block):
    found = what_if(block, OP_TYPES, "Conv", 1.0, 13.0)
    assert (found.span_us, found.sequential_us) == (171.0, 221.0)
    what_if(block, OP_TYPES, "Conv", 1000.0, 13.0)
    assert block.span_us == 171.0


def test_a_node_comes_before_an_operator_type_of_its_name():
    dag = dag_of({"Conv": 3.0, "other": 5.0}, [])
    assert what_if(dag, {"Conv": "Add", "other": "Conv"}, "Conv", 3.0, 0.0).sequential_us == 6.0


def test_a_negative_gap_that_exceeds_the_rest_leaves_the_makespan_unknown(block):
    slower = what_if(block, OP_TYPES, "stem", 1e6, -110.0)
    assert slower.sequential_us is None
    assert slower.span_us == pytest.approx(70 + 101e-6)


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("conf", "similar names: Conv"),
        ("MAX", "similar names: MaxPool"),
        ("left", "similar names: left_a, left_b"),
        ("Gemn", "similar names: Gemm"),
        ("xyz", "op_schedule"),
    ],
)
def test_an_unknown_name_lists_near_ones(block, name, near):
    with pytest.raises(UnusableValueError, match=rf"<what_if>: no executed node .* has the name {name!r}; {near}"):
        what_if(block, OP_TYPES, name, 2.0, 0.0)
