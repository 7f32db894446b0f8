"""The systolic array as parametrised Verilog, its simulation and its synthesis."""
