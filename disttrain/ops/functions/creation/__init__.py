"""Functions that make tensors: from numbers, from data, in another type, on another device."""
