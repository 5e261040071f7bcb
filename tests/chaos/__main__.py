"""`python -m tests.chaos --seed N --trials N [--seconds S]`: the campaign, and a line a trial."""

from __future__ import annotations

import argparse
import sys
from collections import Counter

from tests.chaos.campaign import Seen, campaign


def line(seen: Seen) -> str:
    """One trial as a line; what it said, too, where it broke a rule."""
    trial = seen.trial
    kind = "good" if trial.good else "bad"
    broken = "; ".join(seen.violations) or "ok"
    where = f"{trial.step} +{trial.delay}s" + ("" if seen.reached else " (not reached)")
    shown = f"{kind:5}{where:32}{trial.fault:28}{seen.exits!s:12}{seen.serves:8}{seen.seconds:6} s  {broken}"
    return shown + (f"\n{trial}\n{seen.said}" if seen.violations else "")


def summary(all_seen: tuple[Seen, ...]) -> str:
    """Trials, those that reached their step, violations, and how the runs that were hit ended."""
    exits = Counter(seen.exits[0] for seen in all_seen)
    reached = sum(seen.reached for seen in all_seen)
    violated = sum(bool(seen.violations) for seen in all_seen)
    ends = ", ".join(f"{count} × {code}" for code, count in sorted(exits.items()))
    return (
        f"{len(all_seen)} trials, {reached} at their step, {violated} with violations; the runs hit ended with {ends}"
    )


def main() -> int:
    """Words in, exit code out: 1 when a rule was broken."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description="a seeded fault campaign on a lab host")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--trials", type=int, default=105)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin no trial after so many seconds")
    asked = parser.parse_args()

    def told(seen: Seen) -> None:
        sys.stdout.write(line(seen) + "\n")
        sys.stdout.flush()

    found = campaign(asked.seed, asked.trials, told, asked.seconds)
    sys.stdout.write(f"seed {asked.seed}: {summary(found)}\n")
    return int(any(seen.violations for seen in found))


if __name__ == "__main__":
    sys.exit(main())
