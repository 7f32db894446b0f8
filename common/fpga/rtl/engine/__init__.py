"""A whole engine around the array: its Verilog, the descriptors of a quantized network, and their simulation."""
