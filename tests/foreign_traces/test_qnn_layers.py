"""QNN's profiles as layers: the accelerator's time, divided by cycles."""

import pytest

from common.foreign_traces.owners import owners
from common.foreign_traces.readers.qnn import read_qnn_layers
from common.messages.errors import PipelineError
from tests.support.profiles.foreign_graphs import graph_of
from tests.support.profiles.npu_profiles import DATA, device_run, write_csv

NODES = (("Input", 1, 0), ("conv", 23, 700), ("act", 26, 0), ("pool", 31, 1300))


def test_the_time_of_each_run_is_divided_over_its_nodes_exactly(tmp_path):
    slower = tuple((name, number, 3 * cycles) for name, number, cycles in NODES)
    runs = (device_run(NODES), device_run(slower, {"Accelerator (execute excluding wait) time": 10_000}))
    profile = read_qnn_layers(write_csv(tmp_path / "profile.csv", *runs), None)
    conv, pool = profile.layers
    assert conv.run_us == pytest.approx((10_900 * 7 / 20, 10_000 * 7 / 20))
    assert pool.run_us == pytest.approx((10_900 * 13 / 20, 10_000 * 13 / 20))
    assert profile.run_us == (12_500, 12_500)
    assert (profile.run_count, profile.is_of_device) == (2, True)
    assert {("act",), ("Input",)} <= profile.merged
    assert any("an allocation" in note for note in profile.notes)


@pytest.mark.parametrize("name", ["/a/Conv_token_1_2", "/a/Conv_token_1", "/a/Conv_2", "_a_Conv", "/a/Conv"])
def test_what_qnn_and_converters_make_of_a_name(tmp_path, name):
    """The names are like those in winml-cli's ResNet-50 of a Snapdragon: Conv_token_1_2, Add_3."""
    nodes = (("Input", 1, 0), (name, 23, 700), ("/a/Conv_1", 24, 300))
    profile = read_qnn_layers(write_csv(tmp_path / "profile.csv", device_run(nodes)), None)
    graph = graph_of(
        ("Conv", "/a/Conv", ("x", "w")), ("Conv", "/a/Conv_1", ("/a/Conv:0", "w")), outputs=["/a/Conv_1:0"]
    )
    owned = owners(tmp_path / "profile.csv", graph, profile)
    assert owned.owner == {"/a/Conv": name, "/a/Conv_1": "/a/Conv_1"}
    assert (owned.matched.time_share, owned.matched.contraction_share) == (1.0, 1.0)


# In the form of a transformer block's profile by qnn-profile-viewer 2.47 (Snapdragon, johnmaster/Cross-Backend_LLM_…).
BLOCK = (
    ("Input", 2, 53),
    ("x_nfc", 17, 11),
    ("rms_norm__Mul_2_0", 22, 263),
    ("_MatMul_pre_reshape", 27, 7),
    ("_MatMul", 30, 499),
    ("_MatMul_post_reshape", 32, 13),
    ("_MatMul_lhs_cast_fp16", 33, 17),
    ("_MatMul_weight_transpose", 34, 29),
    ("_MatMul_0_nfc", 35, 19),
    ("_Where_0_cast_to_bool", 36, 3),
    ("_Where", 37, 31),
    ("Output", 3, 41),
)


def test_what_converters_insert_serves_the_node_whose_name_it_has(tmp_path):
    profile = read_qnn_layers(write_csv(tmp_path / "profile.csv", device_run(BLOCK)), None)
    graph = graph_of(
        ("Pow", "/Pow", ("x",)),
        ("Mul", "/Mul_2", ("/Pow:0", "x")),
        ("MatMul", "/MatMul", ("/Mul_2:0", "w")),
        ("Where", "/Where", ("/MatMul:0", "x")),
        outputs=["/Where:0"],
    )
    owned = owners(tmp_path / "profile.csv", graph, profile)
    norm, product, choice = "rms_norm__Mul_2_0", "_MatMul", "_Where"
    assert owned.owner == {"/Pow": norm, "/Mul_2": norm, "/MatMul": product, "/Where": choice}
    inserted = {name: served for name, served in owned.served.items() if name.startswith("_MatMul")}
    assert set(inserted.values()) == {product}
    assert len(inserted) == 5
    assert owned.served["_Where_0_cast_to_bool"] == choice
    assert owned.served["x_nfc"] == norm  # what reads the model's input first
    whole = sum(cycles for *_, cycles in BLOCK)
    assert owned.matched.time_share == pytest.approx(1 - (53 + 41) / whole)  # but the input's and the output's transfer


def test_a_run_with_unknown_cycles_is_left_out(tmp_path):
    unknown = tuple((name, number, "UNKNOWN" if name == "pool" else cycles) for name, number, cycles in NODES)
    profile = read_qnn_layers(write_csv(tmp_path / "profile.csv", device_run(NODES), device_run(unknown)), None)
    assert profile.run_count == 1
    assert any(note.startswith("1 runs are left out") for note in profile.notes)


def test_the_emulators_times_are_refused():
    with pytest.raises(PipelineError, match="has no valid times: they are the emulator's"):
        read_qnn_layers(DATA / "fp16/profile.csv", None)


def test_a_schematic_of_another_graph_is_refused(tmp_path):
    path = write_csv(tmp_path / "profile.csv", device_run(NODES))
    with pytest.raises(PipelineError, match="is of another graph than the profile"):
        read_qnn_layers(path, DATA / "fp16/schematic.bin")
    with pytest.raises(PipelineError, match="cannot be read"):
        read_qnn_layers(path, tmp_path / "none")
