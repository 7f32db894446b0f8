"""What load tests refuse: each flag by itself and in odd pairs ends with one line, and writes nothing."""

import pytest

from models.__main__ import BUILDERS
from tests.support.processes.command_lines import run_stage
from tests.support.processes.load_runs import SCRIPT, refused

REQUESTS = [
    (("--rate", "0"), "--rate: '0' is not a finite number above 0"),
    (("--scenario", "generate"), "--scenario generate; 27_token_streams.py loads a decoder (generate), 21_loadgen"),
    (("--rate", "-3"), "--rate: '-3' is not a finite number above 0"),
    (("--rate", "nan"), "--rate: 'nan' is not a finite number above 0"),
    (("--rate", "1e9", "--duration", "10s"), "--rate, --duration: 1e+10 requests are more than 50,000,000"),
    (("--arrivals", "never"), "--arrivals: invalid choice: 'never'"),
    (("--arrivals", "bursty", "--burst", "4;1"), "--burst: '4;1' is not PEAK,SHARE,SECONDS"),
    (("--arrivals", "bursty", "--burst", "20,0.1,1"), "exceeds the rate; the peak is at most 10"),
    (("--burst", "4,0.1,1"), "--burst: has no effect on poisson arrivals; give --arrivals bursty"),
    (("--duration", "0s"), "--duration: '0s' is not a duration above 0"),
    (("--until", "p98 5%"), "--until: 'p98 5%' is not a figure and a percentage; such as \"p99 5%\"; figures are p50"),
    (("--until", "p99 200%"), "--until: '200%'; it takes a percentage between 0 and 100"),
    (("--duration", "2y"), "--duration: '2y' is not a duration above 0"),
    (("--seed", "-1"), "--seed: '-1' is not a whole number of at least 0"),
    (("--users", "0"), "--users: '0' is not a whole number of at least 1"),
    (("--users", "99999999999"), "--users: 99999999999; it takes a whole number from 1 to 1,000,000"),
    (("--users", "9", "--queue-max", "4"), "--queue-max: 4 is below the 9 users"),
    (("--users", "2", "--rate", "5"), "--rate: has no effect with --users"),
    (("--users", "2", "--arrivals", "constant"), "--arrivals: has no effect with --users"),
    (("--users", "2", "--replay", "x.csv"), "exclude each other"),
    (("--think", "1s"), "--think: has no effect without --users"),
    (("--profile", "60s"), "--profile: '60s' is not T:HZ or T:HZ-HZ, such as 60s:10 or 60s:10-50"),
    (("--profile", "60s:10,x:5"), "--profile: 'x' is not a duration above 0"),
    (("--profile", "60s:1.2.3"), "--profile: '1.2.3' is not a finite rate of at least 0"),
    (("--profile", "60s:-5"), "--profile: '60s:-5' is not T:HZ or T:HZ-HZ"),
    (("--profile", "60s:0"), "--profile: no request comes: every rate is 0; give a rate above 0"),
    (("--profile", "60s:10", "--rate", "5"), "--rate: has no effect with --profile"),
    (("--profile", "60s:10", "--duration", "5s"), "--duration: has no effect with --profile"),
    (("--profile", "60s:10", "--until", "p99 5%"), "--until: has no effect with --profile"),
    (("--profile", "60s:10", "--users", "2"), "--users, --profile: exclude each other"),
    (("--profile", "60s:10", "--arrivals", "bursty"), "--profile: has no bursts; give --arrivals poisson or constant"),
    (("--profile", "60s:1e7"), "--profile: 6e+08 requests are more than 50,000,000"),
    (("--replay", "x.csv", "--duration", "3s"), "--duration: has no effect with --replay"),
    (("--replay", ""), "--replay: the path is empty"),
    (("--lengths", "zipf:3"), "--lengths: 'zipf:3' is no distribution; give"),
    (("--lengths", "uniform:1,9"), "--lengths: has lengths; name the dimension that they are of: --length-dim"),
    (("--lengths", "uniform:1,9", "--replay", "x.csv"), "--lengths: cannot be combined with --replay"),
    (("--length-dim", "seq"), "--length-dim: needs requests with lengths"),
    (("--length-dim", ""), "--length-dim: needs requests with lengths"),
    (("--dim", "batch=3"), "--dim: batch=3"),
    (("--dim", "batch"), "--dim: 'batch' is not NAME=NUMBER"),
    (("--input", "x"), "--input: 'x' is not NAME=VALUE"),
]
BATCHES = [
    (("--batch-max", "0"), "--batch-max: '0' is not a whole number of at least 1"),
    (("--batch-max", "9" * 20), "--batch-max: is more than 65,536 requests in one call; give a smaller one"),
    (("--batch-max", "2", "--batch-preferred", "3"), "--batch-preferred: 3 is above the largest batch, 2"),
    (("--batch-max", "4", "--batch-preferred", "3,2"), "--batch-preferred: [3, 2]; it takes whole numbers"),
    (("--batch-preferred", "0"), "'0' is not a whole number of at least 1"),
    (("--batch-wait=-1ms",), "--batch-wait: '-1ms' is not a duration"),
    (("--buckets", "8,16"), "--buckets: has lengths; name the dimension that they are of: --length-dim"),
    (("--buckets", "8,x"), "--buckets: 'x' is not a whole number"),
    (("--queue-max", "0"), "--queue-max: '0' is not a whole number of at least 1"),
    (("--timeout", "0"), "--timeout: '0' is not a duration above 0"),
]
SESSIONS = [
    (("--sessions", "0"), "--sessions: '0' is not a whole number of at least 1"),
    (("--sessions", "999", "--replicate", "99"), "--sessions, --replicate: 999 sessions with 99 runs at a time"),
    (("--replicate", "x"), "--replicate: 'x' is not a whole number"),
    (("--threads", "0"), "--threads: '0' is not a whole number of at least 1"),
    (("--provider", "abacus"), "--provider"),
    (("--optimization", "most"), "--optimization: invalid choice: 'most'"),
    (("--pool", "shared", "--spinning", "never"), "--spinning: never is unavailable for a shared pool"),
    (("--pool", "shared", "--affinity", "pinned"), "--affinity: pinned is unavailable for a shared pool"),
    (("--pool", "shared", "--workers", "processes"), "--pool: shared, but"),
    (("--inter-threads", "2"), "--inter-threads: has no effect on sequential execution; give --execution parallel"),
    (("--spinning", "sometimes"), "'sometimes' is not one of runs, always, never"),
    (
        ("--spinning", "runs,never"),
        "--spinning: are several ways to share the host; give one value each; 14_load",
    ),
    (("--workers", "threads,processes", "--pool", "own,shared"), "--workers, --pool: are several ways"),
    (("--execution", "parallel", "--inter-threads", "2,3"), "--inter-threads: are several ways"),
    (("--affinity", "pinned", "--threads", "1", "--replicate", "2"), "leave --replicate out"),
]
PAYLOADS = [
    (("--images", "absent"), "--images: absent: cannot be read (No such file or directory)"),
    (("--images", "README.md"), "--images: README.md: holds no image; give a file or a folder of"),
    (("--top-k", "1000"), "--top-k: 1000, but the model's first output is float32 of shape [1, "),
    (("--top-k", "1000", "--workers", "processes"), "--top-k: 1000, but the model's first output is float32"),
    (("--top-k", "0"), "--top-k: '0' is not a whole number"),
    (("--normalize", "sepia"), "--normalize: invalid choice: 'sepia'"),
    (("--normalize", "unit"), "--normalize: has no effect without --images"),
]
BEST = [
    (("--best", "--rate", "3"), "--rate: has no effect with --best"),
    (("--best", "--sessions", "2"), "--sessions: has no effect with --best"),
    (("--best", "--pool", "shared"), "--pool: has no effect with --best"),
    (("--post-token", "x"), "--post-token: has no effect without --post"),
]
OTHER_SCRIPTS = [
    ("14_load_search.py", ("--p99-bound", "0s"), "--p99-bound: '0s' is not a duration"),
    ("14_load_search.py", ("--replicate", "9" * 40), f"--replicate: {'9' * 40} runs at a time; a load test has"),
    ("14_load_search.py", ("--budget", "nan"), "--budget: 'nan' is not a duration"),
    ("14_load_search.py", ("--usd-per-hour", "-1"), "--usd-per-hour: '-1' is not"),
    ("14_load_search.py", ("--avg-power-w", "0"), "--avg-power-w: '0' is not"),
    ("14_load_search.py", ("--users", "2"), "unrecognized arguments: --users 2"),
    ("14_load_search.py", ("--rate", "3"), "unrecognized arguments: --rate 3"),
    ("14_load_search.py", ("--pool", "shared", "--workers", "processes"), "--pool: shared, but"),
    ("14_load_search.py", ("--images", "README.md"), "--images: README.md: holds no image"),
    ("14_load_search.py", ("--top-k", "1000"), "--top-k: 1000, but the model's first output is float32 of shape [1, "),
    ("18_load_fleet.py", ("--cluster", "abacus"), "--cluster: invalid choice: 'abacus'"),
    ("18_load_fleet.py", ("--cluster-address", "localhost:1"), "--cluster-address: has no effect without --cluster"),
    ("18_load_fleet.py", ("--budget", "1s"), "--budget: has no effect without --search"),
    ("18_load_fleet.py", ("--p99-bound", "1s"), "--p99-bound: has no effect without --search"),
    ("18_load_fleet.py", ("--search", "--rate", "3"), "--rate: has no effect with --search"),
    ("18_load_fleet.py", ("--search", "--sessions", "3"), "--sessions: has no effect with --search"),
    ("18_load_fleet.py", ("--users", "2"), "unrecognized arguments: --users 2"),
    ("18_load_fleet.py", ("--input", "x=x.npy"), "unrecognized arguments: --input x=x.npy"),
    ("18_load_fleet.py", ("--spinning", "runs,never"), "--spinning: are several ways to share the host"),
    ("18_load_fleet.py", ("--models", ""), "--models: the path is empty"),
    ("19_endurance_test.py", ("--part", "0s"), "--part: '0s' is not a duration"),
    ("20_load_interference.py", (), "--with: names no model; give FILE"),
    ("20_load_interference.py", ("--with", "tiny-mlp.onnx", "--with-rate", "0"), "--with-rate: '0' is not a finite"),
    ("20_load_interference.py", ("--users", "2"), "unrecognized arguments: --users 2"),
]
OF_LOADGEN = [
    (("--scenario", "best"), "--scenario: invalid choice: 'best'"),
    (("--scenario", "offline", "--rate", "3"), "--rate: has no effect on the scenario offline"),
    (("--lengths", "uniform:1,9"), "unrecognized arguments: --lengths uniform:1,9"),
    (("--images", "README.md"), "--images: README.md: holds no image"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("flags", "problem"), [*REQUESTS, *BATCHES, *SESSIONS, *PAYLOADS, *BEST])
def test_what_cannot_be_is_refused_in_one_line(cnn, tmp_path, flags, problem):
    assert problem in refused(cnn, tmp_path, *flags)


@pytest.mark.parametrize(("script", "flags", "problem"), OTHER_SCRIPTS)
def test_the_other_scripts_refuse_in_one_line_too(cnn, tmp_path, script, flags, problem):
    assert problem in refused(cnn, tmp_path, *flags, script=script)


@pytest.mark.parametrize(("flags", "problem"), OF_LOADGEN)
def test_what_no_scenario_takes_is_refused_in_one_line(cnn, tmp_path, flags, problem):
    pytest.importorskip("mlperf_loadgen", reason="MLPerf LoadGen is not installed")
    assert problem in refused(cnn, tmp_path, *flags, script="21_loadgen_scenario.py")


def test_a_search_that_is_missing_is_named(cnn, tmp_path):
    done = run_stage(SCRIPT, "--model", cnn, "--best", "--out", tmp_path)
    assert done.returncode == 3 and done.stderr.count("\n") == 1
    assert "load_best.json: not found; run 14_load_search.py first" in done.stderr


def test_a_model_of_text_takes_no_images(mlp, photos, tmp_path):
    assert "--images: no input has the shape (N, 3, H, W)" in refused(mlp, tmp_path, "--images", photos)


def test_a_model_of_one_batch_size_names_the_remedy(tmp_path):
    model = tmp_path / "fixed.onnx"
    model.write_bytes(BUILDERS["tiny-mlp"](batch=1).SerializeToString())
    text = refused(model, tmp_path, "--batch-max", "4")
    assert "--batch-max: 4, but no input of fixed.onnx" in text and "use --replicate" in text


CLUSTER = ("--cluster", "dask", "--cluster-address", "127.0.0.1:1")


@pytest.mark.parametrize(
    ("script", "flags", "problem"),
    [
        ("20_load_interference.py", ("--with", ""), "--with takes an ONNX file"),
        ("20_load_interference.py", ("--with", "nowhere/x.onnx"), "nowhere/x.onnx: no such model file"),
        ("18_load_fleet.py", ("--models", "nowhere/x.onnx"), "nowhere/x.onnx: no such model file"),
        (SCRIPT, ("--model", "nowhere/x.onnx"), "nowhere/x.onnx: no such model file"),
        (SCRIPT, ("--model", "README.md"), "README.md"),
        (SCRIPT, ("--replay", "nowhere/x.csv"), "nowhere/x.csv"),
        (SCRIPT, ("--replay", "README.md"), "README.md: line "),
        ("18_load_fleet.py", (*CLUSTER, "--models", "configs"), "configs: a folder"),
    ],
)
def test_a_file_that_cannot_be_read_is_one_line(mlp, tmp_path, script, flags, problem):
    model = () if script == "18_load_fleet.py" else ("--model", mlp)
    done = run_stage(script, *model, *flags, "--out", tmp_path)
    assert done.returncode == 1 and done.stderr.count("\n") == 1
    assert problem in done.stderr


def test_a_replay_whose_times_go_back_is_refused(mlp, tmp_path):
    (tmp_path / "arrivals.csv").write_text("1\n2\n1\n")
    done = run_stage(SCRIPT, "--model", mlp, "--replay", tmp_path / "arrivals.csv", "--out", tmp_path)
    assert done.returncode == 1
    assert "arrivals.csv: line 3: time goes back from 2 to 1 s" in done.stderr


def test_a_cluster_that_does_not_answer_is_one_line(cnn, tmp_path):
    text = refused(cnn, tmp_path, *CLUSTER, script="18_load_fleet.py")
    assert "--cluster: " in text
