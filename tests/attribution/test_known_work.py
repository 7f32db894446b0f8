"""Which figures of an executed node are the model's, and which are those of the shapes that ran."""

from types import SimpleNamespace

import pytest

from common.attribution.known_work import known_work, model_shapes, work_notes

FIGURES = ("macs", "flops", "weight_bytes", "input_bytes", "output_bytes")
RAN = dict(zip(FIGURES, (101, 103, 107, 109, 113), strict=True))
TRAFFIC = {"weight_bytes": 7, "input_bytes": 11, "output_bytes": 13}


def source(op_type="Gemm", macs=2, flops=5, **shapes):
    return {"op_type": op_type, "macs": macs, "flops": flops, **shapes}


def known(sources, traffic=TRAFFIC, ran=RAN):
    return known_work(sources, SimpleNamespace(**traffic), lambda: SimpleNamespace(**ran))


def figures(work):
    return [getattr(work, name) for name in FIGURES]


def work(sources, **traffic):
    result = known(sources, TRAFFIC | traffic)
    assert result.bytes == sum(figures(result)[2:])
    return figures(result), result.work_source


def test_what_the_model_tells_is_not_taken_from_the_run():
    assert work([source(), source("Relu", 0, 3)]) == ([2, 8, 7, 11, 13], "counted")


@pytest.mark.parametrize(
    ("sources", "traffic", "expected"),
    [
        ([source(), source("Relu", 0, None)], {}, [2, 103, 7, 11, 13]),
        ([source(macs=None, flops=None)], {"input_bytes": None}, [101, 103, 7, 109, 13]),
        ([source("Gather", 0, 0)], {"output_bytes": None}, [0, 0, 7, 11, 113]),
    ],
)
def test_only_what_data_decide_is_taken_from_the_run(sources, traffic, expected):
    assert work(sources, **traffic) == (expected, "executed")


def test_an_inserted_node_moves_what_it_ran_with():
    assert work([]) == ([*RAN.values()], "executed")


def test_a_figure_of_an_inserted_node_that_its_operator_does_not_tell_is_that_of_its_border():
    ran = RAN | {"input_bytes": None, "flops": None}
    assert figures(known([], ran=ran)) == [101, 0, 107, 11, 113]


def test_work_that_the_run_does_not_tell_either_is_unknown():
    result = known([source(macs=None, flops=None)], ran=dict.fromkeys(FIGURES))
    assert (result.macs, result.flops, result.bytes, result.work_source) == (None, None, 31, "")


def test_only_the_blocked_layout_takes_the_shapes_of_the_model():
    rows = [source("Relu"), source("Conv", input_shapes=[[2, 3]], output_shapes=[[5, 7]])]
    assert model_shapes({"op_type": "Conv", "domain": "com.microsoft.nchwc"}, rows) == ([[2, 3]], [[5, 7]])
    assert model_shapes({"op_type": "Conv", "domain": ""}, rows) == ((), ())
    assert model_shapes({"op_type": "MaxPool", "domain": "com.microsoft.nchwc"}, rows) == ((), ())


def test_a_note_names_the_largest_and_says_how_much_of_the_macs_is_of_the_run():
    rows = [
        {"executed_node": name, "macs": macs, "work_source": known}
        for name, macs, known in (("a", 30, "counted"), ("b", 3, "executed"), ("c", 7, "executed"), ("d", None, ""))
    ]
    assert work_notes(rows)[0].startswith(
        "25.0% of the MACs depend on data and are counted from the shapes that ran: c (7), b (3);"
    )
    assert work_notes(rows[:1]) == []
