"""A top module with three pins around a design with more ports than a package has.

A chain of registers gives the design's inputs, and the parity of its outputs leaves, so that the tools keep all of it.
Its registers are counted: one per input, and one per output and a tree of parities behind them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from math import ceil

TOP = "pins"
PARITY_BITS = 16  # that a register of the tree joins
PORT = re.compile(r"^\s*(input|output)(?:\s+reg)?\s*(?:\[\s*([^\]:]+?)\s*:\s*0\s*\])?\s*(\w+)\s*,?\s*(?://.*)?$")


@dataclass(frozen=True, slots=True)
class Port:
    name: str
    bits: int
    is_input: bool


def ports_of(verilog: str, module: str) -> list[Port]:
    """Return the ports of a generated module, whose ranges are numbers or ``8*8-1``."""
    text = verilog[verilog.index(f"module {module} (") :]
    lines = text[text.index("(") + 1 : text.index("\n);")].splitlines()
    found = (PORT.match(line.partition("//")[0]) for line in lines)
    return [Port(each[3], _number(each[2]) + 1 if each[2] else 1, each[1] == "input") for each in found if each]


def _number(text: str) -> int:
    """Return the value of a top index, such as ``63`` or ``8*8-1``."""
    product, _, less = text.partition("-")
    value = 1
    for factor in product.split("*"):
        value *= int(factor)
    return value - int(less or 0)


def with_pins(verilog: str, module: str) -> str:
    """Return the design with the module :data:`TOP` around one of its modules, whose clock is ``clk``."""
    ports = [port for port in ports_of(verilog, module) if port.name != "clk"]
    inputs, outputs = (sum(port.bits for port in ports if port.is_input is side) for side in (True, False))
    parts = ceil(outputs / PARITY_BITS)
    connected, at = [], {True: 0, False: 0}
    for port in ports:
        bus = "chain" if port.is_input else "outputs"
        connected.append(f".{port.name}({bus}[{at[port.is_input]}+:{port.bits}])")
        at[port.is_input] += port.bits
    return (
        verilog
        + f"""
module {TOP} (input clk, input serial_in, output reg serial_out);
  reg [{inputs - 1}:0] chain;
  wire [{outputs - 1}:0] outputs;
  reg [{parts * PARITY_BITS - 1}:0] kept;
  reg [{parts - 1}:0] parities;
  integer i;
  always @(posedge clk) begin
    chain <= {{chain, serial_in}};
    kept <= {{{{{parts * PARITY_BITS - outputs + 1}{{1'b0}}}}, outputs}};
    for (i = 0; i < {parts}; i = i + 1) parities[i] <= ^kept[{PARITY_BITS}*i+:{PARITY_BITS}];
    serial_out <= ^parities;
  end
  {module} design (.clk(clk), {", ".join(connected)});
endmodule
"""
    )
