"""Kernels that are written for devices by hand: what one is, each of them, and the table of all."""
