"""The harness itself: it repeats a case, and it fails where something is planted."""

from __future__ import annotations

import contextlib
import os
import random
import subprocess
import sys
from math import comb

import onnx
import psutil
import pytest

from common.artifacts.provenance import sha256_of
from common.design_space.results.cache import default_folder
from common.messages.errors import PipelineError
from models.small.tiny import build_tiny_mlp
from tests.fuzz import workers
from tests.fuzz.__main__ import settle_in
from tests.fuzz.command_lines import CommandLines
from tests.fuzz.configurations import GOOD, Configurations
from tests.fuzz.coverage_guided import keep_fault
from tests.fuzz.disks import Disks
from tests.fuzz.faults import Fault, run_with
from tests.fuzz.injection import Injection, in_order, most_failing
from tests.fuzz.kills import Kills
from tests.fuzz.models import Models
from tests.fuzz.oracle import digests, faults_of, table_faults
from tests.fuzz.pipeline import must
from tests.fuzz.programs import Ended, import_all, run_here
from tests.fuzz.readers import READERS, Reader, attempt, mutated_model
from tests.fuzz.tables import Tables
from tests.fuzz.trial import cpu_limit
from tests.fuzz.workers import BATCH, Pool, Worker

SCRIPT = "02_shapes_flops_bytes.py"
NAMES = ("case",)


def kinds(code, out="", err="", **more):
    return [fault.kind for fault in faults_of(Ended((SCRIPT,), code, out, err, **more), NAMES)]


def test_one_line_with_a_path_is_no_fault():
    assert kinds(1, err=f"{SCRIPT}: error: case.onnx: is broken\n") == []
    assert kinds(0, out="a table\n", err="note: something\n") == []


@pytest.mark.parametrize(
    ("ended", "kind"),
    [
        ({"code": None, "site": "TypeError in x"}, "traceback"),
        ({"code": 1, "err": "Traceback (most recent call last):\n"}, "traceback"),
        ({"code": 139}, "exit code"),
        ({"code": 1, "err": ""}, "error lines"),
        ({"code": 1, "err": "x: error: case\nx: error: case\n"}, "error lines"),
        ({"code": 0, "err": "x: error: case\n"}, "error lines"),
        ({"code": 2, "err": "x: error: the model: is broken\n"}, "no path"),
        ({"code": 2, "err": f"x: error: case: {'y' * 2000}\n"}, "long line"),
        ({"code": 0, "out": "\x1b[2J"}, "control characters"),
        ({"code": 0, "out": "\u202e"}, "control characters"),
        ({"code": 0, "err": "common/x.py:3: RuntimeWarning: overflow\n"}, "warning"),
    ],
)
def test_every_bad_end_is_a_fault(ended, kind):
    assert kind in kinds(**ended)


