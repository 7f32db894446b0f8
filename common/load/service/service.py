"""The server of batches: the seam between the load and whatever is measured under it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from common.load.requests.load_record import Batch


class Service(Protocol):
    """Something that answers batches of requests on one or several workers."""

    worker_count: int  # how many batches it can serve at once
    stages: tuple[str, ...]  # names of the parts of a call that it times itself, such as copies; may be empty

    def run(self, worker: int, batch: Batch) -> Sequence[int]:
        """Serve a batch, and return what each stage took in ns; every worker calls this from a thread of its own.

        Raises:
            PipelineError: its requests fail; the load goes on.
        """

    def give_up(self, worker: int) -> None:
        """Ask the running call of a worker to end early, if that can be done; called from another thread."""
