"""The roofline by hand: a peak of 1009 and a bandwidth of 17 meet at 1009 / 17 FLOP/byte."""

import pytest

from common.errors import UpstreamError
from common.roofline import Ceilings, Place, attainable_flop_per_s, place, require_same_host

ROOFS = Ceilings(1009.0, 17.0)
HOST = {"threads": 3, "cpu_model": "synthetic 7"}


def test_ridge_point():
    assert ROOFS.ridge_flop_per_byte == pytest.approx(59.35294117647059)  # 1009 / 17


@pytest.mark.parametrize(("intensity", "expected"), [(0, 0), (13, 221), (59, 1003), (60, 1009), (9973, 1009)])
def test_attainable(intensity, expected):
    assert attainable_flop_per_s(ROOFS, intensity) == expected  # 13 * 17 = 221, 59 * 17 = 1003


def test_memory_bound():
    """209 FLOPs over 19 bytes are 11 FLOP/byte; in 23 s 209 / 23 of 11 * 17 = 187 FLOP/s."""
    found = place(ROOFS, 209, 19, 23e6)
    assert found.arithmetic_intensity_flop_per_byte == 11
    assert found.attained_flop_per_s == pytest.approx(209 / 23)
    assert found.attained_bytes_per_s == pytest.approx(19 / 23)
    assert (found.attainable_flop_per_s, found.bound) == (187, "memory")
    assert found.roof_share == pytest.approx(209 / 23 / 187)


def test_compute_bound():
    """427 FLOPs over 7 bytes are 61 FLOP/byte, right of the ridge; in 29 s 427 / 29 of 1009 FLOP/s."""
    found = place(ROOFS, 427, 7, 29e6)
    assert (found.arithmetic_intensity_flop_per_byte, found.attainable_flop_per_s, found.bound) == (61, 1009, "compute")
    assert found.roof_share == pytest.approx(427 / 29 / 1009)


def test_at_the_ridge_it_is_compute_bound():
    assert place(Ceilings(77.0, 7.0), 11, 1, 1e6).bound == "compute"


def test_without_flops_the_share_is_that_of_the_bandwidth():
    found = place(ROOFS, 0, 31, 5e6)
    assert (found.arithmetic_intensity_flop_per_byte, found.attained_flop_per_s, found.bound) == (0, 0, "memory")
    assert found.attainable_flop_per_s == 0
    assert found.roof_share == pytest.approx(31 / 5 / 17)


def test_without_bytes_the_intensity_is_unknown_and_the_roof_is_flat():
    found = place(ROOFS, 2018, 0, 1e6)
    assert found.arithmetic_intensity_flop_per_byte is None
    assert (found.attainable_flop_per_s, found.roof_share, found.bound) == (1009, 2, "compute")


def test_a_share_above_one_is_kept():
    assert place(ROOFS, 209, 19, 1e6).roof_share == pytest.approx(209 / 187)


def test_no_time_gives_no_rate():
    assert place(ROOFS, 209, 19, 0.0) == Place(11, None, None, 187, None, "memory")


def test_no_work_has_no_place():
    assert place(ROOFS, 0, 0, 1e6) == Place(None, 0, 0, None, None, None)


@pytest.mark.parametrize(("flops", "size", "rates"), [(None, 19, (None, 19)), (209, None, (209, None))])
def test_an_unknown_has_no_place(flops, size, rates):
    assert place(ROOFS, flops, size, 1e6) == Place(None, *rates, None, None, None)


def test_the_same_host_is_accepted():
    require_same_host("host_ceilings.json", {**HOST, "peak_operator": "Conv"}, 3, "synthetic 7")


@pytest.mark.parametrize(("key", "other"), [("threads", 2), ("cpu_model", "synthetic 5")])
def test_another_host_is_refused_with_both_named(key, other):
    with pytest.raises(UpstreamError) as caught:
        require_same_host("host_ceilings.json", HOST | {key: other}, 3, "synthetic 7")
    text = str(caught.value)
    assert text.startswith(f"host_ceilings.json: measured with {key} {other}, the profile with {HOST[key]}; run 00")
    assert "--threads 3" in text
