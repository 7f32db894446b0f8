"""The one seam between NumPy and PyTorch: what the cost function needs of arrays, in either package."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from common.errors import PipelineError


@dataclass(frozen=True)
class Namespace:
    """An array package, and what it calls differently.

    Attributes:
        module: numpy or torch. Both know ``where``, ``prod``, ``cumsum``, ``minimum``, ``maximum`` and ``stack``, and
            both take ``axis``.
        asarray: makes an array of doubles or of integers, as its argument is.
        along: takes the entries of one axis by an array of indices.
        rounded_up: the next integer; its derivative is taken as one.
    """

    module: Any
    asarray: Callable[[Any], Any]
    along: Callable[[Any, Any, int], Any]
    rounded_up: Callable[[Any], Any]


NUMPY = Namespace(np, np.asarray, np.take_along_axis, np.ceil)


def torch_namespace() -> Namespace:
    """Return PyTorch, in which the cost has a gradient.

    Raises:
        PipelineError: it is not installed.
    """
    try:
        import torch
    except ImportError:
        raise PipelineError("torch", "is not installed", "run: pip install -r requirements-torch.txt") from None

    def asarray(values: Any) -> Any:
        if isinstance(values, torch.Tensor):
            return values
        array = np.asarray(values)
        return torch.as_tensor(array if array.dtype.kind in "biu" else array.astype(np.float64))

    def rounded_up(values: Any) -> Any:
        return values + (torch.ceil(values) - values).detach()

    return Namespace(torch, asarray, torch.take_along_dim, rounded_up)
