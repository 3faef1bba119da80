#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the tables of docs/policies.md: records traces of a model on a text and on prompts, adds synthetic ones, and
replays all of them with every policy. Usage: tools/policy_tables.py MODEL TEXT [FOLDER]; prints Markdown."""
import json
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
PROGRAM = ROOT / "build/release/bin/outrider"
SLOTS = [8, 12, 16, 24, 32, 48]
PROMPTS = ["The mount system call attaches the filesystem specified by source to the location",
           "NAME\n       grep, egrep - print lines that match patterns",
           "Signals are delivered to a process when", "To install a package, the user"]
# Geometry and habits of traces that no model here makes.
SYNTHETIC = [("flat 128x8, no habits", "--layers 4 --experts 128 --used 8 --tokens 2000 --zipf 0.3 --recency 0.05 --topic-share 0"),
             ("skewed 128x8", "--layers 4 --experts 128 --used 8 --tokens 2000 --zipf 1.1 --recency 0.2 --topic-share 0.3 --topic-tokens 256"),
             ("short topics 128x8", "--layers 4 --experts 128 --used 8 --tokens 2000 --zipf 1.1 --recency 0.2 --topic-share 0.9 --topic-tokens 40")]


def outrider(*args):
    return subprocess.run([PROGRAM, *map(str, args)], check=True, capture_output=True, text=True).stdout


def record(folder, name, model, *args):
    path = folder / f"{name}.trace"
    outrider("run", model, "--expert-cache", "100%", "--lookahead", "off", "--no-warm", "--evict", "lru", "--no-progress", "-q",
             "--trace", path, "--ids", *args)
    return path


def table(title, traces, slots):
    misses = {}
    for path in traces:
        out = json.loads(outrider("simulate", path, "--cache", ",".join(f"{n}s" for n in slots), "--policy", "all", "--horizon", 8, "--json"))
        for row in out["results"]:
            entry = misses.setdefault(row["policy"], {}).setdefault(row["slots_per_layer"], [0, 0])
            entry[0] += row["misses"]
            entry[1] += row["demanded"]
    print(f"**{title}**\n\n| policy |" + "".join(f" {n} slots |" for n in slots) + " misses over Belady's |\n|---|" + "---|" * (len(slots) + 1))
    for policy, by_slots in misses.items():
        ratio = sum(by_slots[n][0] / misses["belady"][n][0] for n in slots) / len(slots)
        print(f"| {policy} |" + "".join(f" {100 * by_slots[n][0] / by_slots[n][1]:.1f} % |" for n in slots) + f" {ratio:.3f} |")
    print()


def main():
    model, text = sys.argv[1], pathlib.Path(sys.argv[2]).read_text()
    folder = pathlib.Path(sys.argv[3] if len(sys.argv) > 3 else tempfile.mkdtemp())
    folder.mkdir(parents=True, exist_ok=True)
    texts, generated, chats = [], [], []
    for i in range(4):  # a token a pass, as decoding would see this text
        (folder / f"text{i}.txt").write_text(text[i * 8000:i * 8000 + 3500])
        texts.append(record(folder, f"text{i}", model, "-f", folder / f"text{i}.txt", "--chunk", 1, "-n", 1))
    for i, prompt in enumerate(PROMPTS):
        generated.append(record(folder, f"generated{i}", model, "-p", prompt, "-n", 400, "--temp", 0.8, "--seed", i, "--ignore-eos"))
    for i in range(2):  # a long prompt in one pass, then an answer
        (folder / f"chat{i}.txt").write_text(text[i * 8000 + 4000:i * 8000 + 6200])
        chats.append(record(folder, f"chat{i}", model, "-f", folder / f"chat{i}.txt", "-n", 300, "--temp", 0.8, "--seed", i, "--ignore-eos"))
    table("Text, a token a pass (4 traces)", texts, SLOTS)
    table("Generated from short prompts (4 traces)", generated, SLOTS)
    table("Long prompt in one pass, then 300 tokens (2 traces)", chats, SLOTS)
    for i, (title, spec) in enumerate(SYNTHETIC):
        path = folder / f"synthetic{i}.trace"
        outrider("synth-trace", path, "--seed", 5, *spec.split())
        table(f"Synthetic: {title} (`synth-trace {spec}`)", [path], [2 * n for n in SLOTS])


if __name__ == "__main__":
    main()
