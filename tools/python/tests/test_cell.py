"""Cells as functions against the same cells in text and as loops."""

import numpy as np
import pytest

import stepnet
from stepnet import ops

T, B, I, H = 5, 2, 3, 4


@stepnet.cell
def rnn(x, h, W, U, b):
    """A simple cell."""
    return ops.Tanh(ops.FC(x, W, b, axis=2) + ops.FC(h, U, axis=2))


def values(rng, dtype="float32"):
    shapes = {"x": (T, B, I), "h0": (1, B, H), "W": (H, I), "U": (H, H), "b": (H,)}
    return {name: rng.normal(size=shape).astype(dtype) for name, shape in shapes.items()}


def loop(v):
    h, all_h = v["h0"][0], []
    for x in v["x"]:
        h = np.tanh(x @ v["W"].T + v["b"] + h @ v["U"].T)
        all_h.append(h)
    return np.array(all_h)


def test_a_cell_is_the_loop(rng):
    v = values(rng)
    made = rnn.net()(v)
    np.testing.assert_allclose(made["h_all"], loop(v), atol=1e-6)
    np.testing.assert_allclose(made["h_last"][0], loop(v)[-1], atol=1e-6)


def test_its_gradients_are_right(rng):
    assert stepnet.gradcheck(rnn.text(), values(rng), loss="h_all").right


def test_it_runs_on_variables(rng):
    v = {name: stepnet.Variable(value, True) for name, value in values(rng).items()}
    out = rnn(**v)
    ops.SumElements(out["h_all"]).backward()
    text = rnn.text() + 'op { type: "SumElements" input: "h_all" output: "loss" }'
    net = stepnet.Net(text).with_gradients("loss", ["U"])
    right = net({name: value.numpy() for name, value in v.items()})["U_grad"]
    np.testing.assert_allclose(v["U"].grad.numpy(), right, rtol=1e-5)


def test_the_text_is_the_hand_written_one(rng):
    @stepnet.cell(states=("h", "c"))
    def lstm(x, h, c, W_x, b_x, W_h, b_h, timestep):
        gates = ops.Sum(ops.FC(x, W_x, b_x, axis=2), ops.FC(h, W_h, b_h, axis=2))
        return ops.LSTMUnit(h, c, gates, timestep, sequence_lengths=False)

    text = """
      op { type: "RecurrentNetwork" input: "x" input: "h0" input: "c0" output: "h_all"
        arg { name: "stepnet.recurrent" n {
          op { type: "sequence" input: "x" output: "x_t" }
          op { type: "state" input: "h_prev" input: "h0" output: "h" output: "h_all" }
          op { type: "state" input: "c_prev" input: "c0" output: "c" }
          arg { name: "step_net" n {
            op { type: "FC" arg { name: "axis" i: 2 } input: "x_t" input: "W_x" input: "b_x" output: "gates_x" }
            op { type: "FC" arg { name: "axis" i: 2 } input: "h_prev" input: "W_h" input: "b_h" output: "gates_h" }
            op { type: "Sum" input: "gates_x" input: "gates_h" output: "gates" }
            op { type: "LSTMUnit" arg { name: "sequence_lengths" i: 0 } input: "h_prev" input: "c_prev" input: "gates"
                 input: "timestep" output: "h" output: "c" } } } } } }"""
    shapes = {"x": (T, B, I), "h0": (1, B, H), "c0": (1, B, H), "W_x": (4 * H, I), "W_h": (4 * H, H)}
    v = {name: rng.normal(size=shape).astype("float32") for name, shape in shapes.items()}
    v |= {"b_x": np.zeros(4 * H, "f"), "b_h": np.zeros(4 * H, "f")}
    np.testing.assert_array_equal(lstm.net()(v)["h_all"], stepnet.Net(text)(v)["h_all"])


