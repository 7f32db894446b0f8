"""Boards and their resources."""
