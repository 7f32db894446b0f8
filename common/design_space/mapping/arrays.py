"""The interface to NumPy and PyTorch: arrays of either package, and the functions that the cost needs of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt

from common.messages.errors import PipelineError

if TYPE_CHECKING:
    from torch import Tensor


class Array(Protocol):
    """An array of NumPy or a tensor of PyTorch, with the operations that the cost needs."""

    @property
    def shape(self) -> tuple[int, ...]: ...

    def __array__(self) -> npt.NDArray[Any]: ...

    def __getitem__(self, index: Any, /) -> Array: ...  # numpy's own types of an index are no public names

    def __add__(self, other: Array | float, /) -> Array: ...

    def __radd__(self, other: float, /) -> Array: ...

    def __sub__(self, other: Array | float, /) -> Array: ...

    def __mul__(self, other: Array | float, /) -> Array: ...

    def __rmul__(self, other: float, /) -> Array: ...

    def __truediv__(self, other: Array | float, /) -> Array: ...

    def __gt__(self, other: Array | float, /) -> Array: ...

    def __lt__(self, other: Array | float, /) -> Array: ...

    def __le__(self, other: Array | float, /) -> Array: ...

    def __and__(self, other: Array, /) -> Array: ...

    def __invert__(self) -> Array: ...


class Module(Protocol):
    """The functions that have one name in numpy and torch."""

    def where(self, condition: Array, chosen: Array, other: Array | float, /) -> Array: ...

    def prod(self, values: Array, /, *, axis: int) -> Array: ...

    def cumsum(self, values: Array, /, *, axis: int) -> Array: ...

    def minimum(self, left: Array, right: Array, /) -> Array: ...

    def maximum(self, left: Array, right: Array, /) -> Array: ...

    def stack(self, arrays: Sequence[Array], /, *, axis: int) -> Array: ...

    def concatenate(self, arrays: Sequence[Array], /, *, axis: int) -> Array: ...


@dataclass(frozen=True)
class Namespace:
    """An array package, and the functions that have another name in the other one."""

    module: Module  # numpy or torch
    # Makes an array of doubles or of integers, as its argument is
    asarray: Callable[[Array | Sequence[object] | float], Array]
    along: Callable[[Array, Array, int], Array]  # takes the entries of one axis by an array of indices
    rounded_up: Callable[[Array], Array]  # the next integer; its derivative is taken as one


def _along(values: Array, indices: Array, axis: int) -> Array:
    return np.take_along_axis(np.asarray(values), np.asarray(indices), axis)


NUMPY = Namespace(np, np.asarray, _along, np.ceil)


def torch_module() -> ModuleType:
    """Return PyTorch; PipelineError if it is not installed."""
    try:
        import torch
    except ImportError:
        raise PipelineError("torch", "is not installed", "run: pip install -r requirements-torch.txt") from None
    module: ModuleType = torch
    return module


def torch_namespace() -> Namespace:
    """Return PyTorch, in which the cost has a gradient; PipelineError if it is not installed."""
    torch = torch_module()

    def asarray(values: Array | Sequence[object] | float) -> Tensor:
        if isinstance(values, torch.Tensor):
            return values
        array = np.asarray(values)
        return torch.as_tensor(array if array.dtype.kind in "biu" else array.astype(np.float64))

    def rounded_up(values: Tensor) -> Tensor:
        return values + (torch.ceil(values) - values).detach()

    return Namespace(torch, asarray, torch.take_along_dim, rounded_up)
