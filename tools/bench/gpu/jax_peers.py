"""JAX on a GPU: cells under lax.scan, compiled as a whole. Used by peers.py."""
import functools
import time

import jax
import jax.numpy as jnp
import numpy


def lstm(gates_x, parameters, states):
    w_h, b_h = parameters
    h, c = states
    i, f, o, g = jnp.split(gates_x + h @ w_h.T + b_h, 4, axis=1)
    c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
    return jax.nn.sigmoid(o) * jnp.tanh(c), c


def twin(gates_x, parameters, states):
    w_h, b_h, w_c, b_c = parameters
    h, c = states
    f, i, s, u, v = jnp.split(gates_x + h @ w_h.T + b_h, 5, axis=1)
    u, v = jnp.tanh(u), jnp.tanh(v)
    c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * (v + jax.nn.sigmoid(s) * (u - v))
    return h + jax.nn.sigmoid(c @ w_c.T + b_c) * (jnp.tanh(c) - h), c


def gru(gates_x, parameters, states):
    w_h, b_h = parameters
    h, _ = states  # the second one goes along untouched
    x_r, x_z, x_n = jnp.split(gates_x, 3, axis=1)
    h_r, h_z, h_n = jnp.split(h @ w_h.T + b_h, 3, axis=1)
    n = jnp.tanh(x_n + jax.nn.sigmoid(x_r + h_r) * h_n)
    return n + jax.nn.sigmoid(x_z + h_z) * (h - n), _


# The step, the gates of W_x and W_h, and whether there is a W_c.
CELLS = {"lstm": (lstm, 4, False), "gru": (gru, 3, False), "twin": (twin, 5, True)}


def random_layers(cell, size, kind):
    """For each layer W_x, b_x and the step's parameters, and its two initial states."""
    random, (_, gates, has_c) = numpy.random.default_rng(1), CELLS[cell]
    bound = size.hidden**-0.5

    def weights(rows, columns):
        return [jnp.asarray(random.uniform(-bound, bound, shape), kind)
                for shape in ((rows * size.hidden, columns), (rows * size.hidden,))]

    def state():
        return jnp.asarray(random.standard_normal((size.batch, size.hidden)), kind)

    layers = []
    for k in range(size.layers):
        parameters = weights(gates, size.inputs if k == 0 else size.hidden) + weights(gates, size.hidden)
        layers.append((parameters + (weights(1, size.hidden) if has_c else []), (state(), state())))
    return layers


def run_layers(cell, layers, x):
    step = CELLS[cell][0]
    for parameters, states in layers:
        w_x, b_x, *rest = parameters

        def scanned(carried, gates_x, rest=rest):
            carried = step(gates_x, rest, carried)
            return carried, carried[0]

        x = jax.lax.scan(scanned, states, x @ w_x.T + b_x)[1]
    return x


def samples(cell, size, kind):
    random = numpy.random.default_rng(2)
    x = jnp.asarray(random.standard_normal((size.steps, size.batch, size.inputs)), kind)
    dy = jnp.asarray(random.standard_normal((size.steps, size.batch, size.hidden)), kind)
    layers = random_layers(cell, size, kind)
    forward = jax.jit(lambda layers, x: run_layers(cell, layers, x))

    @jax.jit
    def training(layers, x, dy):
        y, pull = jax.vjp(lambda layers, x: run_layers(cell, layers, x), layers, x)
        return y, pull(dy)

    def milliseconds(run, arguments, runs):
        start = time.perf_counter()
        for _ in range(runs):
            result = run(*arguments)
        jax.block_until_ready(result)
        return 1000 * (time.perf_counter() - start) / runs

    yield "forward", functools.partial(milliseconds, forward, (layers, x))
    yield "training", functools.partial(milliseconds, training, (layers, x, dy))


def time_all(wanted, arguments, time_peer, note):
    if arguments.device != "cpu" and jax.default_backend() != "gpu":
        note(f"JAX {jax.__version__}: left out, as it finds no GPU (its backend is {jax.default_backend()})")
        return
    jax.config.update("jax_default_matmul_precision", "tensorfloat32" if arguments.tf32 else "highest")
    note(f"JAX {jax.__version__}, {jax.devices()[0].device_kind}, by the clock")
    for cell in sorted({cell for cell, _ in wanted} - set(CELLS)):
        note(f"JAX scan: left out for {cell}, which nobody wrote down for it")
    for kind in arguments.types:
        for cell, size in wanted:
            if cell in CELLS:
                time_peer("JAX scan", cell, size, kind, arguments,
                          lambda cell=cell, size=size, kind=kind: samples(cell, size, getattr(jnp, kind)))
