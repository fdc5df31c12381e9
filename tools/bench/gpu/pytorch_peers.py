"""PyTorch on a GPU: the cells of tools/bench/peers/pytorch.py. Used by peers.py."""
import importlib.util
import time

import torch

import pytorch  # tools/bench/peers

MODULES = {"lstm": torch.nn.LSTM, "gru": torch.nn.GRU}
LOOPS = {"gru": pytorch.Gru, "lstm_layer_norm": pytorch.LayerNormLstm, "twin": pytorch.Twin}


class Lstm(pytorch.CellLoop):
    """The LSTM as a user writes it who wants to change it, with the inputs' product in front of the loop."""
    state_count = 2

    def parameters_of(self, inputs, hidden):
        return self.weights(4, inputs, hidden) + self.weights(4, hidden, hidden)

    def step(self, gates_x, parameters, h, c):
        i, f, o, g = (gates_x + torch.nn.functional.linear(h, *parameters)).chunk(4, 1)
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
        return torch.sigmoid(o) * torch.tanh(c), c


LOOPS["lstm"] = Lstm


class FlashRnn(Lstm):
    """FlashRNN's LSTM of one head, whose gates are i, f, g and o, behind the inputs' product. `backend`: of its package."""

    def __init__(self, size, backend):
        super().__init__(size)
        self.backend = backend

    def __call__(self, x):
        from flashrnn import flashrnn

        for (w_x, b_x, w_h, b_h), states in zip(self.layers, self.states):
            def by_gate(t):
                return t.unflatten(0, (4, -1))[[0, 1, 3, 2]]

            rows = torch.nn.functional.linear(x, by_gate(w_x).flatten(0, 1), by_gate(b_x).flatten())
            made, _ = flashrnn(rows.unflatten(2, (4, 1, -1)).transpose(0, 1).contiguous(), by_gate(w_h)[:, None],
                               by_gate(b_h)[:, None], states=torch.stack(states)[:, :, None, None], function="lstm",
                               backend=self.backend, dtype=str(x.dtype).removeprefix("torch."))
            x = made[0, :, :, 0].transpose(0, 1)
        return x


def milliseconds(run, runs, device):
    if device == "cpu":
        start = time.perf_counter()
        for _ in range(runs):
            run()
        return 1000 * (time.perf_counter() - start) / runs
    before, after = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    before.record()
    for _ in range(runs):
        run()
    after.record()
    after.synchronize()
    return before.elapsed_time(after) / runs


def samples(model, call, size, device):
    """Forward without a graph, and a training step: all gradients from a given one, as in stepnet_gpu_bench."""
    x = pytorch.fresh(size.steps, size.batch, size.inputs)
    dy = torch.randn(size.steps, size.batch, size.hidden)
    leaves = model.leaves() + [x]

    def forward():
        with torch.no_grad():
            call(x)

    def training():
        for leaf in leaves:
            leaf.grad = None
        call(x).backward(dy)

    for mode, run in (("forward", forward), ("training", training)):
        yield mode, lambda runs, run=run: milliseconds(run, runs, device)


def whole_loop(model, mode):
    torch._dynamo.reset()
    return torch.compile(model.__call__, mode=mode)


def with_compiled_step(model):
    torch._dynamo.reset()
    model.step = torch.compile(model.step)
    return model


def peers_of(cell, size, arguments):
    """Names, and functions that make a model and what is called with the sequence."""
    if cell in MODULES:
        model = lambda: pytorch.Module(MODULES[cell], size)
        yield f"PyTorch nn.{MODULES[cell].__name__} (cuDNN)", lambda: (m := model(), m)
    if cell not in LOOPS:
        return
    loop = lambda: LOOPS[cell](size)
    yield "PyTorch loop", lambda: (m := loop(), m)
    if cell == "lstm" and importlib.util.find_spec("flashrnn"):
        backends = {"fused": "cuda_fused", "Triton": "triton_fused"} if arguments.device != "cpu" else {"plain": "vanilla"}
        for name, backend in backends.items():
            yield f"FlashRNN {name}", lambda backend=backend: (m := FlashRnn(size, backend), m)
    if not hasattr(torch, "compile"):
        return
    yield "PyTorch compiled step", lambda: (m := loop(), with_compiled_step(m))
    if size.steps * size.layers <= arguments.compile_steps:
        yield "PyTorch compiled loop", lambda: (m := loop(), whole_loop(m, "default"))
        yield "PyTorch compiled loop, CUDA graphs", lambda: (m := loop(), whole_loop(m, "reduce-overhead"))


def time_all(wanted, arguments, time_peer, note):
    device = arguments.device
    if device != "cpu" and not torch.cuda.is_available():
        note(f"PyTorch {torch.__version__}: left out, as it finds no GPU")
        return
    torch.manual_seed(1)
    if hasattr(torch, "set_default_device"):
        torch.set_default_device(device)
    elif device != "cpu":
        note(f"PyTorch {torch.__version__}: left out, as it is older than 2.0")
        return
    torch.backends.cuda.matmul.allow_tf32 = arguments.tf32
    torch.backends.cudnn.allow_tf32 = arguments.tf32
    note(f"PyTorch {torch.__version__}, CUDA {torch.version.cuda}, cuDNN {torch.backends.cudnn.version()}, "
         f"{torch.cuda.get_device_name() if device != 'cpu' else 'on the CPU'}")
    if not importlib.util.find_spec("flashrnn"):
        note("FlashRNN: left out, as this Python has no flashrnn")
    if not hasattr(torch, "compile"):
        note("PyTorch compiled: left out, as this PyTorch has no torch.compile")
    longer = sorted({f"{size.steps} x {size.layers}" for _, size in wanted
                     if size.steps * size.layers > arguments.compile_steps})
    if longer:
        note(f"PyTorch compiled loop: left out for timesteps x layers beyond {arguments.compile_steps} "
             f"({', '.join(longer)}), which take torch.compile minutes; the compiled step is there. See --compile-steps")
    for kind in arguments.types:
        torch.set_default_dtype(getattr(torch, kind))  # of all that is made without naming one
        for cell, size in wanted:
            for peer, make in peers_of(cell, size, arguments):
                time_peer(peer, cell, size, kind, arguments, lambda make=make: samples(*make(), size, device))
