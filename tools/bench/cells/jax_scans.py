"""Times cells of tools/examples/cells whose steps are scans in JAX: by its associative scan and by a loop (`scan`), both
compiled as wholes, once they were seen to give the same. The formulas and sizes are those of pytorch.py; times are the
least by the clock, until the device is done.
"""
import argparse
import functools
import math
import time

import jax
import jax.numpy as jnp
import numpy as np


def min_gru(p):
    z, n = jnp.split(p["x"] @ p["W_x"].T + p["b_x"], 2, axis=2)
    z = jax.nn.sigmoid(z)
    return 1 - z, z * n, p["h0"][0], lambda h: h


def qrnn(p):
    x = p["x"]
    rows = jnp.concatenate([x, jnp.concatenate([p["x0"], x[:-1]])], axis=2) @ p["W_x"].T + p["b_x"]
    z, f, o = jnp.split(rows, 3, axis=2)
    f, o = jax.nn.sigmoid(f), jax.nn.sigmoid(o)
    return f, (1 - f) * jnp.tanh(z), p["c0"][0], lambda c: o * c


def selective_scan(p):
    x = p["x"]
    dt = jax.nn.softplus(x @ p["W_r"].T @ p["W_dt"].T + p["b_dt"])[..., None]
    u, q = (x @ p["W_B"].T)[:, :, None], x @ p["W_C"].T
    factors = jnp.exp(-dt * jnp.exp(p["A_log"]))
    return factors, dt * x[..., None] * u, p["h0"][0], lambda h: jnp.einsum("tbhd,tbd->tbh", h, q) + x * p["skip"]


CELLS = {"min_gru": min_gru, "qrnn": qrnn, "selective_scan": selective_scan}


def by_tree(factors, terms, first):
    terms = terms.at[0].add(factors[0] * first)
    return jax.lax.associative_scan(lambda a, b: (a[0] * b[0], b[0] * a[1] + b[1]), (factors, terms))[1]


def by_loop(factors, terms, first):
    def step(h, row):
        h = row[0] * h + row[1]
        return h, h

    return jax.lax.scan(step, first, (factors, terms))[1]


SCANS = {"associative_scan": by_tree, "scan": by_loop}


def outputs(cell, scan, p):
    factors, terms, first, read = CELLS[cell](p)
    return read(SCANS[scan](factors, terms, first))


def values_of(sizes, fed):
    """As pytorch.py draws them, but for the generator."""
    random, made = np.random.default_rng(1), {}
    for name, shape in sizes.items():
        scale = 1 if name == "x" else 1 / math.sqrt(shape[-1]) if len(shape) == 2 else 0.1
        made[name] = np.zeros(shape) if name in fed and name != "x" else scale * random.standard_normal(shape)
    return {name: jnp.asarray(value, jnp.float32) for name, value in made.items()}


def sizes_of(cell, t, b, h):
    if cell == "min_gru":
        return {"x": (t, b, h), "h0": (1, b, h), "W_x": (2 * h, h), "b_x": (2 * h,)}
    if cell == "qrnn":
        return {"x": (t, b, h), "x0": (1, b, h), "c0": (1, b, h), "W_x": (3 * h, 2 * h), "b_x": (3 * h,)}
    d, r = 16, 32
    weights = {"A_log": (h, d), "W_r": (r, h), "W_dt": (h, r), "b_dt": (h,), "W_B": (d, h), "W_C": (d, h), "skip": (h,)}
    return {"x": (t, b, h), "h0": (1, b, h, d)} | weights


def best_ms(run):
    jax.block_until_ready(run())
    best, start = math.inf, time.perf_counter()
    while time.perf_counter() - start < 1:
        before = time.perf_counter()
        jax.block_until_ready(run())
        best = min(best, 1000 * (time.perf_counter() - before))
    return best


def main():
    parser = argparse.ArgumentParser(description="Times scans of tools/examples/cells in JAX.")
    parser.add_argument("--size", type=lambda s: tuple(map(int, s.split(","))), default=(1000, 1, 512), help="T,B,H")
    parser.add_argument("--device", choices=["cpu", "gpu"], default="gpu")
    parser.add_argument("cells", nargs="*", choices=[[], *CELLS], help="default: all")
    arguments = parser.parse_args()
    if arguments.device == "gpu" and jax.default_backend() != "gpu":
        parser.error(f"JAX {jax.__version__} finds no GPU")
    jax.config.update("jax_default_matmul_precision", "highest")
    print(f"T,B,H {','.join(map(str, arguments.size))}, JAX {jax.__version__}, {jax.devices()[0].device_kind}; minima in ms, "
          "by the clock")
    print(f"{'cell':18}{'mode':10}" + "".join(f"{scan:>18}" for scan in SCANS))
    for cell in arguments.cells or CELLS:
        sizes = sizes_of(cell, *arguments.size)
        p = values_of(sizes, ("x", "x0", "h0", "c0"))
        fed = {name: v for name, v in p.items() if name in ("x", "x0", "h0", "c0")}
        weights = {name: v for name, v in p.items() if name not in fed}
        forward = {scan: jax.jit(functools.partial(outputs, cell, scan)) for scan in SCANS}

        def trained(scan, weights, fed):
            gradients = jax.grad(lambda w: outputs(cell, scan, w | fed).sum())(weights)
            return {name: w - 1e-6 * gradients[name] for name, w in weights.items()}

        training = {scan: jax.jit(functools.partial(trained, scan)) for scan in SCANS}
        apart = float(jnp.abs(forward["scan"](p) - forward["associative_scan"](p)).max())
        if not apart < 1e-3:
            raise SystemExit(f"{cell}: both scans differ by {apart}")
        for mode, run in (("forward", lambda scan: forward[scan](p)), ("training", lambda scan: training[scan](weights, fed))):
            times = [best_ms(functools.partial(run, scan)) for scan in SCANS]
            print(f"{cell:18}{mode:10}" + "".join(f"{ms:18.2f}" for ms in times), flush=True)


if __name__ == "__main__":
    main()
