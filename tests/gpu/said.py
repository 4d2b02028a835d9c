"""What the programs of parts said: a file of xz streams, one for each part, whole each, so that a file which was cut off keeps the others."""

import lzma
import os
import re

OUTPUT = "output.txt.xz"
MAGIC = b"\xfd7zXZ\0"  # begins each stream (xz-file-format.txt, 2.1.1.1)
PIECE = 4096  # bytes given to the decompressor at a time: of a stream that is broken, what comes out before is kept
HEADING = re.compile(r"^(?===== \S+, \d{4}-)", re.MULTILINE)


def section(part, at, output):
    return f"==== {part}, {at}\n{output.rstrip()}\n"


def append(path, text):
    with open(path, "ab") as file:
        file.write(lzma.compress(text.encode("utf-8"), preset=1))


def text_of(stream):
    """What decompresses of one stream, and whether that is all of it."""
    decompressor, text = lzma.LZMADecompressor(), b""
    try:
        for begin in range(0, len(stream), PIECE):
            text += decompressor.decompress(stream[begin:begin + PIECE])
    except (lzma.LZMAError, EOFError):
        return text, False
    return text, decompressor.eof


def read(path):
    """The text of all streams that decompress, as far as they do, and whether all did; empty where there is no file."""
    try:
        streams = path.read_bytes().split(MAGIC)
    except OSError:
        return "", True
    found = [text_of(MAGIC + stream) for stream in streams[1:]]
    return b"".join(text for text, _ in found).decode("utf-8", "replace"), not streams[0] and all(whole for _, whole in found)


def write(path, text):
    """As one stream; whole or as it was before, whenever the program is stopped."""
    part = path.with_name(path.name + ".part")
    part.write_bytes(lzma.compress(text.encode("utf-8"), preset=6))
    os.replace(part, path)


def mend(path):
    """Takes a stream out that was cut off, behind which xz would find none."""
    text, whole = read(path)
    if not whole:
        write(path, text)


def union(one, other):
    """The sections of both texts, each once."""
    sections = dict.fromkeys(section for text in (one, other) for section in HEADING.split(text) if section.strip())
    return "".join(section.rstrip("\n") + "\n" for section in sections)
