"""Operators as functions of variables: `ops.Tanh(x)`, `ops.FC(x, W, b, axis=2)`, in place `ops.Relu_(x)`.

All of the registry's are here, by their types. Inputs are in the operator's order, None for one that is absent; arrays
and numbers are constants. Arguments are keywords; `outputs=n` asks for n outputs. The documentation of an operator is
`ops.Tanh.documentation`.
"""

from __future__ import annotations

from stepnet._errors import Error
from stepnet._native import Operator, op_types


def __getattr__(name: str) -> Operator:
    if name.startswith("__"):
        raise AttributeError(name)
    try:
        function = Operator(name.rstrip("_"), name.endswith("_"))
    except Error as error:
        raise AttributeError(str(error)) from None
    globals()[name] = function
    return function


def __dir__() -> list[str]:
    return op_types()
