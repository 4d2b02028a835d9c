"""Differences from Megatron-LM that are known (known_differences.json), so that a new one shows and one that is mended leaves the file.

Each entry has a kind, a pattern that its texts match, the reason, and how many there are at most. `stays` marks those that are no faults of
mgplan: they need not occur."""

import json
import re
from pathlib import Path

FILE = Path(__file__).with_name("known_differences.json")


class Known:
    def __init__(self, part):
        self.entries = json.loads(FILE.read_text())[part]
        self.counts = [0] * len(self.entries)

    def take(self, text):
        """Returns the entry that a difference belongs to, or None."""
        for index, entry in enumerate(self.entries):
            if re.search(entry["matches"], text):
                self.counts[index] += 1
                return entry
        return None

    def complaints(self):
        """Entries that hold no longer."""
        for entry, count in zip(self.entries, self.counts):
            if count > entry["most"]:
                yield f"{entry['kind']}: {count} in place of at most {entry['most']}"
            elif count == 0 and not entry.get("stays"):
                yield f"{entry['kind']} no longer occurs; take it out of {FILE.name}"


def judge(part, texts):
    """Returns (texts of no known kind and complaints, counts by kind)."""
    known = Known(part)
    new = [text for text in texts if known.take(text) is None]
    return new + list(known.complaints()), {entry["kind"]: count for entry, count in zip(known.entries, known.counts) if count}
