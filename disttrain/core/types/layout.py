"""How the elements of a tensor are kept: all of them (strided), or those that are not zero."""

from __future__ import annotations


class layout(str):  # noqa: N801  (the field's spelling)
    """``strided``, ``sparse_coo``, ``sparse_csr`` and their like: a word, which prints with the
    name of the package."""

    __slots__ = ()
    namespace = "disttrain"  # how layouts print

    def __repr__(self) -> str:
        return f"{layout.namespace}.{str.__str__(self)}"

    __str__ = __repr__

    def __reduce__(self) -> tuple:
        return layout, (str.__str__(self),)


strided, sparse_coo = layout("strided"), layout("sparse_coo")
sparse_csr, sparse_csc = layout("sparse_csr"), layout("sparse_csc")
sparse_bsr, sparse_bsc = layout("sparse_bsr"), layout("sparse_bsc")
