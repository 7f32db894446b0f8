"""The comparison of two clocks: its arithmetic on written-out samples, and real queries of LoadGen's."""

import json
import sys

import numpy as np
import onnx
import pytest

from benchmarks.measuring import loadgen, recorder
from common.runtime.sessions.session import SessionSettings, create_session
from models.small.tiny import build_tiny_mlp


def own(values):
    return dict(zip(("p50", "p90", "p95", "p99", "p99_9"), values, strict=True))


def by_name(rows):
    return {row.name: row for row in rows}


@pytest.mark.parametrize(("wanted", "queries"), [(1, 1001), (1001, 1001), (1002, 2001), (2001, 2001), (2500, 3001)])
def test_so_many_queries_that_both_take_the_same_sample(wanted, queries):
    assert loadgen.query_count(wanted) == queries
    for quantile in loadgen.QUANTILES.values():
        position = quantile * (queries - 1)
        assert position == pytest.approx(round(position), abs=1e-6)  # ours: no sample between two
        assert int(queries * quantile) == round(position)  # LoadGen's


def test_within_100_us_or_the_gap_to_the_next_sample():
    ours = np.arange(1001.0)  # ranks 500, 900, 950, 990, 999
    ours[999:] = 1400.0, 1650.0  # 402 above the sample before, 250 below the one after
    rows = by_name(loadgen.compare(ours, own([600.0, 800.0, 1050.1, 990.0, 1801.0])))
    assert [row.ours_us for row in rows.values()] == [500.0, 900.0, 950.0, 990.0, 1400.0]
    assert {name: row.limit_us for name, row in rows.items()} == own([100.0, 100.0, 100.0, 100.0, 402.0])
    assert {name: row.agrees for name, row in rows.items()} == own([True, True, False, True, True])


def test_the_table():
    ours = np.full(1001, 200.0)
    rows = loadgen.compare(ours, own([203.0, 203.0, 203.0, 203.0, 350.0]))
    lines = [line.split() for line in loadgen.report(rows, ours, ours + 3).splitlines()]
    assert lines[1] == ["p50", "200.0", "203.0", "+3.0", "100.0", "ok"]
    assert lines[5] == ["p99.9", "200.0", "350.0", "+150.0", "100.0", "OUT"]
    assert " ".join(lines[6]) == (
        "offset of 1001 queries, LoadGen's less ours: least 3.0, median 3.0, p99 3.0, most 3.0 µs"
    )


def test_the_trace_gives_the_queries_in_their_order(tmp_path):
    events = [
        {"name": "Sample", "ph": "b", "id": 1, "args": {"complete_ns": 5000}},
        {"name": "Sample", "ph": "e", "id": 1},
        {"name": "Sample", "ph": "b", "id": 0, "args": {"complete_ns": 3000}},
        {"name": "Waiting", "ph": "X"},
    ]
    lines = [json.dumps(event, separators=(",", ":")) for event in events]
    (tmp_path / "mlperf_log_trace.json").write_text('{"traceEvents":[\n' + ",\n".join(lines) + "\n]}\n")
    assert loadgen.query_latencies_us(tmp_path).tolist() == [3.0, 5.0]


def test_without_loadgen_the_way_to_install_it(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "mlperf_loadgen", None)
    assert loadgen.main([]) == 2
    assert capsys.readouterr().err == "mlperf_loadgen: not installed; run: pip install mlcommons-loadgen\n"


def test_a_model_that_is_not_there(tmp_path, capsys):
    pytest.importorskip("mlperf_loadgen")
    assert loadgen.main(["--model", str(tmp_path / "no.onnx")]) == 1
    assert len(capsys.readouterr().err.splitlines()) == 1


@pytest.mark.slow
def test_what_stays_out_fails(monkeypatch, tmp_path, capsys):
    pytest.importorskip("mlperf_loadgen")
    onnx.save(build_tiny_mlp(batch=1), tmp_path / "mlp.onnx")
    far = dict.fromkeys(loadgen.QUANTILES, 1000000000.0)
    monkeypatch.setattr(loadgen, "own_percentiles_us", lambda folder: far)
    assert loadgen.main(["--model", str(tmp_path / "mlp.onnx")]) == 1
    assert capsys.readouterr().out.count("OUT") == 5 * loadgen.ROUNDS


def test_both_clocks_on_the_same_queries(tmp_path):
    generator = pytest.importorskip("mlperf_loadgen")
    model = tmp_path / "mlp.onnx"
    onnx.save(build_tiny_mlp(batch=1), model)
    session = create_session(model, SessionSettings(1))
    name, shape = session.get_inputs()[0].name, session.get_inputs()[0].shape
    ours = loadgen.single_stream(generator, session, {name: np.ones(shape, np.float32)}, 1001, tmp_path)
    theirs = loadgen.query_latencies_us(tmp_path)
    assert len(ours) == len(theirs) == 1001
    assert (theirs >= ours).all()  # its clock starts before ours and stops after it
    ordered = np.sort(theirs)
    expected = {name: ordered[int(1001 * q)] for name, q in loadgen.QUANTILES.items()}
    assert loadgen.own_percentiles_us(tmp_path) == pytest.approx(expected)


def test_what_recording_costs_is_held_against_the_limit(monkeypatch, capsys):
    monkeypatch.setattr(recorder, "TURNS", 50)
    monkeypatch.setattr(recorder, "LIMIT_NS", 10**9)
    assert recorder.main() == 0
    monkeypatch.setattr(recorder, "LIMIT_NS", -(10**9))
    assert recorder.main() == 1
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert [line[0] for line in lines] == ["into", "series", "histogram"] * 2
    assert [line[-1] for line in lines] == ["ns", "ok", "ok", "ns", "SLOW", "SLOW"]
