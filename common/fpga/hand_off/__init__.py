"""Start of an implementation: a plan as specifications, Verilog, C++, a linker configuration and a host schedule."""
