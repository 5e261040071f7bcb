"""The lab itself: a container of the page's command really runs, answers and logs; hosts are apart; nothing is left."""

from __future__ import annotations

import json
import subprocess
import time
from pathlib import Path

import pytest

from tests import lab as labs
from tests.lab import Lab, LabHost
from tests.lab.furnish import LOGINS

SERVE = (
    *("serve", "/weights/nvfp4", "--host", "0.0.0.0", "--port", "8000", "--served-model-name", "Beam-1.0-501B-A23B"),
    *("--tensor-parallel-size", "4", "--quantization", "nvfp4", "--attention-backend", "trtllm_mha"),
    *("--tool-call-parser", "beam", "--reasoning-parser", "beam", "--speculative-config"),
    '{"method":"dflash","model":"/weights/dflash2","num_speculative_tokens":16}',
)


def ssh(lab: Lab, host: LabHost, command: str, user: str = "root") -> subprocess.CompletedProcess[str]:
    """A command as it arrives over OpenSSH's own client, with the host key checked."""
    options = ("-F", "none", "-o", "BatchMode=yes", "-o", f"UserKnownHostsFile={lab.known_hosts}")
    words = ("ssh", *options, "-i", str(lab.identity_file), "-p", str(host.port), f"{user}@{host.address}", command)
    return subprocess.run(words, capture_output=True, text=True, check=False, timeout=30)


def run_beam(lab: Lab, host: LabHost, tag: str = "beam", *more: str) -> None:
    host.docker("pull", "--quiet", lab.image(tag))
    host.docker(
        *("run", "--detach", "--init", "--name", "beam", "--gpus", '"device=0,1,2,3"', "--shm-size=64g"),
        *("-p", "127.0.0.1:8000:8000", "--mount", f"type=bind,src={host.model_dir},dst=/weights,readonly"),
        *("-e", "HF_HUB_OFFLINE=1", *more, "--entrypoint", "tokenspeed", lab.image(tag), *SERVE),
    )


def log(host: LabHost) -> list[str]:
    return host.docker("logs", "beam").splitlines()


def wait_for(host: LabHost, line: str, seconds: float = 20) -> None:
    deadline = time.monotonic() + seconds
    while not any(line in each for each in log(host)):
        assert time.monotonic() < deadline, "\n".join(log(host))
        time.sleep(0.1)


def test_the_pages_command_runs_answers_on_the_published_port_and_logs(lab: Lab, clean_host: LabHost) -> None:
    run_beam(lab, clean_host)
    wait_for(clean_host, "ts serve ready on http://0.0.0.0:8000")
    listed = ssh(
        lab, clean_host, "wget -qO- http://127.0.0.1:8000/v1/models || curl -s http://127.0.0.1:8000/v1/models"
    )
    assert json.loads(listed.stdout)["data"][0]["id"] == "Beam-1.0-501B-A23B"
    assert "[ts] Loading safetensors checkpoint shards: 100% Completed | 3/3" in "\n".join(log(clean_host))
    left = clean_host.docker("exec", "beam", "cat", "/tmp/beamdeploy-standin-argv.json")
    assert tuple(json.loads(left)) == SERVE
    clean_host.docker("stop", "-t", "70", "beam")
    assert clean_host.docker("inspect", "--format", "{{.State.Status}} {{.State.ExitCode}}", "beam") == "exited 0"


def test_a_broken_image_dies_and_keeps_its_log(lab: Lab, clean_host: LabHost) -> None:
    run_beam(lab, clean_host, "beam-broken")
    assert clean_host.docker("wait", "beam") == "1"
    assert log(clean_host)[-1] == "startup failed: ts subprocess exited with rc=-10 during startup"


def test_a_fault_can_be_set_by_the_containers_environment(lab: Lab, clean_host: LabHost) -> None:
    run_beam(lab, clean_host, "beam", "-e", "STANDIN_FAULT=cuda-oom")
    assert clean_host.docker("wait", "beam") == "1"
    assert "CUDA out of memory" in "\n".join(log(clean_host))


def test_ranks_are_counted_against_the_gpus_that_docker_was_asked_for(lab: Lab, clean_host: LabHost) -> None:
    clean_host.docker("pull", "--quiet", lab.image())
    mount = f"type=bind,src={clean_host.model_dir},dst=/weights,readonly"
    words = ("run", "--detach", "--name", "beam", "--gpus", '"device=0,1"', "--mount", mount, "--entrypoint")
    clean_host.docker(*words, "tokenspeed", lab.image(), *SERVE)
    assert clean_host.docker("wait", "beam") == "1"
    assert "CUDA error: invalid device ordinal" in "\n".join(log(clean_host))


