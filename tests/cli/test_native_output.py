"""Native code prints nothing between the lines of a script's table."""

import subprocess
import sys

from tests.support.paths import ROOT

PROGRAM = """
import ctypes, subprocess, sys
from common import cli
def main(argv):
    ctypes.CDLL(None).puts(b"HighsMipSolverData::transformNewIntegerFeasibleSolution tmpSolver.run();")
    print("the table", flush=True)
    return subprocess.run(["echo", "of a child"]).returncode
cli.run(main)
"""


def test_what_the_c_library_prints_is_in_no_output_of_a_script():
    done = subprocess.run([sys.executable, "-c", PROGRAM], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "the table\nof a child\n", "")
