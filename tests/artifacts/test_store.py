"""The folder of artifacts: all or nothing, lineage, locks, full disks, and files that somebody changed."""

import contextlib
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from common.artifacts import provenance
from common.artifacts.catalogue import ARTIFACTS, Artifact
from common.artifacts.columns import COLUMNS
from common.artifacts.frames import frame_of, records
from common.artifacts.journal import STAGING
from common.artifacts.lineage import require_fresh
from common.artifacts.provenance import (
    FORMAT_VERSION,
    Provenance,
    sha256_of,
    sidecar,
    tool_versions,
)
from common.artifacts.stages import WRITER
from common.artifacts.transaction import RESERVED_BYTES, RESERVED_BYTES_PER_ROW
from common.messages.errors import PipelineError, UpstreamError
from tests.support.paths import ROOT
from tests.support.tables.stored import MERGE, PATH, PROFILE, edges, store

IS_ROOT = os.geteuid() == 0
CEILINGS, ENERGY, PLAN = "00_host_ceilings.py", "05_energy_estimate.py", "07_fpga_candidates.py"


def node_map(*names):
    return pd.DataFrame([{"executed_node": name, "source_node": name, "rule": "node_name"} for name in names])


def write(folder, name="executed_edges", frame=None, **options):
    with store(folder, **options).writing() as made:
        made.add_table(name, edges() if frame is None else frame)
    return made


def temporaries(folder):
    return [path.name for path in folder.glob(f"{STAGING}/*")]


def forge(path, text):
    """Write a file as another program might: with a sidecar that is right."""
    path.write_text(text, encoding="utf-8")
    record = Provenance("vendor", "vendor", sha256=hashlib.sha256(path.read_bytes()).hexdigest())
    sidecar(path).write_text(record.to_json(), encoding="utf-8")


# --- there and back -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("odd", [[], ["carriage\rreturn"]])
def test_a_table_comes_back_as_it_was(tmp_path, odd):
    names = ["a", 'quote " and, comma', "line\nbreak", "µ", "NA", "null", "007", " spaced ", "[]", "#", *odd]
    write(tmp_path, frame=pd.concat([edges(*names), edges("unknown", size=None)]))
    found = store(tmp_path).table("executed_edges")
    assert found["tensor"].tolist() == [*names, "unknown"]
    assert found["producer"].tolist() == [""] * (len(names) + 1)
    assert found["tensor_bytes"].tolist() == [*[3] * len(names), pd.NA]


@pytest.mark.slow
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40, deadline=None)
@given(st.lists(st.floats(0, 1e300), min_size=1, max_size=5), st.integers(0, 2**63 - 1))
def test_every_digit_survives(tmp_path, values, size):
    """A count beside an empty cell must not go through a float: 2**53 + 1 would come back as 2**53."""
    frame = pd.concat([edges("a", size=size), edges("b", size=None)])
    write(tmp_path, frame=frame)
    assert store(tmp_path).table("executed_edges")["tensor_bytes"].tolist() == [size, pd.NA]
    samples = pd.DataFrame(
        {"sensor": "s", "sensor_domain": "d", "time_us": sorted(set(values)), "phase": "run", "measured_power_w": 0.0}
    )
    write(tmp_path, "power_samples", samples, stage=PROFILE)
    assert store(tmp_path).table("power_samples")["time_us"].tolist() == sorted(set(values))


def test_rows_become_a_table_and_rows_again(tmp_path):
    """2**53 + 1 is the first whole number that no float holds; beside an unknown it must not become one."""
    sizes = [2**53 + 1, None, 0]
    rows = [{"tensor": f"t{size}", "producer": "", "consumer": "x", "tensor_bytes": size} for size in sizes]
    frame = frame_of(iter(rows))
    assert frame["tensor_bytes"].tolist() == sizes
    write(tmp_path, frame=frame)
    found = records(store(tmp_path).table("executed_edges"))
    assert found == rows
    assert [type(row["tensor_bytes"]) for row in found] == [int, type(None), int]


def test_rows_keep_flags_lists_and_unknown_numbers():
    rows = [{"flag": True, "list": [3, None], "number": 2.5}, {"flag": False, "list": None, "number": None}]
    frame = frame_of(rows)
    assert (~frame["flag"]).tolist() == [False, True]
    assert records(frame) == rows
    assert frame_of([]).empty


def test_a_row_that_lacks_a_key_is_a_mistake():
    with pytest.raises(KeyError, match="size"):
        frame_of([{"name": "a", "size": 1}, {"name": "b"}])


def test_an_empty_table_comes_back_empty(tmp_path):
    write(tmp_path, "power_samples", samples(1.0).head(0), stage=PROFILE)
    header = "sensor,sensor_domain,time_us,phase,measured_power_w\n"
    assert (tmp_path / "power_samples.csv").read_text() == header
    assert len(store(tmp_path).table("power_samples")) == 0


