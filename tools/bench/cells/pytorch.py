"""Times the cells of tools/examples/cells beside PyTorch, in turns: what a user of PyTorch writes, a loop over time in
Python with the products of the sequence taken out of it, as it is, with a compiled step, and compiled as a whole; and
where a step moves its state by factors and terms that do not depend on it, PyTorch's associative scan, compiled. Both
on the CPU, or both on a GPU (--device cuda), where cells with heads are FlashRNN's, too, by CUDA and by Triton, if it is
installed.

Both compute the same from the same values, which is checked first. A training step is forward, backward from ones to
the parameters, and plain gradient descent.
"""
import argparse
import json
import math
import subprocess
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch._higher_order_ops.associative_scan import associative_scan

ROOT = Path(__file__).resolve().parents[3]
TOLERANCE = 1e-3
PEERS = ("eager", "compiled step", "compiled loop", "scan", "flashrnn", "triton")
FLASH = {"cuda": {"flashrnn": "cuda_fused", "triton": "triton_fused"}, "cpu": {"flashrnn": "vanilla"}}


class Cell:
    """A cell of tools/examples/cells: `sizes` of its blobs, `fed` ones, the `output` that is compared. `prepare` makes
    the values of all timesteps, a tuple of [T, ...], and the weights that each of them reads; `step` one timestep.
    `scan`, where there is one, makes of what `prepare` has made the factors and terms of all timesteps, and `read` the
    outputs of the states."""

    fed = ("x", "h0")
    states = ("h0",)
    output = "h_all"
    small = {}  # factors of values that would let the cell diverge

    def read(self, states, *values):
        return states

    def finish(self, outputs, p):
        return outputs

    def text(self, text):
        """The net, from what its file has."""
        return text

    def values(self, size):
        made = {}
        for name, shape in self.sizes(*size).items():
            scale = 1 if name == "x" else 1 / math.sqrt(shape[-1]) if len(shape) == 2 else 0.1
            made[name] = (torch.randn(shape) * scale).numpy()
        for name in self.states:
            made[name] = np.zeros_like(made[name])
        for name, factor in self.small.items():
            made[name] *= factor
        return made


class MinGru(Cell):
    def sizes(self, t, b, h):
        return {"x": (t, b, h), "h0": (1, b, h), "W_x": (2 * h, h), "b_x": (2 * h,)}

    def prepare(self, p):
        z, n = F.linear(p["x"], p["W_x"], p["b_x"]).chunk(2, 2)
        return (torch.sigmoid(z), n), ()

    def step(self, z, n, h):
        h = h + z * (n - h)
        return h, (h,)

    def scan(self, z, n):
        return 1 - z, z * n


class MinLstm(Cell):
    def sizes(self, t, b, h):
        return {"x": (t, b, h), "h0": (1, b, h), "W_x": (3 * h, h), "b_x": (3 * h,)}

    def prepare(self, p):
        f, i, n = F.linear(p["x"], p["W_x"], p["b_x"]).chunk(3, 2)
        f, i = torch.sigmoid(f), torch.sigmoid(i)
        return (f / (f + i), i / (f + i) * n), ()

    def step(self, f, n, h):
        h = f * h + n
        return h, (h,)

    def scan(self, f, n):
        return f, n


class LiGru(Cell):
    def sizes(self, t, b, h):
        return {"x": (t, b, h), "h0": (1, b, h), "W_x": (2 * h, h), "b_x": (2 * h,), "W_h": (2 * h, h)}

    def prepare(self, p):
        return (F.linear(p["x"], p["W_x"], p["b_x"]),), (p["W_h"],)

    def step(self, x, w_h, h):
        z, n = (x + F.linear(h, w_h)).chunk(2, 1)
        z, n = torch.sigmoid(z), torch.relu(n)
        h = z * h + (1 - z) * n
        return h, (h,)


class IndRnn(Cell):
    def sizes(self, t, b, h):
        return {"x": (t, b, h), "h0": (1, b, h), "W_x": (h, h), "b_x": (h,), "u": (h,)}

    def prepare(self, p):
        return (F.linear(p["x"], p["W_x"], p["b_x"]),), (p["u"],)

    def step(self, x, u, h):
        h = torch.relu(x + u * h)
        return h, (h,)


