"""Constants of a configuration: an interval that is none is refused with one clear line."""

from pathlib import Path

import pytest

from common.files.configuration import Section
from common.messages.errors import ConfigurationError

ORIGIN = {"source": "by hand", "trust": "assumed"}


def constant(**numbers):
    return Section(Path("own.yaml"), {"power_w": {**numbers, **ORIGIN}}).constant("power_w")


def test_a_constant_has_a_likely_value_and_two_ends():
    read = constant(low=2, likely=3, high=7)
    assert (read.at("low"), read.at("likely"), read.at("high")) == (2.0, 3.0, 7.0)
    exact = constant(value=5)
    assert {exact.at("low"), exact.at("likely"), exact.at("high")} == {5.0}


@pytest.mark.parametrize("others", [{"low": 2}, {"high": 7}, {"likely": 3}, {"low": 2, "high": 7}])
def test_a_value_beside_an_interval_is_refused(others):
    with pytest.raises(ConfigurationError) as caught:
        constant(value=3, **others)
    assert str(caught.value) == (
        "own.yaml: power_w has a value beside an interval; give low, likely and high, or value alone"
    )
