"""Figures of one measurement after another: where they are kept, since which commit they changed, and their export."""
