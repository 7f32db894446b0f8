"""One name, one meaning: every table and every JSON object about a board says pessimistic, likely and optimistic."""

from __future__ import annotations

import json
import re

import pytest

from common.artifacts.catalogue import ARTIFACTS
from common.artifacts.stages import STAGES
from common.fpga.__main__ import main

CASES = ("pessimistic", "likely", "optimistic")
OTHER_NAMES = re.compile(r"(^|_)(low|high|best|worst|slow|fast|lower|upper|mode)(_|$)")
ABOUT_BOARDS = [
    name
    for script in ("07_fpga_candidates.py", "python -m common.fpga kernels")
    for name in STAGES[script].writes
    if ARTIFACTS[name].form in ("table", "document")
]
ESTIMATES = [
    "gemv --rows 509 --cols 1021",
    "gemm --m 61 --k 127 --n 31 --dtype int8",
    "conv --in-channels 17 --height 13 --width 11 --out-channels 19",
    "attention --heads 3 --tokens 61 --head-dim 17",
    "layernorm --rows 61 --width 127",
    "gelu --rows 61 --width 127",
]


def case_of(name):
    return next((case for case in CASES if case in name), None)


@pytest.mark.parametrize("name", ABOUT_BOARDS)
def test_no_table_about_a_board_has_another_name_for_a_case(name):
    columns = [column.name for column in ARTIFACTS[name].columns]
    assert not [column for column in columns if OTHER_NAMES.search(column)]
    for column in columns:
        if (case := case_of(column)) in ("pessimistic", "optimistic"):
            worst, likely, best = (column.replace(case, other) for other in CASES)
            assert {worst, best} <= set(columns), column
            assert {likely, likely.replace("likely_", "")} & set(columns), column  # the likely value may be the figure
            assert columns.index(worst) < columns.index(best)


@pytest.mark.parametrize("flags", ESTIMATES)
def test_an_estimate_names_its_cases_and_pessimistic_is_the_worse_one(flags, capsys):
    assert main(["estimate", *flags.split()]) == 0
    found = json.loads(capsys.readouterr().out)
    assert not [key for key in found if OTHER_NAMES.search(key)]
    stems = {key.replace("_pessimistic", ""): key for key in found if "_pessimistic" in key}
    assert {"time_us", "cycles", "power_w"} <= set(stems)
    for stem, key in stems.items():
        names = [key.replace("pessimistic", case) for case in CASES]
        worst, likely, best = (found.get(name, found.get(stem)) for name in names)  # the likely value may be the figure
        is_rate = stem.endswith(("_mhz", "_per_s"))
        assert [worst, likely, best] == sorted([worst, likely, best], reverse=not is_rate), stem
