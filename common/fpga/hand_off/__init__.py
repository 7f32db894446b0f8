"""What an engineer starts from: a plan as specifications, Verilog, C++, a linker configuration and a host schedule."""
