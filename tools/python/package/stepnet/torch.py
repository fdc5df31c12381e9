"""stepnet.torch: nets and cells as modules of PyTorch. Forward and backward run in Stepnet, on the CPU, without copies.

    layer = stepnet.torch.Module(rnn.text(), inputs=["x", "h0"], outputs=["h_all"],
                                 parameters={"W": torch.randn(8, 3), "U": torch.randn(8, 8), "b": torch.zeros(8)})
    h = layer(x, h0)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from stepnet._errors import Error
from stepnet._native import NetFunction, Variable, grad, set_recording
from stepnet.cell import Cell


def _variable(tensor: torch.Tensor, wanted: bool) -> Variable:
    if tensor.device.type != "cpu":
        raise Error(f"a tensor is on {tensor.device}", "Stepnet's modules for PyTorch run on the CPU: tensor.cpu()")
    return Variable.sharing(tensor.detach().contiguous(), wanted)


def _tensor(variable: Variable) -> torch.Tensor:
    return torch.from_dlpack(variable.detach())


class _Run(torch.autograd.Function):
    """One run of a net. PyTorch sees its inputs and outputs as saved, so that it notices if they are overwritten."""

    @staticmethod
    def forward(ctx: Any, function: NetFunction, *tensors: torch.Tensor) -> Any:
        wanted = ctx.needs_input_grad[1:]
        before = set_recording(any(wanted))
        try:
            inputs = [_variable(t, w) for t, w in zip(tensors, wanted)]
            made = function(*inputs)
        finally:
            set_recording(before)
        variables = made if isinstance(made, tuple) else (made,)
        if None in variables:
            missing = function.outputs[variables.index(None)]
            raise Error(f'the net\'s output "{missing}" is no tensor')
        outputs = tuple(_tensor(v) for v in variables)
        ctx.run = (inputs, variables)
        ctx.function, ctx.count = function, len(tensors)
        ctx.mark_non_differentiable(*(o for o, v in zip(outputs, variables) if not v.requires_grad))
        ctx.save_for_backward(*tensors, *outputs)
        return outputs

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        saved = ctx.saved_tensors  # refuses what was overwritten
        wanted = ctx.needs_input_grad[1:]
        if torch.is_grad_enabled():  # the gradients will be differentiated
            return (None, *_Gradient.apply(ctx.function, wanted, ctx.count, *saved[: ctx.count], *gradients))
        inputs, outputs = ctx.run
        return (None, *_gradients(inputs, outputs, wanted, gradients, keep_graph=True))


def _gradients(
    inputs: Sequence[Variable],
    outputs: Sequence[Variable],
    wanted: Sequence[bool],
    gradients: Sequence[Any],
    **how: Any,
) -> list[torch.Tensor | None]:
    """Of the wanted inputs, and None for the others. Gradients are tensors, or variables, with `create_graph`."""
    roots = [(o, g) for o, g in zip(outputs, gradients) if o.requires_grad and g is not None]
    leaves = [v for v, w in zip(inputs, wanted) if w]
    given = [g if isinstance(g, Variable) else _variable(g, False) for _, g in roots]
    made = iter(grad([o for o, _ in roots], leaves, grad_outputs=given, materialize=True, **how))
    results = [next(made) if w else None for w in wanted]
    return results if how.get("create_graph") else [None if r is None else _tensor(r) for r in results]


class _Gradient(torch.autograd.Function):
    """The gradients of a run, where they are differentiated in turn: the net runs once more, on the tape."""

    @staticmethod
    def forward(ctx: Any, function: NetFunction, wanted: Sequence[bool], count: int, *tensors: torch.Tensor) -> Any:
        needed = ctx.needs_input_grad[3:]
        before = set_recording(True)
        try:
            inputs = [_variable(t, w or n) for t, w, n in zip(tensors, wanted, needed)]
            given = [_variable(t, n) for t, n in zip(tensors[count:], needed[count:])]
            made = function(*inputs)
            outputs = made if isinstance(made, tuple) else (made,)
            results = _gradients(inputs, outputs, wanted, given, create_graph=True)
        finally:
            set_recording(before)
        ctx.run = ([*inputs, *given], [r for r in results if r is not None], needed)
        ctx.save_for_backward(*tensors)
        ctx.places = [r is not None for r in results]
        return tuple(None if r is None else _tensor(r) for r in results)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *gradients: torch.Tensor | None) -> Any:
        _ = ctx.saved_tensors
        inputs, results, needed = ctx.run
        given = [g for g, is_there in zip(gradients, ctx.places) if is_there]
        if not any(r.requires_grad for r in results):
            return (None, None, None, *(None for _ in needed))
        return (None, None, None, *_gradients(inputs, results, needed, given, keep_graph=True))


def _key(name: str) -> str:
    return name.replace(".", ":")  # PyTorch's names of parameters have no dots


class Module(torch.nn.Module):
    """A net as a module. `net` is text, a path, a Net or a Cell.

    `inputs` are the blobs that a call gives, in its order, and `outputs` those that it returns; of a Cell both are
    known. `parameters` are the blobs that the module owns, with their first values.
    """

    def __init__(
        self,
        net: Any,
        *,
        inputs: Sequence[str] | None = None,
        outputs: Sequence[str] | None = None,
        parameters: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__()
        parameters = dict(parameters or {})
        if isinstance(net, Cell):
            inputs = inputs or [name for name in net.inputs if name not in parameters]
            outputs = outputs or list(net.outputs)
            net = net.text()
        if inputs is None or outputs is None:
            raise Error("a module must know its inputs and outputs", 'give inputs=["x"], outputs=["y"]')
        self.input_names, self.output_names = list(inputs), list(outputs)
        self.parameter_names = list(parameters)
        self._run = NetFunction(net, [*self.input_names, *self.parameter_names], self.output_names)
        self.weights = torch.nn.ParameterDict()
        for name, value in parameters.items():
            value = value if isinstance(value, torch.Tensor) else torch.as_tensor(value)
            self.weights[_key(name)] = torch.nn.Parameter(value.detach().clone())

    def parameter(self, name: str) -> torch.nn.Parameter:
        """The parameter that is the blob of that name."""
        return self.weights[_key(name)]

    def forward(self, *inputs: torch.Tensor) -> Any:
        if len(inputs) != len(self.input_names):
            raise Error(f"the module takes {len(self.input_names)} inputs ({', '.join(self.input_names)}), not {len(inputs)}")
        values = [self.weights[_key(name)] for name in self.parameter_names]
        made = _Run.apply(self._run, *inputs, *values)
        return made[0] if len(made) == 1 else made

    def extra_repr(self) -> str:
        names = ", ".join([*self.input_names, *self.parameter_names])
        return f"({names}) -> ({', '.join(self.output_names)})"