ENERGIES = {
    "energy_source": "given",
    "energy_boundary": "",
    "average_power_w": 5.5,
    "static_power_w": None,
    "static_power_source": "unavailable",
    "energy_uj": 7,
    "energy_low_uj": 7,
    "energy_high_uj": 7,
    "compute_energy_uj": None,
    "movement_energy_uj": None,
    "static_energy_uj": None,
    "closure_factor": None,
}


def test_a_document_comes_back_with_its_unknowns(tmp_path):
    with store(tmp_path, "05_energy_estimate.py").writing() as made:
        made.add_document("energy_summary", dict(reversed(ENERGIES.items())))
    found = store(tmp_path).document("energy_summary")
    assert found == ENERGIES
    assert list(found) == list(ENERGIES)  # in their declared order


def test_foreign_files_and_text(tmp_path):
    with store(tmp_path, PROFILE).writing() as made:
        made.temporary("executed_graph.onnx").write_bytes(b"\x08\x07")
        made.add_file("executed_graph", made.temporary("executed_graph.onnx"))
        made.add_text("ort_trace", "[]")
    reader = store(tmp_path)
    assert reader.foreign("executed_graph", Path.read_bytes) == b"\x08\x07"
    assert reader.foreign("ort_trace", Path.read_text) == "[]"
    assert temporaries(tmp_path) == []


def test_pictures_have_no_sidecar_and_binaries_have(tmp_path):
    with store(tmp_path, "06_plots.py").writing() as made:
        made.add_bytes("report", b"\xff\xd8")
        made.add_picture("energy_plot", {".svg": b"<svg/>", ".png": b"\x89PNG"})
    assert store(tmp_path).foreign("report", Path.read_bytes) == b"\xff\xd8"
    assert sorted(path.name for path in (tmp_path / "plots").iterdir()) == ["energy.png", "energy.svg"]


def test_a_picture_that_is_not_drawn_again_does_not_stay(tmp_path):
    """But only once the block ends well."""
    drawn = {".svg": b"old", ".png": b"old"}
    made = store(tmp_path, "06_plots.py")
    with made.writing() as writing:
        writing.add_picture("energy_plot", drawn)
    with contextlib.suppress(RuntimeError), made.writing() as writing:
        writing.add_picture("energy_plot", {".svg": b"new"})
        raise RuntimeError
    assert {path.suffix: path.read_bytes() for path in (tmp_path / "plots").iterdir()} == drawn
    assert temporaries(tmp_path) == []
    with made.writing() as writing:
        writing.add_picture("energy_plot", {".svg": b"new"})
    assert {path.suffix: path.read_bytes() for path in (tmp_path / "plots").iterdir()} == {".svg": b"new"}


def test_a_scratch_folder_goes_with_its_block(tmp_path):
    with store(tmp_path).writing() as writing, writing.scratch() as scratch:
        (scratch / "raw").write_text("x")
        assert scratch.is_relative_to(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [".lock"]


def test_the_same_content_gives_the_same_bytes(tmp_path):
    write(tmp_path / "one")
    write(tmp_path / "two")
    for name in ("executed_edges.csv", "executed_edges.meta.json"):
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()


# --- all or nothing -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("failure", [RuntimeError, KeyboardInterrupt, PipelineError])
def test_a_failing_block_leaves_what_stood_there(tmp_path, failure):
    write(tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.name != ".lock"}
    arguments = ("x", "y") if failure is PipelineError else ()
    with pytest.raises(failure), store(tmp_path).writing() as made:
        made.add_table("executed_edges", edges("other"))
        made.add_table("node_map", node_map("a"))
        assert temporaries(tmp_path)
        raise failure(*arguments)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.name != ".lock"} == before


def test_a_table_that_does_not_conform_writes_nothing_at_all(tmp_path):
    with (
        pytest.raises(PipelineError, match=r"executed_edges\.csv: the table lacks tensor"),
        store(tmp_path).writing() as made,
    ):
        made.add_table("node_map", node_map("a"))
        made.add_table("executed_edges", edges().drop(columns="tensor"))
    assert [path.name for path in tmp_path.iterdir()] == [".lock"]


def test_a_store_that_failed_can_write_again(tmp_path):
    made = store(tmp_path)
    with contextlib.suppress(RuntimeError), made.writing() as writing:
        writing.add_table("node_map", node_map("a"))
        raise RuntimeError
    with made.writing() as writing:
        writing.add_table("executed_edges", edges())
    assert not made.path("node_map").exists()
    assert made.path("executed_edges").exists()


def test_leftovers_of_a_killed_stage_are_swept_and_files_of_others_are_not(tmp_path):
    (tmp_path / STAGING / "scratch").mkdir(parents=True)
    (tmp_path / STAGING / "node_map.csv").write_text("half a ta")
    (tmp_path / STAGING / "scratch" / "raw").write_text("half a tra")
    (tmp_path / ".thesis.tmp").mkdir()
    (tmp_path / ".thesis.tmp" / "chapter").write_text("not ours")
    write(tmp_path)
    assert not (tmp_path / STAGING).exists()
    assert (tmp_path / ".thesis.tmp" / "chapter").read_text() == "not ours"


