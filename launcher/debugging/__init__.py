"""Ranks in Python's debugger: who of them has which terminal, and what stands still meanwhile.
``sessions`` decides, ``server`` performs."""
