"""The systolic array as parametrised Verilog, with its simulation and its synthesis."""
