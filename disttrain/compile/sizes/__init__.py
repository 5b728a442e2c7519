"""Sizes that change: one capture for many, by a second run in which sizes are symbols."""
