"""What the peers share: a process that answers each line on standard input with nanoseconds of the
CPU on standard output."""
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


def serve(make):
    """make(job) returns the function that is timed; jobs of one kind share it."""
    kept = {}
    for line in sys.stdin:
        job = parse(line)
        if job not in kept:
            kept[job] = make(job)
        start = time.process_time_ns()
        kept[job]()
        print(time.process_time_ns() - start, flush=True)
