"""Boards, kernel models, Amdahl's law and the offload plan."""
