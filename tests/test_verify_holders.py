"""Who may send: each to one at a time, and this machine only until a host has it."""

from __future__ import annotations

import threading
import time

from beamdeploy.weights.holders import HERE, Borrowed, Holders


def test_a_sender_is_free_again_when_its_host_is_done_and_the_host_sends_too() -> None:
    holders = Holders(["a"])
    sender = Borrowed(holders)
    assert (sender.take(), sender.take(), holders.free) == ("a", "a", [])
    sender.give_back("b")
    assert holders.free == ["b", "a"]


def test_this_machine_does_not_send_again_once_a_host_has_it() -> None:
    holders = Holders([HERE])
    sender = Borrowed(holders)
    sender.take()
    sender.give_back("a")
    assert holders.free == ["a"]


def test_after_a_failure_this_machine_sends_to_the_next() -> None:
    holders = Holders([HERE])
    sender = Borrowed(holders)
    sender.take()
    sender.give_back()
    assert holders.free == [HERE]


def test_eight_hosts_take_four_rounds_from_one_source() -> None:
    holders, second = Holders(["source"]), 0.5
    threads = [threading.Thread(target=_copy, args=(holders, f"host-{n}", second)) for n in range(8)]
    began = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert 4 * second <= time.monotonic() - began < 7.8 * second


def _copy(holders: Holders, name: str, seconds: float) -> None:
    sender = Borrowed(holders)
    sender.take()
    time.sleep(seconds)
    sender.give_back(name)
