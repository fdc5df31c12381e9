"""What the peers' scripts share: which cells and sizes to time, for how long, and the line that a time is written in.

stepnet_bench --list says the cells and sizes, and its --peer-times reads the lines: peer, cell, size, mode, threads,
how threads wait, milliseconds, between tabs.
"""
import argparse
import sys
import time
from collections import namedtuple

Size = namedtuple("Size", "steps batch inputs hidden layers")

LEAST_ROUNDS = 3


def parse_arguments(about):
    parser = argparse.ArgumentParser(description=about + " Reads lines 'cell TAB T,B,I,H,layers' from standard input.")
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--waiting", choices=["active", "passive"], required=True)
    parser.add_argument("--rounds", type=int, default=20, help="most runs of one thing")
    parser.add_argument("--seconds", type=float, default=3, help=f"for one thing, but at least {LEAST_ROUNDS} runs")
    parser.add_argument("--mode", choices=["forward", "training", "all"], default="all")
    return parser.parse_args()


def wanted():
    for line in sys.stdin:
        cell, numbers = line.split()
        yield cell, Size(*map(int, numbers.split(",")))


def best_ms(run, arguments):
    run()
    best, start = float("inf"), time.perf_counter()
    for rounds in range(arguments.rounds):
        before = time.perf_counter()
        if rounds >= LEAST_ROUNDS and before - start > arguments.seconds:
            break
        run()
        best = min(best, time.perf_counter() - before)
    return 1000 * best


def report(peer, cell, size, mode, arguments, ms):
    numbers = ",".join(map(str, size))
    print(peer, cell, numbers, mode, arguments.threads, arguments.waiting, f"{ms:.5f}", sep="\t", flush=True)
