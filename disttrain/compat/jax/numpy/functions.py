"""The table of ``jax.numpy``: a line says which parameters are arrays and in what type they meet
(see ``arrays.lifting``). What computes stands in ``disttrain.arrays``."""

from __future__ import annotations

from ....arrays import (
    bits,
    counts,
    elements,
    filters,
    indexing,
    order,
    products,
    reductions,
    selection,
    series,
    sets,
    shapes,
)
from ....ops import api as ops
from .lifting import table

_REDUCTIONS = """
sum a | initial:own | where:own -> summed; prod a | initial:own | where:own -> summed
max a | initial:own | where:own -> same; min a | initial:own | where:own -> same
amax=max a | initial:own | where:own -> same; amin=min a | initial:own | where:own -> same
any a | where:own -> same; all a | where:own -> same; mean a | where:own -> inexact
var a mean | where:own -> inexact; std a mean | where:own -> inexact; ptp a -> same
argmax a -> same; argmin a -> same; count_nonzero a -> same
nansum a | initial:own | where:own -> summed; nanprod a | initial:own | where:own -> summed
nanmax a | initial:own | where:own -> same; nanmin a | initial:own | where:own -> same
nanmean a | where:own -> inexact; nanvar a mean | where:own -> inexact
nanstd a mean | where:own -> inexact; nanargmax a -> same; nanargmin a -> same
median a -> inexact; nanmedian a -> inexact; quantile a q -> inexact; nanquantile a q -> inexact
percentile a q -> inexact; nanpercentile a q -> inexact; average a weights -> inexact
cumsum a -> numeric; cumprod a -> numeric; cumulative_sum=cumsum a -> summed
cumulative_prod=cumprod a -> summed; nancumsum a -> numeric; nancumprod a -> numeric
trace a -> summed
"""
_SHAPES = """
reshape! a -> same; ravel! a -> same; transpose! a -> same; permute_dims=transpose! a -> same
matrix_transpose! x -> same; swapaxes! a -> same; moveaxis! a -> same; rollaxis! a -> same
expand_dims! a -> same; squeeze! a -> same; broadcast_to! array -> same
concatenate arrays* -> same; concat=concatenate arrays* -> same; stack arrays* -> same
vstack arrays* -> same; hstack arrays* -> same; dstack arrays* -> same
column_stack arrays* -> same; append arr values -> same; array_split! ary -> same
split! ary -> same; vsplit! ary -> same; hsplit! ary -> same; dsplit! ary -> same
unstack! x -> same; tile! A -> same; repeat! a | repeats:own -> same; flip! m -> same
flipud! m -> same; fliplr! m -> same; rot90! m -> same; roll! a | shift:own -> same
resize! a -> same; block arrays* -> same; diagonal! input -> same
"""
_ORDER = """
sort! a -> same; argsort a -> same; lexsort keys* -> own; partition a -> same
argpartition a -> same; searchsorted a v | sorter:own -> same; digitize x bins -> same
nonzero a -> same; argwhere a -> same; flatnonzero a -> same; compress a | condition:own -> same
extract arr | condition:own -> same; isin element test_elements -> same; union1d ar1 ar2 -> same
setdiff1d ar1 ar2 -> same; setxor1d ar1 ar2 -> same; intersect1d ar1 ar2 -> same
bincount x | weights:own -> same; histogram_bin_edges a -> inexact
choose choices* | a:own -> same; take_along_axis arr | indices:own -> same
trim_zeros filt -> same; ediff1d ary to_end to_begin -> same; fill_diagonal a | val:own -> same
ravel_multi_index places* -> own; unravel_index! indices -> same; packbits a -> own
unpackbits a -> own; sort_complex a -> complex; select choicelist* default | condlist*:own -> same
unique ar | fill_value:own -> same; unique_all x | fill_value:own -> same
unique_counts x | fill_value:own -> same; unique_inverse x | fill_value:own -> same
unique_values x | fill_value:own -> same; histogram a weights | bins:own -> inexact
histogramdd sample weights | bins:own -> inexact; histogram2d x y weights | bins:own -> inexact
take a | indices:own -> same; put=put_flat a | ind:own | v:own -> same
put_along_axis arr | indices:own | values:own -> same; place arr | mask:own | vals:own -> same
delete arr | obj:own -> same; insert arr | obj:own | values:own -> same
"""
_ELEMENTS = """
modf! x -> inexact; frexp x -> inexact; ldexp x1 | x2:own -> inexact; rint! x -> inexact
round! a -> numeric; around=round! a -> numeric; angle! z -> inexact; nan_to_num x -> same
clip! arr min max -> same
"""
_PRODUCTS = """
matmul! a b -> same; dot! a b -> same; vdot! a b -> same; inner! a b -> same; outer! a b -> same
tensordot! a b -> same; vecdot! x1 x2 -> same; matvec! x1 x2 -> same; vecmat! x1 x2 -> same
cross a b -> numeric; kron! a b -> same; isclose a b rtol atol -> same; allclose a b -> same
array_equal a1 a2 -> same; array_equiv a1 a2 -> same
cov m y | fweights:own | aweights:own -> inexact; corrcoef x y -> inexact
trapezoid y x dx -> inexact; diff a prepend append -> same; vander! x -> numeric
"""
_SERIES = """
polyval p x -> numeric; polyadd a1 a2 -> same; polysub a1 a2 -> same; polymul a1 a2 -> inexact
polydiv u v -> inexact; polyder p -> inexact; poly seq_of_zeros -> inexact
interp x xp fp | left:inexact | right:inexact -> inexact; unwrap p -> inexact
convolve=convolved a v -> inexact; correlate=correlated a v -> inexact
polyfit x y | w:inexact -> inexact; roots p -> inexact; polyint p k -> inexact
"""
_SOURCES = (reductions, shapes, order, selection, indexing, sets, counts, elements, products,
            series, filters, bits, ops)  # fmt: skip
NAMES = {
    name: run
    for text in (_ELEMENTS, _REDUCTIONS, _SHAPES, _ORDER, _PRODUCTS, _SERIES)
    for name, run in table(text, _SOURCES).items()
}
