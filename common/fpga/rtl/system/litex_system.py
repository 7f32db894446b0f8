"""Write a LiteX system around an engine: UARTBone, a bus, LiteDRAM, and LiteDRAM's model of an SDRAM of 32 MB.

    PYTHON litex_system.py MODULE WORD_BYTES FOLDER

PYTHON has LiteX and LiteDRAM (2024.12), so none of our modules imports this one. Written are litex_system.v, which has
an instance of the engine's top module, and litex_system.json: the addresses of registers and of memory, and how the
SDRAM is initialised.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from litedram.frontend.axi import LiteDRAMAXI2Native
from litedram.init import get_sdram_phy_init_sequence
from litedram.modules import MT48LC16M16
from litedram.phy.model import SDRAMPHYModel, get_sdram_phy_settings
from litex.build.generic_platform import Pins, Subsignal
from litex.build.sim import SimPlatform
from litex.soc.cores.uart import RS232PHYModel, UARTBone
from litex.soc.integration.soc import SoCRegion
from litex.soc.integration.soc_core import SoCCore
from litex.soc.interconnect.axi import AXIInterface, AXILiteInterface
from litex.soc.interconnect.csr import CSRStorage
from migen import ClockSignal, If, Instance, Signal, log2_int
from migen.genlib.io import CRG

CLOCK_HZ = 50_000_000
DRAM_BITS = 16
ENGINE = 0x9000_0000
RESET_CYCLES = 512
STREAM = (("valid", 1), ("ready", 1), ("data", 8))
PINS = [
    ("sys_clk", 0, Pins(1)),
    ("serial", 0, *(Subsignal(f"{side}_{name}", Pins(bits)) for side in ("source", "sink") for name, bits in STREAM)),
]


class System(SoCCore):  # type: ignore[misc]
    """An engine beside LiteX's bus: its registers are on the bus, its port to memory is one of LiteDRAM's."""

    def __init__(self, platform: Any, module: str, word_bytes: int) -> None:
        none = {"integrated_rom_size": 0, "integrated_sram_size": 0, "ident": "", "ident_version": False}
        self.crg = CRG(platform.request("sys_clk"))
        super().__init__(platform, CLOCK_HZ, cpu_type=None, with_uart=False, with_timer=False, **none)
        self.line = RS232PHYModel(platform.request("serial"))
        self.link = UARTBone(self.line, clk_freq=CLOCK_HZ)
        self.bus.add_master(name="link", master=self.link.wishbone)
        dram, settings = MT48LC16M16(CLOCK_HZ, "1:1"), get_sdram_phy_settings("SDR", DRAM_BITS, CLOCK_HZ)
        self.sdrphy = SDRAMPHYModel(module=dram, settings=settings, clk_freq=CLOCK_HZ)
        self.add_sdram("sdram", phy=self.sdrphy, module=dram, l2_cache_size=0)
        memory = AXIInterface(data_width=8 * word_bytes, address_width=32, id_width=1)
        self.to_dram = LiteDRAMAXI2Native(memory, self.sdram.crossbar.get_port(data_width=8 * word_bytes))
        registers = AXILiteInterface(data_width=32, address_width=32)
        self.bus.add_slave("engine", registers, SoCRegion(origin=ENGINE, size=0x1000, cached=False))
        self._engine(module, registers, memory, word_bytes)

    def _engine(self, module: str, registers: Any, memory: Any, word_bytes: int) -> None:
        """Add the engine, which is reset at first and by a write of 1; the bus waits for that."""
        self.engine_reset = CSRStorage(1, name="engine_reset")
        left, runs = Signal(max=RESET_CYCLES + 1, reset=RESET_CYCLES), Signal()
        resets = self.engine_reset.re & self.engine_reset.storage
        self.sync += If(resets, left.eq(RESET_CYCLES)).Elif(left != 0, left.eq(left - 1))
        ready = {name: Signal() for name in ("aw", "w", "ar")}
        channels = {name: getattr(registers, name) for name in ("aw", "w", "b", "ar", "r")}
        requests = {f"i_{name}valid": channels[name].valid & runs for name in ready}
        size = log2_int(word_bytes)
        self.comb += [
            runs.eq(left == 0),
            *(channels[name].ready.eq(signal & runs) for name, signal in ready.items()),
            *(channel.size.eq(size) for channel in (memory.ar, memory.aw)),
            *(channel.burst.eq(1) for channel in (memory.ar, memory.aw)),  # INCR
            memory.w.strb.eq((1 << word_bytes) - 1),
        ]
        self.specials += Instance(
            module,
            i_clk=ClockSignal("sys"),
            i_rst=~runs,
            **requests,
            **{f"o_{name}ready": signal for name, signal in ready.items()},
            i_awaddr=channels["aw"].addr[:8],
            i_wdata=channels["w"].data,
            o_bvalid=channels["b"].valid,
            i_bready=channels["b"].ready,
            i_araddr=channels["ar"].addr[:8],
            o_rvalid=channels["r"].valid,
            i_rready=channels["r"].ready,
            o_rdata=channels["r"].data,
            **_memory_ports(memory),
            o_busy=Signal(),
        )


def _memory_ports(memory: Any) -> dict[str, Any]:
    ports: dict[str, Any] = {}
    for name in ("ar", "aw", "w"):
        channel = getattr(memory, name)
        ports |= {f"o_mem_{name}valid": channel.valid, f"i_mem_{name}ready": channel.ready}
    for name in ("ar", "aw"):
        channel = getattr(memory, name)
        ports |= {f"o_mem_{name}addr": channel.addr, f"o_mem_{name}len": channel.len}
    for name in ("r", "b"):
        channel = getattr(memory, name)
        ports |= {f"i_mem_{name}valid": channel.valid, f"o_mem_{name}ready": channel.ready}
    return ports | {"i_mem_rdata": memory.r.data, "o_mem_wdata": memory.w.data, "o_mem_wlast": memory.w.last}


def main() -> None:
    module, word_bytes, folder = sys.argv[1], int(sys.argv[2]), Path(sys.argv[3])
    platform = SimPlatform("SIM", PINS)
    system = System(platform, module, word_bytes)
    system.finalize()
    platform.get_verilog(system, name="litex_system").write(str(folder / "litex_system.v"))
    registers = {}
    for name, region in system.csr_regions.items():
        at = region.origin
        for each in region.obj:
            registers[f"{name}_{each.name}"] = at
            at += (each.size + 31) // 32 * 4
    phy = system.sdram.controller.settings
    found = {
        "memory": system.bus.regions["main_ram"].origin,
        "engine": ENGINE,
        "registers": registers,
        "initialisation": get_sdram_phy_init_sequence(phy.phy, phy.timing)[0],
    }
    (folder / "litex_system.json").write_text(json.dumps(found), encoding="utf-8")


if __name__ == "__main__":
    main()
