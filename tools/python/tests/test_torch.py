"""Modules of PyTorch: gradients by PyTorch's own checks."""

import pytest

torch = pytest.importorskip("torch")

import stepnet  # noqa: E402
import stepnet.torch  # noqa: E402
from stepnet import ops  # noqa: E402

DENSE = 'op { type: "FC" input: "x" input: "W" input: "b" output: "s" } op { type: "Tanh" input: "s" output: "y" }'


@stepnet.cell
def rnn(x, h, W, U, b):
    return ops.Tanh(ops.FC(x, W, b, axis=2) + ops.FC(h, U, axis=2))


def normal(*shape, grad=False):
    return torch.randn(*shape, dtype=torch.float64, requires_grad=grad)


def dense():
    return stepnet.torch.Module(DENSE, inputs=["x"], outputs=["y"], parameters={"W": normal(4, 3), "b": normal(4)})


def test_first_and_second_gradients():
    module, x = dense(), normal(2, 3, grad=True)
    run = lambda x, *_: module(x)  # noqa: E731
    assert torch.autograd.gradcheck(run, (x, *module.parameters()))
    assert torch.autograd.gradgradcheck(run, (x, *module.parameters()))


def test_gradients_of_a_cell():
    module = stepnet.torch.Module(
        rnn, outputs=["h_all", "h_last"], parameters={"W": normal(4, 3), "U": normal(4, 4), "b": normal(4)}
    )
    x, h0 = normal(5, 2, 3, grad=True), normal(1, 2, 4, grad=True)
    assert torch.autograd.gradcheck(lambda x, h0, *_: module(x, h0), (x, h0, *module.parameters()))


def test_values_and_training():
    torch.manual_seed(1)
    module, x = dense(), normal(5, 3)
    right = torch.tanh(x @ module.parameter("W").T + module.parameter("b"))
    torch.testing.assert_close(module(x), right)
    optimizer = torch.optim.SGD(module.parameters(), 0.01)
    losses = []
    for _ in range(5):
        optimizer.zero_grad()
        loss = (module(x) ** 2).sum()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses == sorted(losses, reverse=True) and losses[-1] < losses[0]
    again = dense()
    again.load_state_dict(module.state_dict())
    torch.testing.assert_close(again(x), module(x))
    assert set(module.state_dict()) == {"weights.W", "weights.b"}


def test_outputs_that_are_overwritten_are_noticed():
    module = dense()
    y = module(normal(2, 3))
    with torch.no_grad():
        y.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_outputs_that_nothing_reads():
    module = stepnet.torch.Module(rnn, outputs=["h_all", "h_last"])
    x, h0, w, u, b = normal(3, 1, 2), normal(1, 1, 2, grad=True), normal(2, 2), normal(2, 2), normal(2)
    module(x, h0, w, u, b)[1].sum().backward()
    assert h0.grad.shape == h0.shape


def test_nothing_is_recorded_without_gradients():
    with torch.no_grad():
        assert not dense()(normal(2, 3)).requires_grad


def test_dlpack_of_torch():
    x = torch.arange(6.0).reshape(2, 3)
    assert torch.from_dlpack(stepnet.Tensor(x)).data_ptr() == x.data_ptr()
    half = torch.ones(3, dtype=torch.bfloat16)
    back = torch.from_dlpack(stepnet.Variable.sharing(half))
    assert back.data_ptr() == half.data_ptr() and back.dtype == torch.bfloat16
    assert stepnet.Variable(half).numpy().tolist() == [1, 1, 1]


def test_mistakes_are_explained():
    with pytest.raises(stepnet.Error, match="takes 1 inputs"):
        dense()(normal(2, 3), normal(2, 3))
    with pytest.raises(stepnet.Error, match="must know its inputs"):
        stepnet.torch.Module(DENSE)
    with pytest.raises(stepnet.Error, match="FC"):
        dense()(normal(2, 7))