class Sru(Cell):
    fed = ("x", "c0")
    states = ("c0",)

    def sizes(self, t, b, h):
        made = {"x": (t, b, h), "c0": (1, b, h), "W_c": (h, h)}
        for gate in "fr":
            made |= {f"W_{gate}": (h, h), f"b_{gate}": (h,), f"v_{gate}": (h,)}
        return made

    def prepare(self, p):
        x = p["x"]
        sums = F.linear(x, p["W_f"], p["b_f"]), F.linear(x, p["W_r"], p["b_r"]), F.linear(x, p["W_c"]), x
        return sums, (p["v_f"], p["v_r"])

    def step(self, s_f, s_r, n, x, v_f, v_r, c):
        f, r = torch.sigmoid(s_f + v_f * c), torch.sigmoid(s_r + v_r * c)
        c = f * c + (1 - f) * n
        return r * c + (1 - r) * x, (c,)


class SLstm(Cell):
    def sizes(self, t, b, h):
        return {"x": (t, b, h), "h0": (1, b, h), "W_x": (4 * h, h), "b_x": (4 * h,), "W_h": (4 * h, h)}

    def first(self, p):
        h = p["h0"][0]
        return h, torch.zeros_like(h), torch.zeros_like(h), torch.zeros_like(h)

    def prepare(self, p):
        return (F.linear(p["x"], p["W_x"], p["b_x"]),), (p["W_h"],)

    def product(self, h, w_h):
        return F.linear(h, w_h)

    def step(self, x, w_h, h, c, n, m):
        s_i, s_f, s_o, s_z = (x + self.product(h, w_h)).chunk(4, -1)
        kept = m - F.softplus(-s_f)
        m = torch.maximum(kept, s_i)
        i, f = torch.exp(s_i - m), torch.exp(kept - m)
        c = f * c + i * torch.tanh(s_z)
        n = f * n + i
        h = torch.sigmoid(s_o) * c / n
        return h, (h, c, n, m)


class OnLstm(Cell):
    fed = ("x", "h0", "c0")
    states = ("h0", "c0")

    def sizes(self, t, b, h):
        states = {"h0": (1, b, h), "c0": (1, b, h)}
        return {"x": (t, b, h)} | states | {"W_x": (6 * h, h), "b_x": (6 * h,), "W_h": (6 * h, h), "b_h": (6 * h,)}

    def prepare(self, p):
        return (F.linear(p["x"], p["W_x"], p["b_x"]),), (p["W_h"], p["b_h"])

    def step(self, x, w_h, b_h, h, c):
        i, f, o, g, rises, falls = (x + F.linear(h, w_h, b_h)).chunk(6, 1)
        i, f, o, g = torch.sigmoid(i), torch.sigmoid(f), torch.sigmoid(o), torch.tanh(g)
        rising = torch.cumsum(torch.softmax(rises, 1), 1)
        falling = 1 - torch.cumsum(torch.softmax(falls, 1), 1)
        both = rising * falling
        c = (f * both + rising - both) * c + (i * both + falling - both) * g
        h = o * torch.tanh(c)
        return h, (h, c)


class OdeRk4(Cell):
    def sizes(self, t, b, h):
        return {"x": (t, b, h), "h0": (1, b, h), "W_x": (h, h), "b_x": (h,), "W_h": (h, h)}

    def prepare(self, p):
        return (F.linear(p["x"], p["W_x"], p["b_x"]),), (p["W_h"],)

    def step(self, x, w_h, h):
        def change(at):
            return torch.tanh(x + F.linear(at, w_h)) - at

        d = 3 / 16
        k1 = change(h)
        k2 = change(h + d / 2 * k1)
        k3 = change(h + d / 2 * k2)
        k4 = change(h + d * k3)
        h = h + d / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
        return h, (h,)


