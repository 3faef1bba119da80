# SPDX-License-Identifier: Apache-2.0
"""`auto` against the better of off and the best fixed width, from the blocks of `outrider_slow_drive --seconds FILE`.

All sides of a run timed the same tokens beside each other, so that a block is a pair. Prints, for each side, the median
over blocks of off's time to its own, and what `auto` has against the best other side: chosen on all blocks, which favours
that side since the largest of several noisy medians is too large, and split: chosen on every other block, compared on the
rest, both ways round. Beside it the 95 % interval of a bootstrap over blocks."""
import random
import statistics
import sys


def read(path):
    """Blocks of all runs, one dict of seconds by side each."""
    blocks, run = [], {}
    def flush():
        if run:
            blocks.extend({side: values[i] for side, values in run.items()} for i in range(len(run["off"])))
    for line in open(path, encoding="ascii"):
        name, *values = line.split()
        if name in run:
            flush()
            run = {}
        run[name] = [float(value) for value in values]
    flush()
    return blocks


def ratio(blocks, slow, fast):
    return statistics.median(block[slow] / block[fast] for block in blocks)


def interval(statistic, blocks, n=2000):
    rng = random.Random(1)
    values = sorted(statistic(rng.choices(blocks, k=len(blocks))) for _ in range(n))
    return values[n // 40], values[n - 1 - n // 40]


def best_of(blocks):
    return max((side for side in blocks[0] if side != "auto"), key=lambda side: ratio(blocks, "off", side))


def main():
    blocks = read(sys.argv[1])
    print(f"{len(blocks)} blocks; ratio to off, 95 % interval:")
    for side in blocks[0]:
        low, high = interval(lambda some, side=side: ratio(some, "off", side), blocks)
        print(f"  {side:5} {ratio(blocks, 'off', side):.3f}  {low:.3f}..{high:.3f}")
    best = best_of(blocks)
    low, high = interval(lambda some: ratio(some, best, "auto"), blocks)
    print(f"auto / best of all blocks ({best}): {ratio(blocks, best, 'auto'):.3f}  {low:.3f}..{high:.3f}")
    halves = blocks[::2], blocks[1::2]
    for chosen_on, compared_on in (halves, halves[::-1]):
        best = best_of(chosen_on)
        low, high = interval(lambda some, best=best: ratio(some, best, "auto"), compared_on)
        print(f"auto / best of the other half ({best}): {ratio(compared_on, best, 'auto'):.3f}  {low:.3f}..{high:.3f}")


main()
