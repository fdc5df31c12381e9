"""Cells as functions: a function that calls operators once becomes the step net of a recurrent network.

    @stepnet.cell(states=("h",))
    def rnn(x, h, W, U, b):
        return ops.Tanh(ops.FC(x, W, b, axis=2) + ops.FC(h, U, axis=2))

    net = stepnet.Net(rnn.text())          # inputs x, h0, W, U, b; outputs h_all, h_last
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from stepnet import _native
from stepnet._errors import Error
from stepnet._native import Net, NetFunction
from stepnet.tracing import Symbol, Trace


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

    def _trace(self, names: list[str]) -> tuple[Trace, dict[str, str]]:
        inner = {s: f"{s}_t" for s in self.sequences} | {s: f"{s}_prev" for s in self.states}
        blobs = [inner.get(name, name) for name in names]
        outside = [f"{s}{end}" for s in self.states for end in ("", "0", "_all", "_last")]
        trace = Trace([*names, *blobs, *outside])
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
            return trace.copied(blob)  # what comes from outside is no value of the step

        self._after = {state: own(value, f'the state "{state}"') for state, value in zip(self.states, results)}
        return trace, {name: own(value, f'the output "{name}"') for name, value in outputs.items()}

    def operator(self, names: Mapping[str, str] | None = None) -> str:
        """The RecurrentNetwork, as the text of an operator, with other names for some of its blobs."""
        known = names or {}

        def named(name: str) -> str:
            return known.get(name, name)

        def quoted(word: str, blobs: Sequence[str]) -> str:
            return " ".join(f'{word}: "{named(blob)}"' for blob in blobs)

        frame = [
            f'op {{ type: "sequence" {quoted("input", [s])} {quoted("output", [f"{s}_t"])} }}' for s in self.sequences
        ]
        frame += [
            f'op {{ type: "state" {quoted("input", [f"{s}_prev", f"{s}0"])} '
            f'{quoted("output", [after, f"{s}_all", f"{s}_last"])} }}'
            for s, after in self._after.items()
        ]
        frame += [
            f'op {{ type: "output" {quoted("input", [blob])} {quoted("output", [f"{name}_all"])} }}'
            for name, blob in self._outputs.items()
        ]
        frame += [f'arg {{ name: "lengths" s: "{named("lengths")}" }}'] * self.lengths
        frame += ['arg { name: "reverse" i: 1 }'] * self.reverse
        outer = [name for name in self.inputs if name not in self.parameters]
        text = f'op {{\n  type: "RecurrentNetwork"\n  {quoted("input", outer)}\n  {quoted("output", self.outputs)}\n'
        text += '  arg { name: "stepnet.recurrent" n {\n' + "".join(f"    {line}\n" for line in frame)
        text += '    arg { name: "step_net" n {\n' + "".join(_indented(op) for op in self._step.texts(known))
        return text + "    } }\n  } }\n}\n"

    def text(self) -> str:
        """The net, as text: what the function was, for the commands, and for programs without Python."""
        return f'name: "{self.name}"\n{self.operator()}'

    def net(self, **how: Any) -> Net:
        """The net, ready to run. Keyword arguments are those of Net."""
        return Net(self.text(), **{"outputs": list(self.outputs), **how})

    def __call__(self, *values: Any, **named: Any) -> dict[str, Any]:
        """Runs the network on variables, as one operation of the tape. The result has the net's outputs by name.

        In a function that is traced it becomes an operator of that net.
        """
        given = dict(zip(self.inputs, values)) | named
        if missing := [name for name in self.inputs if name not in given]:
            raise Error(f"the cell {self.name} is not given {', '.join(missing)}", f"it takes {', '.join(self.inputs)}")
        if unknown := [name for name in given if name not in self.inputs]:
            raise Error(f"the cell {self.name} takes no {unknown[0]}", f"it takes {', '.join(self.inputs)}")
        if traces := [value._trace for value in given.values() if isinstance(value, Symbol)]:
            return self._call_within(traces[0], given)
        if not hasattr(self, "_run"):
            self._run = NetFunction(self.text(), list(self.inputs), list(self.outputs))
        made = self._run(*(given[name] for name in self.inputs))
        return dict(zip(self.outputs, made if isinstance(made, tuple) else (made,)))

    def _call_within(self, trace: Trace, given: Mapping[str, Any]) -> dict[str, Symbol]:
        names = {name: trace.name_of(given[name], self.name) for name in self.inputs}
        inside = sorted(self._step.taken - {"timestep", *names, *self.outputs})
        names |= {blob: trace.fresh(f"{blob}_") for blob in (*self.outputs, *inside)}
        trace.append(lambda others: self.operator({blob: others.get(name, name) for blob, name in names.items()}))
        return {output: Symbol(trace, names[output]) for output in self.outputs}

    def __repr__(self) -> str:
        return f"<stepnet.cell {self.name}: ({', '.join(self.inputs)}) -> ({', '.join(self.outputs)})>"


def cell(function: Callable[..., Any] | None = None, **how: Any) -> Any:
    """Makes a function of one timestep a Cell: `@cell`, or `@cell(states=("h", "c"), lengths=True)`."""
    return (lambda f: Cell(f, **how)) if function is None else Cell(function, **how)
