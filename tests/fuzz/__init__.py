"""Campaigns of hostile inputs and bad days: every case ends in a right table or in one line, and nothing is lost.

``python -m tests.fuzz`` (``make fuzz``) runs them. A case follows from the seed, its campaign and its number alone, so
a failure is repeated by ``python -m tests.fuzz --campaign NAME --seed N --case M``.
"""