class SelectiveScan(Cell):
    output = "y_all"
    kept, rank = 16, 32  # states of a channel, and how many numbers say how fast they decay

    def sizes(self, t, b, h):
        d, r = self.kept, self.rank
        made = {"x": (t, b, h), "h0": (1, b, h, d), "A_log": (h, d), "W_r": (r, h), "W_dt": (h, r), "b_dt": (h,)}
        return made | {"W_B": (d, h), "W_C": (d, h), "skip": (h,)}

    def prepare(self, p):
        x = p["x"]
        dt = F.softplus(F.linear(F.linear(x, p["W_r"]), p["W_dt"], p["b_dt"]))
        u, q = F.linear(x, p["W_B"])[:, :, None], F.linear(x, p["W_C"])[..., None]
        return (dt[..., None], (dt * x)[..., None], u, q), (-torch.exp(p["A_log"]),)

    def step(self, dt, moved, u, q, a, h):
        h = torch.exp(dt * a) * h + moved * u
        return torch.matmul(h, q)[..., 0], (h,)

    def scan(self, dt, moved, u, q, a):
        return torch.exp(dt * a), moved * u

    def read(self, h, dt, moved, u, q, a):
        return torch.matmul(h, q)[..., 0]

    def finish(self, outputs, p):
        return outputs + p["x"] * p["skip"]


class Rwkv(Cell):
    fed = ("x", "x0")
    states = ("x0",)
    output = "y_all"

    def sizes(self, t, b, h):
        made = {"x": (t, b, h), "x0": (1, b, h), "log_w": (h,), "bonus": (h,), "W_o": (h, h)}
        return made | {f"mu_{g}": (h,) for g in "rkv"} | {f"W_{g}": (h, h) for g in "rkv"}

    def first(self, p):
        zeros = torch.zeros_like(p["x"][0])
        return zeros, zeros, zeros

    def prepare(self, p):
        x = p["x"]
        before = torch.cat([p["x0"], x[:-1]])
        r, k, v = (F.linear(before + p[f"mu_{g}"] * (x - before), p[f"W_{g}"]) for g in "rkv")
        return (torch.sigmoid(r), k, v), (torch.exp(p["log_w"]), p["bonus"])

    def step(self, r, k, v, w, bonus, a, b, m):
        now = k + bonus
        q = torch.maximum(m, now)
        old, new = torch.exp(m - q), torch.exp(now - q)
        mean = (old * a + new * v) / (old * b + new)
        decayed = m - w
        m = torch.maximum(decayed, k)
        kept, added = torch.exp(decayed - m), torch.exp(k - m)
        return r * mean, (kept * a + added * v, kept * b + added, m)

    def finish(self, outputs, p):
        return F.linear(outputs, p["W_o"])


class DeltaRule(Cell):
    fed = ("x", "W0")
    states = ("W0",)
    output = "y_all"
    keys = 32
    small = {"W_k": 0.1}

    def sizes(self, t, b, h):
        d = self.keys
        made = {"x": (t, b, h), "W0": (1, b, h, d), "W_k": (d, h), "W_v": (h, h), "W_q": (d, h)}
        return made | {"W_b": (1, h), "b_b": (1,)}

    def prepare(self, p):
        x = p["x"]
        rate = torch.sigmoid(F.linear(x, p["W_b"], p["b_b"]))
        return (F.linear(x, p["W_k"])[..., None], F.linear(x, p["W_v"])[..., None], F.linear(x, p["W_q"])[..., None],
                rate[..., None]), ()

    def step(self, k, v, q, rate, w):
        w = w - torch.matmul(rate * (torch.matmul(w, k) - v), k.transpose(1, 2))
        return torch.matmul(w, q)[..., 0], (w,)


class GatedDeltaRule(DeltaRule):
    fed = ("x", "S0")
    states = ("S0",)

    def sizes(self, t, b, h):
        d = self.keys
        made = {"x": (t, b, h), "S0": (1, b, h, d), "W_k": (d, h), "W_q": (d, h), "W_v": (h, h)}
        return made | {"W_a": (1, h), "b_a": (1,), "W_b": (1, h), "b_b": (1,)}

    def prepare(self, p):
        x = p["x"]
        k, q = (F.normalize(F.linear(x, p[w]), dim=-1)[..., None] for w in ("W_k", "W_q"))
        a, beta = (torch.sigmoid(F.linear(x, p[f"W_{g}"], p[f"b_{g}"]))[..., None] for g in "ab")
        return (k, F.linear(x, p["W_v"])[..., None], q, beta, a), ()

    def step(self, k, v, q, beta, a, s):
        return super().step(k, v, q, beta, a * s)


