"""Primitives: each operation with all its rules, declared once. They check no argument."""
