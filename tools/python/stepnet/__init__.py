"""Stepnet: trains and runs recurrent networks whose cells are text or Python functions."""

from __future__ import annotations

from stepnet._errors import Error
from stepnet._native import Net, Tensor, Workspace, set_threads, threads

__all__ = ["Error", "Net", "Tensor", "Workspace", "set_threads", "threads"]