class MLstm(Cell):
    fed = ("x", "C0", "n0", "m0")
    states = ("C0", "n0", "m0")
    keys = 32

    def sizes(self, t, b, h):
        d = self.keys
        made = {"x": (t, b, h), "C0": (1, b, h, d), "n0": (1, b, d), "m0": (1, b, 1), "W_k": (d, h), "W_q": (d, h)}
        return made | {"W_v": (h, h), "W_g": (2, h), "b_g": (2,), "W_o": (h, h), "b_o": (h,)}

    def prepare(self, p):
        x = p["x"]
        s_i, s_f = F.linear(x, p["W_g"], p["b_g"]).chunk(2, 2)
        k, q, v = (F.linear(x, p[w]) for w in ("W_k", "W_q", "W_v"))
        return (k, q[..., None], v, s_i, F.softplus(-s_f), torch.sigmoid(F.linear(x, p["W_o"], p["b_o"]))), ()

    def step(self, k, q, v, s_i, l, o, c, n, m):
        kept = m - l
        m = torch.maximum(kept, s_i)
        i, f = torch.exp(s_i - m), torch.exp(kept - m)
        c = f[..., None] * c + torch.matmul((i * v)[..., None], k[:, None])
        n = f * n + i * k
        weight = torch.matmul(n[:, None], q)[..., 0]
        return o * torch.matmul(c, q)[..., 0] / torch.maximum(weight.abs(), torch.exp(-m)), (c, n, m)


class Rwkv7(Cell):
    fed = ("x", "S0")
    states = ("S0",)
    output = "y_all"
    keys = 32

    def sizes(self, t, b, h):
        d = self.keys
        made = {"x": (t, b, h), "S0": (1, b, h, d), "W_v": (h, h), "xi": (d,), "alpha": (d,), "b_a": (d,), "b_w": (d,)}
        return made | {f"W_{g}": (d, h) for g in "rkaw"}

    def prepare(self, p):
        x = p["x"]
        a, w = (torch.sigmoid(F.linear(x, p[f"W_{g}"], p[f"b_{g}"])) for g in "aw")
        k = F.linear(x, p["W_k"])
        c = F.normalize(p["xi"] * k, dim=-1)
        k_new = k * (1 + (a - 1) * p["alpha"])
        rows = (r[:, :, None] for r in (torch.exp(-math.exp(-0.5) * w), a * c, k_new))
        columns = (v[..., None] for v in (c, F.linear(x, p["W_v"]), F.linear(x, p["W_r"])))
        return (*rows, *columns), ()

    def step(self, w, ac, k, c, v, r, s):
        s = s * w - torch.matmul(torch.matmul(s, c), ac) + torch.matmul(v, k)
        return torch.matmul(s, r)[..., 0], (s,)


class Qrnn(Cell):
    fed = ("x", "x0", "c0")
    states = ("x0", "c0")

    def sizes(self, t, b, h):
        return {"x": (t, b, h), "x0": (1, b, h), "c0": (1, b, h), "W_x": (3 * h, 2 * h), "b_x": (3 * h,)}

    def first(self, p):
        return (p["c0"][0],)

    def prepare(self, p):
        x = p["x"]
        z, f, o = F.linear(torch.cat([x, torch.cat([p["x0"], x[:-1]])], 2), p["W_x"], p["b_x"]).chunk(3, 2)
        return (torch.tanh(z), torch.sigmoid(f), torch.sigmoid(o)), ()

    def step(self, z, f, o, c):
        c = z + f * (c - z)
        return o * c, (c,)

    def scan(self, z, f, o):
        return f, z - f * z

    def read(self, c, z, f, o):
        return o * c


