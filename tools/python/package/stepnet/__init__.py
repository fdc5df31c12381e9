"""Stepnet: trains and runs recurrent networks whose cells are text or Python functions."""

from __future__ import annotations

from stepnet import ops
from stepnet._errors import Error
from stepnet._native import (
    Captured,
    Net,
    NetFunction,
    SparseGradient,
    Tensor,
    Variable,
    Workspace,
    backward,
    capture,
    grad,
    hessian,
    hvp,
    jacobian,
    jvp,
    seed,
    set_recording,
    set_threads,
    threads,
)
from stepnet.cell import Cell, cell
from stepnet.tracing import build
from stepnet.training import draw, estimate, evaluate, gradcheck, predict, sample, search, train

__all__ = [
    "Captured",
    "Cell",
    "Error",
    "Net",
    "NetFunction",
    "SparseGradient",
    "Tensor",
    "Variable",
    "Workspace",
    "backward",
    "build",
    "capture",
    "cell",
    "draw",
    "estimate",
    "evaluate",
    "grad",
    "gradcheck",
    "hessian",
    "hvp",
    "jacobian",
    "jvp",
    "no_grad",
    "ops",
    "predict",
    "sample",
    "search",
    "seed",
    "set_threads",
    "threads",
    "train",
]


class no_grad:
    """For a `with`: operators are not recorded."""

    def __enter__(self) -> None:
        self._before = set_recording(False)

    def __exit__(self, *_: object) -> None:
        set_recording(self._before)
