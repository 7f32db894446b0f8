"""Names and widths of number formats and element types."""

from __future__ import annotations

import pytest

from common.graphs.number_formats import (
    FLOAT_FORMATS,
    MEASURED_PEAKS,
    PRECISION_BITS,
    element_bits,
    element_type_name,
    stored_elements,
)


@pytest.mark.parametrize(
    ("element_type", "bits"),
    [
        ("float32", 32),
        ("bfloat16", 16),
        ("uint4", 4),
        ("float8e4m3fn", 8),
        ("float4e2m1", 4),
        ("complex128", 128),
        ("bool", 8),
        ("string", None),
        ("undefined", None),
        ("5" * 5000, None),
    ],
)
def test_the_width_of_an_element_type(element_type, bits):
    assert element_bits(element_type) == bits


def test_short_names_get_their_width():
    assert [element_type_name(name) for name in ("float", "DOUBLE", "BFLOAT16", "int64")] == [
        "float32",
        "float64",
        "bfloat16",
        "int64",
    ]


def test_stored_elements_follow_the_width():
    assert stored_elements(7 * 4, "float32") == 7
    assert stored_elements(7, "float8e5m2") == 7
    assert stored_elements(11, "int4") == 22
    assert stored_elements(11, "string") is None


def test_a_floating_point_element_type_is_as_wide_as_its_format():
    kernel_formats = {name: format for name, format in FLOAT_FORMATS.items() if format in PRECISION_BITS}
    assert set(kernel_formats.values()) == {"fp64", "fp32", "bf16"}
    assert {name: element_bits(name) for name in kernel_formats} == {
        name: PRECISION_BITS[format] for name, format in kernel_formats.items()
    }
    assert set(FLOAT_FORMATS.values()) - set(PRECISION_BITS) == {"fp16"}  # measured on a host, on no board


def test_every_measured_peak_has_a_column_of_its_own():
    assert len(set(MEASURED_PEAKS.values())) == len(MEASURED_PEAKS) == 4
