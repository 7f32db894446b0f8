"""configs/hardware: figures that DOSA and FA-DOSA publish, sizes that follow from them, and files that are refused."""

import re
from dataclasses import replace

import pytest

from common.design_space.accelerator.hardware_files import load_hardware, read_hardware
from common.files.configuration import Section
from common.messages.errors import ConfigurationError, UnusableValueError
from tests.support.paths import ROOT

FOLDER = ROOT / "configs" / "hardware"
TEXT = (FOLDER / "gemmini.yaml").read_text(encoding="utf-8")


@pytest.fixture
def gemmini():
    return load_hardware("gemmini", FOLDER)


def read(tmp_path, text):
    file = tmp_path / "mine.yaml"
    file.write_text(text, encoding="utf-8")
    return read_hardware(Section.of_file(file))


@pytest.mark.parametrize("name", ["gemmini", "fa-dosa", "u280", "eyeriss", "tpu-v1", "nvdla", "simba", "dpu-b4096"])
def test_a_file_of_the_project_is_read(name):
    hardware = load_hardware(name, FOLDER)
    assert hardware.name == name
    assert hardware.levels[0].name == "dram"


def test_gemmini_has_the_energies_of_dosa(gemmini):
    # Hong et al., MICRO 2023, energy_model.py: accumulator 0.1005 pJ per KiB of a column + 1.94 for four bytes,
    # scratchpad 0.02513 pJ per KiB + 0.49 for a byte. The default has 32 KiB over 16 columns, and 128 KiB.
    energies = {level.name: level.pj_per_word for level in gemmini.levels}
    assert energies["accumulator"] == pytest.approx(0.1005 * 32 / 16 + 1.94)
    assert energies["scratchpad"] == pytest.approx(0.02513 * 128 + 0.49)
    assert energies["dram"] == 100
    assert gemmini.level("accumulator").capacity_words == 512
    assert gemmini.level("registers").capacity_words == 1


def test_fa_dosa_computes_at_its_rate_and_pays_for_each_kib():
    hardware = load_hardware("fa-dosa", FOLDER)
    assert hardware.array.elements == 1000  # per cycle of 1 ns: 1000 GMAC/s
    assert hardware.level("buffer").pj_per_word == pytest.approx(4 * (0.25 + 28 * 0.0001))
    assert hardware.area_mm2 == pytest.approx(0.0028)


def test_another_array_keeps_the_size_of_a_copy_unless_the_size_of_all_is_given(gemmini):
    assert gemmini.resized(columns=32).level("accumulator").capacity_kib == 2
    sized = gemmini.resized(rows=8, columns=32, capacity_kib={"accumulator": 96, "scratchpad": 7})
    assert sized.level("accumulator").capacity_kib == 3
    assert sized.level("scratchpad").capacity_kib == 7
    assert sized.array.elements == 8 * 32


def test_the_area_is_that_of_elements_columns_and_memories(gemmini):
    expected = 256 * 0.000387 + 16 * 0.00248 + 128 * 0.00264 + 32 * 0.0056
    assert gemmini.area_mm2 == pytest.approx(expected)


def test_an_unknown_area_is_not_zero(gemmini):
    bare = replace(gemmini.array, element_mm2=None, column_mm2=None)
    levels = tuple(replace(level, area_mm2_per_kib=None) for level in gemmini.levels)
    assert replace(gemmini, array=bare, levels=levels).area_mm2 is None


@pytest.mark.parametrize(("kib", "fits"), [(2 / 1024, True), (1 / 1024, False)])
def test_a_memory_holds_at_least_a_word_of_each_of_its_operands(gemmini, kib, fits):
    if fits:
        assert gemmini.resized(capacity_kib={"scratchpad": kib}).level("scratchpad").capacity_words == 2
    else:
        with pytest.raises(UnusableValueError, match="below one tile"):
            gemmini.resized(capacity_kib={"scratchpad": kib})


def test_a_level_that_is_not_there_is_named(gemmini):
    with pytest.raises(UnusableValueError, match="known: dram, scratchpad, accumulator, registers"):
        gemmini.resized(capacity_kib={"cache": 4})


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("title:", "colour: red\ntitle:", "unknown key 'colour'"),
        ("  rows:", "  depth: {value: 1, source: s, trust: assumed}\n  rows:", "unknown key 'array.depth'"),
        ("    bandwidth_of: column", "    bandwidth_of: row", "bandwidth_of is 'row'"),
        ("holds: [output]", "holds: [result]", "levels[2].holds has a word that is not known"),
        ("holds: [weight, input, output]", "holds: [weight, input]", "levels[0] is the outermost level"),
        ("{loops: [C], axis: rows}", "{loops: [C], axis: columns}", "levels use one axis of the array twice"),
        ("{loops: [C], axis: rows}", "{loops: [X], axis: rows}", "spatial.loops has a word that is not known"),
        ("name: registers", "name: dram", "levels has two levels of one name"),
        ("{value: 128, source", "{value: 0.001, source", "levels[1].capacity_kib holds 1.024 words of 1 bytes"),
        ("{value: 128, source", "{value: -1, source", "needs 0 < low <= likely <= high"),
        ("clock_mhz: {value: 1000,", "clock_mhz: {value: fast,", "is 'fast', which is not a finite number"),
    ],
)
def test_a_file_that_cannot_be_used_is_refused_in_one_line(tmp_path, old, new, message):
    assert old in TEXT
    with pytest.raises(ConfigurationError, match=re.escape(message)) as failure:
        read(tmp_path, TEXT.replace(old, new, 1))
    assert failure.value.exit_code == 2
    assert "\n" not in str(failure.value)
    assert str(failure.value).startswith(str(tmp_path / "mine.yaml"))


def test_a_name_that_is_not_known_lists_those_that_are():
    with pytest.raises(
        UnusableValueError, match="known: dpu-b4096, eyeriss, fa-dosa, gemmini, nvdla, simba, tpu-v1, u280"
    ):
        load_hardware("tpu", FOLDER)
