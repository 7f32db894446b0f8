"""A registry of functions by the operator that they are about."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

import onnx

from common.graphs.operators import ONNX

Function = TypeVar("Function")


class ByOperator(dict[tuple[str, str], Function], Generic[Function]):
    """Functions by domain and operator type; an operator has at most one."""

    def __init__(self, domain: str) -> None:
        super().__init__()
        self.domain = domain

    def __call__(self, *op_types: str, domains: tuple[str, ...] | None = None) -> Callable[[Function], Function]:
        """Register a function for operators of the given domains, or of the registry's own."""

        def register(function: Function) -> Function:
            for key in ((domain, op_type) for domain in domains or (self.domain,) for op_type in op_types):
                if key in self:
                    raise ValueError(f"two functions for {':'.join(key)}")
                self[key] = function
            return function

        return register

    def of(self, node: onnx.NodeProto) -> Function | None:
        return self.get((ONNX if node.domain == "ai.onnx" else node.domain, node.op_type))
