"""A seeded fault campaign: what happens to a host when a change of its server is hit by a fault at any of its steps.

    python -m tests.chaos --seed 1 --all --jobs 2

Each trial begins with a deployment that serves, applies another one, injects one fault at one step, undoes the fault
(a filled disk, a dead daemon), and applies once more. Then the host must serve the wanted deployment or the previous
one: never two, never none when one could be served; what is none of ours is as it was; the lock is free.
"""

from __future__ import annotations
