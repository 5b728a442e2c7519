"""Operations on rows (softmax, norms, and their gradients) in one kernel with what is before and
after them element by element.

    operations   which operations these are, and the eager kernels that run in the joint one
    region       the joint kernel, and how it is run
    fusion       the walk that puts a region together (the pass ``fuse_rows``)
    sums         sums over rows, added up by the kernel that makes what is summed (``take_sums``)
"""
