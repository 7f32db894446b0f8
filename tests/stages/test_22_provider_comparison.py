"""Stage 22 on a tiny model."""

import pandas as pd

from tests.support.processes.command_lines import run_stage

SCRIPT = "22_provider_comparison.py"


def test_providers_are_compared_with_the_cpu(mlp, tmp_path):
    done = run_stage(SCRIPT, "--model", mlp, "--out", tmp_path)
    assert done.returncode == 0, done.stderr
    matrix = pd.read_csv(tmp_path / "provider_comparison.csv").set_index("compared_provider")
    assert matrix.loc["CPUExecutionProvider", "max_abs_error"] == 0.0
    assert matrix.loc["CPUExecutionProvider", "is_equal_shape"]