class GruResets(Cell):
    resets = 0.02  # of timesteps that begin anew

    def sizes(self, t, b, h):
        weights = {"W_x": (3 * h, h), "b_x": (3 * h,), "W_h": (3 * h, h), "b_h": (3 * h,)}
        return {"x": (t, b, h + 1), "h0": (1, b, h)} | weights

    def values(self, size):
        made = super().values(size)
        made["x"][:, :, -1] = np.random.default_rng(1).random(size[:2]) < self.resets
        return made

    def prepare(self, p):
        x = p["x"]
        return (F.linear(x[..., :-1], p["W_x"], p["b_x"]), x[..., -1:]), (p["W_h"], p["b_h"])

    def step(self, x, reset, w_h, b_h, h):
        h = h - reset * h
        x_r, x_z, x_n = x.chunk(3, 1)
        h_r, h_z, h_n = F.linear(h, w_h, b_h).chunk(3, 1)
        n = torch.tanh(x_n + torch.sigmoid(x_r + h_r) * h_n)
        h = n + torch.sigmoid(x_z + h_z) * (h - n)
        return h, (h,)


def with_heads(text, heads):
    """A net with as many parts of W_x x, where its file has two."""
    names = [f'"x_{i + 1}"' for i in range(heads)]
    for kind in ("output", "input"):
        text = text.replace(f'{kind}: "x_1" {kind}: "x_2"', " ".join(f"{kind}: {name}" for name in names))
    return text


def flash_rnn(backend, function, rows, recurrent, gates, recurrent_gates, biases, states):
    """FlashRNN's states of rows [T, B, N, gates H] and a matrix [N, H, gates H]: it has gates in another order, which
    these say by their numbers here."""
    from flashrnn import flashrnn

    count = len(gates)
    rows, recurrent = rows.unflatten(3, (count, -1)), recurrent.unflatten(2, (count, -1))
    w_x, r = rows[:, :, :, gates].permute(1, 0, 3, 2, 4), recurrent[:, :, recurrent_gates].permute(2, 0, 3, 1)
    batch, _, _, heads, width = w_x.shape
    made, _ = flashrnn(w_x.contiguous(), r.contiguous(), w_x.new_zeros(biases, heads, width),
                       states=w_x.new_zeros(states, batch, 1, heads, width), function=function, backend=backend,
                       dtype=str(w_x.dtype).removeprefix("torch."))
    return made[0].transpose(0, 1)


class SLstmHeads(SLstm):
    """`size`'s H is that of a head."""
    heads = 12

    def text(self, text):
        return with_heads(text, self.heads)

    def sizes(self, t, b, h):
        n = self.heads
        return {"x": (t, b, n * h), "h0": (1, b, n, h), "W_x": (4 * n * h, n * h), "b_x": (4 * n * h,),
                "W_h": (n, h, 4 * h)}

    def values(self, size):
        made = super().values(size)
        made["W_h"] = (torch.randn(made["W_h"].shape) / math.sqrt(size[2])).numpy()
        return made

    def prepare(self, p):
        rows = F.linear(p["x"], p["W_x"], p["b_x"])
        return (rows.unflatten(2, (self.heads, -1)),), (p["W_h"],)

    def product(self, h, w_h):
        return torch.matmul(h.transpose(0, 1), w_h).transpose(0, 1)

    def flash(self, p, backend):
        (rows,), (w_h,) = self.prepare(p)
        return flash_rnn(backend, "slstm", rows, w_h, [0, 1, 3, 2], [0, 1, 3, 2], 4, 4)


class GruBlocks(Cell):
    """`size`'s H is that of a block."""
    blocks = 8

    def text(self, text):
        return with_heads(text, self.blocks)

    def sizes(self, t, b, h):
        n = self.blocks
        return {"x": (t, b, n * h), "h0": (1, b, n, h), "W_x": (3 * n * h, n * h), "b_x": (3 * n * h,),
                "W_h": (n, h, 3 * h)}

    def values(self, size):
        made = super().values(size)
        made["W_h"] = (torch.randn(made["W_h"].shape) / math.sqrt(size[2])).numpy()
        return made

    def prepare(self, p):
        return (F.linear(p["x"], p["W_x"], p["b_x"]).unflatten(2, (self.blocks, -1)),), (p["W_h"],)

    def step(self, x, w_h, h):
        x_r, x_z, x_n = x.chunk(3, -1)
        h_r, h_z, h_n = torch.matmul(h.transpose(0, 1), w_h).transpose(0, 1).chunk(3, -1)
        n = torch.tanh(x_n + torch.sigmoid(x_r + h_r) * h_n)
        h = n + torch.sigmoid(x_z + h_z) * (h - n)
        return h, (h,)

    def flash(self, p, backend):
        (rows,), (w_h,) = self.prepare(p)
        return flash_rnn(backend, "gru", rows, w_h, [0, 1, 2], [2, 0, 1], 4, 1)


