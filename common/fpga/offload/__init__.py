"""The offload plan: which groups move to the card, on which engines and in which order, and the baselines for it."""
