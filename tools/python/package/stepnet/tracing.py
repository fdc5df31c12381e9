"""Functions that are called once, on blobs without values, to see which operators they call: cells, and whole nets.

    net = stepnet.build(lambda x, W, b: {"y": ops.Tanh(ops.FC(x, W, b))})
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from stepnet import _native
from stepnet._errors import Error
from stepnet._native import Net


class Symbol:
    """A blob of the net that a function describes. It has no values: the function cannot branch on them."""

    def __init__(self, trace: Trace, name: str) -> None:
        self._trace, self.name = trace, name

    def _apply(self, type: str, *inputs: Any) -> Symbol:
        return self._trace.add(type, inputs, {}, False)

    def __add__(self, other: Any) -> Symbol:
        return self._apply("Add", self, other)

    def __radd__(self, other: Any) -> Symbol:
        return self._apply("Add", other, self)

    def __sub__(self, other: Any) -> Symbol:
        return self._apply("Sub", self, other)

    def __rsub__(self, other: Any) -> Symbol:
        return self._apply("Sub", other, self)

    def __mul__(self, other: Any) -> Symbol:
        return self._apply("Mul", self, other)

    def __rmul__(self, other: Any) -> Symbol:
        return self._apply("Mul", other, self)

    def __truediv__(self, other: Any) -> Symbol:
        return self._apply("Div", self, other)

    def __rtruediv__(self, other: Any) -> Symbol:
        return self._apply("Div", other, self)

    def __neg__(self) -> Symbol:
        return self._apply("Negative", self)

    def _refuse(self, *_: Any) -> Any:
        raise Error(
            f'the values of "{self.name}" are asked for while a function is traced, where there are none',
            "compute with operators: stepnet.ops.Where chooses by values",
        )

    __bool__ = __float__ = __int__ = __len__ = __iter__ = __array__ = __getitem__ = _refuse

    def __repr__(self) -> str:
        return f"<blob {self.name}>"


class Trace:
    """The operators that a function has called so far."""

    def __init__(self, taken: Sequence[str]) -> None:
        self.taken = set(taken)  # names of blobs
        self._calls: list[Callable[[Mapping[str, str]], str]] = []
        self._numbers: dict[str, int] = {}

    def texts(self, names: Mapping[str, str] | None = None) -> list[str]:
        """The operators as text, with other names for some blobs."""
        return [call(names or {}) for call in self._calls]

    def append(self, call: Callable[[Mapping[str, str]], str]) -> None:
        """Adds an operator, whose text is a function of the names that blobs are to have in place of others."""
        call({})  # what is wrong with it is said where it is called
        self._calls.append(call)

    def write(self, type: str, inputs: Sequence[str], outputs: Sequence[str], arguments: dict[str, Any]) -> None:
        self.append(
            lambda names: _native.op_text(
                type, [names.get(i, i) for i in inputs], [names.get(o, o) for o in outputs], arguments
            )
        )

    def copied(self, blob: str) -> str:
        copy = self.fresh("copy")
        self.write("Copy", [blob], [copy], {})
        return copy

    def fresh(self, stem: str) -> str:
        while True:
            number = self._numbers.get(stem, 0) + 1
            self._numbers[stem] = number
            if (name := f"{stem}{number}") not in self.taken:
                self.taken.add(name)
                return name

    def name_of(self, value: Any, type: str, beside: str = "") -> str:
        """The blob that is read. Numbers become blobs of the type of the one beside them, if there is one."""
        if value is None:
            return ""
        if isinstance(value, Symbol):
            if value._trace is not self:
                raise Error(f'{type} reads "{value.name}", which belongs to another function')
            return value.name
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            made = self.fresh("number")
            self.write("ConstantFill", [], [made], {"shape": [1], "value": float(value)})
            if not beside:
                return made
            cast = self.fresh("number")
            self.write("CastLike", [made, beside], [cast], {})
            return cast
        raise Error(
            f"{type} reads a value of type {value.__class__.__name__}, which is none of the function's",
            "make it a parameter of the function: what it reads from outside has a name",
        )

    def blob_of(self, value: Any, what: str) -> str:
        if isinstance(value, Symbol):
            return self.name_of(value, what)
        raise Error(f"{what} is of type {value.__class__.__name__}, and no blob of the function")

    def add(self, type: str, inputs: Sequence[Any], arguments: dict[str, Any], in_place: bool) -> Any:
        arguments = dict(arguments)
        count = arguments.pop("outputs", None) or _native.least_outputs(type)
        beside = next((value.name for value in inputs if isinstance(value, Symbol)), "")
        names = [self.name_of(value, type, beside) for value in inputs]
        made = [self.fresh(type.lower()) for _ in range(count)]
        if in_place:
            raise Error(f"{type}_ writes in place, which a traced function does not do", f"use {type}: passes choose what is reused")
        self.write(type, names, made, arguments)
        symbols = tuple(Symbol(self, name) for name in made)
        return symbols[0] if count == 1 else symbols


def build(function: Callable[..., Any], *, name: str = "", **how: Any) -> Net:
    """The net of the operators and cells that a function calls. Its parameters are what the net reads.

    The function returns a blob, a tuple of blobs, or a dictionary that names them: the net's outputs. Keyword arguments
    are those of Net.
    """
    parameters = list(inspect.signature(function).parameters)
    trace = Trace(parameters)
    symbols = {parameter: Symbol(trace, parameter) for parameter in parameters}
    made = _native.trace(trace.add, lambda: function(**symbols))
    if not isinstance(made, dict):
        made = {i: value for i, value in enumerate(made if isinstance(made, tuple) else (made,))}
    names: dict[str, str] = {}
    for output, value in made.items():
        blob = trace.blob_of(value, f"output {output!r}")
        if blob in parameters or blob in names:
            blob = trace.copied(blob)
        names[blob] = output if isinstance(output, str) else blob
    if taken := [o for b, o in names.items() if o != b and o in trace.taken]:
        raise Error(f'the net would have two blobs "{taken[0]}"', "give the output another name")
    title = name or function.__name__.strip("<>")
    return Net(f'name: "{title}"\n' + "".join(trace.texts(names)), **{"outputs": list(names.values()), **how})
