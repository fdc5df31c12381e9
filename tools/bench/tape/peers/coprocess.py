"""What the peers share: a process that answers each line on standard input with nanoseconds on standard output: of
the CPU, or with --device cuda by the clock, from when the device is idle until it is done."""
import argparse
import sys
import time
from collections import namedtuple

Job = namedtuple("Job", "method trimmed with_backward activation layers inputs width batch")


def parse(line):
    """hessian METHOD forward|backward relu|tanh LAYERS INPUTS WIDTH BATCH"""
    verb, method, more, activation, *sizes = line.split()
    assert verb == "hessian" and len(sizes) == 4, line
    return Job(method, method == "trimmed", more == "backward", activation, *map(int, sizes))


def layer_sizes(job):
    """Rows and columns of each layer's weights."""
    widths = [job.inputs] + [job.width] * (job.layers - 1) + [1]
    return [(rows, columns) for columns, rows in zip(widths, widths[1:])]


def parse_arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--tf32", action="store_true")
    return parser.parse_args()


def serve(make, synchronize=None):
    """make(job) returns the function that is timed; jobs of one kind share it. synchronize() waits for a GPU."""
    clock = time.perf_counter_ns if synchronize else time.process_time_ns
    synchronize = synchronize or (lambda: None)
    kept = {}
    for line in sys.stdin:
        job = parse(line)
        if job not in kept:
            kept[job] = make(job)
        synchronize()
        start = clock()
        kept[job]()
        synchronize()
        print(clock() - start, flush=True)
