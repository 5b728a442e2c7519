"""Stubs (``.pyi``) for what type checkers cannot see: methods that are attached to Tensor from
tables, functions that factories make, names that a package loads when they are asked for.

    PYTHONPATH=scripts python -m stubs            write them beside the modules

A test makes them anew and compares.
"""
