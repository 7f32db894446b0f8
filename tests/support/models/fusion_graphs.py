"""Small source graphs that several tests of fusion and workload share."""

from __future__ import annotations

import random

from tests.support.tables.fpga import Model

MORE_OPERATORS = ("Softmax", "ReduceMean", "Sub", "Pow", "MaxPool", "Transpose", "DequantizeLinear", "QuantizeLinear")


def conv_block(model: Model, x: str, name: str, *, activation: bool = True) -> str:
    model.weights(**{f"{name}_w": 7 * 4, f"{name}_s": 3 * 4})
    model.add("Conv", f"{x} {name}_w", f"{name}_c")
    model.add("BatchNormalization", f"{name}_c {name}_s", f"{name}_b")
    if not activation:
        return f"{name}_b"
    model.add("Relu", f"{name}_b", f"{name}_r")
    return f"{name}_r"


def residual_block() -> Model:
    """Two branches from x; the shortcut's convolution comes last, as exporters write a projection."""
    model = Model()
    branch = conv_block(model, "x", "a", activation=False)
    shortcut = conv_block(model, "x", "b", activation=False)
    model.add("Add", f"{branch} {shortcut}", "sum")
    model.add("Relu", "sum", "y")
    model.outputs = ["y"]
    return model


def gelu(model: Model, x: str, name: str) -> str:
    """x · (1 + erf(x / √2)) / 2, as exporters write it."""
    model.weights(root=4, one=4, half=4)
    model.add("Div", f"{x} root", f"{name}_d")
    model.add("Erf", f"{name}_d", f"{name}_e")
    model.add("Add", f"{name}_e one", f"{name}_p")
    model.add("Mul", f"{x} {name}_p", f"{name}_m")
    model.add("Mul", f"{name}_m half", f"{name}_g")
    return f"{name}_g"


def attention(model: Model, x: str, *, masked: bool = False) -> str:
    """One layer of self-attention: projections, split into heads, QKᵀ, softmax, PV, merge, output projection."""
    model.weights(wq=5, wk=5, wv=5, wo=5, scale=4, shape=4)
    for name in "qkv":
        model.add("MatMul", f"{x} w{name}", f"{name}_p")
        model.add("Reshape", f"{name}_p shape", f"{name}_h")
        model.add("Transpose", f"{name}_h", f"{name}_t")
    model.add("MatMul", "q_t k_t", "scores")
    model.add("Div", "scores scale", "scaled")
    if masked:
        model.add("Add", "scaled mask", "biased")
    model.add("Softmax", "biased" if masked else "scaled", "weights")
    model.add("MatMul", "weights v_t", "heads")
    model.add("Transpose", "heads", "merged")
    model.add("Reshape", "merged shape", "flat")
    model.add("MatMul", "flat wo", "y")
    return "y"


def random_model(seed: int) -> Model:
    """A random graph of what networks are made of, with branches, joins and returned tensors in odd places."""
    chance = random.Random(seed)
    model = Model()
    model.weights(w=7, c=3)
    tensors = ["x"]
    for index in range(chance.randint(20, 60)):
        op_type = chance.choice(
            (
                "Conv",
                "Conv",
                "Conv",
                "BatchNormalization",
                "Relu",
                "Add",
                "Add",
                "Add",
                "Sigmoid",
                "Mul",
                "MatMul",
                "Gemm",
                *MORE_OPERATORS,
            )
        )
        recent = tensors[-4:]
        pair = f"{chance.choice(recent)} {chance.choice([*recent, 'c'])}"
        operands = {
            "Conv": f"{chance.choice(recent)} w",
            "Gemm": f"{chance.choice(recent)} w",
            **dict.fromkeys(("Mul", "Add", "Sub"), pair),
        }
        operands |= {"MatMul": f"{chance.choice(recent)} {chance.choice([*recent, 'w'])}"}
        model.add(op_type, operands.get(op_type, chance.choice(recent)), f"t{index}")
        tensors.append(f"t{index}")
    read = {tensor for node in model.nodes for tensor in node["inputs"]}
    model.outputs = [name for name in tensors[1:] if name not in read or chance.random() < 0.05]
    return model


def layer_norm(model: Model, x: str, name: str) -> str:
    """(x − mean) / √(mean of squares + ε) · γ + β, as exporters wrote it before opset 17."""
    model.weights(two=4, epsilon=4, gamma=28, beta=28)
    model.add("ReduceMean", x, f"{name}_m")
    model.add("Sub", f"{x} {name}_m", f"{name}_d")
    model.add("Pow", f"{name}_d two", f"{name}_s")
    model.add("ReduceMean", f"{name}_s", f"{name}_v")
    model.add("Add", f"{name}_v epsilon", f"{name}_e")
    model.add("Sqrt", f"{name}_e", f"{name}_r")
    model.add("Div", f"{name}_d {name}_r", f"{name}_n")
    model.add("Mul", f"{name}_n gamma", f"{name}_g")
    model.add("Add", f"{name}_g beta", f"{name}_y")
    return f"{name}_y"
