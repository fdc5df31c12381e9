"""Nets that are built of what functions call, also of cells."""

import numpy as np
import pytest

import stepnet
from stepnet import ops

T, B, H = 5, 2, 3


@stepnet.cell
def rnn(x, h, W, U):
    tanh1 = ops.Tanh(ops.FC(x, W, axis=2) + ops.FC(h, U, axis=2))
    return tanh1, {"twice": tanh1 * 2}


def two_layers(x, h0, W, U, V, tanh1):
    below = rnn(x, h0, W, U)
    above = rnn(x=below["twice_all"], h0=h0, W=V, U=ops.Tanh(tanh1))
    return {"h_all": above["h_all"], "last": above["h_last"]}


def values(rng):
    shapes = {"x": (T, B, H), "h0": (1, B, H), "W": (H, H), "U": (H, H), "V": (H, H), "tanh1": (H, H)}
    return {name: rng.normal(size=shape) for name, shape in shapes.items()}


def layer(x, h, w, u):
    all_h = []
    for x_t in x:
        h = np.tanh(x_t @ w.T + h @ u.T)
        all_h.append(h)
    return np.array(all_h)


def test_a_net_of_operators(rng):
    net = stepnet.build(lambda x, W, b: {"y": ops.Tanh(ops.FC(x, W, b)) + 1})
    x, w, b = rng.normal(size=(2, 3)).astype("f"), rng.normal(size=(4, 3)).astype("f"), rng.normal(size=4).astype("f")
    assert net.inputs == ["x", "W", "b"] and net.outputs == ["y"]
    np.testing.assert_allclose(net(x=x, W=w, b=b)["y"], np.tanh(x @ w.T + b) + 1, rtol=1e-5)


def test_a_net_of_cells(rng):
    net, v = stepnet.build(two_layers), values(rng)
    assert net.name == "two_layers" and net.outputs == ["h_all", "last"]
    assert sorted(net.inputs) == sorted(v)
    right = layer(2 * layer(v["x"], v["h0"][0], v["W"], v["U"]), v["h0"][0], v["V"], np.tanh(v["tanh1"]))
    made = net(v)
    np.testing.assert_allclose(made["h_all"], right, rtol=1e-12)
    np.testing.assert_allclose(made["last"][0], right[-1], rtol=1e-12)
    assert stepnet.gradcheck(net, v, loss="h_all")
    np.testing.assert_array_equal(stepnet.Net(net.text)(v)["last"], made["last"])


def test_a_cell_that_another_reads(rng):
    @stepnet.cell(states=("h", "c"), sequences=("x",), lengths=True)
    def pair(x, h, c, timestep):
        return x + h, c * x

    net = stepnet.build(lambda rows, n, zero, one: {"sums": pair(rows, zero, one, n)["h_last"]})
    v = {"rows": rng.normal(size=(T, B, H)), "zero": np.zeros((1, B, H)), "one": np.ones((1, B, H))}
    made = net(v | {"n": np.array([5, 2], "int32")})["sums"][0]
    np.testing.assert_allclose(made, [v["rows"][:, 0].sum(0), v["rows"][:2, 1].sum(0)])


def test_what_is_returned_are_the_outputs(rng):
    x = rng.normal(size=3).astype("f")
    one = stepnet.build(lambda x: ops.Tanh(x))
    assert np.allclose(one(x=x)[one.outputs[0]], np.tanh(x))
    same = stepnet.build(lambda x: {"a": x, "b": x}, name="same")
    assert same.name == "same" and all(np.array_equal(value, x) for value in same(x=x).values())
    two = stepnet.build(lambda x: (ops.Tanh(x), x))
    assert len(two(x=x)) == 2


def test_what_is_built_is_trained(rng):
    net = stepnet.build(lambda x, W, y: {"loss": ops.MSELoss(ops.FC(x, W, axis=1), y)})
    text = net.text + """[stepnet.model] {
      init { op { type: "ConstantFill" output: "W" arg { name: "shape" ints: 1 ints: 2 } } }
      loss: "loss" data { column: "x" } data { column: "y" } }"""
    x = rng.normal(size=(100, 2)).astype("f")
    data = {"x": x, "y": x @ np.array([[1], [2]], "f")}
    assert stepnet.train(text, data=data, iterations=200, lr=0.05, batch=20).loss < 1e-3


@pytest.mark.parametrize(
    "function, message",
    [
        (lambda x: 3, "no blob of the function"),
        (lambda x: {"y": None}, "no blob of the function"),
        (lambda x: {"add1": ops.Tanh(x + 1)}, 'two blobs "add1"'),
        (lambda x: ops.Tanh(x, axis=1), "no such argument"),
        (lambda x: ops.Relu_(x), "in place"),
        (lambda x: x if x else x, "where there are none"),
        (lambda x: rnn(x, x, x), "is not given U"),
        (lambda x: rnn(x, x, x, np.ones(2)), "none of the function's"),
    ],
)
def test_mistakes_are_explained(function, message):
    with pytest.raises(stepnet.Error, match=message):
        stepnet.build(function)
