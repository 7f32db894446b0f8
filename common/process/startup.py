"""The start of a script: a signal ends it, and a missing requirement is one line with the way out.

The scripts import this module first, under any Python. So it is written for Python 3.8, and imports next to nothing.
"""

from __future__ import annotations

import sys

from common.process import interrupts

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import TracebackType
    from typing import NoReturn

OLDEST = (3, 11)
OWN = ("common", "models", "benchmarks", "tests")
ENVIRONMENT = ".venv"
LEAST_ADDRESS_BYTES = 2**30  # with less, OpenBLAS asks for its buffers for ever
# How the loader of shared libraries, and those libraries, say that memory ran out.
NO_MEMORY = ("failed to map segment", "cannot allocate", "Cannot allocate", "bad_alloc", "bad allocation")


def begin() -> None:
    """Prepare the process for the imports of a script, which take most of a second.

    Warnings are never errors here: libraries warn at import, and ``PYTHONWARNINGS`` may be meant for another program.
    """
    interrupts.end_at_once()
    sys.excepthook = explain
    if sys.version_info < OLDEST:
        found = ".".join(map(str, sys.version_info[:2]))
        end(f"Python {found} is too old: {'.'.join(map(str, OLDEST))} or newer is needed; {way_out()}")
    require_address_space()
    if sys.warnoptions:
        import warnings

        sys.warnoptions[:] = [option for option in sys.warnoptions if not option.startswith("error")]
        warnings.filters[:] = [entry for entry in warnings.filters if entry[0] != "error"]  # type: ignore[index]


def require_address_space() -> None:
    """End if a limit leaves too little for the packages, since some print lines of their own and some never return."""
    import resource

    limit_bytes, _ = resource.getrlimit(resource.RLIMIT_AS)
    if 0 <= limit_bytes < LEAST_ADDRESS_BYTES:
        few = f"this process may have {limit_bytes / 1e9:.2g} GB of addresses, which is too little for its packages"
        end(f"memory: {few}; raise the limit: ulimit -v {LEAST_ADDRESS_BYTES // 1024}")


def explain(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Print one line on a requirement that is missing; any other exception is a bug, and keeps its traceback."""
    name = (getattr(error, "name", None) or "").partition(".")[0]
    if isinstance(error, ModuleNotFoundError) and name not in OWN:
        end(f"the package {name} is not installed for {sys.executable}; {way_out()}")
    if any(map(_is_of_memory, causes(error))):
        end("memory: too little is free for the packages of this script; end other programs, or use another host")
    sys.__excepthook__(kind, error, trace)


def causes(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an exception and those that led to it, because packages raise another one if an import fails."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _is_of_memory(error: BaseException) -> bool:
    said = isinstance(error, (ImportError, OSError, RuntimeError)) and any(words in str(error) for words in NO_MEMORY)
    return said or isinstance(error, MemoryError)


def way_out() -> str:
    """Return what to do where Python or its packages are not those of this project."""
    from pathlib import Path

    environment = Path(__file__).resolve().parents[2] / ENVIRONMENT
    if Path(sys.prefix).resolve() == environment.resolve():
        return f"`rm {ENVIRONMENT}/.ready; make {ENVIRONMENT}/.ready` installs the packages again"
    if (environment / "bin" / "python").exists():
        return f"`{ENVIRONMENT}/bin/python {Path(sys.argv[0]).name}`, or `. {ENVIRONMENT}/bin/activate` once"
    return f"`make {ENVIRONMENT}/.ready` sets up {ENVIRONMENT}, then `. {ENVIRONMENT}/bin/activate`"


def end(line: str) -> NoReturn:
    """End the process with one line, whatever else is wrong with it."""
    import os

    name = sys.argv[0].rpartition("/")[2]
    os.write(2, f"{name}: error: {line}\n".encode("utf-8", "backslashreplace"))
    os._exit(1)