@pytest.mark.slow
def test_killed_in_mid_stage(tmp_path):
    """SIGKILL: nothing can be tidied, and still the next stage writes and the earlier table is whole."""
    write(tmp_path)
    program = f"""
import sys, time
from pathlib import Path
sys.path.insert(0, {str(ROOT)!r})
from tests.support.tables.stored import edges, store
made = store(Path({str(tmp_path)!r}))
with made.writing() as writing:
    writing.add_table("executed_edges", edges("b"))
    print("ready", flush=True)
    time.sleep(600)
"""
    process = subprocess.Popen([sys.executable, "-c", program], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "ready\n"
    with pytest.raises(
        PipelineError, match=rf"{MERGE} \(process {process.pid}\) is writing here; wait for it or use <out>"
    ):
        write(tmp_path, "node_map", node_map("a"))
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert temporaries(tmp_path) == ["executed_edges.csv"]
    assert store(tmp_path).table("executed_edges")["tensor"].tolist() == ["a"]
    write(tmp_path, "node_map", node_map("a"))
    assert temporaries(tmp_path) == []


def test_two_writers_at_once_in_one_process(tmp_path):
    refused = pytest.raises(PipelineError, match=rf"{PATH} \(process {os.getpid()}\) is writing here")
    with store(tmp_path, PATH).writing(), refused:
        write(tmp_path)
    write(tmp_path)


# --- folders and disks ----------------------------------------------------------------------------------------------


def test_the_folder_is_made(tmp_path):
    write(tmp_path / "a" / "b")
    assert (tmp_path / "a" / "b" / "executed_edges.csv").is_file()


def test_a_file_where_the_folder_should_be(tmp_path):
    (tmp_path / "out").write_text("")
    with pytest.raises(PipelineError, match=r"out: cannot be written \(File exists\); use <out>"):
        write(tmp_path / "out")


def test_a_folder_where_the_table_should_be(tmp_path):
    (tmp_path / "executed_edges.csv").mkdir()
    refused = r"executed_edges\.csv: cannot be written \(it is a folder\); move it away or use <out>"
    with pytest.raises(PipelineError, match=refused):
        write(tmp_path)


@contextlib.contextmanager
def tmpfs(folder, options):
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", options, "none", str(folder)]
    if not IS_ROOT or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("a file system of one's own needs root and the right to mount")
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def test_a_full_disk(tmp_path):
    with tmpfs(tmp_path / "small", "size=64k") as small:
        write(small)
        before = (small / "executed_edges.csv").read_bytes()
        with pytest.raises(PipelineError, match=r"small: the disk is full; free some space or use <out>"):
            write(small, frame=edges(*(f"a_tensor_with_a_long_name_{index}" for index in range(3000))))
        assert temporaries(small) == []
        assert (small / "executed_edges.csv").read_bytes() == before
        assert store(small).table("executed_edges")["tensor"].tolist() == ["a"]


def test_a_disk_that_fills_up_with_the_sidecars(tmp_path):
    """The table fits, its sidecar does not: neither is put in place."""
    with tmpfs(tmp_path / "small", "size=64k") as small, pytest.raises(PipelineError, match="the disk is full"):
        write(small, notes=["a long note " * 10_000])
    assert not (tmp_path / "small" / "executed_edges.csv").exists()


def test_a_disk_that_takes_not_one_byte(tmp_path):
    """Not even the lock can be written: one line, and no second attempt when the file is closed."""
    script = (
        "import resource, signal; from pathlib import Path; from common.artifacts.provenance import Provenance;"
        "from common.artifacts.transaction import Transaction; from common.messages.errors import PipelineError\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN); resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))\n"
        f"try:\n with Transaction(Path({str(tmp_path)!r}), Provenance('04_critical_path.py', '')): pass\n"
        "except PipelineError as error: print(error)"
    )
    bare = {name: value for name, value in os.environ.items() if not name.startswith("COVERAGE")}  # it would write, too
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, env=bare)
    assert (done.stdout, done.stderr) == (f"{tmp_path}: cannot be written (File too large); use <out>\n", "")


def test_a_folder_that_may_not_be_written(tmp_path):
    if IS_ROOT:
        with (
            tmpfs(tmp_path / "fixed", "ro") as fixed,
            pytest.raises(PipelineError, match=r"fixed: .*Read-only file system"),
        ):
            write(fixed)
    else:
        (tmp_path / "fixed").mkdir(mode=0o500)
        with pytest.raises(PipelineError, match=r"fixed: cannot be written \(Permission denied\)"):
            write(tmp_path / "fixed")


