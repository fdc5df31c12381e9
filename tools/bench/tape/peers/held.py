"""Bytes that PyTorch holds for backward, for the graphs of tools/bench/tape/held_cases.cc: lines of name, inputs that
require gradients, and bytes, between tabs.

Counted are the storages of all tensors that the graph packs, each once, inputs included, and each rounded up to 64
bytes, as both allocators do. Numbers that a graph keeps as such count nothing on either side.
"""
import itertools

import torch
import torch.nn.functional as F

STEP = 64
M = (32, 16)
A3, B3, M3 = (4, 32, 16), (4, 16, 64), (4, 32, 64)

# name: the inputs' letters and shapes ("long" and "bool" ones are no numbers), and the graph.
CASES = {
    "Add": ("a b", [M, M], lambda a, b: a + b),
    "Sub": ("a b", [M, M], lambda a, b: a - b),
    "Mul": ("a b", [M, M], lambda a, b: a * b),
    "Div": ("a b", [M, M], lambda a, b: a / b),
    "FMod": ("a b", [M, M], torch.fmod),
    "Pow": ("a e", [M, M], torch.pow),
    "AddCMul": ("t a b", [M, M, M], torch.addcmul),
    "AddCDiv": ("t a b", [M, M, M], torch.addcdiv),
    "Cross": ("a b", [(64, 3), (64, 3)], lambda a, b: torch.cross(a, b, dim=1)),
    "Where": ("c a b", ["bool", M, M], torch.where),
    "PRelu": ("a k", [M, (16,)], F.prelu),
    "MSELoss": ("a b", [M, M], F.mse_loss),
    "Mul of a row": ("a b", [M, (16,)], lambda a, b: a * b),
    "Add of a row": ("a b", [M, (16,)], lambda a, b: a + b),
    "MatMul": ("a b", [(32, 16), (16, 64)], torch.mm),
    "FC": ("x w b", [(32, 16), (64, 16), (64,)], F.linear),
    "BatchMatMul": ("a b", [A3, B3], torch.bmm),
    "AddBMM": ("m a b", [(32, 64), A3, B3], torch.addbmm),
    "BAddBMM": ("m a b", [M3, A3, B3], torch.baddbmm),
    "AddMV": ("v a x", [(32,), M, (16,)], torch.addmv),
    "MV": ("a x", [M, (16,)], torch.mv),
    "AddR": ("m x y", [M, (32,), (16,)], torch.addr),
    "Ger": ("x y", [(32,), (16,)], torch.ger),
    "DotProduct": ("x y", [(512,), (512,)], torch.dot),
    "IndexAdd": ("a i b", [M, ("long", (64,)), (64, 16)], lambda a, i, b: a.index_add(0, i, b)),
    "ScatterAdd": ("a i b", [M, ("long", (64, 16)), (64, 16)], lambda a, i, b: a.scatter_add(0, i, b)),
    "Gather": ("a i", [M, ("long", (64,))], lambda a, i: a.index_select(0, i)),
    "dropout-like": ("x m", [M, M], lambda x, m: (x + 2) * m),
    "AddCDiv of Div, Scale, Add": ("t a b", [M, M, M], lambda t, a, b: t + 0.5 * (a / b)),
    "AddCDiv of Div, Mul, Add": ("t v a b", [M, (16,), M, M], lambda t, v, a, b: t + v * (a / b)),
    "AddCMul of Mul, Scale, Add": ("t a b", [M, M, M], lambda t, a, b: t + 0.5 * (a * b)),
    "AddMV of MV, Add": ("v a x", [(32,), M, (16,)], lambda v, a, x: v + a.mv(x)),
    "AddR of Ger, Add": ("m x y", [M, (32,), (16,)], lambda m, x, y: m + torch.ger(x, y)),
    "BAddBMM of BatchMatMul, Add": ("m a b", [M3, A3, B3], lambda m, a, b: m + torch.bmm(a, b)),
    "lerp of Sub, Mul, Add": ("a b w", [M, M, M], lambda a, b, w: a + w * (b - a)),
}


def make_input(shape, trained):
    if shape == "bool":
        return torch.ones(M, dtype=torch.bool)
    if shape[0] == "long":
        return torch.zeros(shape[1], dtype=torch.long)
    return torch.full(shape, 0.5, requires_grad=trained)


def held_bytes(letters, shapes, graph, trained):
    storages = {}

    def pack(tensor):
        if tensor.dim() > 0:  # not a Python number
            storages[tensor.storage().data_ptr()] = -(-tensor.storage().nbytes() // STEP) * STEP
        return tensor

    inputs = [make_input(shape, letter in trained) for letter, shape in zip(letters, shapes)]
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        graph(*inputs)
    return sum(storages.values())


def main():
    for name, (letters, shapes, graph) in CASES.items():
        letters = letters.split()
        numbers = [letter for letter, shape in zip(letters, shapes) if shape != "bool" and shape[0] != "long"]
        for count in range(1, len(numbers) + 1):
            for trained in itertools.combinations(numbers, count):
                print(name, "".join(trained), held_bytes(letters, shapes, graph, trained), sep="\t")


if __name__ == "__main__":
    main()