class Rssm(Cell):
    """What is compared and differentiated is the divergence, which reads all that a step makes."""
    fed = ("x", "h0", "z0")
    states = ("h0", "z0")
    output = "kl_all"
    latent = 32

    def sizes(self, t, b, h):
        d = self.latent
        made = {"x": (t, b, 3 * d), "h0": (1, b, h), "z0": (1, b, d), "W_u": (h, 2 * d), "b_u": (h,), "W_x": (3 * h, h)}
        made |= {"b_x": (3 * h,), "W_h": (3 * h, h), "b_h": (3 * h,), "W_p": (2 * d, h), "b_p": (2 * d,)}
        return made | {"W_q": (2 * d, h + d), "b_q": (2 * d,)}

    def prepare(self, p):
        weights = [p[f"{kind}_{gate}"] for gate in "uxhpq" for kind in "Wb"]
        return p["x"].chunk(3, 2), weights

    def step(self, action, seen, noise, w_u, b_u, w_x, b_x, w_h, b_h, w_p, b_p, w_q, b_q, h, z):
        u = torch.tanh(F.linear(torch.cat([z, action], 1), w_u, b_u))
        u_r, u_z, u_n = F.linear(u, w_x, b_x).chunk(3, 1)
        h_r, h_z, h_n = F.linear(h, w_h, b_h).chunk(3, 1)
        n = torch.tanh(u_n + torch.sigmoid(u_r + h_r) * h_n)
        h = n + torch.sigmoid(u_z + h_z) * (h - n)
        mean_p, raw_p = F.linear(h, w_p, b_p).chunk(2, 1)
        mean_q, raw_q = F.linear(torch.cat([h, seen], 1), w_q, b_q).chunk(2, 1)
        sigma_p, sigma_q = F.softplus(raw_p), F.softplus(raw_q)
        ratio = torch.log(sigma_q / sigma_p)
        apart = (mean_q - mean_p) / sigma_p
        kl = 0.5 * (torch.expm1(2 * ratio) + apart * apart) - ratio
        return kl, (h, mean_q + sigma_q * noise)


CELLS = {
    "min_gru": MinGru(),
    "min_lstm": MinLstm(),
    "li_gru": LiGru(),
    "ind_rnn": IndRnn(),
    "sru": Sru(),
    "qrnn": Qrnn(),
    "s_lstm": SLstm(),
    "on_lstm": OnLstm(),
    "ode_rk4": OdeRk4(),
    "selective_scan": SelectiveScan(),
    "rwkv": Rwkv(),
    "rwkv7": Rwkv7(),
    "m_lstm": MLstm(),
    "delta_rule": DeltaRule(),
    "gated_delta_rule": GatedDeltaRule(),
    "gru_resets": GruResets(),
    "s_lstm_heads": SLstmHeads(),
    "gru_blocks": GruBlocks(),
    "rssm": Rssm(),
}


def first_states(cell, p):
    return cell.first(p) if hasattr(cell, "first") else tuple(p[s][0] for s in cell.states)


def run_loop(cell, step, p):
    sequences, weights = cell.prepare(p)
    states, outputs = first_states(cell, p), []
    for values in zip(*(s.unbind(0) for s in sequences)):
        y, states = step(*values, *weights, *states)
        outputs.append(y)
    return cell.finish(torch.stack(outputs), p)


def run_scan(cell, p):
    sequences, weights = cell.prepare(p)
    factors, terms = cell.scan(*sequences, *weights)
    terms = torch.cat([terms[:1] + factors[:1] * first_states(cell, p)[0], terms[1:]])
    _, states = associative_scan(lambda a, b: (a[0] * b[0], b[0] * a[1] + b[1]), (factors, terms), 0,
                                 combine_mode="generic")
    return cell.finish(cell.read(states, *sequences, *weights), p)


