"""Flags: their types, the precedence flag > configuration > default, and those that several scripts have."""
