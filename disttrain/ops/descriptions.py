"""What public functions and methods do, a sentence each, for those whose code is made from a
declaration and has no text of its own. For ``help()`` and editors."""

from __future__ import annotations

from ..core.gate import Primitive

_ELEMENTWISE = """
abs: The absolute value; of complex numbers their length, as real numbers.
arctan2: The angle of the point (other, input) in radians, from -π to π.
atan2: The angle of the point (other, input) in radians, from -π to π.
copysign: The absolute value of input with the sign of other.
fmod: What the division by other leaves, with the sign of input.
greater: Whether each element is greater than that of other.
greater_equal: Whether each element is not less than that of other.
less: Whether each element is less than that of other.
less_equal: Whether each element is not greater than that of other.
not_equal: Whether the elements differ.
ceil: The least integer that is not below each element.
cos: The cosine of angles in radians.
erf: The error function, 2/√π ∫₀ˣ exp(-t²) dt.
exp: e to the power of each element.
floor: The greatest integer that is not above each element.
gcd: The greatest common divisor of integers.
hypot: The length of the other side, √(input² + other²), without overflow in between.
lcm: The least common multiple of integers.
log: The natural logarithm.
logaddexp: log(exp(input) + exp(other)), without overflow in between.
maximum: The larger of two elements; NaN where one is.
minimum: The smaller of two elements; NaN where one is.
mul: The product.
neg: The element with its sign turned.
nextafter: The next floating-point number after input towards other.
pow: input to the power of exponent; one of the two may be a number.
relu: The element where it is positive, else 0.
rsqrt: One over the square root.
sgn: The sign, -1, 0 or 1; of complex numbers the point of their angle on the unit circle.
sigmoid: 1 / (1 + exp(-x)).
sign: -1, 0 or 1; 0 for NaN.
silu: x times its sigmoid.
sin: The sine of angles in radians.
sqrt: The square root; NaN for negative real numbers.
square: The element times itself.
tanh: The hyperbolic tangent.
det: The determinant of each square matrix.
inv: The inverse of each square matrix.
trunc: The element without its fraction.
polygamma: The n-th derivative of the digamma function.
where: Elements of input where condition is true, of other elsewhere.
"""
_COMPARING = """
eq: Whether elements are equal, as booleans.
ne: Whether elements are not equal, as booleans.
ge: Whether elements of input are not below other's, as booleans.
gt: Whether elements of input are above other's, as booleans.
le: Whether elements of input are not above other's, as booleans.
lt: Whether elements of input are below other's, as booleans.
isfinite: Whether elements are neither infinite nor NaN, as booleans.
isinf: Whether elements are infinite, as booleans.
isnan: Whether elements are NaN, as booleans.
logical_and: Whether both elements are other than 0, as booleans.
logical_or: Whether one of two elements is other than 0, as booleans.
logical_xor: Whether exactly one of two elements is other than 0, as booleans.
can_cast: Whether values of one type are converted to another without change of kind.
is_tensor: Whether an object is a tensor.
is_complex: Whether the elements are complex numbers.
is_floating_point: Whether the elements are floating-point numbers.
is_nonzero: Whether the only element is other than 0; ShapeError where there is not exactly one.
"""
_SHAPES = """
broadcast_to: A view of shape size, in which dimensions of size 1 repeat without a copy.
expand_as: A view of other's shape, in which dimensions of size 1 repeat without a copy.
fliplr: The second dimension the other way round, as a copy.
flipud: The first dimension the other way round, as a copy.
hstack: Tensors one beside the other, along dimension 1 (0 for vectors).
vstack: Tensors one below the other, along dimension 0; vectors are rows.
ravel: All elements in one dimension; a view where the memory allows it.
reshape_as: The elements in other's shape; a view where the memory allows it.
view_as: A view of other's shape; ShapeError where the memory does not allow it.
numel: The number of elements.
nelement: The number of elements.
dim: The number of dimensions.
ndimension: The number of dimensions.
T: A view with the dimensions the other way round.
shape: The size of each dimension.
ndim: The number of dimensions.
index_put: A copy with values at the places that indices name.
"""
_MAKING = """
empty_like: A tensor of input's shape and type whose elements have no values yet.
full_like: A tensor of input's shape and type, filled with fill_value.
ones_like: A tensor of input's shape and type, filled with ones.
zeros_like: A tensor of input's shape and type, filled with zeros.
new: A tensor of this one's type and device, of sizes or of data.
new_empty: A tensor of this one's type and device whose elements have no values yet.
new_full: A tensor of this one's type and device, filled with fill_value.
new_ones: A tensor of this one's type and device, filled with ones.
new_tensor: A copy of data, of this one's type and device.
new_zeros: A tensor of this one's type and device, filled with zeros.
"""
_ABOUT = """
backward: Compute the gradients of all leaves that this tensor depends on and add them to .grad.
data_ptr: The address of the first element.
device: Where the elements lie.
dtype: The type of the elements.
element_size: The bytes of one element.
itemsize: The bytes of one element.
nbytes: The bytes of all elements.
grad: The gradient that backward has left here, or None.
grad_fn: The node of the graph that made this tensor; None for leaves.
is_contiguous: Whether elements lie one behind the other in memory, in the order of a format.
is_cpu: Whether the elements lie in the host's memory.
grad_dtype: The type of its gradient.
is_cuda: Whether the elements lie on a GPU.
is_meta: Whether there are no elements, only a shape and a type.
is_inference: Whether it was made in inference mode.
is_leaf: Whether no recorded operation made it, so that backward leaves its gradient here.
output_nr: Which result of its node it is.
requires_grad: Whether operations on it are recorded for backward.
requires_grad_: Set requires_grad, in place; returns the tensor.
retains_grad: Whether backward leaves a gradient here although it is no leaf.
bfloat16: The elements as bfloat16; the tensor itself where they are.
bool: The elements as booleans; the tensor itself where they are.
byte: The elements as uint8; the tensor itself where they are.
cdouble: The elements as complex128; the tensor itself where they are.
cfloat: The elements as complex64; the tensor itself where they are.
char: The elements as int8; the tensor itself where they are.
double: The elements as float64; the tensor itself where they are.
float: The elements as float32; the tensor itself where they are.
half: The elements as float16; the tensor itself where they are.
int: The elements as int32; the tensor itself where they are.
long: The elements as int64; the tensor itself where they are.
short: The elements as int16; the tensor itself where they are.
"""


def _texts() -> dict[str, str]:
    lines = "".join((_ELEMENTWISE, _COMPARING, _SHAPES, _MAKING, _ABOUT)).splitlines()
    return dict(line.split(": ", 1) for line in lines if line)


def describe(*places: object) -> None:
    """Give the public functions and properties of ``places`` (a module, a class) their texts."""
    for name, text in _texts().items():
        for place in places:
            found = vars(place).get(name)
            own = vars(found).get("__doc__") if isinstance(found, Primitive) else found.__doc__
            if found is not None and not own:
                found.__doc__ = text
