"""Pieces of tensors: segments that are reduced, pieces that are apart, slices put back."""
