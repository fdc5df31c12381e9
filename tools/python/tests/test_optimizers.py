"""Losses of training runs beside those of PyTorch's optimizers: an LSTM, the same weights and batches, 300 steps."""

import numpy as np
import pytest

import stepnet
from stepnet import ops

torch = pytest.importorskip("torch")
torch.set_num_threads(1)  # products are small, and threads that wait would take cores from the tests beside them

SAMPLES, BATCH, STEPS = 40, 8, 300
T, I, H = 6, 3, 8

OPTIMIZERS = {
    "adam": (0.01, lambda p, lr: torch.optim.Adam(p, lr)),
    "adamw": (0.01, lambda p, lr: torch.optim.AdamW(p, lr, weight_decay=0.05)),
    "adagrad": (0.05, lambda p, lr: torch.optim.Adagrad(p, lr)),
    "rmsprop": (0.003, lambda p, lr: torch.optim.RMSprop(p, lr)),
    "sgd": (0.1, lambda p, lr: torch.optim.SGD(p, lr)),
    "momentum": (0.05, lambda p, lr: torch.optim.SGD(p, lr, momentum=0.9)),
    "nesterov": (0.05, lambda p, lr: torch.optim.SGD(p, lr, momentum=0.9, nesterov=True)),
}


@stepnet.cell(states=("h", "c"))
def lstm(x, h, c, W, b, U, timestep):
    gates = ops.Sum(ops.FC(x, W, b, axis=2), ops.FC(h, U, axis=2))
    return ops.LSTMUnit(h, c, gates, timestep, sequence_lengths=False)


def given(name, value):
    """The operator that makes a parameter of these values."""
    shape = " ".join(f"ints: {size}" for size in value.shape)
    floats = " ".join(f"floats: {float(v)!r}" for v in value.ravel())
    return (
        f'op {{ type: "GivenTensorFill" output: "{name}" '
        f'arg {{ name: "shape" {shape} }} arg {{ name: "values" {floats} }} }}'
    )


def model(parameters):
    state = f'arg {{ name: "shape" ints: 1 ints: {BATCH} ints: {H} }}'
    return f"""
      op {{ type: "ConstantFill" output: "h0" {state} }}
      op {{ type: "ConstantFill" output: "c0" {state} }}
      {lstm.operator()}
      op {{ type: "FC" input: "h_last" input: "V" input: "d" output: "guess" arg {{ name: "axis" i: 2 }} }}
      op {{ type: "MSELoss" input: "guess" input: "y" output: "loss" }}
      [stepnet.model] {{
        init {{ {" ".join(given(name, value) for name, value in parameters.items())} }}
        loss: "loss" batch: {BATCH}
        data {{ column: "x" axis: 1 }}
        data {{ column: "y" axis: 1 }}
      }}"""


def pytorch_losses(parameters, x, y, make, lr, dtype):
    """`x` [SAMPLES, T, I] and `y` [SAMPLES, 1, 1], a batch after the other in their order."""
    p = {name: torch.tensor(value, dtype=dtype, requires_grad=True) for name, value in parameters.items()}
    x, y = torch.tensor(x, dtype=dtype), torch.tensor(y, dtype=dtype)
    optimizer = make(list(p.values()), lr)
    losses = []
    for step in range(STEPS):
        first = step * BATCH % SAMPLES
        h = c = torch.zeros(BATCH, H, dtype=dtype)
        for t in range(T):
            i, f, o, g = (x[first : first + BATCH, t] @ p["W"].T + p["b"] + h @ p["U"].T).chunk(4, 1)
            c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
            h = torch.sigmoid(o) * torch.tanh(c)
        loss = torch.nn.functional.mse_loss(h @ p["V"].T + p["d"], y[first : first + BATCH, 0])
        losses.append(loss.item())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return np.array(losses)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_losses_are_those_of_pytorch(rng, name, record_property):
    lr, make = OPTIMIZERS[name]
    x = rng.normal(size=(SAMPLES, T, I)).astype("float32")
    y = (np.sin(x[:, -1:, :1]) + 0.5 * x[:, :1, 1:2]).astype("float32")
    shapes = {"W": (4 * H, I), "b": (4 * H,), "U": (4 * H, H), "V": (1, H), "d": (1,)}
    parameters = {key: rng.uniform(-0.35, 0.35, size=shape).astype("float32") for key, shape in shapes.items()}
    seen = []
    stepnet.train(
        model(parameters),
        data={"x": x, "y": y},
        iterations=STEPS,
        optimizer=name,
        lr=lr,
        weight_decay=0.05,
        clip=0,
        holdout=0,
        order="given",
        on_iteration=lambda progress: seen.append(progress.loss),
    )
    right = pytorch_losses(parameters, x, y, make, lr, torch.float32)
    assert len(seen) == STEPS and seen[-1] < 0.8 * seen[0]
    worst = np.abs(np.array(seen) - right).max()
    record_property("largest_difference", worst)
    print(f"{name}: {worst:.2g} from PyTorch's; the loss went from {seen[0]:.3g} to {seen[-1]:.3g}", flush=True)
    if worst >= 1e-5:
        exact = pytorch_losses(parameters, x, y, make, lr, torch.float64)
        pytest.fail(f"{worst:.2g} from PyTorch's losses, which are {np.abs(right - exact).max():.2g} from those in float64")
