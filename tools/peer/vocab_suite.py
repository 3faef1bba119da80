#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs llama.cpp's tokenizer tests on our program: models/ggml-vocab-*.gguf with their .inp (texts) and .out (ids).

Usage: tools/peer/vocab_suite.py LLAMA_CPP_SOURCE_TREE OUTRIDER_PROGRAM [NAME ...]
Every vocabulary that has texts must give the same ids, or be refused for its tokenizer model, by name. Files without
texts (and everything refused) must only load or refuse in one line. Exit code 1 on any difference.
"""
import pathlib
import re
import subprocess
import sys
import tempfile

SEPARATOR = b"\n__ggml_vocab_test__\n"
REFUSED = re.compile(r"^outrider: \S+: tokenizer\.ggml\.model is (bert|t5|rwkv|plamo2|hybriddna|whitespace), which is not supported \(supported: [^\n]*\)\n$")


def texts_of(path):
    texts = path.read_bytes().split(SEPARATOR)
    return texts if texts[-1] else texts[:-1]  # most files end with a separator


def ids_of(path):
    return [line.split() for line in path.read_text().splitlines()]


def tokenize(program, model, texts, folder):
    """One run of the program; one line of ids per text."""
    command = [program, "tokenize", str(model), "--no-special", "--ids"]
    for i, text in enumerate(texts):
        path = pathlib.Path(folder) / f"text{i}"
        path.write_bytes(text)
        command += ["-f", str(path)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300)


def check(program, model, folder):
    """Returns (what to print, number of differences)."""
    inp, out = (model.with_name(model.name + suffix) for suffix in (".inp", ".out"))
    texts = texts_of(inp) if inp.exists() else [b"Hello"]
    run = tokenize(program, model, texts, folder)
    if run.returncode != 0:
        refusal = REFUSED.match(run.stderr)
        return (f"refused: {refusal[1]}", 0) if refusal else (f"FAILED: {run.stderr.strip()}", 1)
    if not inp.exists():
        return "loads, no texts", 0
    wanted, got = ids_of(out), [line.split(",") if line else [] for line in run.stdout.splitlines()]
    if not len(texts) == len(wanted) == len(got):
        return f"FAILED: {len(texts)} texts, {len(wanted)} lines of ids wanted, {len(got)} given", 1
    differences = [f"\n  text {text!r}\n  want {' '.join(want)}\n  got  {' '.join(ids)}"
                   for text, want, ids in zip(texts, wanted, got) if want != ids]
    if differences:
        return f"FAILED: {len(differences)} of {len(texts)} texts differ" + "".join(differences), len(differences)
    return f"{len(texts)} texts, ids equal", 0


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    models = sorted(pathlib.Path(sys.argv[1], "models").glob("ggml-vocab-*.gguf"))
    names = sys.argv[3:]
    models = [model for model in models if not names or any(name in model.name for name in names)]
    if not models:
        sys.exit(f"{sys.argv[1]}/models: no ggml-vocab-*.gguf to run")
    n_differences = 0
    with tempfile.TemporaryDirectory() as folder:
        for model in models:
            told, n = check(sys.argv[2], model, folder)
            print(f"{model.name}: {told}", flush=True)
            n_differences += n
    sys.exit(1 if n_differences else 0)


main()
