"""Power and energy: one sensor per module, one sampler, the named model, and the attribution to nodes."""
