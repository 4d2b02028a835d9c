#!/usr/bin/env python3
"""Packs the inputs of a reader's fuzzer into one file and back: corpus.py pack FOLDER FILE | corpus.py unpack FILE FOLDER

The file has a line "=== NAME" in front of each input, which then stands as it is, with one line end more; an input that is no text, or has
such a line itself, stands in hexadecimal digits behind "=== NAME hex". The names are those of the files in the folder.
"""
import os
import sys
import textwrap

MARK = b"=== "


def packed(name, content):
    """One input with its heading."""
    plain = b"\n" + MARK not in b"\n" + content and b"\r" not in content
    try:
        content.decode()
    except UnicodeDecodeError:
        plain = False
    if plain and b"\0" not in content:
        return MARK + name.encode() + b"\n" + content + b"\n"
    digits = "\n".join(textwrap.wrap(content.hex(), 120))
    return MARK + name.encode() + b" hex\n" + digits.encode() + b"\n"


def unpacked(text):
    """{name: content} of a packed file."""
    inputs = {}
    for part in (b"\n" + text).split(b"\n" + MARK)[1:]:
        heading, _, content = part.partition(b"\n")
        name, _, form = heading.decode().partition(" ")
        # The line end that the packing added stands in front of the next heading, or at the end.
        inputs[name] = bytes.fromhex(content.decode()) if form == "hex" else content
    last = next(reversed(inputs), None)
    if last is not None and inputs[last].endswith(b"\n"):
        inputs[last] = inputs[last][:-1]
    return inputs


def main():
    if len(sys.argv) != 4 or sys.argv[1] not in ("pack", "unpack"):
        sys.exit(__doc__)
    source, target = sys.argv[2:]
    if sys.argv[1] == "pack":
        with open(target, "wb") as file:
            for name in sorted(os.listdir(source)):
                with open(os.path.join(source, name), "rb") as one:
                    file.write(packed(name, one.read()))
        return
    os.makedirs(target, exist_ok=True)
    with open(source, "rb") as file:
        inputs = unpacked(file.read())
    for name, content in inputs.items():
        with open(os.path.join(target, name), "wb") as one:
            one.write(content)


if __name__ == "__main__":
    main()
