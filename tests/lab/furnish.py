"""What a lab host is made of: its folder with home, weights, GPUs, accounts and the configuration of its servers."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from beamdeploy.sandbox import checkpoint

HOST_FILES = Path(__file__).parent / "host"
LOGINS = {"root": "/bin/bash", "sh": "/bin/sh", "tcsh": "/usr/bin/tcsh", "fish": "/usr/bin/fish"}
GPU_FIELDS = (
    "index, name, uuid, memory.total, memory.used, memory.free, driver_version, compute_cap, pci.bus_id, "
    "ecc.errors.uncorrected.volatile.total, mig.mode.current, persistence_mode, power.limit, power.draw, "
    "temperature.gpu, utilization.gpu, compute_mode, count, gpu_uuid, serial, fabric.state"
)


def make_key(path: Path) -> Path:
    """A throw-away key pair."""
    subprocess.run(("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "lab", "-f", str(path)), check=True)
    return path


def furnish(home: Path, address: str, identity: Path) -> None:
    """Lay out a host's folder: its home, weights, GPUs, accounts and configuration."""
    for name in ("root", "srv", "etc", "bin"):
        (home / name).mkdir(parents=True)
    checkpoint.write(home / "srv" / "models" / "beam")
    make_key(home / "etc" / "host_key")
    shutil.copy(identity.with_suffix(".pub"), home / "etc" / "authorized_keys")
    shutil.copy(HOST_FILES / "nvidia-smi", home / "bin" / "nvidia-smi")
    hook = home / "bin" / "nvidia-container-runtime-hook"
    # dockerd takes --gpus when it finds this on its PATH; an emulated GPU needs nothing mounted
    hook.write_text("#!/bin/sh\nexit 0\n", encoding="utf-8")
    hook.chmod(0o755)
    reset_gpus(home)
    for name, text in accounts().items():
        (home / "etc" / name).write_text(text, encoding="utf-8")
    (home / "etc" / "daemon.json").write_text("{}\n", encoding="utf-8")
    (home / "etc" / "sshd_config").write_text(sshd_config(home, address), encoding="utf-8")


def reset_gpus(home: Path) -> None:
    """Four idle B300 and a driver that works."""
    (home / "nvidia-smi.fails").unlink(missing_ok=True)
    (home / "gpus.csv").write_text(gpus(), encoding="utf-8")
    (home / "apps.csv").write_text("pid, process_name, gpu_uuid, used_gpu_memory\n", encoding="utf-8")


def gpus(count: int = 4, name: str = "NVIDIA B300", capability: str = "10.3", total: int = 275040) -> str:
    """The table that a host's nvidia-smi is answered from."""
    rows = [
        f"{at}, {name}, GPU-00000000-0000-0000-0000-{at + 10:012x}, {total}, 4, {total - 4}, 580.95.05, {capability}, "
        f"00000000:{at + 1:02X}:00.0, 0, Disabled, Enabled, 1100.00, 180.00, 35, 0, Default, {count}, "
        f"GPU-00000000-0000-0000-0000-{at + 10:012x}, {1650000000000 + at}, Completed"
        for at in range(count)
    ]
    return "\n".join([GPU_FIELDS, *rows]) + "\n"


def accounts() -> dict[str, str]:
    """passwd and shadow of a host: root with several login shells, and a user without rights to docker."""
    names = [line.split(":")[0] for line in Path("/etc/passwd").read_text(encoding="utf-8").splitlines()]
    kept = [line for line in Path("/etc/passwd").read_text(encoding="utf-8").splitlines() if line[:5] != "root:"]
    roots = [f"{name}:x:0:0::/root:{shell}" for name, shell in LOGINS.items()]
    plain = "nodocker:x:1500:1500::/tmp:/bin/sh"
    shadow = [f"{name}:*:19000:0:99999:7:::" for name in {*names, *LOGINS, "nodocker"}]
    return {"passwd": "\n".join([*roots, plain, *kept]) + "\n", "shadow": "\n".join(sorted(shadow)) + "\n"}


def sshd_config(home: Path, address: str) -> str:
    """A server that takes the lab's key for any account; PATH leads to the host's nvidia-smi."""
    path = f"{home}/bin:/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin"
    lines = (
        f"ListenAddress {address}:22",
        "ListenAddress 127.0.0.1:22",
        f"HostKey {home}/etc/host_key",
        f"AuthorizedKeysFile {home}/etc/authorized_keys",
        "PermitRootLogin prohibit-password",
        "PasswordAuthentication no",
        "KbdInteractiveAuthentication no",
        "StrictModes no",
        "UsePAM no",
        "LogLevel VERBOSE",
        "PrintMotd no",
        "UseDNS no",
        "MaxStartups 100",
        "PidFile /run/sshd.pid",
        "Subsystem sftp internal-sftp",
        f"SetEnv PATH={path}",
    )
    return "\n".join(lines) + "\n"
