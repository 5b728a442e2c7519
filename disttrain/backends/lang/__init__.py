"""The kernel language: scalar expressions, loops over arrays, and what they mean (by numpy)."""
