"""The file of the rules: what is wrong in it is refused in one line."""

import re

import pytest

from common.artifacts.columns import COLUMNS
from common.bottlenecks.rules import Condition, read_rules
from common.files.configuration import TRUST, Section
from common.files.yaml_file import load_yaml
from common.messages.errors import ConfigurationError
from tests.support.tables.bottlenecks import FILE

THRESHOLD = {"above": 3, "source": "by hand", "trust": "assumed"}
RULE = {"about": "kind", "when": {"bytes": THRESHOLD}, "hazard": "none", "remedy": "none", "source": "by hand"}
SHARES = {"low": 0.25, "likely": 0.5, "high": 0.75, "source": "by hand", "trust": "derived"}


def read(**changes):
    cells = {key: value for key, value in {**RULE, **changes}.items() if value is not None}
    return read_rules(Section(FILE, {"rules": {"own": cells}}), COLUMNS)


def test_a_rule_is_read():
    (rule,) = read(kept="roof_us", evidence=["macs", "bytes"])
    assert (rule.name, rule.kept, rule.facts) == ("own", "roof_us", ("bytes", "macs"))
    assert str(rule.when[0]) == "bytes above 3"
    assert rule.relaxed == rule
    assert (rule.realized.low, rule.realized.likely, rule.realized.high) == (0, 1, 1)


def test_near_misses_and_measured_shares_are_read():
    (rule,) = read(when={"bytes": {**THRESHOLD, "near": 2}}, realized=SHARES)
    assert not rule.when[0].holds(2.5)
    assert rule.relaxed.when[0].holds(2.5)
    assert not rule.relaxed.when[0].holds(2)
    assert (rule.realized.low, rule.realized.likely, rule.realized.high) == (0.25, 0.5, 0.75)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"about": "nodes"}, "rules.own.about is 'nodes'"),
        ({"when": {"bytes": {"above": 3}}}, "rules.own.when.bytes.source is missing"),
        ({"when": {"bytes": {"over": 3}}}, "rules.own.when.bytes has no test"),
        ({"when": {"bytes": {**THRESHOLD, "above": "many"}}}, "rules.own.when.bytes.above is 'many'"),
        ({"when": {"bytes": {**THRESHOLD, "below": 5}}}, "unknown key 'rules.own.when.bytes.above'"),
        ({"when": {"bytes": {**THRESHOLD, "near": 5}}}, "rules.own.when.bytes.near is 5"),
        ({"when": {"bytes": {**THRESHOLD, "near": "many"}}}, "rules.own.when.bytes.near is 'many'"),
        ({"realized": {**SHARES, "low": 2}}, "rules.own.realized needs low <= likely <= high"),
        ({"realized": {**SHARES, "trust": "sure"}}, "rules.own.realized.trust is 'sure'"),
        ({"kept": 2}, "rules.own.kept is 2"),
        ({"kept": -0.5}, "rules.own.kept is -0.5"),
        ({"evidence": "macs"}, "rules.own.evidence is not a list"),
        ({"evidence": [3]}, "rules.own.evidence is not a list of names"),
        ({"remedy": None}, "rules.own.remedy is missing"),
        ({"chains": ["Conv > Relu"]}, "unknown key 'rules.own.chains'"),
        ({"about": "pattern"}, "rules.own.chains is missing"),
        ({"about": "pattern", "chains": ["Conv > Relu"], "stays": "second"}, "rules.own.stays is 'second'"),
        ({"about": "pattern", "chains": ["Conv"], "stays": "first"}, "rules.own.chains holds what is no chain"),
        ({"about": "pattern", "chains": ["Conv > "], "stays": "first"}, "rules.own.chains holds what is no chain"),
        ({"when": {"roof_shar": THRESHOLD}}, "rules.own names no figure of a table: 'roof_shar'; similar: roof_share"),
        ({"evidence": ["mac"]}, "rules.own names no figure of a table: 'mac'"),
        ({"kept": "half_us"}, "rules.own names no figure of a table: 'half_us'"),
        ({"gain_from": "half"}, "rules.own names no figure of a table: 'half_us'"),
        ({"colour": "red"}, "unknown key 'rules.own.colour'"),
    ],
)
def test_what_is_wrong_is_named(changes, problem):
    with pytest.raises(ConfigurationError, match=re.escape(problem)) as caught:
        read(**changes)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("test", "against", "holds", "holds_not"),
    [
        ("is", ("Conv", "Gemm"), ["Conv", "Gemm"], ["Relu", None]),
        ("is_not", ("If",), ["Relu"], ["If", None]),
        ("is", (True,), [True], [False, None]),
        ("below", 0.5, [0.4], [0.5, 0.6, None]),
        ("above", 0.5, [0.6], [0.5, 0.4, None, "Conv"]),
    ],
)
def test_an_unknown_figure_fulfils_no_condition(test, against, holds, holds_not):
    condition = Condition("fact", test, against)
    assert all(condition.holds(value) for value in holds)
    assert not any(condition.holds(value) for value in holds_not)


def test_every_threshold_of_the_file_has_a_source():
    def thresholds(content):
        for value in content.values() if isinstance(content, dict) else ():
            if isinstance(value, dict) and value.keys() & {"above", "below"}:
                yield value
            yield from thresholds(value)

    found = list(thresholds(load_yaml(FILE)))
    assert len(found) > 30
    assert all(one["source"] and one["trust"] in TRUST for one in found)
