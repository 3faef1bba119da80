#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes src/outrider/numerics/iq_grids.cc: the codebooks of the IQ1, IQ2 and IQ3 formats, as data.

usage: make_iq_grids.py QUANTS_PY OUT_CC

QUANTS_PY is gguf-py/gguf/quants.py of ggml-org/llama.cpp, where each grid is a string of hexadecimal digits. It is parsed,
not run. One entry is two bytes: 8 symbols of 2 bits, or 4 symbols of 4 bits, lowest bits first.
"""
import ast
import hashlib
import sys

# class in quants.py, our name, entries, elements of an entry
GRIDS = [
    ("IQ2_XXS", "iq2_xxs", 256, 8),
    ("IQ2_XS", "iq2_xs", 512, 8),
    ("IQ2_S", "iq2_s", 1024, 8),
    ("IQ3_XXS", "iq3_xxs", 256, 4),
    ("IQ3_S", "iq3_s", 512, 4),
    ("IQ1_S", "iq1", 2048, 8),
]

HEADER = """// SPDX-License-Identifier: Apache-2.0
// Made by tools/make_iq_grids.py; do not edit. The symbols of the grids are data of ggml-org/llama.cpp
// (gguf-py/gguf/quants.py, sha256 {digest}),
// Copyright (c) 2023-2026 The ggml authors, MIT licence: docs/licenses/ggml-MIT.txt.
#include "outrider/numerics/iq_grids.h"

namespace outrider::numerics {{
namespace {{

// One entry is a u16: kWidth symbols of 16 / kWidth bits, element 0 in the lowest bits, each an index into `levels`.
template <typename OutGrid, size_t kEntries, size_t kLevels>
constexpr OutGrid expand(const uint16_t (&symbols)[kEntries], const int8_t (&levels)[kLevels]) {{
  OutGrid grid{{}};
  constexpr size_t kWidth = grid.front().size();
  constexpr uint32_t kBits = 16 / kWidth;
  for (size_t entry = 0; entry < kEntries; ++entry) {{
    for (size_t i = 0; i < kWidth; ++i) {{
      grid[entry][i] = levels[(symbols[entry] >> (kBits * i)) & ((1U << kBits) - 1)];
    }}
  }}
  return grid;
}}

// The 8 symbols of an entry in nibbles; entries from 2048 on have 4 added to each.
constexpr std::array<uint32_t, 4096> spread(const uint16_t (&symbols)[2048]) {{
  std::array<uint32_t, 4096> codes{{}};
  for (size_t entry = 0; entry < 2048; ++entry) {{
    for (uint32_t i = 0; i < 8; ++i) codes[entry] |= ((symbols[entry] >> (2 * i)) & 3U) << (4 * i);
    codes[2048 + entry] = codes[entry] | 0x44444444U;
  }}
  return codes;
}}
"""


def class_fields(tree, name):
    node = next(n for n in tree.body if isinstance(n, ast.ClassDef) and n.name == name)
    fields = {}
    for item in node.body:
        if isinstance(item, ast.Assign) and item.targets[0].id in ("grid_shape", "grid_map", "grid_hex"):
            fields[item.targets[0].id] = ast.literal_eval(item.value)
    return fields


def main():
    source, out = sys.argv[1:]
    with open(source, "rb") as file:
        text = file.read()
    tree = ast.parse(text)
    lines = [HEADER.format(digest=hashlib.sha256(text).hexdigest())]
    definitions = []
    for class_name, name, entries, width in GRIDS:
        fields = class_fields(tree, class_name)
        assert fields["grid_shape"] == (entries, width), class_name
        data = bytes.fromhex(fields["grid_hex"].decode())
        assert len(data) == 2 * entries, class_name
        symbols = [data[2 * i] | data[2 * i + 1] << 8 for i in range(entries)]
        assert symbols == sorted(set(symbols)), class_name
        levels = ", ".join(str(v) for v in fields["grid_map"])
        camel = "".join(part.capitalize() for part in name.split("_"))
        lines.append(f"constexpr int8_t k{camel}Levels[] = {{{levels}}};")
        lines.append(f"constexpr uint16_t k{camel}Symbols[{entries}] = {{")
        for start in range(0, entries, 14):
            lines.append("    " + " ".join(f"0x{s:04x}," for s in symbols[start:start + 14]))
        lines.append("};\n")
        kinds = [("Grid", "Grid")] if name == "iq1" else [("Grid", "Grid"), ("FloatGrid", "Floats")]
        for kind, suffix in kinds:
            grid = f"{kind}<{entries}, {width}>"
            definitions.append(f"constinit const {grid} k{camel}{suffix} = expand<{grid}>(k{camel}Symbols, k{camel}Levels);")
    definitions.append("constinit const std::array<uint32_t, 4096> kIq1Codes = spread(kIq1Symbols);")
    lines += ["}  // namespace", ""] + definitions + ["", "}  // namespace outrider::numerics", ""]
    with open(out, "w", encoding="ascii") as file:
        file.write("\n".join(lines))


if __name__ == "__main__":
    main()
