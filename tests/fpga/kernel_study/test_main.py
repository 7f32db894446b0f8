"""One kernel on one board, through the real command line and by hand."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from typing import Any

import pytest

from common.cli import ROOT
from common.cli.texts.wording import flag
from common.fpga.__main__ import PROGRAM, example, main
from common.fpga.device.resources import RESOURCE_NAMES
from common.fpga.kernel_study.quantities import KERNELS
from common.messages.errors import CommandLineError, PipelineError
from tests.support.processes.command_lines import run_program

GEMV = "gemv --board u280 --rows 4096 --cols 4096 --dtype fp64 --channels 16 --clock-mhz 333"
GEMM = "gemm --board u250 --m 1040 --k 1024 --n 1024 --array 13x16 --simd 8 --dtype fp32 --clock-mhz 300"
EVERY = [
    "gemv --rows 509 --cols 1021",
    "gemm --m 61 --k 127 --n 31",
    "conv --in-channels 17 --height 13 --width 11 --out-channels 19",
    "attention --heads 3 --tokens 61 --head-dim 17",
    "layernorm --rows 61 --width 127",
    "softmax --rows 61 --width 127",
    "gelu --rows 61 --width 127",
]


def run(*flags: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "common.fpga", *flags]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.fixture
def estimate(capsys):
    """The JSON object of one estimate."""

    def of(flags: str) -> dict[str, Any]:
        assert main(["estimate", *flags.split()]) == 0
        return dict(json.loads(capsys.readouterr().out))

    return of


# --- the object -----------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_command_prints_one_object_and_nothing_else() -> None:
    finished = run("estimate", *GEMV.split())
    assert (finished.returncode, finished.stderr) == (0, "")
    found = json.loads(finished.stdout)
    assert (found["kernel"], found["board"], found["dtype"], found["clock_mhz"]) == ("gemv", "u280", "fp64", 333)
    assert set(found["resources"]) == set(RESOURCE_NAMES)


@pytest.mark.slow
@pytest.mark.parametrize("flags", EVERY)
@pytest.mark.parametrize("board", ["u280", "u250", "zcu104", "vck190"])
def test_every_kernel_closes_in_itself_on_every_kind_of_board(estimate, flags, board) -> None:
    found = estimate(f"{flags} --board {board} --dtype int8")
    for stem, unit in (("time", "_us"), ("cycles", ""), ("power", "_w")):
        worst, likely, best = (found[f"{stem}_{case}{unit}"] for case in ("pessimistic", "likely", "optimistic"))
        assert worst >= likely >= best > 0
    assert found["time_likely_us"] == found["time_us"]
    assert round(found["cycles_likely"]) == found["cycles"]
    assert found["cycles"] == pytest.approx(found["time_us"] * found["clock_mhz"], abs=1)
    assert found["attained_flop_per_s"] == pytest.approx(found["flops"] / found["time_us"] * 1e6)
    assert found["attained_bytes_per_s"] == pytest.approx(found["bytes"] / found["time_us"] * 1e6)
    assert found["fits"] is (found["short_of"] == {})
    assert all(math.isfinite(amount) and amount >= 0 for amount in found["resources"].values())
    assert all(isinstance(text, str) and text for text in found["assumptions"])


# --- GEMV -----------------------------------------------------------------------------------------------------------


def test_gemv_is_near_what_was_measured_on_a_u50(estimate) -> None:
    """898.929 us there, by the same number of channels at the same clock; two FLOPs for each element of A."""
    found = estimate(GEMV)
    assert found["time_us"] == pytest.approx(898.929, rel=0.05)
    assert found["flops"] == 2 * 4096 * 4096
    assert found["bytes"] >= 8 * 4096 * 4096
    assert found["resources"]["dsp"] == pytest.approx(966)  # as published
    assert found["time_optimistic_us"] < 898.929 < found["time_pessimistic_us"]


def test_other_names_of_the_flags_mean_the_same(estimate) -> None:
    first = estimate("gemv --rows 509 --cols 1021 --dtype fp32")
    assert estimate("gemv --m 509 --n 1021 --precision float32") == first


def test_the_clock_is_the_boards_and_half_of_it_takes_twice_as_long(estimate) -> None:
    whole, half = (estimate(f"gemv --rows 4096 --cols 4096 --channels 2{clock}") for clock in ("", " --clock-mhz 150"))
    assert (whole["clock_mhz"], half["clock_mhz"]) == (300, 150)
    assert half["cycles"] == pytest.approx(whole["cycles"], rel=0.01)
    assert half["time_us"] == pytest.approx(2 * whole["time_us"], rel=0.01)


def test_what_does_not_fit_says_what_is_short(estimate) -> None:
    found = estimate("gemv --rows 64 --cols 64 --dtype fp64 --channels 32")
    assert found["fits"] is False
    assert found["short_of"]["memory_channels"] == {"needed": 33, "available": 32}


def test_a_matrix_beyond_the_cards_memory_does_not_fit(estimate) -> None:
    """(100,003 x 100,019 + both vectors) x 4 bytes, and 8 GiB."""
    found = estimate("gemv --rows 100003 --cols 100019 --dtype fp32")
    needed = 4 * (100_003 * 100_019 + 100_003 + 100_019)
    assert found["short_of"] == {"memory_bytes": {"needed": needed, "available": 8 * 2**30}}


# --- arrays ---------------------------------------------------------------------------------------------------------


def test_gemm_is_near_what_autosa_measured_on_a_u250(estimate) -> None:
    """2.32357 ms there with 8,320 DSPs: 13 x 16 x 8 multiply-accumulates of five."""
    found = estimate(GEMM)
    assert found["time_us"] == pytest.approx(2323.57, rel=0.15)
    assert found["resources"]["dsp"] == 13 * 16 * 8 * 5 == 8320
    assert found["flops"] == 2 * 1040 * 1024 * 1024
    assert found["engine"] == "systolic-13x16x8-fp32"
    assert found["time_optimistic_us"] < 2323.57 < found["time_pessimistic_us"]
    assert "over all regions" in found["assumptions"][3]


def test_gemm_takes_the_names_of_gemv(estimate) -> None:
    first = estimate("gemm --m 61 --k 127 --n 31 --array 8x4 --dtype int8")
    assert estimate("gemm --rows 61 --inner 127 --cols 31 --array 8x4 --dtype int8") == first
    assert first["engine"] == "systolic-8x4x1-int8"


def test_the_array_that_is_chosen_fits_a_region_and_beats_a_small_one(estimate) -> None:
    chosen = estimate("gemm --m 512 --k 512 --n 512 --dtype int8")
    small = estimate("gemm --m 512 --k 512 --n 512 --dtype int8 --array 8x8 --simd 4")
    assert chosen["fits"]
    assert "within one region" in chosen["assumptions"][3]
    assert chosen["resources"]["dsp"] <= 2880 * 0.8
    assert chosen["time_us"] < small["time_us"] / 4


@pytest.mark.parametrize(
    ("flags", "height", "width"),
    [
        ("", 13, 11),
        ("--padding 0", 11, 9),
        ("--stride 2", 7, 6),
        ("--kernel 5x3 --stride 3x2 --padding 1", 4, 6),
        ("--padding 0 --dilation 2", 9, 7),
    ],
)
def test_the_output_of_a_convolution(estimate, flags, height, width) -> None:
    """(extent + 2 x padding - reach) // stride + 1, and 17 x window products for each of 19 x output pixels."""
    found = estimate(f"conv --in-channels 17 --height 13 --width 11 --out-channels 19 --array 4x4 {flags}")
    window = 15 if "5x3" in flags else 9
    assert found["flops"] == 2 * 19 * height * width * 17 * window


