"""What ``torch`` has at its top level besides tensors and the functions on them."""
