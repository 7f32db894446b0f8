"""Synthesis, placement and routing with open tools: the cells that a design takes, and the clock that closes.

A top module with three pins is around a design with more ports than a package has. A chain of registers gives the
design's inputs, and the parity of its outputs leaves, so that the tools keep all of it. Its registers are counted: one
per input, and one per output and a tree of parities behind them.
"""

from __future__ import annotations

import json
import re
import shutil
from contextlib import suppress
from dataclasses import dataclass
from math import ceil
from pathlib import Path

from common.fpga.rtl.open_device import LogicCells, OpenDevice
from common.fpga.rtl.programs import call
from common.messages.errors import PipelineError

INSTALL = "make bitstream sets the tools up; or python -m pip install -r requirements-bitstream.txt"
USED = re.compile(r"^Info:\s+(\w+):\s+(\d+)/\s*(\d+)\s+\d+%", re.MULTILINE)
CLOSED = re.compile(r"^(?:Info|Warning): Max frequency for clock '[^']*': ([\d.]+) MHz", re.MULTILINE)
CONSTANTS = {"VLO", "VHI"}
TOP = "pins"
PARITY_BITS = 16  # that a register of the tree joins
PORT = re.compile(r"^\s*(input|output)(?:\s+reg)?\s*(?:\[\s*([^\]:]+?)\s*:\s*0\s*\])?\s*(\w+)\s*,?\s*(?://.*)?$")
STEP = re.compile(r"^Info:\s+(?:Source|Sink) (\S+)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class RoutedDesign:
    """What a design takes on a device, pins and their registers included."""

    cells: LogicCells
    clock_mhz: float | None  # highest one at which every path meets its time after routing; None if it was packed only
    slowest: tuple[str, str] | None  # first and last cell of the slowest path


@dataclass(frozen=True, slots=True)
class OpenTools:
    """Yosys and nextpnr: YoWASP's from one folder, or those of the system."""

    folder: Path | None = None  # of YoWASP's commands; None for the system's

    def command(self, name: str) -> str:
        """Return the path of a tool.

        Raises:
            PipelineError: it is not there; the message says how to install it.
        """
        wanted = str(self.folder / f"yowasp-{name}") if self.folder else name
        found = shutil.which(wanted)
        if found is None:
            raise PipelineError(wanted, "not found", INSTALL)
        return str(Path(found).absolute())  # it runs in the folder of the design

    def require(self, device: OpenDevice) -> None:
        """Refuse a device for which a tool is missing, with the PipelineError of :meth:`command`."""
        for name in ("yosys", device.tools.router, device.tools.packer[0]):
            self.command(name)

    def are_there(self, device: OpenDevice) -> bool:
        with suppress(PipelineError):
            self.require(device)
            return True
        return False


def route(
    verilog: str,
    module: str,
    device: OpenDevice,
    tools: OpenTools,
    folder: Path,
    *,
    target_mhz: float = 100.0,  # that placement and routing aim at
    seed: int = 1,  # of the placement
    packs_only: bool = False,  # ends after packing, which counts the cells
) -> RoutedDesign:
    """Synthesise, place and route a module in a folder, where the netlist, the log and the bitstream stay.

    Raises:
        PipelineError: a tool is missing or failed: a design that does not fit the device, among others.
    """
    router, packer = tools.command(device.tools.router), device.tools.packer
    pack = [tools.command(packer[0]), *packer[1:]]
    synthesize_for(verilog, module, device, tools, folder)
    pins = "".join(device.tools.pin.format(name=name, site=site) for name, site in device.pins.items())
    (folder / "design.pins").write_text(pins, encoding="utf-8")  # the board's clock and serial link
    flags = ["--json", "design.json", device.tools.pins_flag, "design.pins", "--freq", f"{target_mhz:g}"]
    flags += ["--seed", str(seed), "--timing-allow-fail", "--log", "route.log", "-q"]
    call([router, *device.router_flags, *flags, *(["--pack-only"] if packs_only else device.tools.routed)], folder)
    if not packs_only:
        call(pack, folder)
    return read_log((folder / "route.log").read_text(encoding="utf-8"), device)


def synthesize_for(verilog: str, module: str, device: OpenDevice, tools: OpenTools, folder: Path) -> None:
    (folder / "design.v").write_text(with_pins(verilog, module), encoding="utf-8")
    script = f"read_verilog design.v; {device.tools.synthesis} -top {TOP} -json design.json"
    call([tools.command("yosys"), "-q", "-p", script], folder)
    if device.tools.carry:
        _free_first_carries(folder / "design.json", *device.tools.carry)


def _free_first_carries(netlist: Path, cell_type: str, port: str) -> None:
    """Leave the carry input open where a chain begins, as the library has it: abc9 ties it to a constant.

    The first cell takes its carry from another input (https://github.com/YosysHQ/yosys/issues/4081).
    """
    content = json.loads(netlist.read_text(encoding="utf-8"))
    cells = content["modules"][TOP]["cells"].values()
    constants = {
        bit for cell in cells if cell["type"] in CONSTANTS for bits in cell["connections"].values() for bit in bits
    }
    for cell in cells:
        if cell["type"] == cell_type and set(cell["connections"].get(port, ())) <= constants | {"0", "1", "x"}:
            cell["connections"].pop(port, None)
            cell["port_directions"].pop(port, None)
    netlist.write_text(json.dumps(content), encoding="utf-8")


def read_log(log: str, device: OpenDevice) -> RoutedDesign:
    """Read nextpnr's log.

    Raises:
        PipelineError: it states no use of the device.
    """
    used = {name: int(count) for name, count, _ in USED.findall(log)}
    names = device.tools.cells
    if names["lut"] not in used:
        raise PipelineError(device.tools.router, "its log states no device utilisation", "read route.log")
    closed = [float(mhz) for mhz in CLOSED.findall(log)]
    report = log[log.rfind("Critical path report for clock") :] if closed else ""
    cells = STEP.findall(report.partition("Critical path report for cross-domain")[0])
    return RoutedDesign(
        LogicCells(*(float(used.get(name, 0)) for name in names.values())),
        closed[-1] if closed else None,
        (cells[0], cells[-1]) if cells else None,
    )


# --- pins -------------------------------------------------------------------------------------------------------------


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
    top = f"""
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
    return verilog + top