def test_programs_remember_nothing_among_the_files_of_the_user(monkeypatch, tmp_path):
    for name in ("HOME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "MPLCONFIGDIR"):
        monkeypatch.setenv(name, str(tmp_path / "user"))
    assert default_folder().is_relative_to(tmp_path / "user")
    settle_in(tmp_path / "home")
    assert default_folder().is_relative_to(tmp_path / "home")
    assert str(tmp_path / "user") not in os.environ.values()


class Planted:
    """Cases 1, 3 and 5 fail, each in its own way."""

    name = "planted"

    def prepare(self, folder, unit):
        """Nothing is shared."""

    def run(self, rng, trial):
        trial.tell(f"drew {rng.random()}")
        if trial.folder.name.endswith("-1"):
            with cpu_limit(0.05):
                while True:
                    random.random()
        if trial.folder.name.endswith("-3"):
            raise SystemError
        if trial.folder.name.endswith("-5"):
            trial.fail("planted", "here", "")


def results(tmp_path, count, cases=7):
    tmp_path.mkdir(exist_ok=True)
    pool = Pool(Planted(), 11, tmp_path, 0.1, count)
    return {result.case: result for result in pool.results(lambda case: case >= cases)}


@pytest.mark.slow
def test_a_hang_and_a_crash_cost_their_own_case_only(tmp_path):
    found = results(tmp_path, 2)
    assert sorted(found) == list(range(BATCH))  # whole batches
    assert {case: result.faults[0].kind for case, result in found.items() if result.faults} == {
        1: "hang",
        3: "crash",
        5: "planted",
    }


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads the states of Linux")
def test_a_family_whose_time_falls_or_that_waits_for_a_disk_is_not_asleep(tmp_path, monkeypatch):
    """A child that ended took its time along; on a busy host nothing ticks for a while after."""
    sleeper = subprocess.Popen(["sleep", "1000"])
    try:
        while psutil.Process(sleeper.pid).status() != psutil.STATUS_SLEEPING:
            pass
        worker = Worker(sleeper.pid, 0, tmp_path / "dump", [1], cpu_s=7.0, since=-1e9)
        assert not workers._is_asleep(worker)
        worker.since = -1e9
        assert workers._is_asleep(worker)
        monkeypatch.setattr(psutil.Process, "status", lambda process: psutil.STATUS_DISK_SLEEP)
        assert not workers._is_asleep(worker)
    finally:
        sleeper.kill()
        sleeper.wait()


def test_a_case_follows_from_its_seed_and_number_alone(tmp_path):
    one, two = results(tmp_path / "1", 1), results(tmp_path / "2", 3)
    assert {case: result.story for case, result in one.items()} == {case: two[case].story for case in one}


def test_a_lost_table_and_one_that_is_half_new_are_faults(tmp_path):
    def sidecar(name, digest):
        (tmp_path / f"{name}.meta.json").write_text(f'{{"stage": "{SCRIPT}", "sha256": "{digest}"}}')

    (tmp_path / "op_metrics.csv").write_text("old")
    sidecar("op_metrics", sha256_of(tmp_path / "op_metrics.csv"))
    before = digests(tmp_path)
    assert list(table_faults(tmp_path, 1, before, SCRIPT)) == list(table_faults(tmp_path, 0, before, SCRIPT)) == []
    (tmp_path / "op_metrics.csv").write_text("new")
    assert [fault.kind for fault in table_faults(tmp_path, 1, before, SCRIPT)] == ["tables"]
    assert [fault.kind for fault in table_faults(tmp_path, 0, before, SCRIPT)] == ["tables"]
    sidecar("op_metrics", sha256_of(tmp_path / "op_metrics.csv"))
    assert list(table_faults(tmp_path, 0, before, SCRIPT)) == []
    (tmp_path / ".scratch-1.tmp").touch()
    assert [fault.kind for fault in table_faults(tmp_path, 0, before, SCRIPT)] == ["leftovers"]


def test_what_escapes_a_program_is_kept(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("common.cli.run", lambda main: {}["planted"])
    ended = run_here(SCRIPT)
    assert (ended.code, ended.site.partition(" ")[0]) == (None, "KeyError")
    assert "planted" in ended.trace


def smoke(campaign, tmp_path, cases):
    import_all()  # before anything is forked: a signal that meets an import ends a process without a word
    (tmp_path / "shared").mkdir()
    campaign.prepare(tmp_path / "shared", 0.1)
    pool = Pool(campaign, 6, tmp_path, 0.1, 2)
    found = list(pool.results(lambda case: case >= cases))
    assert len(found) >= cases
    assert [(result.case, fault.kind, fault.site) for result in found for fault in result.faults] == []


def test_some_models(tmp_path):
    smoke(Models(with_backend=False), tmp_path, 24)


@pytest.mark.exhaustive
@pytest.mark.parametrize("campaign", [Tables, Configurations, Kills, Disks], ids=lambda campaign: campaign.name)
def test_some_of_every_other_campaign(campaign, tmp_path):
    smoke(campaign(), tmp_path, 24)


@pytest.mark.exhaustive
def test_flags_with_wrong_values(tmp_path):
    """A tenth of them, which a fixed seed mixes: over all scripts, flags and kinds; `make fuzz` goes on."""
    campaign = CommandLines()
    smoke(campaign, tmp_path, len(campaign.cases) // 10)


@pytest.mark.slow
def test_some_flags_with_wrong_values(tmp_path):
    """Scripts that need no tables but those of 02."""
    campaign = CommandLines((SCRIPT, "13_npu_profile.py", "16_run_history.py"))
    campaign.prepare = lambda folder, unit: made_by_one_stage(campaign, folder)
    smoke(campaign, tmp_path, 96)


def made_by_one_stage(campaign, folder):
    campaign.source = folder
    (folder / "case.onnx").write_bytes(build_tiny_mlp().SerializeToString())
    os.chdir(folder)
    must(SCRIPT, *GOOD[SCRIPT])


@pytest.mark.exhaustive
@pytest.mark.parametrize("kind", ["call", "import", "allocation", "signal at call", "system call"])
def test_some_faults_of_each_kind_in_stages_that_read_and_record(kind, tmp_path):
    smoke(Injection(("04_critical_path.py", "16_run_history.py", "17_record_run.py"), (kind,)), tmp_path, 24)


def test_each_seed_gives_points_an_order_of_its_own_and_those_of_a_new_site_come_first():
    points = [("02", Fault("call", number, is_first=number % 3 > 0)) for number in range(60)]
    ordered = in_order(points, 1)
    assert ordered == in_order(points[::-1], 1)
    assert sorted(fault.number for _, fault in ordered) == [*range(60)]
    assert [fault.is_first for _, fault in ordered] == [True] * 40 + [False] * 20
    assert in_order(points, 2)[:40] != ordered[:40] != points[:40]


@pytest.mark.parametrize(("failed", "tried"), [(0, 300), (2, 50), (7, 8)])
def test_the_limit_of_a_share_is_where_so_few_failures_have_a_chance_of_5_percent(failed, tried):
    share = most_failing(failed, tried)
    chances = (comb(tried, count) * share**count * (1 - share) ** (tried - count) for count in range(failed + 1))
    assert sum(chances) == pytest.approx(0.05)


def test_where_all_that_were_tried_failed_all_may_fail():
    assert most_failing(0, 0) == most_failing(3, 3) == 1


@pytest.mark.slow
def test_a_planted_fault_meets_the_call_that_it_names(tmp_path, monkeypatch):
    import_all()
    monkeypatch.chdir(tmp_path)
    command = ("03_merge_profile_metrics.py", "--out", "out")
    plain = run_with(None, 60.0, *command)
    assert plain.ended.code == 3 and plain.sites["call"]
    ends = [
        run_with(Fault("call", number, what="EMFILE"), 60.0, *command).ended
        for number, _ in enumerate(plain.sites["call"], 1)
    ]
    assert {(end.code, end.trace) for end in ends} <= {(1, ""), (2, ""), (3, "")}
    assert any("Too many open files" in end.err for end in ends)


# --- readers, as `make fuzz-coverage` calls them ---------------------------------------------------------------------


def seeds_of(name):
    return READERS[name].seeds()[:3]


@pytest.mark.slow
@pytest.mark.parametrize("name", READERS)
def test_a_reader_reads_a_file_that_its_search_begins_with(name, tmp_path):
    """A search from files that are refused at once would reach little."""
    read = []
    for content in seeds_of(name):
        attempt(READERS[name], content, tmp_path)
        with contextlib.suppress(PipelineError):
            READERS[name].read(tmp_path / READERS[name].file)
            read.append(content)
    assert read


@pytest.mark.parametrize("raised", [KeyError("x"), UnicodeDecodeError("utf-8", b"x", 0, 1, "no text"), MemoryError()])
def test_an_exception_that_is_none_of_ours_is_a_fault(tmp_path, raised):
    def fail(path):
        raise raised if path.read_bytes() else PipelineError(path, "is empty")

    attempt(Reader("m.onnx", fail, list), b"", tmp_path)
    with pytest.raises(type(raised)):
        attempt(Reader("m.onnx", fail, list), b"x", tmp_path)


def test_one_file_is_kept_for_each_place_of_an_exception(tmp_path):
    for content in (b"first", b"second"):
        try:
            {}["missing"]
        except KeyError as error:
            keep_fault(tmp_path, error, content)
    kept = {path.suffix: path.read_bytes() for path in tmp_path.iterdir()}
    assert kept[".input"] == b"first"
    assert b"KeyError: 'missing'" in kept[".txt"]


@pytest.mark.slow
def test_a_mutated_model_is_mostly_a_model():
    [content, *_] = READERS["models"].seeds()
    changed = [mutated_model(content, random.Random(seed)) for seed in range(30)]
    assert sum(content != other for other in changed) > 20
    assert all(onnx.load_from_string(other).ByteSize() for other in changed)
