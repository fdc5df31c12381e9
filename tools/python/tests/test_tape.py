"""The tape from Python against derivatives that are known."""

import numpy as np
import pytest

import stepnet
from stepnet import ops


def variable(rng, *shape, dtype="float64"):
    return stepnet.Variable(rng.normal(size=shape).astype(dtype), requires_grad=True)


def total(v):
    return ops.SumElements(v)


def test_backward_and_grad(rng):
    x = variable(rng, 2, 3)
    total(ops.Tanh(x)).backward()
    right = 1 - np.tanh(x.numpy()) ** 2
    np.testing.assert_allclose(x.grad.numpy(), right, rtol=1e-12)
    total(ops.Tanh(x)).backward()
    np.testing.assert_allclose(x.grad.numpy(), 2 * right, rtol=1e-12)
    x.clear_grad()
    assert x.grad is None
    np.testing.assert_allclose(stepnet.grad([ops.Tanh(x)], [x], grad_outputs=[np.ones((2, 3))])[0].numpy(), right)


def test_arithmetic(rng):
    x, y = variable(rng, 2, 3), variable(rng, 2, 3)
    a, b = x.numpy(), y.numpy()
    for made, right in [
        (x + y, a + b),
        (x - y, a - b),
        (x * y, a * b),
        (x / y, a / b),
        (-x, -a),
        (x + 0.1, a + 0.1),
        (0.1 * x, 0.1 * a),
        (1 - x, 1 - a),
        (2 / x, 2 / a),
        (x @ b.T, a @ b.T),
    ]:
        np.testing.assert_allclose(made.numpy(), right, rtol=1e-12)


def test_higher_orders(rng):
    x, v = variable(rng, 3), rng.normal(size=3)

    def cubes(a):
        return total(a * a * a)

    a = x.numpy()
    outputs, tangents = stepnet.jvp(cubes, [x], [v])
    np.testing.assert_allclose(tangents[0].item(), (3 * a**2 * v).sum())
    np.testing.assert_allclose(outputs[0].item(), (a**3).sum())
    value, gradients, products = stepnet.hvp(cubes, [x], [v])
    np.testing.assert_allclose(value.item(), (a**3).sum())
    np.testing.assert_allclose(gradients[0].numpy(), 3 * a**2)
    np.testing.assert_allclose(products[0].numpy(), 6 * a * v)
    np.testing.assert_allclose(stepnet.jacobian(lambda a: a * a, [x])[0][0].numpy(), np.diag(2 * a))
    np.testing.assert_allclose(stepnet.hessian(cubes, [x])[0][0].numpy(), np.diag(6 * a))
    (slope,) = stepnet.grad([cubes(x)], [x], create_graph=True)
    np.testing.assert_allclose(stepnet.grad([total(slope)], [x])[0].numpy(), 6 * a)


def test_sparse_gradients(rng):
    table = variable(rng, 4, 2)
    total(ops.Gather(table, np.array([1, 3, 1], "int32"))).backward()
    assert isinstance(table.grad, stepnet.SparseGradient)
    assert sorted(table.grad.indices.numpy().tolist()) == [1, 1, 3]


def test_hooks_and_what_they_raise(rng):
    x = variable(rng, 2)
    hook = x.register_hook(lambda g: g * 2.0)
    total(x * 1.0).backward()
    assert x.grad.numpy().tolist() == [2, 2]
    hook.remove()

    def fails(_):
        raise KeyError("mine")

    x.register_hook(fails)
    with pytest.raises(KeyError, match="mine"):
        total(x * 1.0).backward()


def test_what_a_function_raises_comes_out(rng):
    def fails(_):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        stepnet.jvp(fails, [variable(rng, 2)], [np.ones(2)])
    with pytest.raises(ZeroDivisionError):
        stepnet.capture(fails, [variable(rng, 2)])


def test_capture(rng):
    w = variable(rng, 3, 2)
    x = variable(rng, 4, 3)
    captured = stepnet.capture(lambda a: ops.Tanh(a @ w), [x], names=["x"], constants={"w": w})
    assert captured.net.inputs == ["x", "w"]
    made = captured.net(x=x.numpy())[captured.outputs[0]]
    np.testing.assert_array_equal(made, np.asarray(ops.Tanh(x @ w)))


def test_net_functions(rng):
    function = stepnet.NetFunction('op { type: "Tanh" input: "x" output: "y" }', ["x"], ["y"])
    x = variable(rng, 3)
    total(function(x)).backward()
    np.testing.assert_allclose(x.grad.numpy(), 1 - np.tanh(x.numpy()) ** 2)
    with pytest.raises(stepnet.Error, match="takes 1 inputs"):
        function(x, x)


def test_nothing_is_recorded_under_no_grad(rng):
    x = variable(rng, 2)
    with stepnet.no_grad():
        assert not ops.Tanh(x).requires_grad
    assert ops.Tanh(x).requires_grad


def test_errors_name_the_line_of_python(rng):
    with pytest.raises(stepnet.Error) as caught:
        ops.FC(variable(rng, 2, 3), variable(rng, 4, 5))
    assert dict(caught.value.lines)["at"].split(":")[0].endswith("test_tape.py")


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda x: ops.FC(x, x, axiss=2), 'Did you mean "axis"'),
        (lambda x: ops.FC(x, x, axis=1.5), "is an integer"),
        (lambda x: ops.Scale(x, scale="a"), "is a number"),
        (lambda x: ops.Concat(x, x, axis=[1]), "is an integer"),
        (lambda x: ops.Transpose(x, axes=3), "is a list"),
        (lambda x: ops.Tanh(x, x), "Tanh"),
        (lambda x: ops.Tanh(np.array(["a"])), "Tanh"),
        (lambda x: x.backward(), "requires no gradient|needs no gradient|gradient"),
    ],
)
def test_mistakes_are_explained(rng, call, message):
    with pytest.raises(stepnet.Error, match=message):
        call(stepnet.Variable(rng.normal(size=(2, 2))))


def test_unknown_operators_are_no_attributes():
    with pytest.raises(AttributeError, match='Did you mean "Tanh"'):
        _ = ops.Tanhh
    assert not hasattr(ops, "Nonsense") and "Tanh" in dir(ops)


def test_every_operator_is_documented():
    for name in dir(ops):
        assert getattr(ops, name).documentation.strip()


def test_shared_variables_show_the_bytes(rng):
    x = rng.normal(size=(200, 200))
    v = stepnet.Variable.sharing(x)
    assert v.numpy().ctypes.data == x.ctypes.data
    assert stepnet.Variable(x).numpy().ctypes.data != x.ctypes.data
    assert np.from_dlpack(v).ctypes.data == x.ctypes.data
