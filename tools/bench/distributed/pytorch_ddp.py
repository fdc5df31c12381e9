#!/usr/bin/env python3
"""Trains a model of bytes in PyTorch, by DistributedDataParallel with gloo where mpirun has started several ranks.

tools/bench/distributed/overhead starts it, with a JSON object that says what to do. The first rank prints another one:
the milliseconds of iterations, and the last loss.
"""
import json
import os
import sys
import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "memory"))
from pytorch import ByteModel  # noqa: E402


def batches(job, rank, ranks):
    """This rank's streams of each batch: windows of T timesteps, and what follows each."""
    steps, batch = job["T"], job["B"]
    with open(job["text"], "rb") as file:
        text = torch.frombuffer(bytearray(file.read()), dtype=torch.uint8).long()
    length = (len(text) - 1) // batch
    streams = torch.stack([text[s * length:(s + 1) * length + 1] for s in range(rank, batch, ranks)], 1)
    for k in range(job["iterations"]):
        at = k * steps % (length - steps)
        yield streams[at:at + steps].contiguous(), streams[at + 1:at + steps + 1].contiguous()


def train(job, rank, ranks):
    torch.manual_seed(1)
    model = inner = ByteModel(256, job["H"], job["layers"])
    if ranks > 1:
        model = nn.parallel.DistributedDataParallel(inner, gradient_as_bucket_view=True)
    optimizer = torch.optim.Adam(inner.parameters(), lr=job["lr"], fused=True)
    states = [torch.zeros(job["layers"], job["B"] // ranks, job["H"]) for _ in range(2)]
    times = []
    for tokens, targets in batches(job, rank, ranks):
        begin = time.perf_counter()
        optimizer.zero_grad(set_to_none=True)
        logits, after = model(tokens, states)
        loss = F.cross_entropy(logits.flatten(0, 1), targets.flatten())
        loss.backward()
        nn.utils.clip_grad_norm_(inner.parameters(), job["clip"])
        optimizer.step()
        states[:] = [state.detach() for state in after]
        mean = loss.detach() / ranks
        if ranks > 1:
            dist.all_reduce(mean)
        value = mean.item()
        times.append(1e3 * (time.perf_counter() - begin))
    return {"ms": times[job["warm"]:], "loss": value}


def main():
    job = json.loads(sys.argv[1])
    torch.set_num_threads(job["threads"])
    rank, ranks = int(os.environ.get("OMPI_COMM_WORLD_RANK", 0)), int(os.environ.get("OMPI_COMM_WORLD_SIZE", 1))
    if ranks > 1:
        meeting = os.path.join(tempfile.gettempdir(), f"gloo_{os.getppid()}")
        dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=ranks)
    answer = train(job, rank, ranks)
    if rank == 0:
        print(json.dumps(answer), flush=True)
    if ranks > 1:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
