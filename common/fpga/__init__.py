"""FPGA boards, kernel models, the offload plan and its speedup."""
