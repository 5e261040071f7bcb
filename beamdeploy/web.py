"""Questions over HTTP(S) from this machine to registries and hubs: proxies, redirects and limits in one place."""

from __future__ import annotations

import http.client
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, field
from email.message import Message
from typing import IO, Any
from urllib.parse import urlsplit

TIMEOUT = 20
TRIES = 3
MOST_BYTES = 64 * 1024 * 1024
_LONGEST_WAIT = 20


@dataclass(frozen=True)
class Reply:
    """What came back. `status` None: nothing did, for this `reason`. Header names are lower case."""

    url: str
    status: int | None
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    reason: str = ""

    @property
    def ok(self) -> bool:
        return self.status == 200


def ask(
    url: str,
    *,
    headers: Mapping[str, str] | None = None,
    authorization: str | None = None,
    form: bytes | None = None,
    timeout: float = TIMEOUT,
) -> Reply:
    """GET `url`, or POST `form`. Asked again when the server is busy (429, 503) and says for how long, or drops us.

    `authorization` goes to the host of `url` only: storage that it redirects to has signed addresses, and no right
    to see it. `$https_proxy` and its like are obeyed.
    """
    for left in reversed(range(TRIES)):
        reply = _once(url, headers or {}, authorization, form, timeout)
        wait = _wait(reply)
        if wait is None or not left:
            return reply
        time.sleep(wait)
    raise AssertionError("the last try returns")


def _once(url: str, headers: Mapping[str, str], authorization: str | None, form: bytes | None, timeout: float) -> Reply:
    request = urllib.request.Request(url, data=form, headers={"User-Agent": "beamdeploy", **headers})
    if authorization:
        request.add_unredirected_header("Authorization", authorization)
    try:
        with urllib.request.build_opener(_Redirects(authorization)).open(request, timeout=timeout) as response:
            return _reply(url, response.status, response.headers, response)
    except urllib.error.HTTPError as error:
        with error:
            return _reply(url, error.code, error.headers, error)
    except urllib.error.URLError as error:
        return Reply(url, None, reason=_why(url, error.reason))
    except UnicodeError:  # a part of it is empty or has more than 63 letters
        return Reply(url, None, reason=f"{urlsplit(url).hostname!r} is no host name")
    except (OSError, http.client.HTTPException) as error:
        return Reply(url, None, reason=_why(url, error))


def _reply(url: str, status: int, headers: Message, body: IO[bytes] | Any) -> Reply:
    held = body.read(MOST_BYTES + 1)
    if len(held) > MOST_BYTES:
        return Reply(url, None, reason=f"the answer is longer than {MOST_BYTES} bytes")
    return Reply(url, status, {name.lower(): value for name, value in headers.items()}, held)


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Follows redirects with the authorization only while they stay on the host that it is for."""

    def __init__(self, authorization: str | None) -> None:
        self._authorization = authorization

    def redirect_request(
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: Any, newurl: str
    ) -> urllib.request.Request | None:
        following = super().redirect_request(req, fp, code, msg, headers, newurl)
        old, new = urlsplit(req.full_url), urlsplit(newurl)
        if following is not None and self._authorization and (old.scheme, old.netloc) == (new.scheme, new.netloc):
            following.add_unredirected_header("Authorization", self._authorization)
        return following


def _wait(reply: Reply) -> float | None:
    """Seconds until it is worth to ask again; None: it is not."""
    if reply.status is None:
        return 0.5 if "reset" in reply.reason or "closed connection" in reply.reason else None
    if reply.status not in (429, 502, 503, 504):
        return None
    said = reply.headers.get("retry-after", "1")
    seconds = int(said) if said.isascii() and said.isdigit() else 1
    return seconds if seconds <= _LONGEST_WAIT else None


def _why(url: str, error: object) -> str:
    parts = urlsplit(url)
    proxy = urllib.request.getproxies().get(parts.scheme)
    bypassed = proxy is None or urllib.request.proxy_bypass(parts.hostname or "")
    way = "" if bypassed else f" (through the proxy {urlsplit(str(proxy)).hostname or proxy})"
    said = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return f"{said}{way}"
