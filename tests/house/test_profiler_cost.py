"""The check of the profiler's cost: its models, which nodes it takes, and its verdicts. Nothing here reads a clock."""

import re
from types import SimpleNamespace

import numpy as np
import onnx
import onnxruntime as ort
import pytest

from benchmarks.measuring import profiler_cost
from benchmarks.measuring.profiler_cost import (
    COPIES,
    HEADER,
    SKIPPED,
    Figures,
    Group,
    Operator,
    Row,
    build,
    gathered,
    groups,
    line,
    shown,
)
from common.runtime.sessions.session import SessionSettings

PADDED = {"pads": [1, 1, 1, 1]}


def latency(name, raw_us, corrected_us, dominated=False):
    """What ``correct`` says of a node, as far as the check reads it."""
    statistics = {"raw_median_us": raw_us, "corrected_median_us": corrected_us}
    return SimpleNamespace(node=SimpleNamespace(name=name), statistics=statistics, is_correction_dominated=dominated)


def row(oracles, corrected, dominated=False):
    return Row("x", "chain", oracles, [Figures(value + 2, value, dominated) for value in corrected])


def test_every_group_has_the_same_kinds_of_operator_and_no_label_twice():
    families = {tuple(operator.family for operator in group.operators) for group in groups()}
    labels = [operator.label for group in groups() for operator in group.operators]
    assert len(families) == 1
    assert len(labels) == len(set(labels))
    assert sum(SKIPPED) < COPIES


def test_only_small_tensors_are_mixed(monkeypatch):
    small, large = Operator("Relu", "Relu", ((1, 2**17),)), Operator("Relu", "Relu", ((1, 2**17 + 1),))
    asked = []

    def measured(branches, settings, runs):
        asked.append([(operator.label, copies) for operator, copies in branches])
        return {operator.label: Figures(9, 7, False) for operator, _ in branches}

    monkeypatch.setattr(profiler_cost, "figures", measured)
    monkeypatch.setattr(profiler_cost, "oracle_us", lambda operator, k, settings, rounds: 7.0)
    found = profiler_cost.rows(Group(5, [small, large]), SessionSettings(1), 1, 1)
    assert asked == [[("Relu-1x131072", 10)], [("Relu-1x131073", 10)], [("Relu-1x131072", COPIES)]]
    assert [(one.label, one.kind) for one in found] == [
        ("Relu-1x131072", "mixed"),
        ("Relu-1x131072", "chain"),
        ("Relu-1x131073", "chain"),
    ]


def test_a_model_has_a_branch_per_operator_and_neither_overflows_nor_turns_denormal():
    branches = [
        (Operator("Add", "Add", ((1, 7), (1, 7))), 3),
        (Operator("Pow", "Pow", ((1, 5), (1,))), 2),
        (Operator("var", "MatMul", ((11, 11), (11, 11)), is_constant=False), 13),
        (Operator("Conv", "Conv", ((1, 2, 5, 5), (2, 2, 3, 3)), attributes=PADDED), 11),
        (Operator("dw", "Conv", ((1, 3, 5, 5), (3, 1, 3, 3)), attributes={**PADDED, "group": 3}), 11),
    ]
    content, feeds = build(branches)
    onnx.checker.check_model(onnx.load_from_string(content), full_check=True)
    assert set(feeds) == {"Add-1x7.0", "Pow-1x5.0", "var-11x11.0", "var-11x11.c0", "Conv-1x2x5x5.0", "dw-1x3x5x5.0"}
    results = ort.InferenceSession(content, providers=["CPUExecutionProvider"]).run(None, feeds)
    assert [result.shape for result in results] == [operator.shapes[0] for operator, _ in branches]
    assert all(np.all(result > 1e-9) and np.all(result < 10) for result in results)
    assert results[2] == pytest.approx(np.repeat(feeds["var-11x11.0"].mean(1, keepdims=True), 11, axis=1), rel=1e-4)


def test_the_ends_of_a_branch_and_other_operators_are_left_out():
    found = gathered(
        [
            *(
                latency(f"Relu-1x7.{step}", raw, raw - 1)
                for step, raw in ((1, 90), (2, 70), (3, 5), (4, 8), (5, 7), (6, 99))
            ),
            latency("Relu-1x71.4", 1000, 999),
            latency("reorder_token_3", 1000, 999),
        ],
        "Relu-1x7",
    )
    assert found == Figures(7, 6, False)  # of 5, 8 and 7


def test_names_of_nodes_that_took_the_place_of_convolutions_are_read():
    found = gathered(
        [latency(f"c-1x2.{step}_nchwc", step, step / 2, dominated=step == 3) for step in range(1, 7)], "c-1x2"
    )
    assert found == Figures(4, 2, True)  # of 3, 4 and 5


@pytest.mark.parametrize(
    ("oracle", "corrected", "threads", "verdict"),
    [
        (20, 23, 1, "ok"),  # 3 µs
        (20, 23.5, 1, "OUT"),
        (20, 16.5, 1, "OUT"),
        (20, 24, 2, "ok"),  # 4 µs
        (20, 24.5, 2, "OUT"),
        (100, 106, 1, "ok"),  # 6 %
        (100, 106.5, 1, "OUT"),
        (100, 108, 7, "ok"),  # 8 %
        (100, 91.5, 7, "OUT"),
        (1.9, 1.9, 1, "not in range"),
        (5001, 5001, 1, "not in range"),
    ],
)
def test_a_row_is_in_its_limit_or_not(oracle, corrected, threads, verdict):
    assert row([oracle], [corrected]).verdict(threads) == verdict


def test_flagged_rows_are_judged_and_uncertain_ones_are_not():
    assert row([20, 20], [50, 50], dominated=True).verdict(1) == "OUT (flagged)"
    assert row([20, 20], [21, 21], dominated=True).verdict(1) == "ok (flagged)"
    assert row([20, 26, 20], [20, 26, 20]).verdict(1) == "ok"  # the oracles lie 2 · 3 µs apart
    assert row([20, 27, 20], [90, 90, 90]).verdict(1) == "oracle unsure"


def test_the_difference_is_that_of_the_sweeps():
    found = row([10, 40, 20], [11, 41, 18])
    assert (found.oracle_us, found.corrected_us, found.raw_us) == (20, 18, 20)
    assert found.difference_us == 1  # of 1, 1 and -2


def test_the_table_is_markdown():
    lines = [line(HEADER), shown(row([20], [21]), 1)]
    cells = [[cell.strip() for cell in re.split(r"\|", text)[1:-1]] for text in lines]
    assert cells[0] == list(HEADER)
    assert cells[1] == ["x", "chain", "23.0", "21.0", "20.0", "0.0", "1.0", "3.0", "ok"]


@pytest.mark.parametrize(("corrected", "status"), [(21, 0), (24, 1)])
def test_the_status_says_whether_a_row_is_out(monkeypatch, capsys, corrected, status):
    monkeypatch.setattr(profiler_cost, "groups", lambda: [Group(16, [])])
    monkeypatch.setattr(profiler_cost, "rows", lambda *given: [row([20], [corrected]), row([1], [1])])
    assert profiler_cost.main(["--threads", "1"]) == status
    assert f"{1 - status} of 1 rows within their limits; 1 not judged" in capsys.readouterr().out
