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

_TABLE = """
. -> same: ptp argmax argmin count_nonzero nanargmax nanargmin reshape! ravel! transpose!
permute_dims=transpose! matrix_transpose! swapaxes! moveaxis! rollaxis! expand_dims! squeeze!
broadcast_to! array_split! split! vsplit! hsplit! dsplit! unstack! tile! flip! flipud! fliplr!
rot90! resize! diagonal! sort! argsort partition argpartition nonzero argwhere flatnonzero
trim_zeros unravel_index! nan_to_num; . -> inexact: median nanmedian histogram_bin_edges modf! frexp
rint! angle! polyder poly unwrap roots; . -> numeric: cumsum cumprod nancumsum nancumprod round!
around=round! vander!; . -> summed: cumulative_sum=cumsum cumulative_prod=cumprod trace; . -> own:
packbits unpackbits; . -> complex: sort_complex; . | initial:own | where:own -> summed: sum prod
nansum nanprod; . | initial:own | where:own -> same: max min amax=max amin=min nanmax nanmin; . |
where:own -> same: any all; . | where:own -> inexact: mean nanmean; . mean | where:own -> inexact:
var std nanvar nanstd; . q -> inexact: quantile nanquantile percentile nanpercentile; . weights ->
inexact: average; arrays* -> same: concatenate concat=concatenate stack vstack hstack dstack
column_stack block; . values -> same: append; . | repeats:own -> same: repeat!; . | shift:own ->
same: roll!; keys* -> own: lexsort; . v | sorter:own -> same: searchsorted; . bins -> same:
digitize; a | condition:own -> same: compress; arr | condition:own -> same: extract; . test_elements
-> same: isin; . ar2 -> same: union1d setdiff1d setxor1d intersect1d; . | weights:own -> same:
bincount; choices* | a:own -> same: choose; . | indices:own -> same: take_along_axis take; . to_end
to_begin -> same: ediff1d; . | val:own -> same: fill_diagonal; places* -> own: ravel_multi_index;
choicelist* default | condlist*:own -> same: select; . | fill_value:own -> same: unique unique_all
unique_counts unique_inverse unique_values; . weights | bins:own -> inexact: histogram histogramdd;
. y weights | bins:own -> inexact: histogram2d; . | ind:own | v:own -> same: put=put_flat; . |
indices:own | values:own -> same: put_along_axis; . | mask:own | vals:own -> same: place; . |
obj:own -> same: delete; . | obj:own | values:own -> same: insert; . | x2:own -> inexact: ldexp; .
min max -> same: clip!; . b -> same: matmul! dot! vdot! inner! outer! tensordot! kron! allclose; .
x2 -> same: vecdot! matvec! vecmat!; . b -> numeric: cross; . b rtol atol -> same: isclose; . a2 ->
same: array_equal array_equiv polyadd polysub; . y | fweights:own | aweights:own -> inexact: cov; .
y -> inexact: corrcoef; . x dx -> inexact: trapezoid; . prepend append -> same: diff; . x ->
numeric: polyval; . a2 -> inexact: polymul; . v -> inexact: polydiv convolve=convolved
correlate=correlated; . xp fp | left:inexact | right:inexact -> inexact: interp; . y | w:inexact ->
inexact: polyfit; . k -> inexact: polyint
"""
_SOURCES = (reductions, shapes, order, selection, indexing, sets, counts, elements, products,
            series, filters, bits, ops)  # fmt: skip
NAMES = table(_TABLE, _SOURCES)
