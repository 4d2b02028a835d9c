#!/usr/bin/env python3
"""How unevenly routers with random weights spread tokens over experts: docs/measurements/2026-11-30-routing-at-start.md. Needs numpy.

A decoder with Megatron-LM's initialisation (normal, 0.02; output projections divided by the root of twice the layers) reads the words of the
project's documentation, each word a token. Before each layer's MLP a router chooses experts. Printed: copies of the busiest rank over the
even number, mean over layers, and the exponent of Zipf's law with which a random order of experts gives the same.
"""

import re
from pathlib import Path

import numpy

DOCS = Path(__file__).resolve().parent.parent.parent / "docs"
HIDDEN, LAYERS, HEADS, SEQUENCE, BATCH, DEVIATION = 1024, 12, 16, 1024, 8, 0.02


def normalised(x):
    return x / numpy.sqrt((x**2).mean(-1, keepdims=True) + 1e-6)


def attention(queries, keys, values):
    width = HIDDEN // HEADS
    mask = numpy.triu(numpy.full((SEQUENCE, SEQUENCE), -1e9, "f4"), 1)
    out = numpy.empty_like(queries)
    for sequence in range(BATCH):
        for head in range(HEADS):
            part = slice(head * width, (head + 1) * width)
            scores = numpy.exp(queries[sequence, :, part] @ keys[sequence, :, part].T / width**0.5 + mask)
            out[sequence, :, part] = scores / scores.sum(1, keepdims=True) @ values[sequence, :, part]
    return out


def shares(experts, top_k, tokens, vocabulary, random):
    """[layer, expert]: share of all copies."""
    def weights(rows, columns, deviation=DEVIATION):
        return random.normal(0, deviation, (rows, columns)).astype("f4")

    output = DEVIATION / (2 * LAYERS) ** 0.5
    stream = weights(vocabulary, HIDDEN)[tokens].reshape(BATCH, SEQUENCE, HIDDEN)
    found = []
    for _ in range(LAYERS):
        hidden = normalised(stream)
        stream = stream + attention(*(hidden @ weights(HIDDEN, HIDDEN) for _ in range(3))) @ weights(HIDDEN, HIDDEN, output)
        hidden = normalised(stream)
        chosen = numpy.argpartition(-(hidden.reshape(-1, HIDDEN) @ weights(HIDDEN, experts)), top_k, axis=1)[:, :top_k]
        found.append(numpy.bincount(chosen.ravel(), minlength=experts) / chosen.size)
        stream = stream + numpy.maximum(hidden @ weights(HIDDEN, 4 * HIDDEN), 0) @ weights(4 * HIDDEN, HIDDEN, output)
    return numpy.array(found)


def busiest(share, ep):
    return share.reshape(ep, -1).sum(1).max() * ep


def exponent_of(factor, experts, ep, random):
    tried = numpy.arange(0, 1.5, 0.02)
    means = []
    for exponent in tried:
        zipf = numpy.arange(1, experts + 1) ** -exponent
        means.append(numpy.mean([busiest(random.permutation(zipf / zipf.sum()), ep) for _ in range(100)]))
    return float(numpy.interp(factor, means, tried))


def main():
    words = re.findall(r"[A-Za-z]+|[^\sA-Za-z]", " ".join(page.read_text(encoding="utf-8") for page in sorted(DOCS.glob("*.md"))))
    names, ids = numpy.unique(words, return_inverse=True)
    for experts, top_k in ((64, 6), (128, 8), (256, 8)):
        random = numpy.random.default_rng(0)
        begin = random.integers(0, len(ids) - SEQUENCE * BATCH)
        of_layer = shares(experts, top_k, ids[begin:begin + SEQUENCE * BATCH], len(names), random)
        for ep in (8, 16, 32, 64):
            factor = numpy.mean([busiest(share, ep) for share in of_layer])
            print(f"{experts} experts, top {top_k}, ep {ep}: {factor:.2f} (first layer {busiest(of_layer[0], ep):.2f}, last {busiest(of_layer[-1], ep):.2f}), "
                  f"exponent {exponent_of(factor, experts, ep, numpy.random.default_rng(1)):.2f}")


if __name__ == "__main__":
    main()
