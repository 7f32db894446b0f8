"""The command that measures in turn what two folders were measured by."""

from __future__ import annotations

import shlex

from common.cli.texts.wording import paired_command

BEFORE = {"model": "before.onnx", "dim": [["batch", 2]], "input": [], "threads": 1, "provider": "cpu"}


def test_models_sizes_and_settings_are_those_of_the_measurements():
    command = paired_command(BEFORE, {**BEFORE, "model": "my after.onnx"})
    expected = ["15_paired_runs.py", "--ab", "before.onnx", "my after.onnx"]
    assert shlex.split(command) == [*expected, "--dim", "batch=2", "--threads", "1", "--provider", "cpu"]


def test_a_setting_that_differs_is_the_second_models_alone():
    words = shlex.split(paired_command(BEFORE, {**BEFORE, "threads": 3}))
    assert words[words.index("--threads") + 1] == "1"
    assert words[words.index("--b-with") + 1] == "threads=3"


def test_inputs_are_spelled_as_they_were_given():
    words = shlex.split(paired_command({**BEFORE, "input": [["ids", "ids.npy"], "x.npz"]}, BEFORE))
    assert [words[place + 1] for place, word in enumerate(words) if word == "--input"] == ["ids=ids.npy", "x.npz"]


def test_without_a_model_there_is_the_script_alone():
    assert paired_command({}, BEFORE) == "15_paired_runs.py"
