"""`python -m tests.lab up [--hosts N] [--folder DIR]`, `python -m tests.lab down [--folder DIR]`: a lab by hand."""

from __future__ import annotations

import argparse
import shutil
import sys
import time
from pathlib import Path

from tests import lab


def up(folder: Path, hosts: int) -> str:
    """Start a lab and say what to do with it."""
    began = time.monotonic()
    started = lab.start(folder, hosts)
    inventory, image = folder / "inventory.yaml", started.image()
    login = (
        f"ssh -i {started.identity_file} -o UserKnownHostsFile={started.known_hosts} root@{started.hosts[0].address}"
    )
    return "\n".join(
        [
            f"{hosts} host(s) up in {time.monotonic() - began:.1f} s",
            f"inventory: {inventory}",
            f"image:     {image}",
            f"next:      beamdeploy apply RECIPE -i {inventory} --set image.reference={image}",
            f"           {login}",
            f"           python -m tests.lab down --folder {folder}",
            "",
        ]
    )


def down(folder: Path) -> str:
    """Stop the lab of that folder and remove it."""
    lab.stop(lab.load(folder))
    shutil.rmtree(folder)
    return f"stopped, {folder} removed\n"


def main() -> int:
    """Words in, exit code out."""
    parser = argparse.ArgumentParser(prog="python -m tests.lab", description="emulated GPU hosts for trying by hand")
    parser.add_argument("action", choices=["up", "down"])
    parser.add_argument("--hosts", type=int, default=1)
    parser.add_argument("--folder", type=Path, default=Path("/tmp/beamdeploy-lab"))
    asked = parser.parse_args()
    sys.stdout.write(up(asked.folder, asked.hosts) if asked.action == "up" else down(asked.folder))
    return 0


if __name__ == "__main__":
    sys.exit(main())
