"""Cells as functions: a function that calls operators once becomes the step net of a recurrent network.

    @stepnet.cell(states=("h",))
    def rnn(x, h, W, U, b):
        return ops.Tanh(ops.FC(x, W, b, axis=2) + ops.FC(h, U, axis=2))

    net = stepnet.Net(rnn.text())          # inputs x, h0, W, U, b; outputs h_all, h_last
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

from stepnet import _native
from stepnet._errors import Error
from stepnet._native import Net, NetFunction, Variable


class Symbol:
    """A blob of the step net that a cell describes. It has no values: a cell cannot branch on them."""

    def __init__(self, trace: _Trace, name: str) -> None:
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
            f'the values of "{self.name}" are asked for while a cell is traced, where there are none',
            "compute with operators: stepnet.ops.Where chooses by values",
        )

    __bool__ = __float__ = __int__ = __len__ = __iter__ = __array__ = __getitem__ = _refuse

    def __repr__(self) -> str:
        return f"<blob {self.name} of a cell>"


class _Trace:
    """The operators that a cell has called so far, as text."""

    def __init__(self, taken: Sequence[str]) -> None:
        self.ops: list[str] = []
        self._taken = set(taken)
        self._numbers: dict[str, int] = {}

    def fresh(self, stem: str) -> str:
        while True:
            number = self._numbers.get(stem, 0) + 1
            self._numbers[stem] = number
            if (name := f"{stem}{number}") not in self._taken:
                self._taken.add(name)
                return name

    def name_of(self, value: Any, type: str) -> str:
        if value is None:
            return ""
        if isinstance(value, Symbol):
            if value._trace is not self:
                raise Error(f'{type} reads "{value.name}", which belongs to another cell')
            return value.name
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            made = self.fresh("number")
            self.ops.append(_native.op_text("ConstantFill", [], [made], {"shape": [1], "value": float(value)}))
            return made
        raise Error(
            f"{type} reads a value of type {value.__class__.__name__}, which is none of the cell's",
            "make it a parameter of the function: what a cell reads from outside has a name",
        )

    def blob_of(self, value: Any, what: str) -> str:
        if isinstance(value, Symbol):
            return self.name_of(value, what)
        raise Error(f"{what} is of type {value.__class__.__name__}, and no blob of the cell")

    def add(self, type: str, inputs: Sequence[Any], arguments: dict[str, Any], in_place: bool) -> Any:
        arguments = dict(arguments)
        count = arguments.pop("outputs", None) or _native.least_outputs(type)
        names = [self.name_of(value, type) for value in inputs]
        made = [self.fresh(type.lower()) for _ in range(count)]
        if in_place:
            raise Error(f"{type}_ writes in place, which a cell does not do", f"use {type}: passes choose what is reused")
        self.ops.append(_native.op_text(type, names, made, arguments))
        symbols = tuple(Symbol(self, name) for name in made)
        return symbols[0] if count == 1 else symbols


def _indented(text: str, by: str = "      ") -> str:
    return "".join(f"{by}{line}\n" for line in text.splitlines())


class Cell:
    """A function of one timestep, and the recurrent network that it stands for.

    The function's parameters are, by their names, sequences (the first one, unless `sequences` says more), states
    (`states`), "timestep", and else parameters of the network. It returns the new states in their order, and behind
    them a dictionary of further outputs, if there are some. In the step every blob is [1, B, ...].
    """

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        states: Sequence[str] = ("h",),
        sequences: Sequence[str] | None = None,
        lengths: bool = False,
        reverse: bool = False,
    ) -> None:
        self.function, self.__doc__ = function, function.__doc__
        self.name = function.__name__
        names = list(inspect.signature(function).parameters)
        self.states = tuple(states)
        self.sequences = tuple(sequences) if sequences is not None else tuple(names[:1])
        for name in (*self.states, *self.sequences):
            if name not in names:
                raise Error(f'the cell {self.name} has no parameter "{name}"; it has {", ".join(names)}')
        if both := set(self.states) & set(self.sequences):
            raise Error(f'"{min(both)}" cannot be both a state and a sequence of the cell {self.name}')
        self.parameters = tuple(
            name for name in names if name not in self.states and name not in self.sequences and name != "timestep"
        )
        self.lengths, self.reverse = lengths, reverse
        self._step, self._outputs = self._trace(names)
        self.inputs = (*self.sequences, *(f"{s}0" for s in self.states), *self.parameters, *(["lengths"] * lengths))
        self.outputs = (
            *(f"{s}_all" for s in self.states),
            *(f"{s}_last" for s in self.states),
            *(f"{name}_all" for name in self._outputs),
        )

        outer = [*self.inputs, *self.outputs]
        if twice := [name for name in outer if outer.count(name) > 1]:
            raise Error(f'the cell {self.name} would have two blobs "{twice[0]}"', "give a parameter or an output another name")

    def _trace(self, names: list[str]) -> tuple[list[str], dict[str, str]]:
        inner = {s: f"{s}_t" for s in self.sequences} | {s: f"{s}_prev" for s in self.states}
        blobs = [inner.get(name, name) for name in names]
        outside = [f"{s}{end}" for s in self.states for end in ("", "0", "_all", "_last")]
        trace = _Trace([*names, *blobs, *outside])
        symbols = {name: Symbol(trace, blob) for name, blob in zip(names, blobs)}
        result = _native.trace(trace.add, lambda: self.function(**symbols))
        results = list(result) if isinstance(result, tuple) else [result]
        outputs = results.pop() if results and isinstance(results[-1], dict) else {}
        if len(results) != len(self.states):
            raise Error(
                f"the cell {self.name} returns {len(results)} values for its states, which are {', '.join(self.states)}",
                "return each state's new value, and a dictionary of other outputs behind them",
            )
        def own(value: Any, what: str) -> str:
            blob = trace.blob_of(value, what)
            if blob not in self.parameters:
                return blob
            copy = trace.fresh("copy")  # what comes from outside is no value of the step
            trace.ops.append(_native.op_text("Copy", [blob], [copy], {}))
            return copy

        self._after = {state: own(value, f'the state "{state}"') for state, value in zip(self.states, results)}
        return trace.ops, {name: own(value, f'the output "{name}"') for name, value in outputs.items()}

    def operator(self) -> str:
        """The RecurrentNetwork, as the text of an operator."""

        def quoted(word: str, names: Sequence[str]) -> str:
            return " ".join(f'{word}: "{name}"' for name in names)

        frame = [f'op {{ type: "sequence" input: "{s}" output: "{s}_t" }}' for s in self.sequences]
        frame += [
            f'op {{ type: "state" input: "{s}_prev" input: "{s}0" '
            f'output: "{after}" output: "{s}_all" output: "{s}_last" }}'
            for s, after in self._after.items()
        ]
        frame += [f'op {{ type: "output" input: "{b}" output: "{n}_all" }}' for n, b in self._outputs.items()]
        frame += ['arg { name: "lengths" s: "lengths" }'] * self.lengths + ['arg { name: "reverse" i: 1 }'] * self.reverse
        outer = [name for name in self.inputs if name not in self.parameters]
        text = f'op {{\n  type: "RecurrentNetwork"\n  {quoted("input", outer)}\n  {quoted("output", self.outputs)}\n'
        text += '  arg { name: "stepnet.recurrent" n {\n' + "".join(f"    {line}\n" for line in frame)
        text += '    arg { name: "step_net" n {\n' + "".join(_indented(op) for op in self._step)
        return text + "    } }\n  } }\n}\n"

    def text(self) -> str:
        """The net, as text: what the function was, for the commands, and for programs without Python."""
        return f'name: "{self.name}"\n{self.operator()}'

    def net(self, **how: Any) -> Net:
        """The net, ready to run. Keyword arguments are those of Net."""
        return Net(self.text(), **{"outputs": list(self.outputs), **how})

    def __call__(self, *values: Any, **named: Any) -> dict[str, Variable]:
        """Runs the network on variables, as one operation of the tape. The result has the net's outputs by name."""
        given = dict(zip(self.inputs, values)) | named
        if missing := [name for name in self.inputs if name not in given]:
            raise Error(f"the cell {self.name} is not given {', '.join(missing)}", f"it takes {', '.join(self.inputs)}")
        if unknown := [name for name in given if name not in self.inputs]:
            raise Error(f"the cell {self.name} takes no {unknown[0]}", f"it takes {', '.join(self.inputs)}")
        if not hasattr(self, "_run"):
            self._run = NetFunction(self.text(), list(self.inputs), list(self.outputs))
        made = self._run(*(given[name] for name in self.inputs))
        return dict(zip(self.outputs, made if isinstance(made, tuple) else (made,)))

    def __repr__(self) -> str:
        return f"<stepnet.cell {self.name}: ({', '.join(self.inputs)}) -> ({', '.join(self.outputs)})>"


def cell(function: Callable[..., Any] | None = None, **how: Any) -> Any:
    """Makes a function of one timestep a Cell: `@cell`, or `@cell(states=("h", "c"), lengths=True)`."""
    return (lambda f: Cell(f, **how)) if function is None else Cell(function, **how)