def path_of(name):
    folders = "tools/examples/cells", "tools/bench/nets"
    return next(path for folder in folders if (path := ROOT / folder / f"{name}.pbtxt").exists())


def share_of_limits(flops, moved, ms, limits):
    """What the arithmetic or the bytes take by themselves at the device's limits, the larger of them, by what it took."""
    if not limits:
        return math.nan
    return max(flops / limits[0] / 1e6, moved / limits[1] / 1e6) / ms


class Stepnet:
    def __init__(self, program, name, cell, values, arguments, folder):
        self.program, self.cell, self.values, self.arguments, self.folder = program, cell, values, arguments, folder
        net = folder / "training.pbtxt"
        text = path_of(name).read_text(encoding="utf-8")
        net.write_text(cell.text(text), encoding="utf-8")
        # What only runs forward keeps nothing for a backward pass, as PyTorch does not under no_grad.
        forward = subprocess.run([program, "expand", "--forward-only", net], check=True, capture_output=True, text=True)
        (folder / "forward.pbtxt").write_text(forward.stdout, encoding="utf-8")
        self.flops, self.moved = {}, {}
        self.nets = {"forward": folder / "forward.pbtxt", "training": net}

    def results(self):
        feeds = []
        for name, value in self.values.items():
            np.save(self.folder / f"{name}.npy", value)
            feeds += ["--feed", f"{name}={self.folder / name}.npy"]
        made = self.folder / "made.npy"
        subprocess.run([self.program, "run", self.nets["forward"], *feeds, "--fetch", f"{self.cell.output}={made}",
                        "--device", self.arguments.device],
                       check=True, stdout=subprocess.DEVNULL)
        return np.load(made)

    def best_ms(self, mode):
        blobs = []
        for name, value in self.values.items():
            option = "--feed" if name in self.cell.fed else "--parameter"
            blobs += [option, f"{name}=float[{','.join(map(str, value.shape))}]"]
        train = ["--train", "--loss", self.cell.output, "--optimizer", "sgd"] if mode == "training" else []
        told = subprocess.run([self.program, "bench", self.nets[mode], *blobs, *train, "--threads",
                               str(self.arguments.threads), "--device", self.arguments.device, "--json"], check=True,
                              capture_output=True, text=True)
        times = json.loads(told.stdout)
        self.flops[mode], self.moved[mode] = times["flops"], times["bytes_moved"]
        return times["min_ms"]


class PyTorch:
    def __init__(self, cell, values, run, device, whole=False):
        self.device = device
        self.blobs = {n: torch.tensor(v, device=device, requires_grad=n not in cell.fed) for n, v in values.items()}
        self.parameters = [v for v in self.blobs.values() if v.requires_grad]
        self.optimizer = torch.optim.SGD(self.parameters, lr=1e-6)
        self.net = torch.compile(run) if whole else run

    def forward(self):
        with torch.no_grad():
            return self.net(self.blobs)

    def training(self):
        self.optimizer.zero_grad()
        self.net(self.blobs).sum().backward()
        self.optimizer.step()

    def best_ms(self, mode):
        run = getattr(self, mode)
        run()
        best, start = float("inf"), time.perf_counter()
        while time.perf_counter() - start < 1:
            best = min(best, self.milliseconds(run))
        return best

    def milliseconds(self, run):
        if self.device == "cpu":
            before = time.perf_counter()
            run()
            return 1000 * (time.perf_counter() - before)
        before, after = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        before.record()
        run()
        after.record()
        after.synchronize()
        return before.elapsed_time(after)


def difference(made, net):
    wanted = net.forward().cpu().numpy()
    return np.abs(made.reshape(wanted.shape) - wanted).max() / max(1, np.abs(wanted).max())


def flash_peers(name, cell, arguments, made, peer_of):
    """FlashRNN's, as far as they are installed, take the cell's sizes and give its values; a line says what is not."""
    found = {}
    for peer, backend in FLASH[arguments.device].items():
        try:
            net = peer_of(lambda p, backend=backend: cell.flash(p, backend))
            error = difference(made, net)
            if not error < TOLERANCE:
                raise ValueError(f"differs by {error}")
            net.training()
            found[peer] = net
        except Exception as error:  # its compiler may throw anything
            words = str(error).strip().splitlines() or [""]
            print(f"{name}: FlashRNN's {backend} left out, {type(error).__name__}: {words[0][:200]}", flush=True)
    return found


