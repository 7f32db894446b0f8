"""Models that were built to make a reader of models run for ever, or take all memory."""

from __future__ import annotations

import random

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from tests.support.models.body_models import body, constant, info, node
from tests.support.models.onnx_models import INT64, model

FLOAT, BOOL = TensorProto.FLOAT, TensorProto.BOOL


def _circle(rng: random.Random) -> bytes:
    """Nodes that read each other's results, in a circle of any length."""
    size = rng.choice((1, 2, 3, 50, 1000))
    kinds = [rng.choice(("Relu", "Identity", "Reshape", "Shape", "Cast", "Squeeze")) for _ in range(size)]
    nodes = [node(kind, f"t{index}", f"t{(index + 1) % size}", f"n{index}") for index, kind in enumerate(kinds)]
    return model(nodes, {"x": (3, 5)}, {"t0": None}).SerializeToString()


def _doubling_functions(rng: random.Random) -> bytes:
    """Functions of which each calls the next one twice."""
    depth = rng.choice((3, 12, 23, 40))
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("local", 1)]
    functions = []
    for level in range(depth):
        inner = f"f{level + 1}" if level + 1 < depth else "Relu"
        domain = "local" if level + 1 < depth else ""
        nodes = [
            helper.make_node(inner, ["x"], ["h"], name="a", domain=domain),
            helper.make_node(inner, ["h"], ["y"], name="b", domain=domain),
        ]
        functions.append(helper.make_function("local", f"f{level}", ["x"], ["y"], nodes, imports))
    call = helper.make_node("f0", ["x"], ["y"], name="call", domain="local")
    return model([call], {"x": (3, 5)}, {"y": None}, functions=functions, domains=["local"]).SerializeToString()


def _recursive_function(rng: random.Random) -> bytes:
    """A function that calls itself, or another that calls it."""
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("local", 1)]
    count = rng.choice((1, 2, 5))
    functions = [
        helper.make_function(
            "local",
            f"f{level}",
            ["x"],
            ["y"],
            [helper.make_node(f"f{(level + 1) % count}", ["x"], ["y"], name="a", domain="local")],
            imports,
        )
        for level in range(count)
    ]
    call = helper.make_node("f0", ["x"], ["y"], name="call", domain="local")
    return model([call], {"x": (3, 5)}, {"y": None}, functions=functions, domains=["local"]).SerializeToString()


def _nested_loops(rng: random.Random) -> bytes:
    """Loops in the bodies of Loops."""
    trips = rng.choice((1, 2, 3, 2**62))
    inner = [node("Relu", "state", "state_out", "inner")]
    for level in range(rng.choice((2, 8, 20))):
        names = [info(f"i{level}", INT64, ()), info(f"going{level}", BOOL, ()), info("state", FLOAT, (3, 5))]
        keep = node("Identity", f"going{level}", "keep", f"keep{level}")
        made = body([keep, *inner], names, [info("keep", BOOL, ()), info("state_out", FLOAT, (3, 5))])
        count = constant(f"trips{level}", np.array(trips))
        owner = helper.make_node("Loop", [f"trips{level}", "", "state"], ["state_out"], name=f"loop{level}", body=made)
        inner = [count, owner]
    made = model([node("Relu", "x", "state"), *inner], {"x": (3, 5)}, {"state_out": (3, 5)})
    return made.SerializeToString()


def _scan_clash(rng: random.Random) -> bytes:
    """A Scan whose body writes the name of its own input."""
    clash = rng.choice(("state", "item"))
    nodes = [node("Add", "state,item", clash, "add"), node("Identity", clash, "seen", "seen")]
    made = body(nodes, [info("state", FLOAT, (5,)), info("item", FLOAT, (5,))], [info(clash), info("seen")])
    owner = helper.make_node("Scan", ["s", "x"], ["e", "y"], name="scan", body=made, num_scan_inputs=1)
    return model([owner], {"s": (5,), "x": ("N", 5)}, {"e": None, "y": None}).SerializeToString()


