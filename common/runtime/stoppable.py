"""Runs of a session that another thread can end early."""

from __future__ import annotations

from collections.abc import Mapping

import onnxruntime as ort

from common.errors import PipelineError
from common.runtime.session import Session, reason_of
from common.runtime.values import Array, operands


def dynamic_axes(session: Session) -> dict[str, tuple[int, ...]]:
    """Return for each input of a session the axes whose size each run may choose."""
    return {
        given.name: tuple(axis for axis, size in enumerate(given.shape) if not isinstance(size, int))
        for given in session.get_inputs()
    }


class StoppableRuns:
    """Runs of one caller on a session, one at a time.

    Args:
        session: it may run for other callers at the same time.
        model: what an error names.
    """

    def __init__(self, session: Session, model: object) -> None:
        self._session, self._model = session, model
        self._options = ort.RunOptions()

    def run(self, feeds: Mapping[str, Array]) -> None:
        """Run one inference and drop its outputs.

        Raises:
            PipelineError: the runtime fails, with its own reason, or the run was stopped.
        """
        self._options = options = ort.RunOptions()
        fed = operands(self._session, feeds)
        call = self._session.run if fed is feeds else self._session.run_with_ort_values
        try:
            call(None, fed, options)
        except Exception as error:  # the runtime raises a dozen unrelated types
            raise PipelineError(self._model, f"ONNX Runtime fails to run it ({reason_of(error)})") from error

    def stop(self) -> None:
        """Let the current run end after the node that it is in, with an error."""
        self._options.terminate = True
