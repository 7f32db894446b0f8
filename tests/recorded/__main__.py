"""Run the commands that the README and the docs show, keep what they print, and put it into the texts.

``make readme`` does this on a quiet host. With --render nothing runs: the texts get what was recorded before.
"""

import argparse
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.support.documents.recorded_blocks import DOCUMENTS, OUTPUTS, rendered
from tests.support.documents.recorded_commands import commands
from tests.support.paths import ROOT

PICTURES = ROOT / "docs" / "pictures"
WINDOW = "1200,1500"  # of the report, in pixels


def record(folder: Path) -> None:
    """Run all commands in one empty folder, one after another, so that their figures belong together."""
    for name, command in commands().items():
        program, *arguments = shlex.split(command)
        if program != "python":  # an optional environment
            program = str(ROOT / program)
            if not Path(program).is_file():
                print(f"{name}: kept as it was recorded, since {program} is missing", file=sys.stderr)
                continue
        else:
            program = sys.executable
        arguments = [str(ROOT / argument) if argument.endswith(".py") else argument for argument in arguments]
        print(f"{name}: {command}", file=sys.stderr, flush=True)
        done = subprocess.run([program, *arguments], cwd=folder, stdout=subprocess.PIPE, text=True, check=True)
        (OUTPUTS / f"{name}.txt").write_text(done.stdout, encoding="utf-8")


def keep_pictures(folder: Path) -> None:
    """Copy the roofline, and a picture of the report where Chromium is installed."""
    PICTURES.mkdir(exist_ok=True)
    shutil.copy(folder / "out" / "plots" / "roofline.png", PICTURES / "roofline.png")
    browser = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if browser is None:
        print("docs/pictures/report.png: kept as it was, since Chromium is missing", file=sys.stderr)
        return
    report = (folder / "out" / "report.html").resolve().as_uri()
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--hide-scrollbars"]
    picture = f"--screenshot={PICTURES / 'report.png'}"
    subprocess.run([browser, *flags, f"--window-size={WINDOW}", picture, report], check=True, capture_output=True)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.recorded", description=__doc__)
    parser.add_argument("--render", action="store_true", help="run nothing")
    if not parser.parse_args().render:
        with tempfile.TemporaryDirectory() as name:
            record(Path(name))
            keep_pictures(Path(name))
    for document in DOCUMENTS:
        text = document.read_text(encoding="utf-8")
        document.write_text(rendered(text), encoding="utf-8")


if __name__ == "__main__":
    main()
