"""The reader of the schematic, against the recorded files and against what is known of their models."""

import re
from collections import Counter
from math import prod

import pytest

from common.messages.errors import PipelineError
from common.npu.qnn_csv import read_qnn_csv
from common.npu.schematic import read_schematic
from tests.support.profiles.npu_profiles import DATA

OUTPUT_BYTES = prod((1, 5, 7, 11)) * 4  # float32 in both models
WEIGHT_VALUES = 5 * 3
NAMES = ("fp16", "qdq")


def text_of(name):
    return (DATA / name / "schematic.bin").read_text()


@pytest.fixture
def damaged(tmp_path):
    """Write a recorded schematic with one text replaced by another."""

    def write(old, new, count=1):
        text = text_of("fp16")
        assert old in text
        path = tmp_path / "schematic.bin"
        path.write_text(text.replace(old, new, count))
        return path

    return write


@pytest.mark.parametrize("name", NAMES)
def test_results_are_written_once(name):
    schematic = read_schematic(DATA / name / "schematic.bin")
    assert schematic.result_bytes == schematic.written_result_bytes == OUTPUT_BYTES
    assert sum(op.dram_write_bytes for op in schematic.ops) == OUTPUT_BYTES  # nothing is spilled
    assert not any(op.is_spill for op in schematic.ops)


@pytest.mark.parametrize("name", NAMES)
def test_every_operator_is_read(name):
    """Counted by a pattern over the whole text, not section by section."""
    schematic, text = read_schematic(DATA / name / "schematic.bin"), text_of(name)
    read = [int(number) for number in re.findall(r'"vtcm_read": (\d+)', text)]
    assert [op.vtcm_read_bytes for op in schematic.ops] == read
    ids = re.findall(r'"opid" : 0x[0-9a-f]{8}([0-9a-f]{8}) ', text)
    assert [op.op_id for op in schematic.ops] == [int(digits, 16) for digits in ids]
    assert all(op.name for op in schematic.ops)


@pytest.mark.parametrize("name", NAMES)
def test_operators_belong_to_the_nodes_that_take_cycles(name):
    profile, schematic = read_qnn_csv(DATA / name / "profile.csv"), read_schematic(DATA / name / "schematic.bin")
    busy = {op_id for run in profile.runs for op_id, cycles in run.node_cycles.items() if cycles}
    assert {op.op_id for op in schematic.ops} == busy
    assert {node.op_id for node in profile.nodes} <= schematic.graph.keys()
    assert {schematic.names[node.op_id] for node in profile.nodes if node.name not in ("Input", "Output")} == {
        node.name for node in profile.nodes if node.name not in ("Input", "Output")
    }


def test_the_matrix_unit_computes_the_convolution():
    schematic = read_schematic(DATA / "fp16" / "schematic.bin")
    by_unit = {unit: {op.op_id for op in schematic.ops if f"uses_{unit}" in op.flags} for unit in ("hmx", "hvx")}
    (convolution,) = by_unit["hmx"]
    node = schematic.graph[convolution]
    assert node.operation == "q::QNN_Relu"  # the convolution was fused into it
    assert node.output_bytes == (OUTPUT_BYTES,)
    assert convolution not in by_unit["hvx"]


def test_bytes_follow_from_types_and_sizes():
    schematic = read_schematic(DATA / "qdq" / "schematic.bin")
    sizes = Counter(size for node in schematic.graph.values() for size in node.output_bytes)
    assert sizes[WEIGHT_VALUES] >= 1  # weights of one byte
    assert sizes[prod((1, 3, 7, 11))] >= 1  # the quantized input
    assert sizes[prod((1, 3, 7, 11)) * 4] == 1  # the input in float32


def test_the_peak_is_the_end_of_the_highest_block():
    text = text_of("fp16").partition("tcm_block_info")[2]
    blocks = re.findall(r"\((0x[0-9a-f]+), (0x[0-9a-f]+)\)", text)
    assert read_schematic(DATA / "fp16" / "schematic.bin").vtcm_peak_bytes == max(
        int(start, 16) + int(size, 16) for start, size in blocks
    )


def test_a_truncated_schematic_is_refused(tmp_path):
    path = tmp_path / "schematic.bin"
    path.write_text(text_of("fp16")[:20_000])
    with pytest.raises(PipelineError, match=r"schematic.bin: ends early; record it again"):
        read_schematic(path)


def test_another_file_is_refused(tmp_path):
    path = tmp_path / "schematic.bin"
    path.write_text("DLC\n" * 1000)
    with pytest.raises(PipelineError, match=r"is no schematic; give a schematic"):
        read_schematic(path)


def test_results_that_are_not_written_are_refused(damaged):
    path = damaged('"dram_write": 1540', '"dram_write": 1536')
    with pytest.raises(PipelineError, match=r"writes 1,536 bytes of results into DRAM, but the results have 1,540"):
        read_schematic(path)


def test_a_graph_with_a_hole_is_refused(damaged):
    with pytest.raises(PipelineError, match=r"node 17 reads result 0 of node 9999, which is not there"):
        read_schematic(damaged("(0x2,0)", "(0x270f,0)"))


def test_a_schematic_without_traffic_is_refused(damaged):
    with pytest.raises(PipelineError, match=r"has no traffic"):
        read_schematic(damaged("bandwidth_information", "bandwidth"))


def test_an_unknown_type_leaves_the_results_unchecked(damaged):
    schematic = read_schematic(damaged("'dtype': 'Float32'", "'dtype': 'Float4'", 100))
    assert schematic.result_bytes is None
