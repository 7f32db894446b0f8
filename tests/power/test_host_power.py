"""Power of the host from the name of its processor: the law with the arithmetic written out, and who counts."""

from math import hypot, log
from pathlib import Path

import pytest
import yaml

from common.files.configuration import Section
from common.messages.errors import ConfigurationError, UnusableValueError
from common.power.bounded_value import BoundedValue, independent_product, independent_sum
from common.power.host_power import host_power, idle_fraction
from common.power.processor_law import read_processor_law
from common.power.processors import HostFacts, Processor, read_processors
from tests.support.paths import ROOT

PROCESSORS_YAML = ROOT / "configs" / "processors.yaml"
GIB = 2**30
TABLE = {
    "intel xeon gold 6130": Processor("intel xeon gold 6130", 125.0),
    "intel xeon platinum 8259cl": Processor("intel xeon platinum 8259cl", 210.0, 48),
    "amd epyc 7763": Processor("amd epyc 7763", 280.0),
    "intel core i7-1185g7": Processor("intel core i7-1185g7", 28.0),
}
SERVER = HostFacts("Intel(R) Xeon(R) Gold 6130 CPU @ 2.10GHz", (6, 85), 64, 32, 2, 96 * GIB)


@pytest.fixture(scope="module")
def law():
    return read_processor_law(Section.of_file(PROCESSORS_YAML))


