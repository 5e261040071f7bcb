"""Which commands there are, as data: `--help` lists them and imports none."""

from __future__ import annotations

from collections.abc import Mapping

SECTIONS: Mapping[str, Mapping[str, tuple[str, str]]] = {
    "Check, without a server": {
        "validate": ("validate", "Check recipes, inventories and locks; say everything that is wrong."),
        "explain": ("explain", "Say why a rule is a rule, with a bad and a good example."),
        "render": ("render", "Print the docker run command of a recipe."),
        "schema": ("schema", "Print the JSON Schema of recipes, inventories, locks or reports."),
        "import": ("import_", "Make a recipe of a docker run, a compose file or vLLM's YAML that is there already."),
        "recipes": ("recipes", "List, show and copy the recipes that come with beamdeploy."),
        "init": ("init", "Write a recipe and an inventory to begin with."),
        "completion": ("completion", "Print what makes bash, zsh or fish complete words."),
    },
    "Deploy": {
        "plan": ("plan", "Show what apply would change, and why."),
        "apply": ("apply", "Make the hosts serve what the recipe says."),
        "rollback": ("rollback", "Return to the deployment before this one."),
        "destroy": ("destroy", "Stop and remove a deployment."),
        "prune": ("prune", "Remove images and containers of ours that nothing needs any more."),
    },
    "Look": {
        "fit": ("fit", "Say whether a model fits into the GPUs, and how much context would."),
        "preflight": ("preflight", "Say what on each host stands in the way of a recipe."),
        "status": ("status", "Say what runs on each host and whether it is ready."),
        "top": ("top", "Show GPUs, who uses them, and requests, of all hosts at once."),
        "drift": ("drift", "Say what on the hosts is not as the recipe says."),
        "history": ("history", "List what was deployed on each host, and when."),
        "logs": ("logs", "Show the log of a deployment."),
        "doctor": ("doctor", "Say why a deployment does not serve, or explain a log."),
        "smoke": ("smoke", "Ask a server all that a client will, and judge its answers."),
    },
    "Use": {
        "tunnel": ("tunnel", "Open a server's endpoint as a port of this machine."),
        "chat": ("chat", "Talk to the model, in this terminal."),
        "client": ("client", "Print client settings: environment, curl, Python, OpenAI SDK."),
        "bench": ("bench", "Measure latency and throughput, and compare with an earlier run."),
    },
    "Try": {
        "sandbox": ("sandbox", "An emulated GPU server on this machine, for -i sandbox."),
        "test": ("test", "Test recipes end to end on emulated servers: apply, again, smoke, destroy."),
    },
    "Image and weights": {
        "lock": ("lock", "Write down digests and checksums of what a recipe names."),
        "verify": ("verify", "Say whether the weights on each host are whole and the right ones."),
        "stage": ("stage", "Bring the weights onto the hosts, verified, moving only what lacks."),
    },
}
"""Section → command → (module of beamdeploy.cli, one line of help). The function is named as the command,
`import_` where that is no name."""


def names() -> tuple[str, ...]:
    """All commands, in the order of the help."""
    return tuple(name for rows in SECTIONS.values() for name in rows)
