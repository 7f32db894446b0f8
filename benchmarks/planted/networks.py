"""The means by which planted models are built: nodes one after another, with random weights of a fixed seed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper

Array = npt.NDArray[Any]
FLOAT = TensorProto.FLOAT
OPSET, IR_VERSION = 20, 9
CONTRIB = "com.microsoft"


class Network:
    """A model in the making.

    Args:
        shape: of its input ``x``; a text is an unbound dimension.
    """

    def __init__(self, *shape: int | str, element_type: int = FLOAT) -> None:
        self.random = np.random.default_rng(17)
        self.inputs = [helper.make_tensor_value_info("x", element_type, shape)]
        self.nodes: list[onnx.NodeProto] = []
        self.weights: dict[str, Array] = {}

    def values(self, *shape: int, scale: float = 1.0) -> Array:
        return (scale * self.random.uniform(-1, 1, shape)).astype(np.float32)

    def weight(self, array: Array | np.generic) -> str:
        name = f"w{len(self.weights)}"
        self.weights[name] = np.asarray(array)
        return name

    def add(self, op_type: str, *operands: str, domain: str = "", **attributes: Any) -> str:
        """Add a node, and return its result."""
        name = f"{op_type.lower()}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(op_type, operands, [name], name, domain=domain, **attributes))
        return name

    def conv(self, x: str, inputs: int, outputs: int, kernel: int = 3, padding: tuple[int, int] = (0, 0)) -> str:
        """Add a convolution that keeps the size of its maps.

        Args:
            padding: filters of zeros beyond ``outputs``, and channels with zeros beyond ``inputs``.
        """
        scale = (3.0 / (inputs * kernel**2)) ** 0.5
        weight = self.values(outputs, inputs, kernel, kernel, scale=scale)
        padded = np.pad(weight, [*((0, more) for more in padding), (0, 0), (0, 0)])
        return self.add("Conv", x, self.weight(padded), pads=[kernel // 2] * 4)

    def norm(self, x: str, channels: int) -> str:
        """Add a batch normalization."""
        parts = [self.values(channels) + 2 for _ in range(4)]
        return self.add("BatchNormalization", x, *map(self.weight, parts))

    def ended(self, result: str, shape: Sequence[int | str] | None, *, are_inputs: bool = False) -> onnx.ModelProto:
        """Return the model.

        Args:
            result: the tensor that the model returns.
            are_inputs: whether weights are inputs with a default, which a caller may replace.
        """
        weights = [numpy_helper.from_array(array, name) for name, array in self.weights.items()]
        declared = [helper.make_tensor_value_info(one.name, one.data_type, one.dims) for one in weights]
        inputs = [*self.inputs, *(declared if are_inputs else ())]
        kind = self.inputs[0].type.tensor_type.elem_type
        graph = helper.make_graph(
            self.nodes, "planted", inputs, [helper.make_tensor_value_info(result, kind, shape)], weights
        )
        opsets = [helper.make_opsetid("", OPSET), helper.make_opsetid(CONTRIB, 1)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION)
