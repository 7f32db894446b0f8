"""Stage 19 on real sessions of a tiny model."""

import pandas as pd
import pytest

from tests.support.processes.command_lines import run_stage
from tests.support.processes.load_runs import document, load_test

SCRIPT = "19_endurance_test.py"


@pytest.mark.slow
def test_a_long_load_has_a_row_per_part(mlp, tmp_path):
    flags = ("--rate", "50", "--duration", "3s", "--part", "500ms")
    left = load_test(mlp, tmp_path, *flags, script=SCRIPT)
    parts, course = pd.read_csv(tmp_path / "endurance.csv"), document(tmp_path / "endurance_summary.json")
    assert parts["part_index"].tolist() == [*range(6)]
    assert (parts["sent_count"] == parts["completed_count"]).all() and (parts["sent_count"] > 5).all()
    assert parts["process_thread_count"].dropna().ge(1).all()
    assert not course["is_leak"]
    assert "emory" in left.done.stdout
    assert left.summary["sent_count"] == parts["sent_count"].iloc[-1]  # the requests are those of the last part
    ended = run_stage("06_plots.py", "--out", tmp_path)
    assert ended.returncode == 0, ended.stderr
    assert {"load.svg", "long_load.svg"} <= {path.name for path in (tmp_path / "plots").iterdir()}