def test_the_image_answers_what_is_asked_before_a_load(lab: Lab, clean_host: LabHost) -> None:
    clean_host.docker("pull", "--quiet", lab.image())
    asked = "import smg.smg_rs as s; print('beam' in s.get_available_tool_call_parsers())"
    assert clean_host.docker("run", "--rm", "--entrypoint", "python3", lab.image(), "-c", asked) == "True"
    wrong = "from smg.launch_router import parse_router_args; parse_router_args(['--tool-call-parser', 'beem'])"
    with pytest.raises(RuntimeError, match="invalid choice: 'beem'"):
        clean_host.docker("run", "--rm", "--entrypoint", "python3", lab.image(), "-c", wrong)


def test_every_variant_has_its_own_digest(lab: Lab) -> None:
    assert len(set(lab.images.values())) == len(lab.images) == 5
    assert all(digest.startswith("sha256:") for digest in lab.images.values())


@pytest.mark.parametrize("user", LOGINS)
def test_each_login_shell_reaches_docker_and_nvidia_smi(lab: Lab, user: str) -> None:
    query = "nvidia-smi --query-gpu=index,name,memory.total,compute_cap,driver_version --format=csv,noheader,nounits"
    done = ssh(lab, lab.hosts[0], f"docker version --format '{{{{.Server.Os}}}}'; {query}", user)
    rows = [f"{at}, NVIDIA B300, 275040, 10.3, 580.95.05" for at in range(4)]
    assert done.stdout.splitlines() == ["linux", *rows]


def test_a_user_outside_the_docker_group_is_refused(lab: Lab) -> None:
    done = ssh(lab, lab.hosts[0], "docker ps", "nodocker")
    assert (done.returncode, "permission denied" in done.stderr) == (1, True)


def test_nvidia_smi_answers_in_the_forms_that_are_asked(lab: Lab, clean_host: LabHost) -> None:
    first = ssh(lab, clean_host, "nvidia-smi -i 0 --query-gpu=name,memory.used --format=csv")
    assert first.stdout == "name, memory.used [MiB]\nNVIDIA B300, 4 MiB\n"
    apps = "pid, process_name, gpu_uuid, used_gpu_memory\n77, python, GPU-00000000-0000-0000-0000-00000000000a, 900\n"
    (clean_host.folder / "apps.csv").write_text(apps, encoding="utf-8")
    asked = ssh(lab, clean_host, "nvidia-smi --query-compute-apps=pid,used_memory --format=csv,noheader,nounits")
    assert asked.stdout == "77, 900\n"
    assert ssh(lab, clean_host, "nvidia-smi --query-gpu=colour --format=csv").returncode == 2
    (clean_host.folder / "nvidia-smi.fails").write_text("Failed to initialize NVML\n", encoding="utf-8")
    broken = ssh(lab, clean_host, "nvidia-smi -L")
    assert (broken.returncode, broken.stdout) == (9, "Failed to initialize NVML\n")


def test_hosts_are_apart_in_ports_containers_home_and_key(lab: Lab, clean_hosts: tuple[LabHost, ...]) -> None:
    for host in clean_hosts:
        run_beam(lab, host)
    for host in clean_hosts:
        wait_for(host, "ready on")
    ssh(lab, clean_hosts[0], "touch ~/mark; docker rm -f beam")
    assert ssh(lab, clean_hosts[1], "ls ~; docker ps --format '{{.Names}}'; hostname").stdout == "beam\ngpu-b\n"
    assert len({host.host_key for host in clean_hosts}) == len(clean_hosts)


def test_a_lab_that_is_stopped_leaves_nothing(tmp_path: Path) -> None:
    if labs.missing():
        pytest.skip(f"the lab needs {', '.join(labs.missing())} (scripts/install-test-tools, as root)")
    started = labs.start(tmp_path / "lab")
    loaded = labs.load(tmp_path / "lab")
    assert loaded == started
    run_beam(started, started.hosts[0])
    labs.stop(loaded)
    pids = (started.registry_pid, *(pid for host in started.hosts for pid in (host.pid, host.init)))
    assert [pid for pid in pids if labs.alive(pid)] == []
    assert not Path(f"/sys/class/net/{started.network.bridge}").exists()
    assert str(tmp_path) not in Path("/proc/mounts").read_text(encoding="utf-8")
