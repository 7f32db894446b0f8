"""Errors of outputs worked out by hand."""

import math

import numpy as np
import pytest

from common.runtime.provider_matrix import output_errors


def only(found, expected):
    return output_errors(["y"], [found], [expected])[0]


def test_the_three_errors():
    error = only(np.array([3.0, 5.0, 0.5], np.float32), np.array([4.0, 5.0, 0.0], np.float32))
    assert error.max_abs_error == 1.0
    assert error.max_rel_error == 0.25  # the last element has no relative error: 0 was expected
    assert error.cosine_error == pytest.approx(1 - 37 / math.sqrt(34.25 * 41))


def test_equal_outputs_have_no_error():
    values = np.random.default_rng(0).standard_normal((3, 5))
    error = only(values, values.copy())
    assert (error.max_abs_error, error.max_rel_error) == (0.0, 0.0)
    assert error.cosine_error == pytest.approx(0.0, abs=1e-12)


def test_opposite_outputs_have_a_cosine_error_of_two():
    assert only(np.array([1.0, -2.0]), np.array([-1.0, 2.0])).cosine_error == pytest.approx(2.0)


def test_integers_do_not_wrap():
    assert only(np.array([0], np.uint8), np.array([255], np.uint8)).max_abs_error == 255.0


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_what_is_no_number_has_no_error(value):
    error = only(np.array([value, 1.0]), np.array([1.0, 1.0]))
    assert error.max_abs_error is None and error.is_equal_shape


def test_shapes_that_differ():
    error = only(np.zeros((2, 3)), np.zeros((3, 2)))
    assert not error.is_equal_shape
    assert error.max_abs_error is error.max_rel_error is error.cosine_error is None


def test_empty_outputs_and_zeros_agree():
    assert only(np.zeros((0, 3)), np.zeros((0, 3))).max_abs_error == 0.0
    assert only(np.zeros(3), np.zeros(3)).cosine_error == 0.0
    assert only(np.ones(3), np.zeros(3)).cosine_error is None


def test_texts_agree_or_do_not():
    assert only(np.array(["a"], object), np.array(["a"], object)).max_abs_error == 0.0
    assert only(np.array(["a"], object), np.array(["b"], object)).max_abs_error is None