@pytest.mark.slow
def test_a_folder_that_may_not_be_searched(tmp_path):
    """Root may search any folder: without that right, in a process of its own, it may not."""
    if not shutil.which("setpriv") or not IS_ROOT:
        pytest.skip("needs root, and setpriv to give up root's rights")
    write(tmp_path / "out")
    (tmp_path / "out").chmod(0o600)
    shared = tmp_path / "out" / "host_ceilings.json"
    program = f"""
from pathlib import Path
from common.artifacts.folder import is_there
from common.messages.errors import PipelineError
from tests.support.tables.stored import edges, store
def write():
    with store(Path({str(tmp_path / "out")!r})).writing():
        pass
def read():
    store(Path({str(tmp_path / "out")!r})).table("node_map")
def look():
    is_there(Path({str(shared)!r}))
for use in (write, read, look):
    try:
        use()
    except PipelineError as error:
        print(error)
"""
    rights = "-dac_override,-dac_read_search"
    command = ["setpriv", f"--bounding-set={rights}", f"--inh-caps={rights}", sys.executable, "-c", program]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    refused = f"{tmp_path / 'out'}: cannot be written (Permission denied); use <out>"
    unseen = f"{shared}: cannot be read (Permission denied); make its folder searchable"
    assert done.stdout.splitlines() == [refused, refused, unseen], done.stderr


# --- lineage --------------------------------------------------------------------------------------------------------


def chain(folder):
    """01 wrote the latencies, 03 read them, 04 read what 03 wrote."""
    write(folder, "power_samples", samples(7.0), stage=PROFILE)
    merged = store(folder, MERGE)
    merged.table("power_samples")
    with merged.writing() as writing:
        writing.add_table("executed_edges", edges())
    last = store(folder, PATH)
    last.table("executed_edges")
    with last.writing() as writing:
        writing.add_table("node_map", node_map("a"))


def samples(power_w):
    return pd.DataFrame(
        {"sensor": ["s"], "sensor_domain": ["d"], "time_us": [1.0], "phase": ["run"], "measured_power_w": [power_w]}
    )


def test_a_chain_that_is_fresh(tmp_path):
    chain(tmp_path)
    reader = store(tmp_path, "06_plots.py")
    assert len(reader.table("node_map")) == 1
    assert set(reader.record.reads) == {"node_map.csv"}
    assert reader.provenance("node_map").stage == PATH


def test_stale_by_one_step(tmp_path):
    chain(tmp_path)
    write(tmp_path, "power_samples", samples(11.0), stage=PROFILE)
    with pytest.raises(
        UpstreamError, match=rf"executed_edges\.csv: stale: power_samples\.csv was written .*; run {MERGE}$"
    ):
        store(tmp_path).table("executed_edges")


def test_stale_by_two_steps_names_both_stages(tmp_path):
    chain(tmp_path)
    write(tmp_path, "power_samples", samples(11.0), stage=PROFILE)
    with pytest.raises(UpstreamError, match=rf"executed_edges\.csv: stale: .*; run {MERGE}, then {PATH}$"):
        store(tmp_path).table("node_map")


def write_text(folder, stage, *reads, texts):
    """Write artifacts as a stage that has read others; the texts are no tables, but lineage does not look at them."""
    reader = store(folder, stage)
    for name in reads:
        reader._claim(name, None)
    with reader.writing() as writing:
        for name, text in texts.items():
            writing.add_text(name, text)


def ceilings_and_what_reads_them(folder):
    write_text(folder, CEILINGS, texts={"host_ceilings": "7"})
    write_text(folder, MERGE, "host_ceilings", texts={"op_roofline": "roofs", "node_map": "m", "executed_edges": "e"})
    schedule = {"critical_path": "path", "op_schedule": "schedule"}
    write_text(folder, PATH, "op_roofline", "executed_edges", texts=schedule)
    write_text(folder, ENERGY, "op_roofline", "host_ceilings", texts={"ops_profile": "joules"})


def stale(folder, stage, *names):
    """Which of the artifacts a stage refuses."""
    refused = []
    for name in names:
        try:
            store(folder, stage)._claim(name, None)
        except UpstreamError as error:
            assert "stale: host_ceilings.json" in str(error)
            refused.append(name)
    return refused


def test_new_ceilings_make_stale_what_holds_a_roof_and_nothing_else(tmp_path):
    ceilings_and_what_reads_them(tmp_path)
    made = ("op_roofline", "node_map", "executed_edges", "critical_path", "op_schedule", "ops_profile")
    assert stale(tmp_path, PLAN, *made) == []
    write_text(tmp_path, CEILINGS, texts={"host_ceilings": "11"})
    assert stale(tmp_path, PLAN, *made) == ["op_roofline", "ops_profile"]
    assert stale(tmp_path, ENERGY, "op_roofline") == ["op_roofline"]
    assert stale(tmp_path, PATH, "op_roofline", "executed_edges") == []  # 04 reads node times, which no roof changes
    write_text(tmp_path, MERGE, "host_ceilings", texts={"op_roofline": "new roofs", "node_map": "m"})
    with pytest.raises(UpstreamError, match=rf"op_schedule\.csv: stale: op_roofline\.csv .*; run {PATH}"):
        store(tmp_path, PLAN)._claim("op_schedule", None)  # its file is another one now