def test_a_depthwise_convolution_wastes_the_array(estimate) -> None:
    size = "conv --in-channels 32 --height 14 --out-channels 32 --array 8x8 --dtype int8"
    whole, apart = estimate(size), estimate(f"{size} --groups 32")
    assert whole["flops"] == 32 * apart["flops"]
    assert apart["attained_flop_per_s"] < whole["attained_flop_per_s"] / 4


# --- attention and rows ---------------------------------------------------------------------------------------------


def test_attention_counts_both_products_and_the_softmax(estimate) -> None:
    found = estimate("attention --heads 3 --tokens 61 --head-dim 17 --dtype int8")
    assert found["flops"] == 2 * 3 * 61 * 61 * (17 + 17) + 5 * 3 * 61 * 61
    assert found["bytes"] >= 3 * 4 * 61 * 17  # Q, K, V and the result
    assert found["fits"]
    more = estimate("attention --heads 6 --tokens 61 --head-dim 17 --dtype int8")
    assert 1.5 * found["time_us"] < more["time_us"] < 2.1 * found["time_us"]


def test_attention_takes_lanes_and_heads_at_once(estimate) -> None:
    """24 lanes are 4 rows of 6; three heads at once take 144 lanes in both products, and DSPs in threes."""
    flags = "attention --board u280 --heads 6 --tokens 64 --head-dim 24 --dtype int16 --lanes 24"
    one, three = estimate(flags), estimate(f"{flags} --heads-parallel 3")
    assert (one["engine"], three["engine"]) == ("attention-4x6-int16", "attention-3x4x6-int16")
    control = 6
    assert three["resources"]["dsp"] - control == 3 * (one["resources"]["dsp"] - control)
    assert three["time_likely_us"] < one["time_likely_us"] / 2
    assert one["time_optimistic_us"] < one["time_likely_us"] < one["time_pessimistic_us"]


