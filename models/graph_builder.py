"""A thin layer over ``onnx.helper``: nodes named as the field's exporters name them, weights from a seed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper

# IR 7 is what came with opset 12. onnx writes its newest IR version by default, which a runtime that is
# a few months older refuses to load.
IR_VERSION = 7
OPSET = 12

FloatArray = npt.NDArray[np.float32]
Dim = int | str


class GraphBuilder:
    """Collect nodes and seeded initializers, then :meth:`model` them.

    Tensor names follow ``torch.onnx``: the node ``/layer1/conv1/Conv`` writes ``/layer1/conv1/Conv_output_0``.
    """

    def __init__(self, name: str, *, seed: int = 0) -> None:
        self.name = name
        self.random = np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.initializers: list[onnx.TensorProto] = []

    def weight(self, name: str, array: npt.NDArray[Any]) -> str:
        """Add an initializer and return its name."""
        self.initializers.append(numpy_helper.from_array(array, name))
        return name

    def he_normal(self, name: str, shape: Sequence[int]) -> str:
        """Add float32 weights of variance 2 / fan-in: it survives a ReLU (He et al. 2015, arXiv:1502.01852, eq. 10)."""
        fan_in = int(np.prod(shape[1:]))
        values = self.random.standard_normal(tuple(shape), dtype=np.float32)
        return self.weight(name, values * np.float32(np.sqrt(2.0 / fan_in)))

    def node(
        self, op_type: str, inputs: Sequence[str], path: str, *, output: str | None = None, **attributes: Any
    ) -> str:
        """Add the node ``/path/op_type`` with one output, and return that output's name."""
        return self.multi_node(op_type, inputs, path, [output] if output else None, **attributes)[0]

    def multi_node(
        self, op_type: str, inputs: Sequence[str], path: str, outputs: Sequence[str] | None = None, **attributes: Any
    ) -> list[str]:
        """Add the node ``/path/op_type`` with the named outputs (default: one), and return their names."""
        name = f"/{path}/{op_type}" if path else f"/{op_type}"
        names = list(outputs or [f"{name}_output_0"])
        self.nodes.append(helper.make_node(op_type, list(inputs), names, name=name, **attributes))
        return names

    def model(
        self,
        inputs: dict[str, tuple[int, Sequence[Dim]]],
        outputs: dict[str, tuple[int, Sequence[Dim] | None]],
        *,
        opset: int = OPSET,
        domains: dict[str, int] | None = None,
    ) -> onnx.ModelProto:
        """Close the graph. ``inputs`` and ``outputs`` map a name to its (element type, shape)."""
        graph = helper.make_graph(
            self.nodes,
            self.name,
            [helper.make_tensor_value_info(name, *spec) for name, spec in inputs.items()],
            [helper.make_tensor_value_info(name, *spec) for name, spec in outputs.items()],
            self.initializers,
        )
        imports = [helper.make_opsetid("", opset)]
        imports += [helper.make_opsetid(domain, version) for domain, version in (domains or {}).items()]
        model = helper.make_model(graph, opset_imports=imports, producer_name="onnx-fpga-codesign")
        model.ir_version = max(IR_VERSION, 8 if opset > 14 else IR_VERSION)
        return model


FLOAT = TensorProto.FLOAT