def test_a_path_that_is_no_text_is_recorded_and_shown(tmp_path):
    """Linux takes any bytes for a name; Python makes such a byte half of a surrogate pair."""
    with store(tmp_path, "06_plots.py", notes=["caf\udce9.onnx was read"]).writing() as writing:
        writing.add_text("summary", "model caf\udce9.onnx\n")
    assert provenance.load(tmp_path / "summary.txt", "").notes == ["caf\udce9.onnx was read"]
    assert (tmp_path / "summary.txt").read_text() == "model caf?.onnx\n"


def test_written_again_with_the_same_content_is_not_stale(tmp_path):
    chain(tmp_path)
    write(tmp_path, "power_samples", samples(7.0), stage=PROFILE)
    assert len(store(tmp_path).table("node_map")) == 1


def test_tables_travel_without_what_they_were_made_from(tmp_path):
    chain(tmp_path)
    for path in tmp_path.glob("power_samples*"):
        path.unlink()
    assert len(store(tmp_path).table("node_map")) == 1


def test_the_lenient_reader_takes_a_stale_table_with_a_note(tmp_path):
    chain(tmp_path)
    write(tmp_path, "power_samples", samples(11.0), stage=PROFILE)
    reader = store(tmp_path, "06_plots.py", lenient=True)
    assert len(reader.table("executed_edges")) == 1
    assert len(reader.record.notes) == 1
    assert "stale: power_samples.csv was written again after it" in reader.record.notes[0]


def test_a_table_of_another_folder_is_part_of_the_lineage(tmp_path):
    write(tmp_path / "shared", "power_samples", samples(7.0), stage=PROFILE)
    merged = store(tmp_path / "model")
    merged.table("power_samples", tmp_path / "shared" / "power_samples.csv")
    with merged.writing() as writing:
        writing.add_table("executed_edges", edges())
    assert set(merged.record.reads) == {"../shared/power_samples.csv"}
    assert len(store(tmp_path / "model").table("executed_edges")) == 1
    write(tmp_path / "shared", "power_samples", samples(11.0), stage=PROFILE)
    with pytest.raises(UpstreamError, match=r"stale: \.\./shared/power_samples\.csv"):
        store(tmp_path / "model").table("executed_edges")


def test_tables_of_two_models(tmp_path):
    write(tmp_path, model_id="ab" * 32)
    write(tmp_path, "node_map", node_map("a"), model_id="cd" * 32)
    reader = store(tmp_path)
    reader.table("executed_edges")
    message = (
        rf"node_map\.csv: of model cdcdcdcdcdcd \(cd\), but .*executed_edges\.csv is of abababababab .*; run {MERGE}"
    )
    with pytest.raises(UpstreamError, match=message):
        reader.table("node_map")
    reader = store(tmp_path, lenient=True)
    assert len(reader.table("executed_edges")) == len(reader.table("node_map")) == 1
    assert "of model cdcdcdcdcdcd" in reader.record.notes[0]


def test_tables_of_two_bindings(tmp_path):
    write(tmp_path, model_id="ab" * 32, dimensions={"N": 1})
    write(tmp_path, "node_map", node_map("a"), model_id="ab" * 32, dimensions={"N": 8})
    reader = store(tmp_path)
    reader.table("executed_edges")
    with pytest.raises(UpstreamError, match=r"made with dimensions \{'N': 8\}, but .* with \{'N': 1\}"):
        reader.table("node_map")


def test_the_workload_of_what_was_read_is_handed_on(tmp_path):
    write(tmp_path, model_id="ab" * 32, dimensions={"N": 3})
    write(tmp_path, "power_samples", samples(1.0), stage=PROFILE)  # belongs to no model
    reader = store(tmp_path)
    reader.table("power_samples")
    assert reader.record.model_id == ""
    reader.table("executed_edges")
    assert (reader.record.model_id, reader.record.model_path, reader.record.dimensions) == ("ab" * 32, "ab", {"N": 3})


# --- missing and corrupt --------------------------------------------------------------------------------------------


def test_a_table_that_is_not_there(tmp_path):
    with pytest.raises(UpstreamError, match=rf"executed_edges\.csv: not found; run {MERGE} first"):
        store(tmp_path).table("executed_edges")


def test_a_table_changed_by_hand(tmp_path):
    write(tmp_path)
    path = tmp_path / "executed_edges.csv"
    path.write_text(path.read_text().replace("3", "5"))
    with pytest.raises(UpstreamError, match=rf"executed_edges\.csv: changed since it was written; run {MERGE}"):
        store(tmp_path).table("executed_edges")


