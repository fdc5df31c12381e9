#!/usr/bin/env python3
"""Trains the byte model of tools/bench/nets/byte_lm.pbtxt.in in PyTorch; tools/bench/memory/run measures it.

Once everything is imported it writes the line 'ready' and reads one line, a JSON object that says what to do; nothing
of the model is made before. It answers with a JSON object: parameters, the loss of each step, the allocator's peak.
"""
import json
import sys

import torch
import torch.nn.functional as F
from torch import nn

EMBEDDING = 64


class ByteModel(nn.Module):
    def __init__(self, vocabulary, hidden, layers=2):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, EMBEDDING)
        self.lstm = nn.LSTM(EMBEDDING, hidden, num_layers=layers)
        self.out = nn.Linear(hidden, vocabulary)

    def forward(self, tokens, states):
        outputs, states = self.lstm(self.embedding(tokens), states)
        return self.out(outputs), states


def values_of(path):
    """The float32 values of a .npy file."""
    with open(path, "rb") as file:
        file.seek(8)
        length = int.from_bytes(file.read(2), "little")
        file.seek(10 + length)
        return torch.frombuffer(bytearray(file.read()), dtype=torch.float32)


def load(model, folder):
    names = {"embedding.weight": "embedding", "out.weight": "W_out", "out.bias": "b_out"}
    for layer in 0, 1:
        for theirs, ours in (("weight_ih", "W_x"), ("weight_hh", "W_h"), ("bias_ih", "b_x"), ("bias_hh", "b_h")):
            names[f"lstm.{theirs}_l{layer}"] = f"{ours}_{layer}"
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            values = values_of(f"{folder}/{names[name]}.npy").view(parameter.shape)
            if name.startswith("lstm."):
                i, f, o, g = values.chunk(4)
                for mine, theirs in zip(parameter.chunk(4), (i, f, g, o)):
                    mine.copy_(theirs)
            else:
                parameter.copy_(values)


def batches(job):
    """Batch k: timesteps k T .. (k + 1) T - 1 of B streams, each a contiguous part of the text, and what follows."""
    steps, batch = job["T"], job["B"]
    with open(job["text"], "rb") as file:
        text = file.read()
    length = (len(text) - 1) // batch
    for k in range(job["steps"]):
        rows = [text[s * length + k * steps:s * length + (k + 1) * steps + 1] for s in range(batch)]
        both = torch.frombuffer(bytearray(b"".join(rows)), dtype=torch.uint8).view(batch, steps + 1).t().long()
        yield both[:-1].contiguous(), both[1:].contiguous()


def train(job):
    model = ByteModel(256, job["H"])
    if job["traced"]:
        load(model, job["folder"])
    optimizer = torch.optim.Adam(model.parameters(), lr=job["lr"])
    states = [torch.zeros(2, job["B"], job["H"]) for _ in range(2)]

    def step(tokens, targets):
        optimizer.zero_grad(set_to_none=True)  # before the forward pass, so that no gradients are there in it
        logits, after = model(tokens, states)
        loss = F.cross_entropy(logits.flatten(0, 1), targets.flatten())
        del logits
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), job["clip"])
        optimizer.step()
        states[:] = [state.detach() for state in after]
        return loss.item()

    losses = [step(*batch) for batch in batches(job)]
    return {"losses": losses, "parameters": sum(p.numel() for p in model.parameters())}


def start_of(event):
    """When an event of the profiler began; PyTorch 2.4 and later count in nanoseconds."""
    return event.start_ns() if hasattr(event, "start_ns") else event.start_us()


def traced(job):
    """Trains with PyTorch's own record of its allocations; its peak is the largest sum of them."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profiler:
        answer = train(job)
    events = [e for e in profiler.profiler.kineto_results.events() if e.name() == "[memory]"]
    live = answer["peak"] = 0
    for event in sorted(events, key=start_of):
        live += event.nbytes()
        answer["peak"] = max(answer["peak"], live)
    return answer


def main():
    print("ready", flush=True)
    job = json.loads(sys.stdin.readline())
    torch.set_num_threads(job["threads"])
    torch.backends.mkldnn.enabled = job["onednn"]
    print(json.dumps(traced(job) if job["traced"] else train(job)), flush=True)


if __name__ == "__main__":
    main()
