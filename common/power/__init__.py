"""Power and energy: the mean over a run, the named model, and the attribution to nodes."""
