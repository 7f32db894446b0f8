"""Processors by name, and what a sidecar says about the host."""

import pytest

from common.messages.errors import ConfigurationError, UnusableValueError
from common.power.processors import (
    HostFacts,
    Processor,
    known_processor,
    named_threads,
    plain_name,
    read_processors,
)
from common.process.host_identity import host_identity


@pytest.fixture(scope="module")
def table():
    return read_processors()


@pytest.mark.parametrize(
    ("text", "name", "tdp_w"),
    [
        ("Intel(R) Xeon(R) Gold 6130 CPU @ 2.10GHz", "intel xeon gold 6130", 125),
        ("Intel(R) Xeon(R) CPU E5-2620 v3 @ 2.40GHz", "intel xeon e5-2620 v3", 85),
        ("11th Gen Intel(R) Core(TM) i7-1185G7 @ 3.00GHz", "intel core i7-1185g7", 28),
        ("AMD EPYC 7763 64-Core Processor", "amd epyc 7763", 280),
        ("AMD Ryzen 5 1600 Six-Core Processor", "amd ryzen 5 1600", 65),
        ("AMD Ryzen 7 PRO 4750U with Radeon Graphics", "amd ryzen 7 pro 4750u", 15),
        ("AMD Ryzen 5 3500U with Radeon Vega Mobile Gfx", "amd ryzen 5 3500u", 15),
        ("Intel(R) Xeon(R) CPU Max 9480", "intel xeon max 9480", 350),
    ],
)
def test_the_names_that_systems_give_are_found(table, text, name, tdp_w):
    assert plain_name(text) == name
    assert table[name].tdp_w == tdp_w


@pytest.mark.parametrize(
    "text", ["Intel(R) Xeon(R) Processor", "AMD EPYC-Rome Processor", "QEMU Virtual CPU", "", "i7"]
)
def test_a_name_that_says_no_model_is_not_matched_with_a_similar_one(table, text):
    assert plain_name(text) not in table


def test_every_row_is_usable_and_has_its_source(table):
    assert len(table) > 2_900
    assert all(4 <= processor.tdp_w <= 600 for processor in table.values())
    assert table["intel xeon platinum 8259cl"] == Processor("intel xeon platinum 8259cl", 210.0, 48)


def test_threads_follow_from_a_count_of_cores_in_the_name():
    assert named_threads("AMD EPYC 7763 64-Core Processor") == 128
    assert named_threads("AMD Ryzen 5 1600 Six-Core Processor") is None
    assert named_threads("AMD EPYC 7R32") is None


def test_a_processor_that_the_user_names_must_be_known(table):
    assert known_processor(table, "Intel Xeon Gold 6130").tdp_w == 125
    with pytest.raises(
        UnusableValueError, match="<cpu>: no processor is called 'Xeon Gold 6310'; did you mean"
    ) as caught:
        known_processor(table, "Xeon Gold 6310")
    assert caught.value.exit_code == 2


def test_a_damaged_table_is_named_with_its_line(tmp_path):
    path = tmp_path / "processors.csv"
    path.write_text("processor,tdp_w,threads,source,date\na,3,,s,d\nb,three,,s,d\n", encoding="utf-8")
    with pytest.raises(ConfigurationError, match=r"processors\.csv: line 3 is unusable"):
        read_processors(path)


def test_this_host_has_its_facts():
    facts = HostFacts.of(host_identity())
    assert facts.thread_count == host_identity()["cpu_count"]
    assert facts.core_count is None or facts.core_count <= facts.thread_count


def test_facts_of_another_type_and_of_older_sidecars_are_unknown():
    odd = {"is_virtual": 1, "cpu_signature": [6, "85"], "cpu_model": 7, "cpu_count": True, "memory_bytes": -5}
    odd |= {"package_count": 10**400, "core_count": 1.5}
    assert HostFacts.of(odd) == HostFacts()
    assert HostFacts.of({"cpu_model": "AMD EPYC 7763 64-Core Processor", "cpu_count": 4}) == HostFacts()
