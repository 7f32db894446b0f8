"""Times that the work of a group does not explain, by hand."""

import pytest

from common.workload.plausible_time import GroupTime, unexplained_us


def gemm(macs, host_us, kind="gemm"):
    return GroupTime(kind, 2 * macs, macs // 10, host_us)


def test_the_first_node_of_a_run_that_wakes_the_pool_is_longer_than_its_work():
    # 0.6 M MACs in 88 us, where 22 M take 55: two of those say 2 + 55 * 0.6 / 22 = 3.5 us, of which 4 times are 14
    groups = [gemm(600_000, 88.0), gemm(22_000_000, 55.0), gemm(22_000_000, 55.0), gemm(100_000, 2.0)]
    assert unexplained_us(groups) == pytest.approx([88 - 4 * (2 + 55 * 0.6 / 22), 0, 0, 0])


def test_one_peer_is_no_evidence_and_other_kinds_are_no_peers():
    assert unexplained_us([gemm(600_000, 88.0), gemm(22_000_000, 55.0), gemm(100_000, 2.0)]) == [0, 0, 0]
    others = [gemm(22_000_000, 55.0, "conv"), gemm(22_000_000, 55.0, "conv")]
    assert unexplained_us([gemm(600_000, 88.0), *others]) == [0, 0, 0]


def test_a_group_that_moves_more_bytes_is_no_smaller_one():
    reads_much = GroupTime("gemm", 1_200_000, 10**8, 88.0)
    assert unexplained_us([reads_much, gemm(22_000_000, 55.0), gemm(22_000_000, 55.0), None]) == [0, 0, 0, 0]


def test_a_group_without_work_or_time_is_not_judged():
    assert unexplained_us([gemm(0, 88.0), gemm(22_000_000, 0.0), None]) == [0, 0, 0]
