"""Rules on several nodes for one model."""

from __future__ import annotations

from collections.abc import Iterator

from beamdeploy.rules.rule import Finding, Rule, Subject


def _together(subject: Subject) -> Iterator[Finding]:
    """What several nodes need, and what is for them alone."""
    recipe = subject.recipe
    if recipe.engine.nodes > 1 and recipe.container.network != "host":
        what = f"engine.nodes: {recipe.engine.nodes} needs container.network: host"
        remedy = "Set container.network: host: ranks talk over the host's own interface."
        yield Finding("engine.nodes", what, remedy)
    if recipe.engine.nodes == 1 and recipe.container.network == "host":
        what = "container.network: host on one node takes the container's ports out of docker's hands"
        yield Finding("container.network", what, "Remove it: container.publish publishes the one port.")
    if recipe.engine.nodes == 1 and recipe.engine.rank_port is not None:
        what = "engine.rank_port is for several nodes, and engine.nodes is 1"
        yield Finding("engine.rank_port", what, "Remove it, or set engine.nodes.")


def _ports(subject: Subject) -> Iterator[Finding]:
    engine, recipe = subject.engine, subject.recipe
    if engine is None or not engine.rank_ports or recipe.engine.nodes == 1:
        return
    first = recipe.engine.rank_port or engine.rank_ports[0]
    taken = {first + port - engine.rank_ports[0] for port in engine.rank_ports}
    # TokenSpeed opens a control server beside the port that it serves
    own = {recipe.container.port, *((recipe.container.port + 1,) if engine.name == "tokenspeed" else ())}
    if taken & own:
        what = f"the ranks meet on {min(taken)} to {max(taken)}, where container.publish {recipe.container.port} is too"
        yield Finding("container.publish", what, "Choose another port, or another engine.rank_port.")


def _spread(subject: Subject) -> Iterator[Finding]:
    recipe, engine = subject.recipe, subject.engine
    nodes, replicas = recipe.engine.nodes, recipe.engine.data_parallel or 1
    if nodes == 1 or engine is None:
        return
    if not engine.rank_ports:
        what = f"engine.nodes: {nodes}: it is not known how {engine.name} serves on several nodes"
        yield Finding("engine.nodes", what, "Serve on one node, or use TokenSpeed, vLLM or SGLang.")
    elif engine.name == "sglang" and replicas > 1:
        what = f"engine.data_parallel: {replicas}: SGLang's replicas are on one node"
        remedy = "Leave it out; attn-dp-size in engine.args spreads attention inside tensor parallel."
        yield Finding("engine.data_parallel", what, remedy)
    elif engine.name == "vllm" and replicas > 1:
        yield from _replicas(subject, nodes, replicas)


def _replicas(subject: Subject, nodes: int, replicas: int) -> Iterator[Finding]:
    """vLLM's replicas each stay on their node."""
    engine = subject.recipe.engine
    one, count = engine.tensor_parallel * (engine.pipeline_parallel or 1), subject.recipe.hardware.count
    if replicas % nodes:
        what = f"engine.data_parallel: {replicas} is no multiple of engine.nodes: {nodes}"
        yield Finding("engine.data_parallel", what, f"Use a multiple of {nodes}: each node has as many replicas.")
    elif count % one:
        what = (
            f"a replica takes {one} GPUs, and a node has {count}: with data parallel vLLM's replicas stay on one node"
        )
        yield Finding("engine.data_parallel", what, "Leave engine.data_parallel out, or make replicas smaller.")


def _twice(subject: Subject) -> Iterator[Finding]:
    if subject.recipe.engine.nodes == 1:
        return
    for name in ("--dist-init-addr", "--data-parallel-address"):
        if subject.argument(name) is not None:
            key = next(key for key in subject.recipe.engine.args if f"--{key}" == name or _is(subject, key, name))
            what = f"engine.args.{key} is passed to each rank by beamdeploy, from the inventory"
            yield Finding(("engine", "args", key), what, "Remove it.", key=True)


def _is(subject: Subject, key: str, name: str) -> bool:
    flag = subject.flag(f"--{key}")
    return flag is not None and flag.name == name


def _control(subject: Subject) -> Iterator[Finding]:
    recipe = subject.recipe
    if recipe.engine.name != "tokenspeed" or recipe.engine.nodes == 1 or recipe.container.address.startswith("127."):
        return
    what = (
        f"on the host's network TokenSpeed's control server listens on {recipe.container.address}:"
        f"{recipe.container.port + 1} as well, and it asks for no key"
    )
    yield Finding("container.publish", what, "Publish on 127.0.0.1, and put a proxy or beamdeploy tunnel before it.")


RULES = (
    Rule(
        "BD390",
        "Several nodes and the host's network belong together",
        "error",
        "NCCL and the engine open ports by themselves and tell the other ranks where they are: that cannot pass a "
        "published port. On one node docker publishes the one port, and nothing else is open.",
        "engine:\n  nodes: 2  # <-\ncontainer:\n  publish: 127.0.0.1:8000",
        "engine:\n  nodes: 2\ncontainer:\n  publish: 127.0.0.1:8000\n  network: host",
        "TokenSpeed 0.1.1 runtime/utils/server_args.py:3570; SGLang 0.5.23 srt/server_args.py:843",
        _together,
    ),
    Rule(
        "BD391",
        "The ranks' ports and the served port are the same",
        "error",
        "On the host's network all ports of the engine lie beside each other.",
        "engine:\n  nodes: 2\n  rank_port: 8000  # the ranks meet where it serves\ncontainer:\n  publish: "
        "127.0.0.1:8000  # <-\n  network: host",
        "engine:\n  nodes: 2\n  rank_port: 23456\ncontainer:\n  publish: 127.0.0.1:8000\n  network: host",
        "TokenSpeed 0.1.1 cli/serve_smg.py:724, runtime/utils/server_args.py:3570",
        _ports,
    ),
    Rule(
        "BD392",
        "The model cannot be spread over nodes in this way",
        "error",
        "SGLang's replicas are on one node; vLLM's each stay on a node, and every node has as many. Other servers are "
        "not known to serve on several nodes.",
        "engine:\n  name: sglang\n  nodes: 2\n  tensor_parallel: 4\n  data_parallel: 2  # <-",
        "engine:\n  name: sglang\n  nodes: 2\n  tensor_parallel: 8",
        "SGLang 0.5.23 arg_groups/validation_hook.py:180, 200; vLLM 0.33.0 engine/arg_utils.py:2390",
        _spread,
    ),
    Rule(
        "BD393",
        "The address of the head is given twice",
        "error",
        "With several nodes each rank gets the head's address from the inventory.",
        "engine:\n  nodes: 2\n  args:\n    dist-init-addr: 10.0.0.5:23456  # <-",
        "engine:\n  nodes: 2\n  rank_port: 23456",
        "",
        _twice,
    ),
    Rule(
        "BD394",
        "TokenSpeed's control server would be open",
        "error",
        "It listens beside the served port, on the same address, takes commands, and asks for no key. On one node it "
        "stays in the container.",
        "engine:\n  nodes: 2\ncontainer:\n  publish: 10.0.0.5:8000  # <-\n  network: host",
        "engine:\n  nodes: 2\ncontainer:\n  publish: 127.0.0.1:8000\n  network: host",
        "TokenSpeed 0.1.1 cli/serve_smg.py:724, runtime/entrypoints/control_server.py:547",
        _control,
    ),
)
