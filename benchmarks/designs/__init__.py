"""Accelerators and mappings: their cost beside other models, RTL, Verilog, machines and other programs."""
