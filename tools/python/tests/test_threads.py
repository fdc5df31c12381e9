"""Other threads of Python run while nets do."""

import threading
import time

import numpy as np
import pytest

import stepnet
from stepnet import ops

SQUARE = 'op { type: "MatMul" input: "x" input: "x" output: "y" }'


class Ticks:
    """A thread of Python that notes the time again and again."""

    def __enter__(self):
        self.times, self._done = [], threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        return self

    def _run(self):
        while not self._done.is_set():
            self.times.append(time.perf_counter())
            time.sleep(1e-4)

    def __exit__(self, *_):
        self._done.set()
        self._thread.join()


def progress_during(work) -> int:
    """How often another thread had its turn in the middle of `work`, before and after which Python may switch."""
    with Ticks() as ticks:
        begin = time.perf_counter()
        work()
        end = time.perf_counter()
    quarter = (end - begin) / 4
    return sum(begin + quarter < t < end - quarter for t in ticks.times)


def test_a_thread_has_no_turn_while_the_lock_is_held():
    """That the other tests can fail."""
    numbers = list(np.random.default_rng(1).permutation(1_000_000))
    assert progress_during(numbers.sort) == 0


def call(x):
    net = stepnet.Net(SQUARE)
    return lambda: net(x=x)


def run(x):
    net = stepnet.Net(SQUARE)
    return lambda: net.run(x=x)


def operator(x):
    v = stepnet.Variable(x)
    return lambda: ops.MatMul(v, v)


def backward(x):
    v = stepnet.Variable(x, requires_grad=True)
    y = ops.MatMul(v, v)
    return lambda: y.backward(x)


def function(x):
    net, v = stepnet.NetFunction(SQUARE, ["x"], ["y"]), stepnet.Variable(x)
    return lambda: net(v)


@pytest.mark.parametrize("kind", [call, run, operator, backward, function])
def test_other_threads_run_meanwhile(rng, kind):
    x = rng.normal(size=(1500, 1500)).astype("float32")
    assert progress_during(kind(x)) >= 3


def test_threads_share_a_workspace(rng):
    """Names are asked for and blobs are set while nets run; every run sees one value of x, whole."""
    net = stepnet.Net('op { type: "Sub" input: "x" input: "x" output: "y" } op { type: "Tanh" input: "x" output: "z" }')
    net.workspace["x"] = np.zeros(50_000, "float32")
    wrong, done = [], threading.Event()

    def write():
        for i in range(200):
            net.workspace["x"] = np.full(1000 * (1 + i % 7), i, "float32")
        done.set()

    def look():
        while not done.is_set():
            if "x" not in net.workspace or "x" not in list(net.workspace):
                wrong.append("x is gone")

    threads = [threading.Thread(target=write), threading.Thread(target=look)]
    for thread in threads:
        thread.start()
    while not done.is_set():
        made = net()
        if np.any(made["y"]) or len(set(made["z"][:1].tolist() + made["z"][-1:].tolist())) != 1:
            wrong.append("two values")
    for thread in threads:
        thread.join()
    assert not wrong