def test_a_sidecar_that_is_not_there(tmp_path):
    write(tmp_path)
    (tmp_path / "executed_edges.meta.json").unlink()
    with pytest.raises(UpstreamError, match=r"executed_edges\.meta\.json: not found"):
        store(tmp_path).table("executed_edges")


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "7", '"x"', "\x00", "{}", "[" * 100_000]
    + [
        json.dumps({"format_version": FORMAT_VERSION, "stage": "x", "command": "y", **odd})
        for odd in ({"reads": []}, {"unknown": 1}, {"notes": "text"}, {"sha256": None}, {"settings": 3}, {"stage": 1})
    ]
    + [json.dumps({"format_version": FORMAT_VERSION}), json.dumps({"format_version": 999})],
)
def test_a_sidecar_that_is_none(tmp_path, text):
    write(tmp_path)
    (tmp_path / "executed_edges.meta.json").write_text(text)
    with pytest.raises(UpstreamError, match=r"executed_edges\.meta\.json: (corrupt|format version)"):
        store(tmp_path).table("executed_edges")


HEADER = "tensor,producer,consumer,tensor_bytes\n"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\n",
        HEADER,
        HEADER + "a,b,c,inf\n",
        HEADER + "a,b,c,-inf\n",
        HEADER + "a,b,c,Infinity\nd,e,f,\n",
        HEADER + "a,b,c,1e999\n",
        HEADER + "a,b,c,many\n",
        HEADER + "a,b,c,-3\n",
        HEADER + "a,b,c,3.5\n",
        HEADER + "a,b,c,3,7\n",
        HEADER + "a,b,c,3\na,b,c,3\n",
        HEADER + '"a,b,c,3\n',
        "\x00\x01\x02",
    ],
)
def test_a_corrupt_table(tmp_path, text):
    forge(tmp_path / "executed_edges.csv", text)
    with pytest.raises(UpstreamError, match=rf"executed_edges\.csv: corrupt \(.*\); run {MERGE}$"):
        store(tmp_path).table("executed_edges")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("tensor,producer\na,b\n", "lacks consumer, tensor_bytes"),
        (
            HEADER.replace("tensor_bytes", "tensor_size") + "a,b,c,4\n",
            "lacks tensor_bytes and does not know tensor_size",
        ),
    ],
)
def test_a_table_with_columns_of_another_version_says_so(tmp_path, text, problem):
    """Its sidecar says that nobody has changed it since."""
    forge(tmp_path / "executed_edges.csv", text)
    found = rf"executed_edges\.csv: was not written by this version of the program \(.*{problem}\); run {MERGE}$"
    with pytest.raises(UpstreamError, match=found):
        store(tmp_path).table("executed_edges")


@pytest.mark.parametrize("text", ["{}", '{"energy_source": "given"}'])
def test_a_document_with_fields_of_another_version_says_so(tmp_path, text):
    forge(tmp_path / "energy_summary.json", text)
    with pytest.raises(UpstreamError, match=r"was not written by this version of the program \(.*lacks .*\); run 05_"):
        store(tmp_path).document("energy_summary")


def test_a_table_that_is_no_utf_8(tmp_path):
    path = tmp_path / "executed_edges.csv"
    forge(path, "")
    path.write_bytes(HEADER.encode() + b"\xff\xfe,b,c,3\n")
    record = Provenance("vendor", "vendor", sha256=hashlib.sha256(path.read_bytes()).hexdigest())
    sidecar(path).write_text(record.to_json(), encoding="utf-8")
    with pytest.raises(UpstreamError, match=r"corrupt \("):
        store(tmp_path).table("executed_edges")


@pytest.mark.slow
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60, deadline=None)
@given(st.text(st.characters(codec="utf-8"), max_size=80))
def test_whatever_stands_in_a_table_is_read_or_refused_in_one_line(tmp_path, text):
    forge(tmp_path / "executed_edges.csv", HEADER + text)
    try:
        store(tmp_path).table("executed_edges")
    except UpstreamError as error:
        assert len(str(error).splitlines()) == 1


@pytest.mark.parametrize("text", ["", "[]", "7", "null", "[" * 100_000, '"\\ud800"'])
def test_a_corrupt_document(tmp_path, text):
    forge(tmp_path / "energy_summary.json", text)
    with pytest.raises(UpstreamError, match=r"energy_summary\.json: corrupt \(.*\); run 05_energy_estimate\.py"):
        store(tmp_path).document("energy_summary")


@pytest.mark.parametrize(("own", "other"), [("5.5", '"5.5"'), ("5.5", "true"), ('"given"', "1"), ('"given"', "false")])
def test_a_value_of_a_document_has_its_own_type(tmp_path, own, other):
    with store(tmp_path, "05_energy_estimate.py").writing() as made:
        made.add_document("energy_summary", ENERGIES)
    content = json.dumps(ENERGIES).replace(own, other)
    forge(tmp_path / "energy_summary.json", content)
    with pytest.raises(UpstreamError, match=r"corrupt \(.*\); run 05_energy_estimate\.py"):
        store(tmp_path).document("energy_summary")


