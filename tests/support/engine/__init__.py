"""Quantized networks for the engine in Verilog, one for each thing that it computes."""
