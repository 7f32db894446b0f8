"""One timeline of a measurement: runs, nodes, disturbances and samples on one clock, as a trace for a viewer."""