def test_a_document_with_nan_for_an_unknown(tmp_path):
    forge(tmp_path / "energy_summary.json", '{"average_power_w": NaN}')
    with pytest.raises(UpstreamError, match=r"corrupt \(NaN is not JSON\)"):
        store(tmp_path).document("energy_summary")


# --- provenance -----------------------------------------------------------------------------------------------------


def test_the_sidecar_says_where_the_table_came_from(tmp_path):
    write(tmp_path, notes=["careful"], settings={"runs": {"value": 5, "from": "flag"}})
    content = json.loads((tmp_path / "executed_edges.meta.json").read_text())
    assert content["stage"] == MERGE
    assert content["notes"] == ["careful"]
    assert content["settings"] == {"runs": {"value": 5, "from": "flag"}}
    assert content["sha256"] == hashlib.sha256((tmp_path / "executed_edges.csv").read_bytes()).hexdigest()
    assert content["format_version"] == FORMAT_VERSION


def test_tools():
    assert tool_versions()["numpy"] == np.__version__
    assert tool_versions()["pandas"] == pd.__version__


def test_a_tool_that_is_not_installed(monkeypatch):
    monkeypatch.setattr("common.artifacts.provenance.TOOLS", ("numpy", "no-such-tool"))
    assert list(tool_versions()) == ["numpy"]


@pytest.mark.parametrize(
    ("name", "is_corrupt"), [("x" * 5000, True), ("\x00", False), ("..", False), ("", False), ("gone/x.csv", False)]
)
def test_a_table_that_was_made_from_what_is_no_file_of_ours(tmp_path, name, is_corrupt):
    """A file that is not there may have stayed where the table was made."""
    write(tmp_path)
    record = provenance.load(tmp_path / "executed_edges.csv", "")
    record.reads = {name: "ab"}
    sidecar(tmp_path / "executed_edges.csv").write_text(record.to_json())
    refused = pytest.raises(UpstreamError, match=r"executed_edges\.csv: corrupt: .* no file can be called")
    with refused if is_corrupt else contextlib.nullcontext():
        assert len(store(tmp_path).table("executed_edges")) == 1


def test_a_table_that_was_made_from_itself_is_corrupt(tmp_path):
    (tmp_path / "a.csv").write_text("x\n")
    digest = sha256_of(tmp_path / "a.csv")
    record = Provenance("01_profile_onnx.py", "", reads={"a.csv": digest}, sha256=digest)
    sidecar(tmp_path / "a.csv").write_text(record.to_json())
    with pytest.raises(UpstreamError, match="made from itself"):
        require_fresh(tmp_path / "a.csv", record, "run 01_profile_onnx.py")


# --- incomplete artifacts -------------------------------------------------------------------------------------------


def test_what_an_artifact_lacks_is_in_its_sidecar_and_noted_by_its_readers(tmp_path):
    writer = store(tmp_path)
    with writer.writing() as writing:
        writing.add_table("node_map", node_map("n"))
        writing.add_table("executed_edges", edges("a", "b"))
        writing.mark_incomplete(["gpu-0 was lost"], "node_map")
    assert provenance.load(tmp_path / "node_map.csv", "").incomplete == ["gpu-0 was lost"]
    assert provenance.load(tmp_path / "executed_edges.csv", "").incomplete == []
    reader = store(tmp_path)
    reader.table("node_map")
    reader.table("executed_edges")
    assert reader.record.notes == [f"{tmp_path / 'node_map.csv'}: incomplete (gpu-0 was lost)"]


def test_what_is_made_of_an_incomplete_table_is_incomplete(tmp_path):
    writer = store(tmp_path)
    with writer.writing() as writing:
        writing.add_table("executed_edges", edges("a"))
        writing.mark_incomplete(["gpu-0 was lost"], "executed_edges")
    reader = store(tmp_path, PATH)
    reader.table("executed_edges")
    with reader.writing() as writing:
        writing.add_text("critical_path", "no table, and not read here\n")
    found = provenance.load(tmp_path / "critical_path.csv", "")
    assert found.incomplete == ["made from executed_edges.csv: gpu-0 was lost"]


def test_what_is_set_aside_leaves_the_earlier_tables(tmp_path):
    first = store(tmp_path)
    with first.writing() as writing:
        writing.add_table("executed_edges", edges("a", "b"))
    kept = (tmp_path / "executed_edges.csv").read_bytes()
    second = store(tmp_path)
    with second.writing() as writing:
        writing.add_table("executed_edges", edges("a"))
        writing.set_aside("run 2 failed")
        writing.add_table("node_map", node_map("n"))
    assert (tmp_path / "executed_edges.csv").read_bytes() == kept
    assert not (tmp_path / "node_map.csv").exists()
    aside = store(tmp_path / "incomplete")
    assert len(aside.table("executed_edges")) == 1
    assert len(aside.record.notes) == 1
    assert provenance.load(tmp_path / "incomplete" / "node_map.csv", "").incomplete == ["run 2 failed"]
    assert not (tmp_path / STAGING).exists()