def test_an_array_has_clock_and_resources_in_three_cases(estimate) -> None:
    """A clock that is given is reached; the board's own falls with each of its four regions."""
    given, assumed = estimate(GEMM), estimate(GEMM.removesuffix("--clock-mhz 300"))
    clocks = [
        [found[f"clock_{case}_mhz"] for case in ("pessimistic", "likely", "optimistic")] for found in (given, assumed)
    ]
    assert clocks == [[300, 300, 300], [pytest.approx(99.9), pytest.approx(300 * 0.887**3, abs=0.01), 300]]
    assert assumed["time_pessimistic_us"] > 1.5 * given["time_pessimistic_us"]
    for name in ("lut", "ff", "bram36", "dsp"):
        worst, likely, best = (given[f"{name}_{case}_count"] for case in ("pessimistic", "likely", "optimistic"))
        assert best < likely == given["resources"][name] < worst
        bare = [given[f"array_{name}_{case}_count"] for case in ("pessimistic", "likely", "optimistic")]
        assert bare == sorted(bare, reverse=True)


def test_layernorm_reads_and_writes_every_element_once(estimate) -> None:
    found = estimate("layernorm --rows 61 --width 127 --dtype bf16")
    assert found["bytes"] == 2 * 2 * 61 * 127
    assert found["flops"] == 7 * 61 * 127


