"""Data for the tasks of this folder, and PyTorch's side of them: the seconds of an epoch and the metric.

  pytorch.py data FOLDER              writes the arrays
  pytorch.py TASK FOLDER THREADS PRECISION [compile]   trains the same model on the same samples for EPOCHS epochs
"""
import pathlib
import sys
import time

import numpy as np

BATCH, HIDDEN, EPOCHS, RATE = 32, 256, 3, 1e-3
HELD_OUT = 0.1


def make_data(folder):
    random = np.random.default_rng(7)
    steps = np.arange(3400)
    series = np.sin(steps / 5) + 0.5 * np.sin(steps / 17) + 0.1 * random.standard_normal(len(steps))
    np.save(folder / "series.npy", series.astype(np.float32)[:, None])
    lengths = random.integers(10, 61, 3200)
    classes = random.integers(0, 4, len(lengths))
    rows = []
    for length, kind in zip(lengths, classes):
        angle = random.uniform(0, 6.28) + np.linspace(0, 6.28, length) * (-1 if kind == 1 else 1)
        y = {2: np.sin(2 * angle), 3: np.cos(angle)}.get(int(kind), np.sin(angle))
        rows.append(np.stack([np.cos(angle), y], 1) + random.uniform(-0.3, 0.3, (length, 2)))
    np.save(folder / "points.npy", np.concatenate(rows).astype(np.float32))
    np.save(folder / "lengths.npy", lengths.astype(np.int32))
    np.save(folder / "class.npy", classes.astype(np.int32))
    # Words follow one another by a table of a few choices each.
    choices = random.integers(0, 2000, (2000, 4))
    words = [0]
    for pick in random.choice(4, 112000, p=[0.6, 0.2, 0.15, 0.05]):
        words.append(choices[words[-1], pick])
    np.save(folder / "words.npy", np.array(words, np.int32))


def main():
    if sys.argv[1] == "data":
        make_data(pathlib.Path(sys.argv[2]))
        return
    import torch
    from torch import nn

    task, folder, threads = sys.argv[1], pathlib.Path(sys.argv[2]), int(sys.argv[3])
    autocast = torch.autocast("cpu", dtype=torch.bfloat16, enabled=sys.argv[4] == "bfloat16")
    torch.set_num_threads(threads)
    torch.manual_seed(1)

    def load(name):
        return torch.from_numpy(np.load(folder / name))

    class Last(nn.Module):
        def __init__(self, inputs, outputs, layer):
            super().__init__()
            self.layer, self.out = layer(inputs, HIDDEN), nn.Linear(HIDDEN, outputs)

        def forward(self, x):
            return self.out(self.layer(x)[0][-1])

    class OwnCell(nn.Module):
        def __init__(self, inputs, hidden):
            super().__init__()
            self.x, self.h = nn.Linear(inputs, 3 * hidden), nn.Linear(hidden, 3 * hidden)
            self.hidden = hidden

        def forward(self, x):
            h = c = x.new_zeros(x.shape[1], self.hidden)
            sums = self.x(x)
            for t in range(x.shape[0]):
                f, o, g = (sums[t] + self.h(h)).chunk(3, 1)
                g = torch.tanh(g)
                c = g + torch.sigmoid(f) * (c - g)
                h = torch.sigmoid(o) * torch.tanh(c)
            return h[None], None

    class Packed(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer, self.out = nn.GRU(2, HIDDEN), nn.Linear(HIDDEN, 4)

        def forward(self, x, lengths):
            packed = nn.utils.rnn.pack_padded_sequence(x, lengths, enforce_sorted=False)
            return self.out(self.layer(packed)[1][0])

    class Words(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding, self.layer = nn.Embedding(2000, HIDDEN), nn.LSTM(HIDDEN, HIDDEN)
            self.out = nn.Linear(HIDDEN, 2000)

        def forward(self, x, state):
            h, state = self.layer(self.embedding(x), state)
            return self.out(h), state

    def series_batches(order):
        for batch in order.split(BATCH):
            at = batch[:, None] + torch.arange(49)
            window = series[at].transpose(0, 1)  # [49, B, 1]
            yield window[:48], window[48]

    mse, entropy = nn.MSELoss(), nn.CrossEntropyLoss()
    if task in ("series", "own_cell"):
        series = load("series.npy")
        count = len(series) - 48
        held = round(HELD_OUT * count)
        train, test = torch.arange(count - held - 48), torch.arange(count - held, count)
        model = Last(1, 1, nn.LSTM if task == "series" else OwnCell)
        order = lambda: train[torch.randperm(len(train))]
        batches = lambda: series_batches(order())
        loss_of = lambda x, y: mse(step(x), y)

        def metric():
            pairs = [(step(x), y) for x, y in series_batches(test)]
            guess, target = (torch.cat(all) for all in zip(*pairs))
            return "r2", 1 - (guess - target).square().sum() / (target - target.mean()).square().sum()
    elif task == "lengths":
        points, lengths, classes = load("points.npy"), load("lengths.npy").long(), load("class.npy").long()
        sequences = points.split(lengths.tolist())
        held = round(HELD_OUT * len(lengths))
        train, test = torch.arange(len(lengths) - held), torch.arange(len(lengths) - held, len(lengths))
        model = Packed()

        def of(batch):
            return nn.utils.rnn.pad_sequence([sequences[i] for i in batch]), lengths[batch], classes[batch]

        def batches():  # of like length, as Stepnet's
            order = train[torch.randperm(len(train))]
            chunks = [c[lengths[c].argsort(stable=True)] for c in order.split(50 * BATCH)]
            parts = torch.cat(chunks).split(BATCH)
            return (of(parts[i]) for i in torch.randperm(len(parts)))

        loss_of = lambda x, l, y: entropy(step(x, l), y)

        def metric():
            right = [(step(x, l).argmax(1) == y) for x, l, y in (of(b) for b in test.split(BATCH))]
            return "accuracy", torch.cat(right).float().mean()
    else:
        words = load("words.npy").long()
        count = (len(words) - 36) // 35 + 1
        held = round(HELD_OUT * count)
        model = Words()
        state = None

        def stream(begin, end):
            global_state = None
            per = (end - begin) // BATCH
            for k in range(per):
                at = (begin + torch.arange(BATCH) * per + k) * 35
                window = words[at[:, None] + torch.arange(36)].T
                yield window[:35], window[1:], k == 0

        batches = lambda: stream(0, count - held - 1)

        def loss_of(x, y, starts):
            nonlocal state
            scores, state = step(x, None if starts else state)
            state = tuple(s.detach() for s in state)
            return entropy(scores.flatten(0, 1), y.flatten())

        def metric():
            with torch.no_grad():
                losses = [loss_of(*b) for b in stream(count - held, count)]
            return "perplexity", torch.stack(losses).mean().exp()

    step = torch.compile(model) if len(sys.argv) > 5 else model
    optimizer = torch.optim.Adam(model.parameters(), RATE)
    times = []
    for _ in range(EPOCHS):
        seconds = []
        start = time.perf_counter()
        for batch in batches():
            optimizer.zero_grad()
            with autocast:
                loss = loss_of(*batch)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 5)
            optimizer.step()
            now = time.perf_counter()
            seconds.append(now - start)
            start = now
        times.append(float(np.median(seconds)) * len(seconds))
    with torch.no_grad():
        name, value = metric()
    print(f"{min(times):.3f} {name} {float(value):.4f}")


main()