def test_reserved_space_is_given_back(tmp_path):
    keeper = store(tmp_path)
    with keeper.writing() as writing:
        writing.reserve(1009)
        size = RESERVED_BYTES + 1009 * RESERVED_BYTES_PER_ROW
        assert writing.temporary("reserve").stat().st_size == size
        writing.release()
        assert temporaries(tmp_path) == []
        writing.reserve(0)
    assert not (tmp_path / STAGING).exists()


# --- tables of variants ---------------------------------------------------------------------------------------------


@pytest.fixture
def sweep(monkeypatch):
    """A table with a row for each batch size; no stage of today writes one."""
    columns = tuple(COLUMNS[name] for name in ("dimensions", "latency_us"))
    artifact = Artifact("sweep", "sweep.csv", "table", "Latency by batch size.", columns, ("dimensions",))
    monkeypatch.setitem(ARTIFACTS, "sweep", artifact)
    monkeypatch.setitem(WRITER, "sweep", PROFILE)
    return pd.DataFrame([{"dimensions": {"batch": size}, "latency_us": 7.0 * size} for size in (1, 3, 5)])


def test_a_table_of_variants_sweeps_a_dimension_that_others_bind(tmp_path, sweep):
    """The table with batch 1, 3, 5 goes with a table of batch 3; of its rows, one is about that batch."""
    write(tmp_path, "sweep", sweep, stage=PROFILE, model_id="ab", dimensions={"seq": 11, "batch": 3})
    write(tmp_path, model_id="ab", dimensions={"seq": 11, "batch": 3})
    record = provenance.load(tmp_path / "sweep.csv", "")
    assert (record.dimensions, record.swept) == ({"seq": 11}, ["batch"])
    reader = store(tmp_path, PATH)
    reader.table("executed_edges")
    assert records(reader.table("sweep")) == records(sweep)
    assert reader.variant("sweep")["latency_us"].tolist() == [21.0]
    assert reader.record.dimensions == {"seq": 11, "batch": 3}


def test_a_variant_that_no_row_is_about_is_refused(tmp_path, sweep):
    write(tmp_path, "sweep", sweep, stage=PROFILE, model_id="ab")
    write(tmp_path, model_id="ab", dimensions={"batch": 2})
    reader = store(tmp_path, PATH)
    reader.table("executed_edges")
    with pytest.raises(UpstreamError, match=r"sweep\.csv: has no row for dimensions \{'batch': 2\}; run 01"):
        reader.variant("sweep")


def test_variants_do_not_hide_that_two_tables_are_bound_differently(tmp_path, sweep):
    write(tmp_path, "sweep", sweep, stage=PROFILE, model_id="ab")
    write(tmp_path, model_id="ab", dimensions={"batch": 1})
    write(tmp_path, "node_map", node_map("a"), model_id="ab", dimensions={"batch": 3})
    reader = store(tmp_path, PATH)
    reader.table("sweep")
    reader.table("executed_edges")
    with pytest.raises(UpstreamError, match=r"node_map\.csv: made with dimensions \{'batch': 3\}"):
        reader.table("node_map")


@pytest.mark.parametrize(
    ("rows", "problem"),
    [
        ([{"batch": 1}, {"seq": 1}], "row 1 binds batch, the table sweeps batch, seq"),
        ([{"batch": 1}, {"batch": "3"}], "a size that is not a whole number"),
        ([{"batch": 1}, {"batch": 1}], "occurs twice"),
    ],
)
def test_rows_that_are_no_variants_are_refused(tmp_path, sweep, rows, problem):
    frame = pd.DataFrame([{"dimensions": row, "latency_us": 1.0} for row in rows])
    with pytest.raises(PipelineError, match=problem):
        write(tmp_path, "sweep", frame, stage=PROFILE)


def test_a_row_changed_behind_the_writer_is_told(tmp_path, sweep):
    write(tmp_path, "sweep", sweep, stage=PROFILE, model_id="ab")
    path = tmp_path / "sweep.csv"
    path.write_text(path.read_text().replace("batch", "steps", 2))
    record = provenance.load(path, "")
    record.sha256 = sha256_of(path)
    sidecar(path).write_text(record.to_json())
    with pytest.raises(UpstreamError, match="row 1 binds steps, the table sweeps batch"):
        store(tmp_path).table("sweep")


def test_variants_that_are_set_aside_still_say_what_they_sweep(tmp_path, sweep):
    with store(tmp_path, PROFILE, model_id="ab").writing() as writing:
        writing.add_table("sweep", sweep)
        writing.set_aside("run 2 failed")
    assert provenance.load(tmp_path / "incomplete" / "sweep.csv", "").swept == ["batch"]
    assert len(store(tmp_path / "incomplete").table("sweep")) == 3
