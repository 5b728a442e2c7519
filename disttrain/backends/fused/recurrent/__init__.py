"""Recurrent networks: what a step computes, and all steps by one call."""