def virtual(name, signature=None, threads=4):
    return HostFacts(name, signature, threads, threads // 2, 1, 16 * GIB, is_virtual=True)


# --- intervals ------------------------------------------------------------------------------------------------------


def test_independent_errors_add_in_quadrature_and_those_of_factors_in_logarithms():
    first, second = BoundedValue(10.0, 7.0, 15.0, "modelled"), BoundedValue(20.0, 16.0, 32.0, "modelled")
    assert independent_sum(first, second) == BoundedValue(30.0, 30.0 - 5.0, 30.0 + 13.0, "modelled")
    product = independent_product(first, second)
    assert product.likely == 200.0
    assert log(200.0 / product.low) == pytest.approx(hypot(log(10 / 7), log(20 / 16)))
    assert log(product.high / 200.0) == pytest.approx(hypot(log(15 / 10), log(32 / 20)))


# --- the law --------------------------------------------------------------------------------------------------------


def test_power_rises_from_idle_to_full_load_over_the_cores_in_use(law):
    idle, full = 0.13, 0.93
    expected = {0.0: idle, 0.05: idle + (full - idle) * 0.111, 0.3: idle + (full - idle) * 0.461, 1.0: full}
    for share, watts in expected.items():
        assert law.share_of_tdp("intel_server", share) == pytest.approx(watts)


def test_a_machine_counts_with_all_its_packages_and_its_memory(law):
    power = host_power(law, TABLE, SERVER, 16)
    share = 0.13 + (0.93 - 0.13) * 0.7  # half of 32 cores
    memory_w = 0.10 * 96
    assert power.average.likely == pytest.approx(2 * 125 * share + memory_w)
    assert power.static.likely == pytest.approx(2 * 125 * 0.13 + memory_w)
    down = hypot(2 * 125 * share * (1 - 0.54 / 0.93), (0.10 - 0.06) * 96)
    assert power.average.low == pytest.approx(power.average.likely - down)
    assert (power.boundary, power.notes) == ("all 2 packages and memory", ())
    assert host_power(law, TABLE, SERVER, 99).average.likely == pytest.approx(2 * 125 * 0.93 + memory_w)


def test_the_interval_of_every_named_processor_is_at_most_a_factor_of_three(law):
    for processor in read_processors().values():
        for cores_in_use in (1, 16):
            facts = HostFacts(processor.name, None, 32, 16, 1, 32 * GIB)
            power = host_power(law, {processor.name: processor}, facts, cores_in_use)
            assert power.average.high / power.average.low <= 3
            assert power.static.likely < power.average.likely


def test_a_memory_of_unknown_size_does_not_count_and_the_boundary_says_so(law):
    power = host_power(law, TABLE, HostFacts(SERVER.cpu_model, None, 32, 16, 1, None), 16)
    assert power.average.likely == pytest.approx(125 * 0.93)
    assert power.boundary.endswith("the size of the memory is unknown, so it does not count")


# --- machines that hide something -----------------------------------------------------------------------------------


def test_a_virtual_machine_counts_with_its_threads_of_the_package_and_says_what_it_does_not_see(law):
    power = host_power(law, TABLE, virtual("AMD EPYC 7763 64-Core Processor"), 2)
    assert power.average.likely == pytest.approx(280 * 4 / 128 * 0.93 + 0.10 * 16)
    assert power.boundary == (
        "4 of the 128 hardware threads of a package, and the memory that the virtual machine sees"
    )
    assert power.notes == (
        "a virtual machine does not see its other hardware threads, what runs on them, and the rest of the memory",
    )
    assert power.average.high / power.average.low <= 3
    told = host_power(law, TABLE, virtual("Intel(R) Xeon(R) Platinum 8259CL CPU @ 2.50GHz"), 2)
    assert told.boundary.startswith("4 of the 48 hardware threads")


def test_a_hidden_name_leaves_the_family_and_a_wider_interval(law):
    named = host_power(law, TABLE, virtual("Intel(R) Xeon(R) Platinum 8259CL CPU @ 2.50GHz"), 2)
    hidden = host_power(law, TABLE, virtual("Intel(R) Xeon(R) Processor", (6, 85)), 2)
    assert hidden.average.likely == pytest.approx(4 * 4.4 * 0.93 + 0.10 * 16)
    assert hidden.average.high / hidden.average.low > named.average.high / named.average.low
    assert "does not see the name of its processor (Skylake-SP or Cascade Lake, 3.1 to 6.7 W" in hidden.notes[0]
    machine = host_power(law, TABLE, HostFacts("Intel(R) Xeon(R) Gold 6999", (6, 85), 40, 20, 1, None), 20)
    assert machine.average.likely == pytest.approx(40 * 4.4 * 0.93)
    assert "is in no table; its family" in machine.notes[0]


def test_the_user_can_name_what_a_machine_hides(law):
    hidden = virtual("Intel(R) Xeon(R) Processor", (6, 85))
    power = host_power(law, TABLE, hidden, 2, cpu="Intel Xeon Platinum 8259CL")
    assert power.boundary.startswith("4 of the 48 hardware threads")
    elsewhere = host_power(law, TABLE, HostFacts(), 2, cpu="Intel Xeon Gold 6130")
    assert elsewhere.average.likely == pytest.approx(125 * 0.93)
    assert elsewhere.notes == ("how many cores the host has is unknown; all count as busy",)
    of_64 = host_power(law, TABLE, HostFacts(), 32, cpu="AMD EPYC 7763 64-Core Processor")
    assert of_64.average.likely == pytest.approx(280 * (0.29 + (0.93 - 0.29) * 0.7))
    assert of_64.notes == ()


def test_a_guest_on_a_laptop_is_taken_for_the_whole_machine(law):
    power = host_power(law, TABLE, virtual("11th Gen Intel(R) Core(TM) i7-1185G7 @ 3.00GHz", threads=8), 4)
    assert power.average.likely == pytest.approx(28 * 0.93 + 0.10 * 16)
    assert "taken for the whole machine" in power.notes[0]


@pytest.mark.parametrize(
    "facts",
    [
        HostFacts(),
        HostFacts("Cortex-A72", None, 4, 4, 1, GIB),
        HostFacts("AMD Ryzen 9 9999Z", (23, 1), 16, 8, 1, GIB),  # Naples has the same signature
        virtual("QEMU Virtual CPU version 2.5+", (6, 85)),
        virtual("Intel(R) Xeon(R) Processor", (6, 1)),
        HostFacts("Intel(R) Xeon(R) Processor", (6, 85), is_virtual=True),
    ],
)
def test_an_unknown_processor_has_no_power(law, facts):
    assert host_power(law, TABLE, facts, 2) is None


def test_the_idle_share_of_an_unknown_processor_covers_all_kinds(law):
    fraction = idle_fraction(law)
    assert (fraction.low, fraction.likely, fraction.high) == pytest.approx((0.015 / 0.93, 0.13 / 0.93, 0.4 / 0.93))


# --- configs/processors.yaml ----------------------------------------------------------------------------------------


def test_the_memory_costs_what_that_of_the_card_does(law):
    """Host and card are compared, so one byte of DDR has one cost."""
    card = Section.of_file(ROOT / "configs" / "card_energy.yaml").section("memory_pj_per_byte").constant("ddr")
    division = Section.of_file(ROOT / "configs" / "energy.yaml").section("models").section("server-cpu")
    dram = division.section("movement_pj_per_byte").constant("dram")
    for constant in (card, dram):
        assert (constant.low, constant.likely, constant.high) == (
            law.dram_pj_per_byte.low,
            law.dram_pj_per_byte.likely,
            law.dram_pj_per_byte.high,
        )


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (("busy_share", "points"), [[0, 0], [0.5, 0.7]], "busy_share.points do not rise from 0 to 1"),
        (("busy_share", "points"), [[0, 0], [0.5, 0.5], [0.4, 0.6], [1, 1]], "busy_share.points do not rise"),
        (("busy_share", "points"), [[0, 0], [1]], "points has an entry that is not a pair of numbers"),
        (("idle_share_of_tdp", "amd_server"), None, "idle_share_of_tdp.amd_server is not a mapping"),
        (("families", 0, "maker"), "via", "maker is 'via'; it takes intel or amd"),
        (("families", 0, "signatures"), [["6", 85]], "signatures has an entry that is not a pair of numbers"),
        (("memory", "size"), 1, "unknown key 'memory.size'"),
    ],
)
def test_a_mistake_in_the_configuration_is_named_where_it_stands(path, value, message):
    content = yaml.safe_load(PROCESSORS_YAML.read_text(encoding="utf-8"))
    place = content
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    with pytest.raises(ConfigurationError, match=message):
        read_processor_law(Section(Path("processors.yaml"), content))


def test_a_processor_that_the_user_names_on_a_virtual_machine_counts_or_is_refused(law):
    """The family by CPUID would count instead, whatever was named."""
    guest = virtual("Intel(R) Xeon(R) Processor", (6, 207), threads=2)
    named = host_power(law, TABLE, guest, 2, "Intel Xeon Gold 6130 16-Core")
    assert "6130" in named.name and named.boundary.startswith("2 of the 32 hardware threads")
    with pytest.raises(UnusableValueError, match="how many cores it has is unknown"):
        host_power(law, TABLE, guest, 2, "Intel Xeon Gold 6130")
