"""Nets on arrays: results, what is copied and what is not, and that nothing that was given out changes."""

import os
import pickle
import threading

import numpy as np
import pytest

import stepnet

TANH = 'op { type: "Tanh" input: "x" output: "y" }'
BIG = (256, 256)  # beyond what is copied


@pytest.mark.parametrize("shape", [(), (0,), (1,), (3,), (2, 0, 3), (2, 3), BIG])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_results_are_those_of_numpy(rng, shape, dtype):
    x = np.asarray(rng.normal(size=shape), dtype=dtype)
    y = stepnet.Net(TANH)(x=x)["y"]
    assert y.dtype == dtype and y.shape == shape
    np.testing.assert_allclose(y, np.tanh(x), rtol=1e-6 if dtype == "float32" else 1e-14)


@pytest.mark.parametrize(
    "dtype", ["bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "float16", "float32", "float64"]
)
def test_every_type_goes_in_and_out(dtype):
    workspace = stepnet.Workspace()
    x = np.array([[0, 1], [1, 2]]).astype(dtype)
    workspace["x"] = x
    assert workspace["x"].dtype == x.dtype and np.array_equal(workspace["x"], x)


def test_strings_go_in_and_out():
    workspace = stepnet.Workspace()
    workspace["s"] = np.array([["a", "bc"], ["", "d\u00e9"]])
    assert workspace["s"].tolist() == [[b"a", b"bc"], [b"", "d\u00e9".encode()]]
    workspace["t"] = "one"
    assert workspace["t"].tolist() == b"one"


@pytest.mark.parametrize("dtype", ["uint32", "uint64", "complex64", ">f4"])
def test_types_that_no_tensor_has_are_refused(dtype):
    with pytest.raises(stepnet.Error, match="no tensor has"):
        stepnet.Workspace()["x"] = np.zeros(2, dtype)


def test_arrays_out_of_order_are_put_in_order(rng):
    x = rng.normal(size=BIG).astype("float32")
    net = stepnet.Net(TANH)
    for view in (x.T, x[::2], x[:, ::-1], x[3:5, 1:2]):
        np.testing.assert_allclose(net(x=view)["y"], np.tanh(view), rtol=1e-6)


def test_unaligned_arrays_are_copied(rng):
    raw = np.zeros(4 * 65536 + 1, dtype="uint8")
    x = raw[1:].view("float32")
    x[:] = rng.normal(size=65536)
    np.testing.assert_allclose(stepnet.Net(TANH)(x=x)["y"], np.tanh(x), rtol=1e-6)


def test_numbers_and_lists_are_float32_and_int64():
    workspace = stepnet.Workspace()
    workspace["a"], workspace["b"], workspace["c"] = [1.5, 2], [[1, 2]], True
    assert [str(workspace[n].dtype) for n in "abc"] == ["float32", "int64", "bool"]


@pytest.mark.parametrize("shape", [(3,), BIG])
def test_results_never_change(rng, shape):
    net = stepnet.Net(TANH)
    x = rng.normal(size=shape).astype("float32")
    first = net(x=x)["y"]
    kept = first.copy()
    net.run(x=x)
    seen = net.workspace["y"]
    tensor = np.from_dlpack(net.workspace.tensor("y"))
    for _ in range(3):
        net.run(x=2 * x)
        net(x=3 * x)
    for array in (first, seen, tensor):
        assert np.array_equal(array, kept)
    assert first.flags.writeable and not seen.flags.writeable


@pytest.mark.parametrize("shape", [(3,), BIG])
@pytest.mark.parametrize("kind", ["Alias", "in place"])
def test_inputs_never_change_and_are_not_kept(rng, shape, kind):
    text = 'op { type: "Alias" input: "x" output: "y" }' if kind == "Alias" else ""
    text += f'op {{ type: "Relu" input: "{"y" if text else "x"}" output: "{"y" if text else "x"}" }}'
    x = rng.normal(size=shape).astype("float32")
    before = x.copy()
    net = stepnet.Net(text, outputs=["y" if kind == "Alias" else "x"])
    made = next(iter(net(x=x).values()))
    assert np.array_equal(x, before) and not np.shares_memory(made, x)
    np.testing.assert_array_equal(made, np.maximum(before, 0))
    made[...] = 5
    assert np.array_equal(x, before)
    if kind == "Alias":
        assert "x" not in net.workspace and "y" not in net.workspace


def test_an_alias_of_an_input_is_a_copy(rng):
    x = rng.normal(size=BIG).astype("float32")
    y = stepnet.Net('op { type: "Alias" input: "x" output: "y" }')(x=x)["y"]
    assert np.array_equal(x, y) and not np.shares_memory(x, y)


def test_states_stay_for_the_next_run():
    net = stepnet.Net('op { type: "Add" input: "n" input: "one" output: "n" }')
    net.workspace["n"], net.workspace["one"] = np.zeros(1, "f"), np.ones(1, "f")
    seen = [net()["n"][0] for _ in range(3)]
    assert seen == [1, 2, 3] and net.workspace["n"][0] == 3


def test_gradients(rng):
    net = stepnet.Net(TANH + 'op { type: "SumElements" input: "y" output: "loss" }')
    x = rng.normal(size=(2, 3)).astype("float32")
    made = net.with_gradients("loss", ["x"])(x=x)
    np.testing.assert_allclose(made["x_grad"], 1 - np.tanh(x) ** 2, rtol=1e-5)


def test_dlpack_round_trips_copy_nothing(rng):
    x = rng.normal(size=(2, 3)).astype("float32")
    tensor = stepnet.Tensor(x)
    for back in (np.from_dlpack(tensor), tensor.numpy()):
        assert back.ctypes.data == x.ctypes.data and np.array_equal(back, x)
    del x, tensor
    assert np.isfinite(back).all()


def test_a_net_is_read_from_a_file(tmp_path):
    path = tmp_path / "net.pbtxt"
    path.write_text(TANH)
    assert stepnet.Net(path).inputs == stepnet.Net(str(path)).inputs == ["x"]
    with pytest.raises(stepnet.Error, match="missing.pbtxt"):
        stepnet.Net(tmp_path / "missing.pbtxt")


def test_errors_have_parts():
    with pytest.raises(stepnet.Error) as caught:
        stepnet.Net('op { type: "Tanhh" input: "x" output: "y" }')
    error = caught.value
    assert isinstance(error, RuntimeError) and isinstance(error, ValueError)
    assert error.fact.startswith('Tanhh: there is no operator "Tanhh"')
    assert error.place.startswith("text:1:1, operator 0") and error.operator == "y = Tanhh(x)"
    assert str(error).startswith(error.fact) and "\n  in  text:1:1" in str(error)
    again = pickle.loads(pickle.dumps(error))
    assert (again.fact, again.fix, again.lines) == (error.fact, error.fix, error.lines)


def test_what_is_missing_or_unknown_is_named():
    net = stepnet.Net(TANH)
    with pytest.raises(stepnet.Error) as caught:
        net()
    assert 'reads "x"' in caught.value.fact and 'net.workspace["x"]' in caught.value.fix
    with pytest.raises(stepnet.Error) as caught:
        net(z=np.ones(2, "f"))
    assert 'no blob "z"' in caught.value.fact and caught.value.fix == "its inputs are x"
    with pytest.raises(stepnet.Error, match='"q"'):
        stepnet.Net(TANH, outputs=["q"])
    with pytest.raises(stepnet.Error, match='the value of "x"'):
        net(x=np.zeros(2, "complex64"))
    with pytest.raises(stepnet.Error, match="no blob"):
        _ = net.workspace["nothing"]


def test_a_call_that_fails_leaves_the_net_usable(rng):
    net = stepnet.Net('op { type: "MatMul" input: "x" input: "w" output: "y" }')
    x, w = rng.normal(size=(2, 3)).astype("f"), rng.normal(size=(3, 4)).astype("f")
    with pytest.raises(stepnet.Error):
        net(x=x, w=x)
    np.testing.assert_allclose(net(x=x, w=w)["y"], x @ w, rtol=1e-5)
    assert "x" not in net.workspace


def test_threads_may_share_a_net(rng):
    net = stepnet.Net(TANH)
    x = [rng.normal(size=(300, 300)).astype("float32") for _ in range(4)]
    wrong = []

    def work(mine):
        for _ in range(20):
            if not np.allclose(net(x=mine)["y"], np.tanh(mine), rtol=1e-5):
                wrong.append(1)

    threads = [threading.Thread(target=work, args=(mine,)) for mine in x]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def resident() -> int:
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def calls(net):
    small, big = np.ones(3, "float32"), np.ones(BIG, "float32")

    def run(i):
        net(x=small)
        if i % 100 == 0:
            net(x=big)
            net.run(x=small)
            _ = net.workspace["y"]

    return run


def mistakes(net):
    numbers, words = np.ones(3, "float32"), np.array(["a"])

    def run(i):
        with pytest.raises(stepnet.Error):
            net(x=words) if i % 2 else net(z=numbers)

    return run


def exchanges(net):
    small, big = np.ones(3, "float32"), np.ones(BIG, "float32")

    def run(i):
        x = big if i % 100 == 0 else small
        y = np.from_dlpack(stepnet.Tensor(np.from_dlpack(stepnet.Variable.sharing(x))))
        assert y.ctypes.data == x.ctypes.data
        if i % 10 == 0:
            net.run(x=x)
            np.from_dlpack(net.workspace.tensor("y"))

    return run


@pytest.mark.parametrize("kind", [calls, mistakes, exchanges])
def test_many_runs_leak_nothing(kind):
    run = kind(stepnet.Net(TANH))
    for i in range(5000):
        run(i)
    before = resident()
    for i in range(100_000):
        run(i)
    assert resident() - before < 2_000_000


def peak_while(work) -> int:
    """By how many bytes the process grew at most."""
    with open("/proc/self/clear_refs", "w", encoding="ascii") as file:
        file.write("5")  # the peak is what is there now
    before = resident()
    kept = work()
    with open("/proc/self/status", encoding="ascii") as file:
        peak = next(int(line.split()[1]) * 1024 for line in file if line.startswith("VmHWM"))
    del kept
    return peak - before


def test_large_arrays_are_neither_copied_in_nor_out():
    size = 1 << 24
    x = np.ones(size, "float32")
    shape = stepnet.Net('op { type: "Shape" input: "x" output: "y" }')
    assert peak_while(lambda: shape(x=x)) < x.nbytes / 2
    assert peak_while(lambda: shape.run(x=x)) > x.nbytes / 2  # the workspace has a copy
    fill = f'op {{ type: "ConstantFill" output: "y" arg {{ name: "shape" ints: {size} }} arg {{ name: "value" f: 1 }} }}'
    assert peak_while(stepnet.Net(fill)) < 1.5 * x.nbytes


def test_the_workspace_lends_its_bytes(rng):
    net = stepnet.Net(TANH)
    net.run(x=rng.normal(size=(2, 3)).astype("float32"))
    tensor = net.workspace.tensor("y")
    assert net.workspace["y"].ctypes.data == np.from_dlpack(tensor).ctypes.data == tensor.numpy().ctypes.data
