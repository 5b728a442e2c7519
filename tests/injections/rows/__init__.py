"""The table of faults: what is injected, what must come of it, and whose figure is to be beaten."""
