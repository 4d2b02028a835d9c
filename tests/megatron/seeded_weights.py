"""Weights by a rule, in a checkpoint of mgplan: a run that resumes from it begins with them, and so does Megatron-LM (training.py).

Values depend on a parameter's name and size alone, so nothing needs to be stored. docs/checkpoints.md describes the files.
"""

import array
import functools
import json
import random
from pathlib import Path

# Centre and half width of the values, by a part of the name. Norms and biases differ from their usual start, at which errors would not show.
RANGES = (("norm", 1, 0.3), ("expert_bias", 0, 0.05), ("A_log", 0.5, 0.5), ("dt_bias", 0, 0.5), ("conv1d", 0, 1), ("router", 0, 0.3), ("", 0, 0.1))


def values(name, count, typecode):
    """As fp32, in fp64 too ("d")."""
    centre, width = next((centre, width) for part, centre, width in RANGES if part in name)
    draw = random.Random(name).random
    return array.array(typecode, array.array("f", (centre + width * (2 * draw() - 1) for _ in range(count))))


@functools.cache
def remainders():
    """CRC-32C of each byte."""
    table = []
    for value in range(256):
        for _ in range(8):
            value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
        table.append(value)
    return table


def crc32c(data):
    value, table = 0xFFFFFFFF, remainders()
    for byte in data:
        value = table[(value ^ byte) & 255] ^ value >> 8
    return f"{value ^ 0xFFFFFFFF:08x}"


@functools.cache
def crc32c_of_zeros(count):
    return crc32c(bytes(count))


def split(data):
    """Length field with header, the header's JSON, the values."""
    end = 8 + int.from_bytes(data[:8], "little")
    return data[:end], json.loads(data[8:end]), data[end:]


def parameter_of(tensor):
    """Tensors are called "NAME/main[0:64]", biases of experts "NAME[0:8]"."""
    return tensor.partition("/")[0].partition("[")[0]


def fill(folder):
    """Puts the weights into the checkpoint of one rank in `folder` and takes the optimizer back to its start. Returns the file with the tensors."""
    path, manifest_path = next(Path(folder).glob("*/rank-00000.safetensors")), next(Path(folder).glob("*/manifest.json"))
    head, header, body = split(path.read_bytes())
    places, body = header.pop("__metadata__"), bytearray(body)
    for tensor, entry in header.items():
        begin, end = entry["data_offsets"]
        if "/exp_avg" in tensor:
            new, checksum = bytes(end - begin), crc32c_of_zeros(end - begin)
        else:
            new = values(parameter_of(tensor), entry["shape"][0], {"F32": "f", "F64": "d"}[entry["dtype"]]).tobytes()
            checksum = crc32c(new)
        body[begin:end] = new
        head = head.replace(f"{tensor}\":\"{places[tensor]}".encode(), f"{tensor}\":\"{places[tensor][:-8]}{checksum}".encode())
    path.write_bytes(head + body)
    manifest = json.loads(manifest_path.read_text())
    manifest |= {"updates": 0, "files": [manifest["files"][0] | {"header_crc32c": crc32c(head)}]}
    manifest.pop("crc32c")
    manifest["crc32c"] = crc32c(json.dumps(manifest, separators=(",", ":")).encode())
    manifest_path.write_text(json.dumps(manifest, indent=1))
    return path


def read(path):
    """Yields (name of the parameter, bytes of its fp32 values, its place: {"rows", "columns", "axis", "stride", "blocks", …})."""
    _, header, body = split(Path(path).read_bytes())
    places = header.pop("__metadata__")
    for tensor, entry in header.items():
        if "/exp_avg" not in tensor:
            begin, end = entry["data_offsets"]
            yield parameter_of(tensor), body[begin:end], dict(word.split("=") for word in places[tensor].split())