def test_lengths_reverse_and_further_outputs(rng):
    @stepnet.cell(lengths=True, reverse=True)
    def sums(x, h):
        return x + h, {"twice": x * 2.0}

    v = {"x": rng.normal(size=(T, 2, 3)).astype("float32"), "h0": np.zeros((1, 2, 3), "f")}
    made = sums.net()(v | {"lengths": np.array([5, 2], "int32")})
    np.testing.assert_allclose(made["h_last"][0], [v["x"][:, 0].sum(0), v["x"][:2, 1].sum(0)], rtol=1e-5)
    np.testing.assert_allclose(made["twice_all"][:2], 2 * v["x"][:2], rtol=1e-6)


def test_states_that_change_places(rng):
    @stepnet.cell(states=("a", "b"))
    def swap(x, a, b):
        return b, a

    v = {"x": np.zeros((3, 1, 2), "f"), "a0": np.ones((1, 1, 2), "f"), "b0": np.zeros((1, 1, 2), "f")}
    made = swap.net()(v)
    assert made["a_all"][:, 0, 0].tolist() == [0, 1, 0] and made["b_all"][:, 0, 0].tolist() == [1, 0, 1]


def exchanged(x, a, b):
    return b, a


def the_same(x, a, b):
    y = ops.Tanh(x * a)
    return y, y


def given(x, a, b):
    return x, a, {"old": b}


def from_outside(x, a, b, w):
    return w, a * x, {"w": w}


@pytest.mark.parametrize("function", [exchanged, the_same, given, from_outside])
def test_states_and_outputs_may_be_any_blob(rng, function):
    made = stepnet.cell(function, states=("a", "b"))
    v = {"x": rng.normal(size=(3, 2, 2)), "w": rng.normal(size=(1, 2, 2))}
    v |= {name: rng.normal(size=(1, 2, 2)) for name in ("a0", "b0")}
    v = {name: v[name] for name in made.inputs}
    for output in made.outputs:
        assert stepnet.gradcheck(made.text(), v, loss=output).right
    values = made.net()(v)
    a, b = v["a0"][0], v["b0"][0]
    for t, x in enumerate(v["x"]):
        result = {
            "exchanged": lambda: (b, a),
            "the_same": lambda: (np.tanh(x * a), np.tanh(x * a)),
            "given": lambda: (x, a),
            "from_outside": lambda: (v["w"][0], a * x),
        }[function.__name__]()
        a, b = result
        np.testing.assert_allclose(values["a_all"][t], a)
        np.testing.assert_allclose(values["b_all"][t], b)


def test_names_that_operators_would_get(rng):
    @stepnet.cell
    def clash(x, h, tanh1, add1):
        return ops.Tanh(x + h) * tanh1 + add1

    v = {"x": rng.normal(size=(2, 1, 2)).astype("f"), "h0": np.zeros((1, 1, 2), "f")}
    v |= {"tanh1": np.full(2, 2, "f"), "add1": np.ones(2, "f")}
    h = np.zeros((1, 2))
    for t in range(2):
        h = np.tanh(v["x"][t] + h) * 2 + 1
    np.testing.assert_allclose(clash.net()(v)["h_last"][0], h, rtol=1e-6)


@pytest.mark.parametrize(
    "function, message",
    [
        (lambda x, h: h if h else x, "where there are none"),
        (lambda x, h: ops.Tanh(np.ones(2)), "none of the function's"),
        (lambda x, h: (x, h), "returns 2 values for its states"),
        (lambda x, y: x, 'no parameter "h"'),
        (lambda x, h: ops.Tanh(x, scale=1), "no such argument"),
        (lambda x, h: ops.Relu_(x), "in place"),
        (lambda x, h, h0: x + h + h0, 'two blobs "h0"'),
        (lambda x, h: 3, "no blob of the function"),
    ],
)
def test_mistakes_are_explained(function, message):
    with pytest.raises(stepnet.Error, match=message):
        stepnet.cell(function).text()


def test_what_a_cell_raises_ends_the_trace(rng):
    def fails(x, h):
        raise KeyError("mine")

    with pytest.raises(KeyError):
        stepnet.cell(fails)
    assert ops.Tanh(np.zeros(1)).item() == 0
