"""Matching of source nodes to executed nodes, and checks that time and work then add up."""
