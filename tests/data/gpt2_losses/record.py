"""Records losses of a small GPT-2 in float64 by PyTorch, for tests/recurrent/train/gpt2_test.cc.

usage: record.py > losses.txt
The loss before each of 50 steps of gradient descent, one a line.
"""

import math

import torch
from torch.nn import functional

LAYERS, HEADS, UNITS, POSITIONS, TOKENS, BATCH, STEPS, RATE = 2, 2, 32, 16, 64, 4, 50, 0.25
EPSILON = torch.tensor(1e-5).double().item()  # a net has it as a float

torch.set_default_dtype(torch.float64)
parameters = {}


def parameter(name, *shape):
    """Values that follow from the place among the parameters; scales are about 1."""
    place, size = len(parameters), math.prod(shape)
    waves = [0.2 * math.sin(0.01 * e * e + 0.37 * e + place) for e in range(size)]
    values = [(1 if name.endswith("_scale") else 0) + wave for wave in waves]
    parameters[name] = torch.tensor(values).reshape(shape).requires_grad_()


parameter("wte", TOKENS, UNITS)
parameter("wpe", POSITIONS, UNITS)
for layer in range(LAYERS):
    for part, shape in (("ln1_scale", [UNITS]), ("ln1_bias", [UNITS]), ("attn_w", [3 * UNITS, UNITS]),
                        ("attn_b", [3 * UNITS]), ("proj_w", [UNITS, UNITS]), ("proj_b", [UNITS]),
                        ("ln2_scale", [UNITS]), ("ln2_bias", [UNITS]), ("fc_w", [4 * UNITS, UNITS]),
                        ("fc_b", [4 * UNITS]), ("out_w", [UNITS, 4 * UNITS]), ("out_b", [UNITS])):
        parameter(f"h{layer}_{part}", *shape)
parameter("ln_scale", UNITS)
parameter("ln_bias", UNITS)


def norm(x, name):
    return functional.layer_norm(x, [UNITS], parameters[f"{name}_scale"], parameters[f"{name}_bias"], EPSILON)


def product(x, name):
    return functional.linear(x, parameters[f"{name}_w"], parameters[f"{name}_b"])


def attention(x, name):
    samples, steps, _ = x.shape
    heads = [part.reshape(samples, steps, HEADS, -1).transpose(1, 2) for part in product(x, f"{name}_attn").chunk(3, 2)]
    read = functional.scaled_dot_product_attention(*heads, is_causal=True)
    return product(read.transpose(1, 2).reshape(x.shape), f"{name}_proj")


def loss_of(tokens, following):
    x = parameters["wte"][tokens] + parameters["wpe"][:tokens.shape[1]]
    for i in range(LAYERS):
        x = x + attention(norm(x, f"h{i}_ln1"), f"h{i}")
        x = x + product(functional.gelu(product(norm(x, f"h{i}_ln2"), f"h{i}_fc"), approximate="tanh"), f"h{i}_out")
    logits = functional.linear(norm(x, "ln"), parameters["wte"])
    return functional.cross_entropy(logits.flatten(0, 1), following.flatten())


optimizer = torch.optim.SGD(parameters.values(), lr=RATE)
for step in range(STEPS):
    text = torch.tensor([[(7 * i + 3 * t + i * t) % TOKENS for t in range(POSITIONS + 1)]
                         for i in range(step * BATCH, (step + 1) * BATCH)])
    loss = loss_of(text[:, :-1], text[:, 1:])
    print(f"{loss.item():.12g}")
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
