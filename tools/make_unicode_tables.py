#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes src/outrider/text/unicode_tables.cc from the Unicode character database (Debian package unicode-data).

Usage: tools/make_unicode_tables.py [/usr/share/unicode] > src/outrider/text/unicode_tables.cc
Each run of code points of one class becomes one number, first code point << 8 | class bits (unicode.h), ascending.
"""
import sys

FOLDER = sys.argv[1] if len(sys.argv) > 1 else "/usr/share/unicode"
# The bits of outrider::text::CharClass, in its order.
LETTER, UPPER, LOWER, MARK, NUMBER, DIGIT, PUNCTUATION, SYMBOL = (1 << i for i in range(8))
CLASS = {"Lu": LETTER | UPPER, "Lt": LETTER | UPPER, "Ll": LETTER | LOWER, "Lm": LETTER, "Lo": LETTER,
         "Nd": NUMBER | DIGIT, "Nl": NUMBER, "No": NUMBER}
CLASS.update({name: MARK for name in ("Mn", "Mc", "Me")})
CLASS.update({name: PUNCTUATION for name in ("Pc", "Pd", "Ps", "Pe", "Pi", "Pf", "Po")})
CLASS.update({name: SYMBOL for name in ("Sm", "Sc", "Sk", "So")})
# What Unicode 15.1 added to 15.0 (ideograph extension I, description characters): the tokenizers' own engines know it.
ADDED = [(0x2EBF0, 0x2EE5D, LETTER), (0x2FFC, 0x2FFF, SYMBOL), (0x31EF, 0x31EF, SYMBOL)]


def lines(name):
    with open(f"{FOLDER}/{name}", encoding="utf-8") as file:
        for line in file:
            fields = [field.strip() for field in line.split("#")[0].split(";")]
            if len(fields) > 1:
                yield fields


def span(text):
    first, _, last = text.partition("..")
    return int(first, 16), int(last or first, 16)


def classes():
    table = bytearray(0x110000)
    start = None
    for fields in lines("UnicodeData.txt"):
        code = int(fields[0], 16)
        if fields[1].endswith(", First>"):
            start = code
            continue
        for i in range(code if start is None else start, code + 1):
            table[i] = CLASS.get(fields[2], 0)
        start = None
    for first, last, bits in ADDED:
        assert not any(table[first:last + 1]), "the database now has these itself: drop them from ADDED"
        table[first:last + 1] = bytes([bits]) * (last + 1 - first)
    return table


def emit(name, numbers, comment):
    print(f"\n// {comment}\nconst uint32_t {name}[] = {{")
    row = "   "
    for number in numbers:
        item = f" 0x{number:X},"
        if len(row) + len(item) > 118:
            print(row)
            row = "   "
        row += item
    print(row + "\n};")
    print(f"const size_t {name}Size = {len(numbers)};")


def merged(spans):
    result = []
    for first, last in sorted(spans):
        if result and result[-1][1] + 1 == first:
            result[-1][1] = last
        else:
            result.append([first, last])
    return [edge for pair in result for edge in pair]


def main():
    with open(f"{FOLDER}/ReadMe.txt", encoding="utf-8") as file:
        version = next(word for word in file.read().split() if word.startswith("15."))
    table = classes()
    starts = [i << 8 | table[i] for i in range(0x110000) if i == 0 or table[i] != table[i - 1]]
    print("// SPDX-License-Identifier: Apache-2.0")
    print(f"// Made by tools/make_unicode_tables.py from the Unicode character database {version.rstrip('.')}; do not edit.")
    print("// clang-format off")
    print('#include "outrider/text/unicode_tables.h"\n\nnamespace outrider::text::unicode {')
    emit("kClassStarts", starts, "first code point << 8 | CharClass bits")
    han = merged(span(f[0]) for f in lines("Scripts.txt") if f[1] == "Han")
    han_added = [edge for first, last, bits in ADDED if bits == LETTER for edge in (first, last)]
    emit("kHan", merged(list(zip(han[::2], han[1::2])) + list(zip(han_added[::2], han_added[1::2]))), "Script=Han: first, last, first, last, ...")
    spaces = [span(f[0]) for f in lines("PropList.txt") if f[1] == "White_Space"]
    emit("kWhiteSpace", merged(spaces), "White_Space: first, last, ...")
    print("\n}  // namespace outrider::text::unicode")


main()
