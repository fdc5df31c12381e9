"""ResNet-18 on small images beside PyTorch: the losses of 50 steps of gradient descent from the same parameters.

  resnet18.py STEPNET [THREADS [TYPE]]   TYPE: float32 or float64

Images are scikit-learn's digits, scaled to 32 x 32, with noise: where a window of a pool has its largest value twice,
PyTorch gives the gradient to the first of them and the public format to all.
"""
import json
import pathlib
import subprocess
import sys
import tempfile
import time

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional

BATCH, STEPS, RATE = 32, 50, 0.001
NET = pathlib.Path(__file__).parents[2] / "examples/nets/resnet18.pbtxt"


class ConvBN(nn.Module):
    def __init__(self, inputs, outputs, kernel, stride):
        super().__init__()
        self.conv = nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, bias=False)
        self.norm = nn.BatchNorm2d(outputs, eps=float(np.float32(1e-5)))  # as a net has it

    def forward(self, x):
        return self.norm(self.conv(x))

    def parameters_by_name(self, name):
        norm = self.norm
        values = [self.conv.weight, norm.weight, norm.bias, norm.running_mean, norm.running_var]
        return {f"{name}_{what}": v for what, v in zip(("w", "scale", "bias", "mean", "var"), values)}


class Block(nn.Module):
    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.conv1, self.conv2 = ConvBN(inputs, outputs, 3, stride), ConvBN(outputs, outputs, 3, 1)
        self.down = ConvBN(inputs, outputs, 1, stride) if stride > 1 else None

    def forward(self, x):
        y = self.conv2(functional.relu(self.conv1(x)))
        return functional.relu(y + (self.down(x) if self.down else x))


class ResNet18(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = ConvBN(3, 64, 7, 2)
        sizes = [(64, 64, 1), (64, 64, 1), (64, 128, 2), (128, 128, 1), (128, 256, 2), (256, 256, 1), (256, 512, 2),
                 (512, 512, 1)]
        self.blocks = nn.ModuleList(Block(*size) for size in sizes)
        self.fc = nn.Linear(512, 1000)

    def forward(self, x):
        x = functional.max_pool2d(functional.relu(self.conv1(x)), 3, 2, 1)
        for block in self.blocks:
            x = block(x)
        return self.fc(x.mean((2, 3)))

    def parameters_by_name(self):
        all_of = self.conv1.parameters_by_name("conv1")
        for i, block in enumerate(self.blocks):
            for part in ("conv1", "conv2", "down"):
                if conv := getattr(block, part):
                    all_of |= conv.parameters_by_name(f"layer{i // 2 + 1}_{i % 2}_{part}")
        return all_of | {"fc_w": self.fc.weight, "fc_b": self.fc.bias}


def images_and_classes(dtype):
    digits = load_digits()
    images = np.repeat(np.repeat(digits.images / 16, 4, 1), 4, 2)
    images += 0.05 * np.random.default_rng(0).standard_normal(images.shape)
    return np.stack([images] * 3, 1).astype(dtype), digits.target.astype(np.int32)


def pytorch_losses(net, images, classes):
    optimizer = torch.optim.SGD(net.parameters(), RATE)
    losses = []
    for i in range(STEPS):
        batch = slice(BATCH * i, BATCH * (i + 1))
        loss = functional.cross_entropy(net(torch.from_numpy(images[batch])), torch.from_numpy(classes[batch]).long())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def stepnet_losses(stepnet, folder, net, threads):
    """The net of the examples, but with PyTorch's initial parameters."""
    loads = []
    for name, value in net.parameters_by_name().items():
        np.save(folder / f"{name}.npy", value.detach().numpy())
        loads.append(f'op {{ type: "LoadNpy" output: "{name}" arg {{ name: "path" s: "{name}.npy" }} }}')
    text = NET.read_text()
    begin, end = text.index('  arg { name: "init"'), text.index('  arg { name: "loss"')
    text = text[:begin] + '  arg { name: "init" n {\n' + "\n".join(loads) + "\n} }\n" + text[end:]
    if net.fc.weight.dtype == torch.float64:
        text = text.replace('input: "images" }', 'input: "images" arg { name: "type" s: "double" } }')
    (folder / "net.pbtxt").write_text(text)
    command = [stepnet, "train", "net.pbtxt", "--data", "images=images.npy", "--data", "class=classes.npy", "--iterations",
               STEPS, "--optimizer", "sgd", "--lr", RATE, "--clip", 0, "--order", "given", "--validate-every", 1000,
               "--threads", threads, "--out", "run", "--quiet"]
    subprocess.run([str(word) for word in command], cwd=folder, check=True, stdout=subprocess.DEVNULL)
    lines = [json.loads(line) for line in open(folder / "run/metrics.jsonl")]
    return [line["loss"] for line in lines if "loss" in line]


def main():
    stepnet = str(pathlib.Path(sys.argv[1]).resolve())
    threads = int(sys.argv[2]) if len(sys.argv) > 2 else 1
    dtype = np.dtype(sys.argv[3] if len(sys.argv) > 3 else "float32")
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    torch.set_default_dtype(torch.float64 if dtype == np.float64 else torch.float32)
    net = ResNet18()
    images, classes = images_and_classes(dtype)
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        np.save(folder / "images.npy", images)
        np.save(folder / "classes.npy", classes)
        start = time.perf_counter()
        ours = stepnet_losses(stepnet, folder, net, threads)
        middle = time.perf_counter()
        theirs = pytorch_losses(net, images, classes)
        end = time.perf_counter()
    apart = [abs(a - b) for a, b in zip(ours, theirs, strict=True)]
    print(f"{dtype}, {threads} threads: losses {ours[0]:.4f} to {ours[-1]:.4f}, at most {max(apart):.1e} apart,")
    print(f"{middle - start:.1f} s, PyTorch {end - middle:.1f} s")


main()
