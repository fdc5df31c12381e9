"""Times PyTorch: its own LSTM and GRU, its LSTMCell in a loop, and the other cells as a user of PyTorch writes them, a
loop in Python with the inputs' product taken out of it. A training step is forward and backward from a given gradient,
to the parameters, the sequence and the initial states."""
import math

import torch
import torch.nn.functional as F
from torch import nn

import timing


def fresh(*shape, width=None):
    """Weights within 1 / sqrt(width), or normally distributed values."""
    if width is None:
        return torch.randn(*shape, requires_grad=True)
    return torch.empty(*shape).uniform_(-1 / math.sqrt(width), 1 / math.sqrt(width)).requires_grad_()


def near(mean, count, width):
    return (mean + fresh(count, width=width)).detach().requires_grad_()


class CellLoop:
    """Layers of some cell, one after the other, each a loop over time."""

    def __init__(self, size):
        self.layers = []
        for k in range(size.layers):
            inputs = size.inputs if k == 0 else size.hidden
            self.layers.append(self.parameters_of(inputs, size.hidden))
        self.states = [[fresh(size.batch, size.hidden) for _ in range(self.state_count)] for _ in self.layers]

    def weights(self, rows, columns, hidden):
        return [fresh(rows * hidden, columns, width=hidden), fresh(rows * hidden, width=hidden)]

    def leaves(self):
        return [p for group in self.layers + self.states for p in group]

    def __call__(self, x):
        for parameters, states in zip(self.layers, self.states):
            gates = F.linear(x, parameters[0], parameters[1])
            gates, parameters = self.prepare(gates, parameters)
            outputs = []
            for gates_x in gates.unbind(0):
                states = self.step(gates_x, parameters, *states)
                outputs.append(states[0])
            x = torch.stack(outputs)
        return x

    def prepare(self, gates, parameters):
        return gates, parameters[2:]


class Gru(CellLoop):
    state_count = 1

    def parameters_of(self, inputs, hidden):
        return self.weights(3, inputs, hidden) + self.weights(3, hidden, hidden)

    def step(self, gates_x, parameters, h):
        x_r, x_z, x_n = gates_x.chunk(3, 1)
        h_r, h_z, h_n = F.linear(h, *parameters).chunk(3, 1)
        r, z = torch.sigmoid(x_r + h_r), torch.sigmoid(x_z + h_z)
        n = torch.tanh(x_n + r * h_n)
        return (n + z * (h - n),)


class LayerNormLstm(CellLoop):
    state_count = 2

    def parameters_of(self, inputs, hidden):
        gains = []
        for rows, mean in ((4, 1), (4, 0.1), (1, 1)):
            gains += [near(mean, rows * hidden, hidden), fresh(rows * hidden, width=hidden)]
        return self.weights(4, inputs, hidden) + self.weights(4, hidden, hidden) + gains

    def prepare(self, gates, parameters):
        w_h, b_h, s_x, d_x = parameters[2:6]
        return F.layer_norm(gates, s_x.shape, s_x, d_x), [w_h, b_h] + parameters[6:]

    def step(self, gates_x, parameters, h, c):
        w_h, b_h, s_h, d_h, s_c, d_c = parameters
        gates = gates_x + F.layer_norm(F.linear(h, w_h, b_h), s_h.shape, s_h, d_h)
        i, f, o, g = gates.chunk(4, 1)
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
        return torch.sigmoid(o) * torch.tanh(F.layer_norm(c, s_c.shape, s_c, d_c)), c


class Twin(CellLoop):
    state_count = 2

    def parameters_of(self, inputs, hidden):
        return self.weights(5, inputs, hidden) + self.weights(5, hidden, hidden) + self.weights(1, hidden, hidden)

    def step(self, gates_x, parameters, h, c):
        w_h, b_h, w_c, b_c = parameters
        f, i, s, u, v = (gates_x + F.linear(h, w_h, b_h)).chunk(5, 1)
        u, v = torch.tanh(u), torch.tanh(v)
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * (v + torch.sigmoid(s) * (u - v))
        return h + torch.sigmoid(F.linear(c, w_c, b_c)) * (torch.tanh(c) - h), c


class LstmCells:
    """nn.LSTMCell in a loop; it takes the input's product into every step."""

    def __init__(self, size):
        self.cells = [nn.LSTMCell(size.inputs if k == 0 else size.hidden, size.hidden) for k in range(size.layers)]
        self.states = [[fresh(size.batch, size.hidden) for _ in range(2)] for _ in self.cells]

    def leaves(self):
        return [p for cell in self.cells for p in cell.parameters()] + [s for pair in self.states for s in pair]

    def __call__(self, x):
        for cell, (h, c) in zip(self.cells, self.states):
            outputs = []
            for row in x.unbind(0):
                h, c = cell(row, (h, c))
                outputs.append(h)
            x = torch.stack(outputs)
        return x


class Module:
    """nn.LSTM or nn.GRU."""

    def __init__(self, kind, size):
        self.module = kind(size.inputs, size.hidden, size.layers)
        shape = (size.layers, size.batch, size.hidden)
        self.states = [fresh(*shape) for _ in range(2 if kind is nn.LSTM else 1)]

    def leaves(self):
        return list(self.module.parameters()) + self.states

    def __call__(self, x):
        return self.module(x, tuple(self.states) if len(self.states) == 2 else self.states[0])[0]


PEERS = {
    "lstm": [("pytorch LSTM", lambda size: Module(nn.LSTM, size)), ("pytorch LSTMCell", LstmCells)],
    "gru": [("pytorch GRU", lambda size: Module(nn.GRU, size)), ("pytorch loop", Gru)],
    "lstm_layer_norm": [("pytorch loop", LayerNormLstm)],
    "twin": [("pytorch loop", Twin)],
}


def check_gru():
    """The loop's cell against PyTorch's own."""
    size = timing.Size(3, 2, 4, 5, 1)
    loop, module = Gru(size), Module(nn.GRU, size)
    with torch.no_grad():
        for mine, theirs in zip(loop.layers[0], [0, 2, 1, 3]):
            mine.copy_(module.leaves()[theirs])
        loop.states[0][0].copy_(module.states[0][0])
        x = torch.randn(size.steps, size.batch, size.inputs)
        assert torch.allclose(loop(x), module(x), atol=1e-5), "the loop's GRU and PyTorch's differ"


def time_peer(name, make, cell, size, arguments):
    model = make(size)
    x = fresh(size.steps, size.batch, size.inputs)
    dy = torch.randn(size.steps, size.batch, size.hidden)
    leaves = model.leaves() + [x]

    def forward():
        with torch.no_grad():
            model(x)

    def training():
        for leaf in leaves:
            leaf.grad = None
        model(x).backward(dy)

    for mode, run in (("forward", forward), ("training", training)):
        if arguments.mode in (mode, "all"):
            timing.report(name, cell, size, mode, arguments, timing.best_ms(run, arguments))


def main():
    arguments = timing.parse_arguments("Times PyTorch's recurrent networks.")
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(1)
    check_gru()
    for cell, size in timing.wanted():
        for name, make in PEERS.get(cell, []):
            time_peer(name, make, cell, size, arguments)


if __name__ == "__main__":
    main()
