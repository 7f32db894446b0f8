"""Power and energy: the mean power of a run, the energy model of a host, and the division of energy over the nodes."""