def _deep_ifs(rng: random.Random) -> bytes:
    """If within If within If."""
    inner = [node("Relu", "x", "r", "inner")]
    for level in range(rng.choice((5, 15, 22))):
        sides = {side: body(inner, [], [info("r")]) for side in ("then_branch", "else_branch")[: rng.choice((1, 2))]}
        sides.setdefault("else_branch", body([node("Identity", "x", "r", f"i{level}")], [], [info("r")]))
        inner = [helper.make_node("If", ["c"], ["r"], name=f"if{level}", **sides)]
        if len(sides["then_branch"].SerializeToString()) > 200_000:
            break
    made = model(inner, {"x": (3, 5)}, {"r": None})
    made.graph.input.add().CopyFrom(info("c", BOOL, ()))
    return made.SerializeToString()


def _vast(rng: random.Random) -> bytes:
    """Few bytes that ask for tensors of any size."""
    size = rng.choice((2**20, 2**31, 2**40, 2**62))
    kind = rng.choice(("ConstantOfShape", "Range", "Expand", "Tile", "OneHot", "EyeLike"))
    shape = numpy_helper.from_array(np.array([size]), "n")
    if kind == "Range":
        nodes = [node("Range", "zero,n0,one", "v", "range"), node("Reshape", "x,v", "y", "reshape")]
    elif kind == "Expand":
        nodes = [node("Expand", "one,n", "v", "expand"), node("Reshape", "x,v", "y", "reshape")]
    elif kind == "Tile":
        nodes = [
            node("Unsqueeze", "one,zeros", "o", "u"),
            node("Tile", "o,n", "v", "t"),
            node("Reshape", "x,v", "y", "r"),
        ]
    else:
        nodes = [node("ConstantOfShape", "n", "v", "fill"), node("Reshape", "x,v", "y", "reshape")]
    made = model(nodes, {"x": (3, 5)}, {"y": None}, {"zero": np.array(0), "one": np.array(1), "n0": np.array(size)})
    made.graph.initializer.extend([shape, numpy_helper.from_array(np.array([0]), "zeros")])
    return made.SerializeToString()


def _long_expression(rng: random.Random) -> bytes:
    """A dimension whose name is an expression without end, or no expression at all."""
    name = rng.choice(
        ("(" * 400 + "N" + ")" * 400, "N*" * 3000 + "N", "9**9**9**9", "N/0", "lambda", "__import__('os')")
    )
    return model([node("Relu", "x", "y", "relu")], {"x": (name, 3, "N")}, {"y": (name, 3, 7)}).SerializeToString()


def _many_dimensions(rng: random.Random) -> bytes:
    """Dimensions of many names, multiplied."""
    names = [f"d{index}" for index in range(rng.choice((5, 12, 30, 64)))]
    nodes = [node("Flatten", "x", "f", "flatten"), node("MatMul", "f,w", "y", "product")]
    return model(nodes, {"x": names, "w": ("k", "m")}, {"y": None}).SerializeToString()


def _external_to(rng: random.Random) -> bytes:
    """Weights in a file that must not be read, or that is none."""
    place = rng.choice(
        ("/etc/passwd", "../case.data", "/dev/zero", "case.data", "", ".", "nothing.bin", "a" * 300, "case.onnx")
    )
    length = rng.choice(("16", "-1", "x", "99999999999999999999", "0", ""))
    made = model([node("Reshape", "x,t", "y", "reshape")], {"x": ("N", 5)}, {"y": None})
    tensor = made.graph.initializer.add(name="t", data_type=INT64, dims=[2], data_location=TensorProto.EXTERNAL)
    for key, value in (("location", place), ("offset", rng.choice(("0", "-8", "x", "140"))), ("length", length)):
        tensor.external_data.add(key=key, value=value)
    return made.SerializeToString()


def _nothing(rng: random.Random) -> bytes:
    """A file with no graph, or no model at all."""
    return rng.choice(
        (b"", b"\x00", b"#!/bin/sh\n", onnx.ModelProto().SerializeToString(), b"PK\x03\x04", b"\x08\x08" * 900)
    )


TRAPS = {
    "circle": _circle,
    "doubling functions": _doubling_functions,
    "recursive function": _recursive_function,
    "nested loops": _nested_loops,
    "Scan name clash": _scan_clash,
    "deep ifs": _deep_ifs,
    "vast tensors": _vast,
    "long expression": _long_expression,
    "many dimensions": _many_dimensions,
    "external data": _external_to,
    "nothing": _nothing,
}
