"""Ready-made client settings for what a recipe serves, with the recipe's sampling and template options."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Mapping
from pprint import pformat

from beamdeploy.apikey import client_variable
from beamdeploy.inventory import Host
from beamdeploy.served import Served

_OF_THE_SDK = ("temperature", "top_p", "max_tokens", "seed", "reasoning_effort")
"""What the OpenAI SDK takes as arguments; all else goes into extra_body."""
_HELLO = "Say hello in one short sentence."


def base_url(served: Served, host: Host | None = None) -> str:
    """Where a tunnel puts it, unless that port is taken; on the host itself where its port is open to others."""
    published = served.recipe.container
    if host is None or published.address.strip("[]") == "::1" or published.address.startswith("127."):
        return f"http://127.0.0.1:{published.port}/v1"
    own = published.address not in ("0.0.0.0", "[::]", "::")
    address = (published.address if own else host.address or host.name).strip("[]")
    return f"http://{f'[{address}]' if ':' in address else address}:{published.port}/v1"


def settings(served: Served, form: str, url: str) -> str:
    """The settings in one of FORMS."""
    return FORMS[form](served, url)


def as_env(served: Served, url: str) -> str:
    """Variables that the OpenAI SDKs and many tools read, which want a key even where the server asks for none."""
    held = client_variable(served.recipe.source)
    values = {
        "OPENAI_BASE_URL": shlex.quote(url),
        "OPENAI_API_KEY": f'"${held}"' if held else "EMPTY",
        "OPENAI_MODEL": shlex.quote(served.model),
        "OPENAI_EXTRA_BODY": shlex.quote(json.dumps(served.request, separators=(",", ":"))),
    }
    return "\n".join(f"export {name}={value}" for name, value in values.items())


def as_curl(served: Served, url: str) -> str:
    """One command."""
    body = {"model": served.model, "messages": [{"role": "user", "content": _HELLO}], **served.request}
    words = ("curl", "--silent", f"{url}/chat/completions", "--header", "Content-Type: application/json")
    held = client_variable(served.recipe.source)
    # the shell puts it in: the key is in no file, and for a moment among the processes of the user's own machine
    key = f' --header "Authorization: Bearer ${held}"' if held else ""
    return shlex.join((*words, "--data", json.dumps(body))) + key


def as_python(served: Served, url: str) -> str:
    """Python without any package."""
    body = {"model": served.model, "messages": [{"role": "user", "content": _HELLO}], **served.request}
    held = client_variable(served.recipe.source)
    key = f', "Authorization": "Bearer " + os.environ[{held!r}]' if held else ""
    return f"""import json{chr(10) + "import os" if held else ""}
import urllib.request

body = {_literal(body)}
headers = {{"Content-Type": "application/json"{key}}}
request = urllib.request.Request({url + "/chat/completions"!r}, json.dumps(body).encode(), headers)
with urllib.request.urlopen(request) as response:
    message = json.load(response)["choices"][0]["message"]
print(message["content"])"""


def as_openai(served: Served, url: str) -> str:
    """Python with the `openai` package: a first turn, and how a second one carries the reasoning back."""
    arguments = {key: value for key, value in served.request.items() if key in _OF_THE_SDK}
    extra = {key: value for key, value in served.request.items() if key not in _OF_THE_SDK}
    options = {**arguments, **({"extra_body": extra} if extra else {})}
    held = client_variable(served.recipe.source)
    return f"""{"import os" + chr(10) * 2 if held else ""}from openai import OpenAI

client = OpenAI(base_url={url!r}, api_key={f"os.environ[{held!r}]" if held else '"EMPTY"'})
options = {_literal(options)}
messages = [{{"role": "user", "content": {_HELLO!r}}}]
answer = client.chat.completions.create(model={served.model!r}, messages=messages, **options)
message = answer.choices[0].message
print(message.content){_carried(served)}"""


def _carried(served: Served) -> str:
    if not served.recipe.parsers.reasoning:
        return ""
    field = served.engine.reasoning_field
    return f"""

# the next turn carries the reasoning of this one: without it the model answers worse, or refuses
reasoning = getattr(message, {field!r}, None)
messages.append({{"role": "assistant", "content": message.content, {field!r}: reasoning}})
messages.append({{"role": "user", "content": "Say it in French."}})
answer = client.chat.completions.create(model={served.model!r}, messages=messages, **options)
print(answer.choices[0].message.content)"""


def _literal(value: Mapping[str, object]) -> str:
    return pformat(dict(value), width=100, sort_dicts=False)


FORMS: Mapping[str, Callable[[Served, str], str]] = {
    "env": as_env,
    "curl": as_curl,
    "python": as_python,
    "openai": as_openai,
}
