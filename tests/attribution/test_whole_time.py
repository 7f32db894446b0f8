"""The nodes of op_roofline and the gap between them are the unprofiled median, on any profile."""

from __future__ import annotations

import csv
import math
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from common.artifacts.provenance import Provenance
from common.artifacts.transaction import Transaction
from common.attribution.ownership import Attribution
from common.attribution.roofline_rows import require_whole, roofline_rows
from common.messages.errors import PipelineError
from common.roofline import given_roofs

NOTHING = SimpleNamespace(macs=0, flops=0, weight_bytes=0, input_bytes=0, output_bytes=0)
TIMES_US = st.floats(0.0, 1e9, allow_subnormal=False)


def timed(index, time_us, *, has_median=True):
    return {
        "executed_node": f"n{index}",
        "op_type": "Relu",
        "domain": "",
        "execution_index": index,
        "events_per_run_count": 1,
        "output_dtypes": ["float32"],
        "raw_total_us": time_us,
        "raw_median_us": time_us,
        "corrected_median_us": time_us if has_median else None,
        "corrected_mean_us": time_us,
        "is_correction_dominated": False,
    }


def rows_of(nodes, median_us):
    moved = {row["executed_node"]: NOTHING for row in nodes}
    return roofline_rows(
        nodes, {}, Attribution((), {}, {}), moved, lambda *_: NOTHING, given_roofs(1e9, 1e9), median_us
    )


@settings(max_examples=40)
@given(st.lists(st.tuples(TIMES_US, st.booleans()), min_size=1, max_size=30), st.floats(1e-3, 1e9))
def test_nodes_and_gap_are_the_median_of_any_profile(profile, median_us):
    nodes = [timed(index, time_us, has_median=known) for index, (time_us, known) in enumerate(profile)]
    rows = rows_of(nodes, median_us)
    largest_us = max(median_us, *(row["node_latency_us"] for row in rows))
    assert math.fsum(row["node_latency_us"] for row in rows) == pytest.approx(median_us, rel=0, abs=1e-12 * largest_us)
    shares = [row["latency_share"] for row in rows]
    assert math.fsum(shares) == pytest.approx(1.0, rel=0, abs=1e-12 * largest_us / median_us)


def test_the_file_has_the_sum_to_the_last_digit(tmp_path):
    """Rounded times would add up to another sum."""
    rows = rows_of([timed(index, 1e3 / (7 + index)) for index in range(400)], median_us := 9876.54321 / 7)
    record = Provenance("03_merge_profile_metrics.py", "03", model_id="m" * 64)
    with Transaction(tmp_path, record) as transaction:
        transaction.add_rows("op_roofline", rows)
    with (tmp_path / "op_roofline.csv").open() as file:
        read_us = [float(row["node_latency_us"]) for row in csv.DictReader(file)]
    assert math.fsum(read_us) == pytest.approx(median_us, rel=1e-12)


def test_rows_that_lack_a_part_are_refused():
    rows = rows_of([timed(0, 70.0), timed(1, 29.74)], 100.0)
    require_whole("op_latency.csv", rows, 100.0)
    with pytest.raises(PipelineError, match=r"its nodes and the gap are 99.74 µs, the unprofiled median is 100 µs"):
        require_whole(
            "op_latency.csv",
            [row | {"node_latency_us": row["node_latency_us"] - 0.13} for row in rows[:2]] + rows[2:],
            100.0,
        )
