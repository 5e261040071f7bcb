"""`python -m tests.chaos --seed N [--trials N] [--jobs N]`: the campaign, a line a trial, and a table by fault."""

from __future__ import annotations

import argparse
import sys
from collections import Counter

from tests.chaos.campaign import PAIRS, Seen, campaign, trials
from tests.chaos.faults import FAULTS


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


def table(all_seen: tuple[Seen, ...]) -> str:
    """Of each fault: its trials, those at their step, those with violations, and how the runs that were hit ended."""
    form = "{:28}{:>8}{:>13}{:>12}  {}"
    rows = [form.format("fault", "trials", "at the step", "violations", "runs that were hit ended with")]
    for fault in FAULTS:
        seen = [each for each in all_seen if each.trial.fault == fault]
        exits = Counter(each.exits[0] for each in seen)
        ends = ", ".join(f"{count} × {code}" for code, count in sorted(exits.items()))
        reached, violated = sum(each.reached for each in seen), sum(bool(each.violations) for each in seen)
        rows.append(form.format(fault, len(seen), reached, violated, ends))
    return "\n".join(rows)


def main() -> int:
    """Words in, exit code out: 1 when a rule was broken."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description="a seeded fault campaign on a lab host")
    parser.add_argument("--seed", type=int, default=1)
    many = parser.add_mutually_exclusive_group()
    many.add_argument("--trials", type=int, default=len(PAIRS), help="so many; without it as --all")
    many.add_argument("--all", action="store_true", help=f"every step with every fault once: {len(PAIRS)} trials")
    parser.add_argument("--jobs", type=int, default=1, help="side by side, each on a lab of its own")
    parser.add_argument("--step", help="only the trials at this step")
    parser.add_argument("--fault", help="only the trials with this fault")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin no trial after so many seconds")
    asked = parser.parse_args()

    def told(seen: Seen) -> None:
        sys.stdout.write(line(seen) + "\n")
        sys.stdout.flush()

    planned = [
        trial
        for trial in trials(asked.seed, asked.trials)
        if asked.step in (None, trial.step) and asked.fault in (None, trial.fault)
    ]
    found = campaign(planned, told, asked.seconds, asked.jobs)
    sys.stdout.write(f"{table(found)}\nseed {asked.seed}: {summary(found)}\n")
    return int(any(seen.violations for seen in found))


if __name__ == "__main__":
    sys.exit(main())
