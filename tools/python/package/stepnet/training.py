"""Training, and what is asked of trained models and of nets, as the commands of the same names do it."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from stepnet import _native
from stepnet._native import Net

Data = str | os.PathLike | Sequence[str] | Mapping[str, Any] | None


@contextlib.contextmanager
def _columns(data: Data) -> Iterator[list[str]]:
    """Samples as the commands take them: arrays are in files for as long as that is needed."""
    if data is None:
        yield []
    elif isinstance(data, (str, os.PathLike)):
        yield [os.fspath(data)]
    elif not isinstance(data, Mapping):
        yield [os.fspath(text) for text in data]
    else:
        with tempfile.TemporaryDirectory(prefix="stepnet-") as folder:
            texts = []
            for number, (name, values) in enumerate(data.items()):
                if isinstance(values, (str, os.PathLike)):
                    texts.append(f"{name}={os.fspath(values)}")
                    continue
                path = os.path.join(folder, f"{number}.npy")
                np.save(path, np.asarray(values), allow_pickle=False)
                texts.append(f"{name}={path}")
            yield texts


def train(
    net: Any,
    *,
    data: Data = None,
    held_out_data: Data = None,
    root: str = "",
    on_iteration: Callable[[Any], object] | None = None,
    on_validation: Callable[[Any], object] | None = None,
    on_note: Callable[[str], object] | None = None,
    **options: Any,
) -> _native.TrainResult:
    """Trains a net that has the argument stepnet.model, as `stepnet train` does.

    `text=` is a file, `data=` samples: {name: array or file}, or what --data takes. Other options are those of the
    command, with underscores: iterations, epochs, seconds, out, resume, optimizer, lr, batch, seed, ... Functions are
    called with the progress of the run; what they raise ends it. An interrupt ends it after the running iteration.
    """
    with _columns(data) as columns, _columns(held_out_data) as held_out:
        options = {name: os.fspath(o) if isinstance(o, os.PathLike) else o for name, o in options.items()}
        options |= {"data": columns, "held_out_data": held_out}
        return _native.train(net, options, os.fspath(root), on_iteration, on_validation, on_note)


def evaluate(
    data: Data,
    *,
    net: Any = None,
    out: Any = "",
    checkpoint: Any = "",
    root: str = "",
    batch: int = 0,
    holdout: float = 1,
    fold: str = "",
) -> dict[str, float]:
    """The loss and the metrics of a trained model on samples.

    `holdout` and `fold` leave others out: this share of the samples, at their end, or "I/N", as for `train`. The net is the one that was trained, unless another is given, which has its parameters.
    """
    with _columns(data) as columns:
        return _native.evaluate(
            columns, net, os.fspath(out), os.fspath(checkpoint), os.fspath(root), batch, holdout, fold
        )


def predict(
    data: Data,
    outputs: str | Sequence[str | tuple[str, int]],
    *,
    net: Any = None,
    out: Any = "",
    checkpoint: Any = "",
    root: str = "",
    batch: int = 0,
) -> dict[str, np.ndarray]:
    """What a trained model makes of samples: blobs of its net, samples first.

    An output is a name, or a name and the dimension of the blob along which samples stand. The net is the one that was
    trained, unless another is given, which has its parameters.
    """
    wanted = [outputs] if isinstance(outputs, str) else outputs
    pairs = [(o, 0) if isinstance(o, str) else tuple(o) for o in wanted]
    with _columns(data) as columns:
        return _native.predict(columns, pairs, net, os.fspath(out), os.fspath(checkpoint), os.fspath(root), batch)


def sample(
    net: Any = None,
    *,
    out: Any = "",
    checkpoint: Any = "",
    root: str = "",
    length: int = 300,
    temperature: float = 0.8,
    prompt: str = "",
    stop: str = "",
    seed: int = 1,
) -> bytes:
    """Bytes that a model of text draws, without the prompt. The net is the one that was trained, unless one is given."""
    return _native.sample(
        net, os.fspath(out), os.fspath(checkpoint), os.fspath(root), length, temperature, prompt, stop, seed
    )


def search(
    net: Any = None,
    *,
    out: Any = "",
    checkpoint: Any = "",
    root: str = "",
    beams: int = 1,
    length: int = 300,
    length_penalty: float = 0.0,
    prompt: str = "",
    stop: str = "",
) -> list[tuple[bytes, float, float]]:
    """The most probable texts, best first: (text, score, log-probability)."""
    return _native.search(
        net, os.fspath(out), os.fspath(checkpoint), os.fspath(root), beams, length, length_penalty, prompt, stop
    )


_NAMES = {"float32": "float", "float64": "double"}


def _types(values: Mapping[str, Any]) -> list[str]:
    """Types as the commands take them, of arrays, or as text: "float[2,3]"."""
    texts = []
    for name, value in values.items():
        if not isinstance(value, str):
            array = value if hasattr(value, "shape") and hasattr(value, "dtype") else np.asarray(value)
            kind = str(array.dtype).removeprefix("torch.")
            value = f"{_NAMES.get(kind, kind)}[{','.join(str(size) for size in array.shape)}]"
        texts.append(f"{name}={value}")
    return texts


@contextlib.contextmanager
def _file(net: Any) -> Iterator[str]:
    if isinstance(net, os.PathLike):
        yield os.fspath(net)
        return
    if isinstance(net, str) and "{" not in net and "\n" not in net:
        yield net
        return
    with tempfile.TemporaryDirectory(prefix="stepnet-") as folder:
        path = os.path.join(folder, "net.pbtxt")
        with open(path, "w", encoding="utf-8") as file:
            file.write(net.text if isinstance(net, Net) else net)
        yield path


def estimate(
    net: Any,
    *,
    feeds: Mapping[str, Any] | None = None,
    parameters: Mapping[str, Any] | None = None,
    bounds: Mapping[str, Any] | None = None,
    train: bool = False,
    loss: str = "",
    optimizer: str = "adam",
    precision: str = "float32",
    device: str = "cpu",
    batch: int = 0,
    timesteps: int = 0,
    memory_budget: int = 0,
    keep_all: bool = False,
    root: str = "",
) -> dict[str, Any]:
    """Memory and arithmetic of a net without running it, as `stepnet estimate --json` prints them.

    Types are arrays or text, such as "float[2,3]"; parameters those that no net makes.
    """
    with _file(net) as file:
        text = _native.estimate(
            file,
            feeds=_types(feeds or {}),
            parameters=_types(parameters or {}),
            bounds=_types(bounds or {}),
            train=train,
            loss=loss,
            optimizer=optimizer,
            precision=precision,
            device=device,
            batch=batch,
            timesteps=timesteps,
            memory_budget=memory_budget,
            keep_all=keep_all,
            root=os.fspath(root),
        )
    return json.loads(text)


@dataclass(frozen=True)
class GradientReport:
    """Whether gradients are right; `text` says what is wrong, `report` is what `stepnet gradcheck --json` prints."""

    right: bool
    text: str
    report: dict[str, Any]

    def __bool__(self) -> bool:
        return self.right


def gradcheck(
    net: Any,
    feeds: Mapping[str, Any],
    *,
    loss: str = "",
    tolerance: float = 1e-7,
    step: float = 1e-5,
    directions: int | None = None,
    order: int = 1,
    forward: bool = False,
    hessian: bool = False,
    seed: int = 1,
) -> GradientReport:
    """Compares a net's derivatives with central differences in float64, at `feeds`: all that it reads."""
    right, text, report = _native.gradcheck(
        net,
        loss,
        dict(feeds),
        tolerance=tolerance,
        step=step,
        directions=directions,
        order=order,
        forward=forward,
        hessian=hessian,
        seed=seed,
    )
    return GradientReport(right, text, json.loads(report))


class Picture(str):
    """A graph in Graphviz's language, which notebooks show as a picture where Graphviz's program `dot` is installed."""

    def _repr_svg_(self) -> str | None:
        try:
            return subprocess.run(["dot", "-Tsvg"], input=self, capture_output=True, check=True, encoding="utf-8").stdout
        except FileNotFoundError:
            return None


def draw(net: Any, *, feeds: Mapping[str, Any] | None = None, loss: str = "") -> Picture:
    """The net as a graph; with types of inputs, and with a loss with its gradient operators."""
    return Picture(_native.draw(net, _types(feeds or {}), loss))


__all__ = ["GradientReport", "draw", "estimate", "evaluate", "gradcheck", "predict", "sample", "search", "train"]
