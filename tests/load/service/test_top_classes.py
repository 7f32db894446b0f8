"""The classes that are answered, against a sort of all of them and SciPy's softmax."""

import numpy as np
import pytest
from scipy.special import softmax

from common.load.service.side_work import TopClasses, top_classes
from common.messages.errors import UnusableValueError


@pytest.mark.parametrize("shape", [(7, 23), (7, 23, 1, 1)])
@pytest.mark.parametrize("count", [1, 5, 23])
def test_against_a_sort_of_all_classes(shape, count):
    scores = np.random.default_rng(3).standard_normal(shape).astype(np.float32)
    rows = scores.reshape(7, 23)
    classes, shares = top_classes(scores, count)
    assert classes.tolist() == np.argsort(-rows, axis=1)[:, :count].tolist()
    assert shares == pytest.approx(np.take_along_axis(softmax(rows.astype(float), axis=1), classes, 1))


def test_large_scores_do_not_overflow():
    classes, shares = top_classes(np.array([[1e4, 0.0, 1e4 - 1]], np.float32), 2)
    assert classes.tolist() == [[0, 2]]
    assert shares[0] == pytest.approx([1 / (1 + np.exp(-1)), 1 / (1 + np.exp(1))])


@pytest.mark.parametrize(
    ("scores", "found"),
    [
        (np.zeros((3, 4), np.float32), r"float32 of shape \[3, 4\]"),
        (np.zeros((3, 7), np.int64), r"int64 of shape \[3, 7\]"),
        (np.zeros(7, np.float32), r"float32 of shape \[7\]"),
        (np.zeros((3, 7, 2, 1), np.float32), r"float32 of shape \[3, 7, 2, 1\]"),
    ],
)
def test_an_output_without_scores_is_refused(scores, found):
    with pytest.raises(UnusableValueError, match=f"<top_k>: 5, but the model's first output is {found}"):
        TopClasses(5).answered([scores], len(scores))


def test_a_value_of_a_type_that_numpy_lacks_is_refused():
    with pytest.raises(UnusableValueError, match="of a type that numpy lacks"):
        TopClasses(5).answered([object()], 1)
