"""An HTTP question over a channel of the same connection, asked while the script runs."""

from __future__ import annotations

from beamdeploy.endpoint import Answer, ask_over_channel
from beamdeploy.errors import HostError
from beamdeploy.remote import Looker

SECONDS = 5.0


def get(session: Looker, address: str, port: int, path: str) -> Answer:
    """What address:port, as seen from the host, answers to GET path; without status, why there is none."""
    try:
        return ask_over_channel(session, address, port, path, timeout=SECONDS)
    except HostError as error:
        return Answer(None, reason="; ".join(f"{p.what} ({p.remedy})" if p.remedy else p.what for p in error.problems))
