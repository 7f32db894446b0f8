"""Tests, in folders that mirror the rooms of common/."""
