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

__all__ = [
    "Captured",
    "Error",
    "Net",
    "NetFunction",
    "SparseGradient",
    "Tensor",
    "Variable",
    "Workspace",
    "backward",
    "capture",
    "grad",
    "hessian",
    "hvp",
    "jacobian",
    "jvp",
    "no_grad",
    "ops",
    "seed",
    "set_threads",
    "threads",
]


class no_grad:
    """For a `with`: operators are not recorded."""

    def __enter__(self) -> None:
        self._before = set_recording(False)

    def __exit__(self, *_: object) -> None:
        set_recording(self._before)
