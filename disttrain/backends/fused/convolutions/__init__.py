"""Convolutions in any number of dimensions, and their gradients."""
