"""The roofline by hand: a peak of 1009 and a bandwidth of 17 meet at 1009 / 17 FLOP/byte."""

import pytest

from common.messages.errors import UpstreamError
from common.roofline import (
    Ceilings,
    Place,
    Roofs,
    attainable_flop_per_s,
    given_roofs,
    missing_peak_notes,
    number_format,
    place,
    require_same_host,
    roofs_of,
)

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


def test_unstable_ceilings_do_not_say_what_bounds_near_the_ridge():
    """Roofs that were measured at up to 1/3 too low meet between 7 · 2/3 and 7 · 3/2 FLOP/byte."""
    differences = {
        "peak_halves_difference_share": 0.07,
        "int8_halves_difference_share": None,
        "memory_halves_difference_share": 1 / 3,
        "lost_to_threads_share": 0.0,
    }
    measured = {**MEASURED, **differences, "peak_flop_per_s": 119.0}
    unstable = roofs_of({**measured, "stable": False}, None, None).under("fp32")
    assert [unstable.bound(intensity) for intensity in (0, 4.6, 4.7, 7, 10.4, 10.6)] == [
        *("memory", "memory", None, None, None, "compute")
    ]
    assert place(unstable, 70, 10, 1e6).bound is None
    stable = roofs_of(measured, None, None).under("fp32")
    assert [stable.bound(intensity) for intensity in (6.9, 7)] == ["memory", "compute"]


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
    assert text.startswith(f"host_ceilings.json: measured with {key} {other}, the profile with {HOST[key]}; ")
    assert "rerun <host_ceilings> with 3 threads" in text


# --- number formats -------------------------------------------------------------------------------------------------

MEASURED = {
    "stable": True,
    "last_level_cache_bytes": None,
    "memory_bytes_per_s": 17.0,
    "peak_flop_per_s": 1009.0,
    "int8_op_per_s": 4001.0,
    "fp16_flop_per_s": 2003.0,
    "bf16_flop_per_s": None,
}
OF_INT8 = (
    "QLinearConv",
    "QLinearMatMul",
    "MatMulInteger",
    "ConvInteger",
    "QGemm",
    "MatMulIntegerToFloat",
    "QAttention",
)


@pytest.mark.parametrize(
    ("op_type", "dtype", "expected"),
    [
        *((name, dtype, "int8") for name in OF_INT8 for dtype in ("uint8", "int32", "float32")),
        ("Conv", "float32", "fp32"),
        ("MatMul", "float16", "fp16"),
        ("MatMul", "bfloat16", "bf16"),
        ("MatMulNBits", "float32", "fp32"),
        ("QLinearAdd", "uint8", "fp32"),
        ("Conv", "float64", "fp32"),
        ("Unheard", "", "fp32"),
    ],
)
def test_the_format_that_an_operator_multiplies_in(op_type, dtype, expected):
    assert number_format(op_type, dtype) == expected


def test_each_format_has_its_roof_and_one_without_peak_that_of_fp32():
    roofs = roofs_of(MEASURED, None, None)
    assert [roofs.roof("QGemm", "uint8"), roofs.roof("Conv", "float16"), roofs.roof("Conv", "bfloat16")] == [
        "int8",
        "fp16",
        "fp32",
    ]
    assert roofs.under("int8") == Ceilings(4001.0, 17.0)
    assert roofs.under("fp32") == Ceilings(1009.0, 17.0)


def test_a_given_peak_holds_for_all_formats():
    roofs = roofs_of(MEASURED, 31.0, None)
    assert (roofs.roof("QGemm", "uint8"), roofs.under("given")) == ("given", Ceilings(31.0, 17.0))
    assert given_roofs(31.0, 13.0) == Roofs(13.0, {"given": 31.0})
    assert roofs_of(MEASURED, None, 13.0).under("fp16") == Ceilings(2003.0, 13.0)


def test_products_in_a_format_without_peak_are_noted():
    def row(op_type, dtype, macs, roof="fp32"):
        return {"op_type": op_type, "dtype": dtype, "macs": macs, "roof": roof}

    rows = [row("QGemm", "uint8", 7), row("QLinearConv", "uint8", 5), row("MatMul", "bfloat16", 3), row("Conv", "", 2)]
    rows += [row("Cast", "float16", 0), row("QGemm", "uint8", None)]
    int8, bf16 = missing_peak_notes(Roofs(17.0, {"fp32": 1009.0}), rows)
    assert int8.startswith("no int8 ceiling was measured: 2 nodes are judged by the fp32 roof; rerun <host_ceilings>, ")
    assert bf16.startswith("no bf16 ceiling was measured: 1 nodes")
    assert missing_peak_notes(Roofs(17.0, {"given": 1.0}), [row("QGemm", "uint8", 7, "given")]) == []
