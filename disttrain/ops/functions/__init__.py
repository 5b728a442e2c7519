"""Functions that programs call, with torch's names: they check arguments and compose primitives."""
