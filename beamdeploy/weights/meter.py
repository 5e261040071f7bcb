"""How far a long transfer or hashing is, in words."""

from __future__ import annotations

from beamdeploy.weights.staging import human


def progress(done: int, total: int, seconds: float, started_at: int = 0) -> str:
    """ "12.0 GiB of 295.0 GiB, 1.1 GiB/s, 4:12 left". `started_at`: bytes that were there before the clock ran."""
    text = f"{human(done)} of {human(total)}"
    if seconds < 0.5 or done <= started_at:
        return text
    rate = (done - started_at) / seconds
    minutes, left = divmod(int((total - done) / rate), 60)
    hours, minutes = divmod(minutes, 60)
    clock = f"{hours}:{minutes:02}:{left:02}" if hours else f"{minutes}:{left:02}"
    return f"{text}, {human(int(rate))}/s, {clock} left"
