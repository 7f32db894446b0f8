"""A thin layer over ``onnx.helper``: nodes named as the field's exporters name them, weights from a seed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper

# IR 7 came with opset 12. onnx writes its newest IR version by default, which a runtime that is
# a few months older refuses to load.
IR_VERSION = 7
OPSET = 12

FLOAT = TensorProto.FLOAT
INT64 = TensorProto.INT64
BOOL = TensorProto.BOOL

Dim = int | str
Spec = tuple[int, Sequence[Dim] | None]


class GraphBuilder:
    """Collect nodes and seeded initializers, then :meth:`model` them.

    Tensor names follow ``torch.onnx``: the node ``/layer1/conv1/Conv`` writes ``/layer1/conv1/Conv_output_0``, and a
    second node of that name becomes ``/layer1/conv1/Conv_1``.
    """

    def __init__(self, name: str, *, seed: int = 0, has_weights: bool = True) -> None:
        self.name = name
        self.has_weights = has_weights
        self.random = np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.initializers: list[onnx.TensorProto] = []
        self.uses: Counter[str] = Counter()

    def body(self, name: str) -> GraphBuilder:
        """The builder of a nested graph; it draws on the same random numbers, so that no two weights are equal."""
        inner = GraphBuilder(name, has_weights=self.has_weights)
        inner.random = self.random
        return inner

    def weight(self, name: str, array: npt.NDArray[np.generic]) -> str:
        self.initializers.append(numpy_helper.from_array(array, name))
        return name

    def he_normal(self, name: str, shape: Sequence[int]) -> str:
        """Add float32 weights of variance 2 / fan-in: it survives a ReLU (He et al. 2015, arXiv:1502.01852, eq. 10)."""
        return self.normal(name, shape, 2.0 / int(np.prod(shape[1:])))

    def normal(self, name: str, shape: Sequence[int], variance: float = 1.0) -> str:
        """Add float32 weights of a variance.

        Without weights only their shape is written: what 138 million numbers cost, shapes and counts do not need.
        """
        if not self.has_weights:
            tensor = TensorProto(name=name, data_type=FLOAT, dims=list(shape), data_location=TensorProto.EXTERNAL)
            tensor.external_data.add(key="location", value="weights-left-out.bin")  # which is never written
            self.initializers.append(tensor)
            return name
        values = self.random.standard_normal(tuple(shape), dtype=np.float32)
        return self.weight(name, values * np.float32(np.sqrt(variance)))

    def linear(self, x: str, path: str, width: int, wider: int, *, variance: float = 1.0) -> str:
        """Add MatMul and Add, as exporters write a linear layer over a sequence; weights of variance / fan-in."""
        weight = self.normal(f"{dotted(path)}.weight", (width, wider), variance / width)
        bias = self.weight(f"{dotted(path)}.bias", np.zeros(wider, np.float32))
        return self.node("Add", [bias, self.node("MatMul", [x, weight], path)], path)

    def gemm(self, x: str, path: str, width: int, wider: int, *, output: str | None = None, **scales: float) -> str:
        """Add Gemm, as exporters write a linear layer over rows."""
        weight = self.he_normal(f"{dotted(path)}.weight", (wider, width))
        bias = self.weight(f"{dotted(path)}.bias", np.zeros(wider, np.float32))
        return self.node("Gemm", [x, weight, bias], path, output=output, transB=1, **scales)

    def constant(self, path: str, value: npt.ArrayLike, dtype: npt.DTypeLike = np.int64) -> str:
        """Add a Constant node, as exporters do for constants that are not weights."""
        return self.node("Constant", [], path, value=numpy_helper.from_array(np.array(value, dtype)))

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
        self.uses[name] += 1
        if self.uses[name] > 1:
            name = f"{name}_{self.uses[name] - 1}"
        names = list(outputs or [f"{name}_output_0"])
        self.nodes.append(helper.make_node(op_type, list(inputs), names, name=name, **attributes))
        return names

    def graph(self, inputs: Mapping[str, Spec], outputs: Mapping[str, Spec]) -> onnx.GraphProto:
        """Close the graph. ``inputs`` and ``outputs`` map a name to its (element type, shape)."""
        return helper.make_graph(
            self.nodes,
            self.name,
            [helper.make_tensor_value_info(name, *spec) for name, spec in inputs.items()],
            [helper.make_tensor_value_info(name, *spec) for name, spec in outputs.items()],
            self.initializers,
        )

    def model(
        self,
        inputs: Mapping[str, Spec],
        outputs: Mapping[str, Spec],
        *,
        opset: int = OPSET,
        domains: dict[str, int] | None = None,
        functions: Sequence[onnx.FunctionProto] = (),
    ) -> onnx.ModelProto:
        """Close the graph, as :meth:`graph` does, and wrap it into a model."""
        graph = self.graph(inputs, outputs)
        imports = [helper.make_opsetid("", opset)]
        imports += [helper.make_opsetid(domain, version) for domain, version in (domains or {}).items()]
        model = helper.make_model(graph, opset_imports=imports, functions=functions, producer_name="onnx-fpga-codesign")
        model.ir_version = max(IR_VERSION, 8 if opset > 14 else IR_VERSION)
        return model


def dotted(path: str) -> str:
    """``layer1/layer1.0/conv1`` to ``layer1.0.conv1``, the name of the parameter in the source framework."""
    parts: list[str] = []
    for part in path.split("/"):
        if parts and part.startswith(f"{parts[-1]}."):  # the exporter repeats the parent: layer1/layer1.0
            parts.pop()
        parts.append(part)
    return ".".join(parts)
