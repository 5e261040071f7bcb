"""Which commands there are, as data: `--help` lists them and imports none."""

from __future__ import annotations

from collections.abc import Mapping

SECTIONS: Mapping[str, Mapping[str, tuple[str, str]]] = {
    "Check, without a server": {
        "validate": ("validate", "Check recipes, their rules and locks, and say everything that is wrong."),
        "render": ("render", "Print the docker run command of a recipe."),
        "fit": ("fit", "Say whether weights and cache fit the GPUs of a recipe."),
        "explain": ("explain", "Explain a rule, a recipe key or an engine flag."),
        "schema": ("schema", "Print the JSON Schema of recipes, inventories, locks or reports."),
    },
    "Deploy": {
        "plan": ("plan", "Show what apply would change, and why."),
        "apply": ("apply", "Make the hosts serve what the recipe says."),
        "rollback": ("rollback", "Return to the deployment before this one."),
        "destroy": ("destroy", "Stop and remove a deployment."),
        "prune": ("prune", "Remove images and kept containers that nothing needs."),
    },
    "Look": {
        "status": ("status", "Say what runs on each host and whether it is ready."),
        "logs": ("logs", "Show the log of a deployment."),
        "drift": ("drift", "Say what on the hosts is not as the recipe says."),
        "history": ("history", "List what was deployed on each host, and when."),
        "doctor": ("doctor", "Check how this machine and the hosts are set up."),
        "preflight": ("preflight", "Check that an apply would not be blocked."),
    },
    "Use": {
        "smoke": ("smoke", "Send the real requests that decide whether a server is right."),
        "test": ("test", "Run the tests that a recipe or a user names against a server."),
        "bench": ("bench", "Measure a server's speed."),
        "tunnel": ("tunnel", "Open a local port that leads to a server."),
        "chat": ("chat", "Talk to a deployed model."),
        "client": ("client", "Print the settings that clients of a server need."),
    },
    "Image and weights": {
        "lock": ("lock", "Write down digests and checksums of what a recipe names."),
        "stage": ("stage", "Bring the weights onto the hosts."),
        "verify": ("verify", "Check the weights on the hosts against the lock."),
    },
    "Begin": {
        "init": ("init", "Write a first recipe and inventory."),
        "recipes": ("recipes", "List the recipes that come with beamdeploy."),
        "import": ("import_", "Make a recipe of a docker run command or a running container."),
        "sandbox": ("sandbox", "Start an emulated GPU host to try things on."),
        "completion": ("completion", "Print the completion script of a shell."),
    },
}
"""Section → command → (module of beamdeploy.cli, one line of help). The function is named as the command,
`import_` where that is no name."""


def names() -> tuple[str, ...]:
    """All commands, in the order of the help."""
    return tuple(name for rows in SECTIONS.values() for name in rows)
