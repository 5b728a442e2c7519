"""One optimizer over parameters that other workers have."""
