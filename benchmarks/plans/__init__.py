"""Plans for a board: their gaps and growth, gains and rates beside published ones, a network on their Verilog."""
