"""Figures that leave as metrics: their names, their text, what a program posts to a dashboard."""
