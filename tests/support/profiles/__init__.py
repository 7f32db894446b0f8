"""Profiles and runs that were not measured here."""
