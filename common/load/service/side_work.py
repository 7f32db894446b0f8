"""Work on a request in the service beside the model's run: its image is prepared, its answer is made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from common.load.service.image_requests import ImageRequests
from common.load.service.top_classes import TopClasses
from common.runtime.inputs.images import Array

Feeds = Mapping[str, Array]


@dataclass(frozen=True, slots=True)
class SideWork:
    """Preparation and post-processing of requests; None where there is none."""

    images: ImageRequests | None = None
    top_classes: TopClasses | None = None

    @property
    def before(self) -> tuple[str, ...]:
        return self.images.stages if self.images else ()

    @property
    def after(self) -> tuple[str, ...]:
        return self.top_classes.stages if self.top_classes else ()

    @property
    def figures(self) -> dict[str, object]:
        """The inputs and answers of requests, by columns."""
        return {
            "sample_image_count": len(self.images.images) if self.images else None,
            "image_normalization": self.images.normalization if self.images else None,
            "top_class_count": self.top_classes.count if self.top_classes else None,
        }

    def prepared(self, requests: Sequence[int], rows: list[Feeds]) -> tuple[list[Feeds], tuple[int, ...]]:
        """Return the inputs of each request with its image, and what each stage took for all of them in ns."""
        if self.images is None:
            return rows, ()
        name = self.images.input_name
        values, spent_ns = self.images.prepared(requests)
        return [{**row, name: value} for row, value in zip(rows, values, strict=True)], spent_ns

    def answered(self, outputs: Sequence[object], request_count: int) -> tuple[int, ...]:
        """Make the answers of a batch, and return what that took in ns."""
        return self.top_classes.answered(outputs, request_count) if self.top_classes else ()


NO_SIDE_WORK = SideWork()