def measure(name, cell, arguments, folder):
    size = arguments.size
    values = cell.values(size)
    stepnet = Stepnet(arguments.stepnet, name, cell, values, arguments, folder)
    def peer_of(run, whole=False):
        return PyTorch(cell, values, run, arguments.device, whole)

    peers = {"eager": peer_of(lambda p: run_loop(cell, cell.step, p))}
    if not arguments.eager:
        step = torch.compile(cell.step)
        peers["compiled step"] = peer_of(lambda p: run_loop(cell, step, p))
        if size[0] <= arguments.longest_loop:
            peers["compiled loop"] = peer_of(lambda p: run_loop(cell, cell.step, p), whole=True)
        if hasattr(cell, "scan"):
            peers["scan"] = peer_of(lambda p: run_scan(cell, p), whole=True)
    made = stepnet.results()
    for peer, net in peers.items():
        if not (error := difference(made, net)) < TOLERANCE:
            raise SystemExit(f"{name}, {peer}: differs by {error}")
    if hasattr(cell, "flash") and not arguments.eager:
        peers |= flash_peers(name, cell, arguments, made, peer_of)
    for mode in ("forward", "training"):
        times = {"stepnet": math.inf} | dict.fromkeys(peers, math.inf)
        for _ in range(arguments.rounds):
            times["stepnet"] = min(times["stepnet"], stepnet.best_ms(mode))
            for peer, net in peers.items():
                times[peer] = min(times[peer], net.best_ms(mode))
        best = min(times[peer] for peer in peers)
        rate = stepnet.flops[mode] / times["stepnet"] / 1e6
        share = share_of_limits(stepnet.flops[mode], stepnet.moved[mode], times["stepnet"], arguments.limits)
        row = {"cell": name, "size": size, "threads": arguments.threads, "device": arguments.device, "mode": mode,
               "ms": times, "gflop_per_second": rate, "share_of_limits": share}
        others = "".join(f"{times.get(p, math.nan):14.2f}" for p in PEERS)
        print(f"{name:18}{mode:10}{times['stepnet']:9.2f}{others}{best / times['stepnet']:8.1f}{rate:9.0f}"
              f"{100 * share:9.2g}%", flush=True)
        if arguments.json:
            with open(arguments.json, "a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")


def main():
    parser = argparse.ArgumentParser(description="Times the cells of tools/examples/cells beside PyTorch.")
    parser.add_argument("--stepnet", required=True, help="the program")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--size", type=lambda s: tuple(map(int, s.split(","))), default=(100, 32, 256), help="T,B,H")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--eager", action="store_true", help="compile nothing, which takes minutes")
    parser.add_argument("--longest-loop", type=int, default=128, help="timesteps of a loop that is compiled as a whole")
    parser.add_argument("--limits", type=lambda s: tuple(map(float, s.split(","))),
                        help="GFLOP/s of products and GB/s of memory that the device reaches, for the last column")
    parser.add_argument("--json", help="also write the rows to this file")
    parser.add_argument("cells", nargs="*")
    arguments = parser.parse_args()
    for name in arguments.cells:
        if name not in CELLS:
            parser.error(f"there is no cell {name}; there are {', '.join(CELLS)}")
    if arguments.device == "cuda" and not torch.cuda.is_available():
        parser.error("PyTorch finds no GPU")
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(1)
    torch._dynamo.config.cache_size_limit = 64
    print(f"T,B,H {','.join(map(str, arguments.size))}, {arguments.threads} threads, PyTorch {torch.__version__}; "
          "minima in ms, the best of the others' times by Stepnet's, Stepnet's GFLOP/s, and their share of the limits")
    print(f"{'cell':18}{'mode':10}{'stepnet':>9}" + "".join(f"{p:>14}" for p in PEERS) + f"{'ratio':>8}{'GFLOP/s':>9}{'of limit':>10}")
    for name in arguments.cells or CELLS:
        with tempfile.TemporaryDirectory() as folder:
            measure(name, CELLS[name], arguments, Path(folder))


if __name__ == "__main__":
    main()
