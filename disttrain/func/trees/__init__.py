"""Transforms of functions of trees, whose leaves a ``Border`` makes tensors of, and of tensors: for
programs that have values of their own kind. Names, meanings and words are those of XLA's users;
what says them may be given other names by the border."""
