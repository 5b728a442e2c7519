"""Normalisations over rows, batches and groups of channels, and their gradients."""
