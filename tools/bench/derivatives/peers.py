"""Times a loss, its gradient, a Jacobian-vector product and a Hessian-vector product of net.pbtxt in PyTorch and JAX,
and the norms of the samples' gradients in Opacus.

Prints a line for each: contender, what, least milliseconds, median milliseconds, and the peak in megabytes of what a
run allocates, inputs left out: in PyTorch by its profiler's record of allocations, in JAX by the compiler's plan.
"""

import argparse
import statistics
import time

T, B, H, V = 50, 32, 256, 256
SHAPES = {"w_ih": (4 * H, H), "w_hh": (4 * H, H), "b_ih": (4 * H,), "b_hh": (4 * H,), "w_o": (V, H), "b_o": (V,)}


def report(contender, what, run, rounds, peak):
    for _ in range(2):
        run()
    times = []
    for _ in range(rounds):
        begin = time.perf_counter()
        run()
        times.append((time.perf_counter() - begin) * 1e3)
    least, median = min(times), statistics.median(times)
    print(f"{contender:<24} {what:<10} {least:9.2f} {median:9.2f} {peak() / 1e6:9.2f}", flush=True)


def peak_in_pytorch(run):
    import torch

    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profiler:
        run()
    events = [e for e in profiler.profiler.kineto_results.events() if e.name() == "[memory]"]
    live = peak = 0
    for event in sorted(events, key=lambda e: e.start_ns()):
        live += event.nbytes()
        peak = max(peak, live)
    return peak


def time_pytorch(threads, rounds):
    import torch

    torch.set_num_threads(threads)
    torch.manual_seed(1)
    x, label = torch.randn(T, B, H), torch.randint(0, V, (T * B,))
    params = [(0.1 * torch.randn(*shape)).requires_grad_() for shape in SHAPES.values()]
    along = [torch.randn_like(p) for p in params]

    def through_cells(w_ih, w_hh, b_ih, b_hh, w_o, b_o):
        h = c = torch.zeros(B, H)
        states = []
        sums = torch.nn.functional.linear(x, w_ih, b_ih)
        for t in range(T):
            i, f, g, o = (sums[t] + torch.nn.functional.linear(h, w_hh, b_hh)).chunk(4, 1)
            c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
            h = torch.sigmoid(o) * torch.tanh(c)
            states.append(h)
        logits = torch.nn.functional.linear(torch.stack(states), w_o, b_o)
        return torch.nn.functional.cross_entropy(logits.reshape(-1, V), label)

    def through_layer(w_ih, w_hh, b_ih, b_hh, w_o, b_o):
        zeros = torch.zeros(1, B, H)
        y = torch.lstm(x, (zeros, zeros), [w_ih, w_hh, b_ih, b_hh], True, 1, 0.0, True, False, False)[0]
        return torch.nn.functional.cross_entropy(torch.nn.functional.linear(y, w_o, b_o).reshape(-1, V), label)

    def hessian_times_vector(loss):
        slopes = torch.autograd.grad(loss(*params), params, create_graph=True)
        return torch.autograd.grad(sum((s * v).sum() for s, v in zip(slopes, along)), params)

    def forward_only(loss):
        with torch.no_grad():
            return loss(*params)

    for name, loss in (("pytorch nn.LSTM", through_layer), ("pytorch LSTM cells", through_cells)):
        for what, run in (
            ("loss", lambda: forward_only(loss)),
            ("gradient", lambda: torch.autograd.grad(loss(*params), params)),
            ("jvp", lambda: torch.func.jvp(loss, tuple(p.detach() for p in params), tuple(along))),
            ("hvp", lambda: hessian_times_vector(loss)),
        ):
            try:
                report(name, what, run, rounds, lambda: peak_in_pytorch(run))
            except (NotImplementedError, RuntimeError) as error:
                print(f"{name:<24} {what:<10} refused: {str(error).splitlines()[0][:100]}", flush=True)

    time_opacus(x, label, rounds)


def time_opacus(x, label, rounds):
    import torch

    try:
        from opacus.grad_sample import GradSampleModule
        from opacus.layers import DPLSTM
    except ImportError:
        return

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.lstm, self.out = DPLSTM(H, H, batch_first=False), torch.nn.Linear(H, V)

        def forward(self, sequence):
            return self.out(self.lstm(sequence)[0])

    net = GradSampleModule(Net(), batch_first=False)

    def norms():
        torch.nn.functional.cross_entropy(net(x).reshape(-1, V), label).backward()
        squares = sum((p.grad_sample.flatten(1) ** 2).sum(1) for p in net.parameters())
        for p in net.parameters():
            p.grad_sample = p.grad = None
        return squares.sqrt()

    report("pytorch opacus", "norms", norms, rounds, lambda: peak_in_pytorch(norms))


def time_jax(rounds):
    import jax
    import jax.numpy as jnp

    keys = iter(jax.random.split(jax.random.PRNGKey(1), 32))
    x = jax.random.normal(next(keys), (T, B, H))
    label = jax.random.randint(next(keys), (T * B,), 0, V)
    params = {k: 0.1 * jax.random.normal(next(keys), s) for k, s in SHAPES.items()}
    along = {k: jax.random.normal(next(keys), s) for k, s in SHAPES.items()}

    def loss(p):
        def step(state, sums):
            h, c = state
            i, f, g, o = jnp.split(sums + h @ p["w_hh"].T + p["b_hh"], 4, axis=1)
            c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
            h = jax.nn.sigmoid(o) * jnp.tanh(c)
            return (h, c), h

        zeros = jnp.zeros((B, H))
        y = jax.lax.scan(step, (zeros, zeros), x @ p["w_ih"].T + p["b_ih"])[1]
        logits = (y @ p["w_o"].T + p["b_o"]).reshape(-1, V)
        picked = jnp.take_along_axis(jax.nn.log_softmax(logits), label[:, None], 1)
        return -picked.mean()

    gradient = jax.grad(loss)
    def peak_of(fn):
        plan = fn.lower(params).compile().memory_analysis()
        return plan.temp_size_in_bytes + plan.output_size_in_bytes

    for what, fn in (
        ("loss", jax.jit(loss)),
        ("gradient", jax.jit(gradient)),
        ("jvp", jax.jit(lambda p: jax.jvp(loss, (p,), (along,)))),
        ("hvp", jax.jit(lambda p: jax.jvp(gradient, (p,), (along,))[1])),
    ):
        report("jax scan, compiled", what, lambda: jax.block_until_ready(fn(params)), rounds, lambda: peak_of(fn))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peer", choices=["pytorch", "jax"], required=True)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=10)
    options = parser.parse_args()
    if options.peer == "pytorch":
        time_pytorch(options.threads, options.rounds)
    else:
        time_jax(options.rounds)


main()
