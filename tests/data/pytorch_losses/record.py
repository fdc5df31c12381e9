"""Records losses of torch.optim's optimizers on a small regression, for tests/recurrent/train/pytorch_losses_test.cc.

usage: record.py > losses.txt
A line for each optimizer: its name, then the loss before every tenth of 300 steps.
"""

import math

import torch

N, I, H, BATCH, STEPS = 40, 3, 8, 8, 300


def values(rows, columns, a, b, c):
    return torch.tensor([[c * math.sin(a * i + b * j + 1) for j in range(columns)] for i in range(rows)])


X = values(N, I, 1.3, 2.1, 1.0)
Y = torch.tensor([[math.sin(2 * X[i][0].item()) + 0.5 * X[i][1].item()] for i in range(N)])

OPTIMIZERS = {
    "adam": lambda p: torch.optim.Adam(p, lr=0.01),
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.01, weight_decay=0.05),
    "adagrad": lambda p: torch.optim.Adagrad(p, lr=0.05),
    "rmsprop": lambda p: torch.optim.RMSprop(p, lr=0.005),
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1),
    "momentum": lambda p: torch.optim.SGD(p, lr=0.02, momentum=0.9),
    "nesterov": lambda p: torch.optim.SGD(p, lr=0.02, momentum=0.9, nesterov=True),
}

for name, make in OPTIMIZERS.items():
    W, b = values(H, I, 0.7, 1.9, 0.5).requires_grad_(), torch.zeros(H).requires_grad_()
    V, c = values(1, H, 0.3, 1.1, 0.5).requires_grad_(), torch.zeros(1).requires_grad_()
    optimizer = make([W, b, V, c])
    losses = []
    for step in range(STEPS):
        first = step * BATCH % N
        x, y = X[first:first + BATCH], Y[first:first + BATCH]
        loss = torch.nn.functional.mse_loss(torch.tanh(x @ W.T + b) @ V.T + c, y)
        if step % 10 == 0:
            losses.append(f"{loss.item():.9g}")
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(name, *losses)
