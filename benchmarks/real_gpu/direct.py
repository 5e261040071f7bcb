"""The load of `beamdeploy bench`, made without beamdeploy's way to the server: plain HTTP on loopback, one at a time.

    python direct.py PORT MODEL WORDS OUTPUT REQUESTS [FIELD=JSON …]

Prints the median seconds to the first text and of the whole request, and the tokens, as one JSON object. Only the
standard library is used. WORDS is how many words `bench` found to make its input; prompts are its own.
"""

from __future__ import annotations

import http.client
import json
import random
import sys
import time
from statistics import median
from typing import Any

LISTED = (
    "river", "stone", "window", "garden", "letter", "market", "silver", "morning",
    "bridge", "winter", "number", "corner", "planet", "engine", "harbor", "paper",
    "forest", "signal", "castle", "shadow", "summer", "candle", "mirror", "desert",
    "island", "thunder", "village", "copper", "meadow", "anchor",
)  # fmt: skip


def prompt(words: int, number: int) -> str:
    """As bench makes it."""
    chosen = random.Random(number)
    return f"Text {number}: " + " ".join(chosen.choice(LISTED) for _ in range(words))


def one(port: int, body: dict[str, Any]) -> tuple[float, float, int]:
    """Seconds to the first text, seconds in all, tokens by the server's count."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=600)
    began = time.monotonic()
    connection.request("POST", "/v1/chat/completions", json.dumps(body), {"Content-Type": "application/json"})
    answer, first, tokens = connection.getresponse(), 0.0, 0
    for line in answer:
        if not line.startswith(b"data: {"):
            continue
        event = json.loads(line[6:])
        choice = (event.get("choices") or [{}])[0]
        if not first and choice.get("delta", {}).get("content"):
            first = time.monotonic() - began
        tokens = (event.get("usage") or {}).get("completion_tokens", tokens)
    seconds = time.monotonic() - began
    connection.close()
    return first, seconds, tokens


def main() -> None:
    """Make the requests, tell what came."""
    port, model, words, output, count, *more = sys.argv[1:]
    extra = {key: json.loads(value) for key, _, value in (word.partition("=") for word in more)}
    options = {"model": model, "max_tokens": int(output), "stream": True, "stream_options": {"include_usage": True}}
    told = [
        one(
            int(port),
            {"messages": [{"role": "user", "content": prompt(int(words), 1_000_000 + number)}], **options, **extra},
        )
        for number in range(int(count))
    ]
    summary = {
        "first_p50": median(each[0] for each in told),
        "latency_p50": median(each[1] for each in told),
        "tokens": [each[2] for each in told],
    }
    sys.stdout.write(json.dumps(summary) + "\n")


if __name__ == "__main__":
    main()