# --- what cannot be asked for ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("flags", "problem"),
    [
        ("gemv --cols 4", "--rows: is missing; gemv takes rows, cols, vectors"),
        ("gemv --rows 0 --cols 4", "'0' is not a whole number of at least 1"),
        ("gemv --rows -3 --cols 4", "whole number of at least 1"),
        ("gemv --rows 4.5 --cols 4", "'4.5' is not a whole number"),
        ("gemv --rows 1e99 --cols 4", "'1e99' is not a whole number"),
        ("gemv --rows 99999999999 --cols 4", "--rows: 99999999999 is above 10,000,000"),
        ("gemv --rows 4 --cols 4 --board u999", "'u999' is neither a known board"),
        ("gemv --rows 4 --cols 4 --board u280-seed003", "u280-seed003"),
        ("gemv --rows 4 --cols 4 --dtype int3", "u280 gives no rate for 'int3'"),
        ("gemv --rows 4 --cols 4 --clock-mhz nan", "'nan' is not a finite number above 0"),
        ("gemv --rows 4 --cols 4 --clock-mhz inf", "'inf' is not a finite number above 0"),
        ("gemv --rows 4 --cols 4 --clock-mhz 0", "not a finite number above 0"),
        (
            "gemv --rows 4 --cols 4 --clock-mhz 5000",
            "--clock-mhz: such a device cannot run at 5000 MHz; give 1 to 1000",
        ),
        ("gemv --rows 4 --cols 4 --channels 33", "--channels: 33 is more than u280 has; give 1 to 32"),
        ("gemv --rows 4 --cols 4 --array 4x4", "unrecognized arguments: --array"),
        ("gemv --rows 4 --cols 4 --describe", "an estimate writes no table"),
        ("attention --heads 4", "--tokens: is missing"),
        ("gemm --m 4 --k 4", "--n: is missing"),
        ("gemm --m 4 --k 4 --n 4 --array 0x4", "'0' is not a whole number"),
        ("gemm --m 4 --k 4 --n 4 --array 4xx4", "is not a whole number"),
        ("gemm --m 4 --k 4 --n 4 --array 2000x4", "a side is above 1024"),
        ("gemm --m 4 --k 4 --n 4 --dtype fp64", "no systolic array of fp64 is modelled"),
        ("conv --in-channels 4 --height 2 --out-channels 4 --kernel 7 --padding 0", "7x7 is larger than the padded"),
        ("conv --in-channels 4 --height 9 --out-channels 6 --groups 3", "3 does not divide 4 and 6 channels"),
        ("conv --in-channels 4 --height 9 --out-channels 6 --padding -1", "'-1' is not a whole number"),
        ("fft --rows 4", "'fft' is not a kernel; it takes gemv, gemm, conv, attention"),
    ],
)
def test_bad_input_is_one_line_and_exit_2(flags, problem) -> None:
    with pytest.raises(PipelineError) as caught:
        main(["estimate", *flags.split()])
    assert problem in str(caught.value)
    assert "\n" not in str(caught.value)
    assert caught.value.exit_code == 2


def test_the_error_names_the_program_and_exits_with_2() -> None:
    finished = run_program(PROGRAM, main, "estimate", "gemv", "--rows", "0", "--cols", "4")
    assert (finished.returncode, finished.stdout) == (2, "")
    assert finished.stderr.startswith("python -m common.fpga: error: command line: ")
    assert finished.stderr.count("\n") == 1


def test_an_unknown_command_is_one_line() -> None:
    with pytest.raises(CommandLineError, match="'plot' is not a command; it takes kernels, estimate"):
        main(["plot"])


# --- help -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("flags", [[], ["--help"], ["estimate"], ["estimate", "--help"]])
def test_help_without_a_kernel_shows_examples(capsys, flags) -> None:
    assert main(flags) == 0
    assert "python -m common.fpga estimate gemv --board u280" in capsys.readouterr().out


@pytest.mark.parametrize("kind", sorted(KERNELS))
def test_help_of_a_kernel_shows_its_flags_and_an_example(capsys, kind) -> None:
    with pytest.raises(SystemExit) as left:
        main(["estimate", kind, "--help"])
    shown = capsys.readouterr().out
    assert not left.value.code
    assert example(kind, KERNELS[kind]) in shown
    names = {name for quantity in KERNELS[kind].quantities for name in (quantity.name, *quantity.aliases)}
    assert all(flag(name) in shown for name in names)


def test_the_example_of_a_kernel_runs(estimate) -> None:
    for kind in KERNELS:
        assert estimate(example(kind, KERNELS[kind]))["kernel"] == kind
