#!/usr/bin/env python3
"""Times what the cells of stepnet_gpu_bench have as peers on a GPU: PyTorch's nn.LSTM (cuDNN), a loop over time in
Python, torch.compile of the loop and of its step alone, FlashRNN by CUDA and by Triton, and JAX's scan. What is not
installed is left out, with a note.

Reads lines 'cell TAB T,B,I,H,layers' from standard input, as stepnet_gpu_bench --list writes them, and writes lines
'peer TAB cell TAB size TAB mode TAB type TAB milliseconds', and notes that begin with '#'. PyTorch's times are medians by CUDA
events; JAX has none to offer, so that its times are by the clock, until the device is done. Products of float32 are
without TF32 everywhere unless --tf32 is given.
"""
import argparse
import importlib
import signal
import statistics
import sys
import time
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
sys.path += [str(FOLDER), str(FOLDER.parent / "peers")]

WARM_UPS, LEAST_SAMPLES, SAMPLE_MS, MOST_RUNS = 3, 3, 10, 100


class TookTooLong(Exception):
    pass


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20, help="samples of each")
    parser.add_argument("--seconds", type=float, default=3, help=f"for the samples of each, but {LEAST_SAMPLES} at least")
    parser.add_argument("--mode", choices=["forward", "training", "all"], default="all")
    parser.add_argument("--limit", type=int, default=120, help="seconds for one peer at one size, compilers included")
    parser.add_argument("--compile-steps", type=int, default=50,
                        help="most timesteps times layers of a loop that is compiled as a whole")
    parser.add_argument("--only", action="append", choices=["pytorch", "jax"], default=[])
    parser.add_argument("--types", nargs="+", choices=["float32", "bfloat16", "float16"], default=["float32", "bfloat16"])
    parser.add_argument("--tf32", action="store_true")
    parser.add_argument("--device", default="cuda", help="cpu: to try this script without a GPU")
    return parser.parse_args()


def note(text):
    print(f"# {text}", flush=True)


def sizes_wanted():
    from timing import Size
    for line in sys.stdin:
        cell, numbers = line.split()
        yield cell, Size(*map(int, numbers.split(",")))


def median_ms(sample, arguments):
    """sample(runs) runs so many times, one behind the other, and returns milliseconds of one."""
    for _ in range(WARM_UPS):
        last = sample(1)
    runs = min(MOST_RUNS, max(1, round(SAMPLE_MS / max(last, 1e-3))))
    samples, start = [], time.perf_counter()
    while len(samples) < arguments.rounds:
        if len(samples) >= LEAST_SAMPLES and time.perf_counter() - start > arguments.seconds:
            break
        samples.append(sample(runs))
    return statistics.median(samples)


def time_peer(peer, cell, size, kind, arguments, make_samples):
    """make_samples() returns, or yields, pairs of a mode and sample(runs)."""
    def stop(*_):
        raise TookTooLong(f"more than {arguments.limit} seconds")

    where = ",".join(map(str, size))
    signal.signal(signal.SIGALRM, stop)
    signal.alarm(arguments.limit)
    try:
        for mode, sample in make_samples():
            if arguments.mode in (mode, "all"):
                print(peer, cell, where, mode, kind, f"{median_ms(sample, arguments):.5f}", sep="\t", flush=True)
    except Exception as error:  # whatever a compiler may throw: the other peers go on
        words = str(error).strip().splitlines() or [""]
        note(f"{peer}, {cell} at {where}, {kind}: left out, {type(error).__name__}: {words[0][:200]}")
    finally:
        signal.alarm(0)


def main():
    arguments = parse_arguments()
    wanted = list(sizes_wanted())
    for name in arguments.only or ["pytorch", "jax"]:
        module = {"pytorch": "torch", "jax": "jax"}[name]
        try:
            importlib.import_module(module)
        except ImportError as error:
            note(f"{name}: left out, as this Python ({sys.executable}) has no {module}: {error}")
            continue
        importlib.import_module(f"{name}_peers").time_all(wanted, arguments, time_peer, note)


if __name__ == "__main__":
    main()
