"""Every docker call that beamdeploy makes, as data: stories that are told to the emulation and to the real Docker.

Words hold {image}, {digest} (repository@digest), {weights}, {env_file} and {id}, the last whole
id that was printed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from beamdeploy.probe.cuda import SHELL

PS = '{{.ID}}{{"\\t"}}{{.Names}}{{"\\t"}}{{.Label "beamdeploy.name"}}{{"\\t"}}{{.Ports}}'
CONTAINER = (
    '{"id":{{json .Id}},"name":{{json .Name}},"image":{{json .Config.Image}},"image_id":{{json .Image}},'
    '"state":{{json .State.Status}},"exit_code":{{json .State.ExitCode}},'
    '"oom_killed":{{json .State.OOMKilled}},"error":{{json .State.Error}},'
    '"started_at":{{json .State.StartedAt}},"finished_at":{{json .State.FinishedAt}},'
    '"restart_count":{{json .RestartCount}},'
    '"labels":{{json .Config.Labels}},"bindings":{{json .HostConfig.PortBindings}},'
    '"ports":{{json .NetworkSettings.Ports}},"limits":{"BlkioWeight":{{json .HostConfig.BlkioWeight}},'
    '"CpuPeriod":{{json .HostConfig.CpuPeriod}},"CpuQuota":{{json .HostConfig.CpuQuota}},'
    '"CpuShares":{{json .HostConfig.CpuShares}},"NanoCpus":{{json .HostConfig.NanoCpus}},'
    '"CpusetCpus":{{json .HostConfig.CpusetCpus}},"CpusetMems":{{json .HostConfig.CpusetMems}},'
    '"Memory":{{json .HostConfig.Memory}},"MemoryReservation":{{json .HostConfig.MemoryReservation}},'
    '"MemorySwap":{{json .HostConfig.MemorySwap}},"PidsLimit":{{json .HostConfig.PidsLimit}},'
    '"RestartPolicy":{{json .HostConfig.RestartPolicy}}}}'
)
IMAGES = '{{.ID}}{{"\\t"}}{{.Repository}}{{"\\t"}}{{.Tag}}{{"\\t"}}{{.Digest}}'
IMAGE = (
    '{"id":{{json .Id}},"repo_tags":{{json .RepoTags}},"repo_digests":{{json .RepoDigests}},'
    '"arch":{{json .Architecture}},"os":{{json .Os}},"env":{{json .Config.Env}},"user":{{json .Config.User}}}'
)

TOP = (
    '{{.ID}}{{"\\t"}}{{.Names}}{{"\\t"}}{{.Status}}{{"\\t"}}{{.Label "beamdeploy.name"}}{{"\\t"}}'
    '{{.Label "beamdeploy.digest"}}{{"\\t"}}{{.Label "beamdeploy.spec"}}'
)

PINNED = '{"id":{{json .Id}},"digests":{{json .RepoDigests}},"os":{{json .Os}},"arch":{{json .Architecture}}}'

# whether CUDA starts, as it is asked in an image, and less: the driver that a container with GPUs is given
DRIVER = "import ctypes; cuda = ctypes.CDLL('libcuda.so.1'); print(cuda.cuInit(0))"


@dataclass(frozen=True)
class Call:
    """One call. `compare`: "text" (ids and times apart), "shape" (keys and types of JSON), "exit" alone.

    `until`: repeat until this is printed.
    """

    words: tuple[str, ...]
    compare: str = "text"
    until: str | None = None


def call(text: str, *more: str, compare: str = "text", until: str | None = None) -> Call:
    """A call whose first words hold no blank."""
    return Call((*text.split(), *more), compare, until)


def run(*more: str, name: str = "bd-one", compare: str = "text") -> Call:
    """What `apply` says, with the engine's own words."""
    words = (
        *("run", "--detach", "--init", "--name", name, "--gpus", '"device=0,1"', "--shm-size=64m"),
        *("-p", "127.0.0.1:8123:8000", "--mount", "type=bind,src={weights},dst=/weights,readonly"),
        *("-e", "HF_HUB_OFFLINE=1", "--label", "beamdeploy.name=one", "--label", "beamdeploy.digest=sha256:0"),
        *more,
        *("--entrypoint", "tokenspeed", "{image}", "serve", "/weights/nvfp4", "--host", "0.0.0.0", "--port", "8000"),
        *("--served-model-name", "m", "--tensor-parallel-size", "2"),
    )
    return Call(words, compare)


def sh(name: str, script: str, *more: str) -> Call:
    """A short container."""
    return Call(("run", "--detach", "--name", name, *more, "--entrypoint", "sh", "{image}", "-c", script))


STORIES: Mapping[str, tuple[Call, ...]] = {
    "asking": (
        call("version --format", "{{json .}}", compare="shape"),
        call("info --format", "{{json .}}", compare="info"),
        call("ps --all --no-trunc --format", PS),
        call("images --no-trunc --digests --format", IMAGES),
    ),
    "images": (
        call("images --quiet --no-trunc {image}"),
        call("image inspect --format", "{{json .RepoDigests}}", "nosuch"),
        call("pull {image}", compare="exit"),
        call("pull {image}"),
        call("images --quiet --no-trunc {image}"),
        call("images --quiet --no-trunc {digest}"),
        call("pull {digest}"),
        call("images --no-trunc --digests --format", IMAGES),
        call("image inspect --format", IMAGE, "{image}", compare="image"),
        # what the look asks: by each of its names, of which some may not be there
        call("image inspect --format", PINNED, "{digest}", "nosuch:1", "{image}", "nosuch@sha256:" + "0" * 64),
        call("image inspect --format", "{{json .RepoDigests}}", "{image}"),
        call("image inspect --format", PINNED, "{image}"),
        call("image inspect {image}", compare="shape"),
        call("image inspect nosuch"),
        call("images --quiet nosuch:1"),
        call("pull {repository}:nosuch"),
        call("images"),
        call("rmi nosuch:1"),
        call("rmi {digest}", compare="exit"),
    ),
    "images that travel": (
        call("pull {image}", compare="exit"),
        call("image inspect --format {{.Size}} {image}", compare="exit"),
        call("save --output {env_file}.tar {image}"),
        call("save --output {env_file}.tar nosuch"),
        call("rmi {image}", compare="exit"),
        call("load --quiet --input {env_file}.tar"),
        call("load --quiet --input {env_file}.tar"),
        call("image inspect --format", PINNED, "{image}"),
        call("tag {image} {repository}:sha256-1"),
        call("tag nosuch {repository}:sha256-1"),
        call("images --no-trunc --digests --format", IMAGES),
    ),
    "a life": (
        call("pull {image}", compare="exit"),
        run(),
        call("ps --all --no-trunc --format", PS),
        call("ps --no-trunc --format", TOP),
        call("ps --all --quiet --no-trunc --filter name=^/bd-one$ --filter label=beamdeploy.digest=sha256:0"),
        call("ps --all --quiet --no-trunc --filter id={id} --filter status=running --filter name=^/bd-one$"),
        call("ps --all --quiet --no-trunc --filter status=created"),
        call("container inspect --format", CONTAINER, "{id}"),
        call("inspect --format", "{{json .State}}", "{id}", compare="shape"),
        call("inspect --format", "{{.RestartCount}}", "{id}"),
        call("inspect --format", "{{json .Config.Labels}}", "{id}"),
        call("inspect bd-one", compare="shape"),
        call("inspect --format", "{{json .Mounts}}", "bd-one"),
        call("inspect --format", "{{json .HostConfig.DeviceRequests}} {{json .HostConfig.RestartPolicy}}", "bd-one"),
        call("logs --tail 1 {id}", compare="exit"),
        call("logs {id}", until="ts serve ready"),
        call("logs --tail 1 {id}"),
        call("ps"),
        call("rm {id}"),
        call("rename {id} bd-one.previous"),
        call("rename {id} bd-one.previous"),
        call("start {id}"),
        call("unpause {id}"),
        call("pause {id}"),
        call("pause {id}"),
        call("unpause {id}"),
        call("stop -t 20 {id}"),
        call("inspect --format", "{{.State.ExitCode}}", "{id}"),
        call("container inspect --format", CONTAINER, "{id}"),
        call("stop -t 20 {id}"),
        call("start {id}"),
        call("inspect --format", "{{.State.Status}}", "{id}"),
        call("rm --force {id}"),
        call("ps --all --quiet --no-trunc --filter id={id}"),
    ),
    "following": (
        call("pull {image}", compare="exit"),
        sh("bd-talk", "echo one; sleep 0.4; echo two; sleep 0.2; exit 7"),
        call("logs --follow bd-talk"),
        call("inspect --format", "{{.State.Status}} {{.State.ExitCode}}", "bd-talk", until="exited"),
        call("logs --tail 1 bd-talk"),
        call("logs --tail 1 --follow bd-talk"),
        call("logs --timestamps --tail all --follow bd-talk"),
        call("logs --timestamps --since 60s --follow bd-talk"),
        call("logs --since 2020-01-01T00:00:00.123456789Z bd-talk"),
        call("logs --since 2030-01-01T00:00:00Z bd-talk"),
        call("rm bd-talk"),
    ),
    "absent": (
        call("pull {image}", compare="exit"),
        *(call(f"{words} nosuch") for words in ("inspect", "container inspect", "logs", "stop -t 1", "rm", "rm -f")),
        call("inspect --format", "{{json .State}}", "nosuch"),
        call("container inspect --format", "{{json .State}}", "nosuch"),
        *(call(f"{words} nosuch") for words in ("start", "unpause", "pause", "rm --force")),
        call("rename nosuch other"),
        call("ps --all --filter status=nosuch"),
        call("ps --all --filter nosuch=1"),
        call("inspect --format", "{{.Nosuch}}", "{image}"),
        call("run --nosuch"),
        call("ps --nosuch"),
        call("stop -t x nosuch"),
        call("run --detach --pull never nosuch:1 x"),
        call("run --detach {repository}:nosuch x"),
    ),
    "refused": (
        call("pull {image}", compare="exit"),
        call("run --detach --name bd-mount --mount type=bind,src=/nosuch,dst=/w,readonly --entrypoint sh {image}"),
        call("run --detach --name bd/bad --entrypoint sh {image}"),
        call("run --detach --restart nosuch --entrypoint sh {image}"),
        call("run --detach --shm-size=x --entrypoint sh {image}"),
        call("run --detach --name bd-node --device /dev/nvidia97 --entrypoint sh {image}"),
        call("inspect --format", "{{json .HostConfig.Devices}} {{json .State.Error}}", "bd-node"),
        call("rm bd-node"),
        call("run --detach --name bd-cdi --device nvidia.com/gpu=0 --entrypoint sh {image}"),
        call("inspect --format", "{{json .HostConfig.DeviceRequests}} {{json .State.Error}}", "bd-cdi"),
        call("rm bd-cdi"),
        call("run --detach --device nosuch --entrypoint sh {image}"),
        run(),
        run(),
        run(name="bd-two"),
        call("ps --all --quiet --filter status=created --filter name=^/bd-two$"),
        call("container inspect --format", CONTAINER, "bd-two"),
        call("rename bd-two bd-one"),
        call("start bd-two"),
        call("rm bd-two"),
        call("rm --force bd-one"),
        call("run --detach --name bd-out -p 1.2.3.4:8124:8000 --entrypoint sh {image} -c", "sleep 9"),
        call("rm bd-out"),
    ),
    "missing programs": (
        call("pull {image}", compare="exit"),
        call("run --detach --name bd-none --entrypoint nosuch {image} serve"),
        call("container inspect --format", CONTAINER, "bd-none"),
        call("start bd-none"),
        call("rm bd-none"),
        call("run --detach --init --name bd-none --entrypoint nosuch {image} serve"),
        call("inspect --format", "{{.State.Status}} {{.State.ExitCode}}", "bd-none", until="exited"),
        call("rm bd-none"),
    ),
    "restarts": (
        call("pull {image}", compare="exit"),
        sh("bd-again", "exit 3", "--restart", "on-failure:2"),
        call("inspect --format", "{{.State.Status}} {{.RestartCount}}", "bd-again", until="exited 2"),
        call("rm bd-again"),
        sh("bd-loop", "exit 3", "--restart", "unless-stopped"),
        call("inspect --format", "{{.State.Status}} {{.RestartCount}}", "bd-loop", until="restarting 3"),
        call("rm bd-loop"),
        call("stop -t 1 bd-loop"),
        call("inspect --format", "{{.State.Status}} {{.State.ExitCode}}", "bd-loop"),
        call("rm bd-loop"),
        sh("bd-deaf", "trap '' TERM; sleep 30 & wait; wait"),
        call("stop -t 1 bd-deaf"),
        call("inspect --format", "{{.State.Status}} {{.State.ExitCode}}", "bd-deaf"),
        call("rm bd-deaf"),
    ),
    "secrets": (
        call("pull {image}", compare="exit"),
        call("run --rm --env-file {env_file} --entrypoint sh {image} -c", "echo $TOKEN"),
        call("run --detach --env-file /nosuch --entrypoint sh {image}"),
    ),
    "in the image": (
        call("pull {image}", compare="exit"),
        call("run --rm --entrypoint sh {image} -c", "echo hi; exit 4"),
        call("run --rm --gpus 2 --entrypoint sh {image} -c", "echo $NVIDIA_VISIBLE_DEVICES"),
        call("run --rm --entrypoint python3 {image} -c", "import smg.launch_router, smg.smg_rs; print('known')"),
        call(
            "run --rm --init --network none --entrypoint python3 {image} -c", "import smg.smg_rs; print('asked')", "--x"
        ),
        call("image inspect --format {{.Id}} {image}", compare="exit"),
        call("run --rm --init --name bd-hf --user 0:0 --network host --entrypoint sh {image} -c", "echo fine"),
        *(
            call(f"run --rm --network none {gpus} --entrypoint sh {{image}} -c", *words)
            for gpus, words in (
                ("--gpus 2", (SHELL, "python3", DRIVER)),
                ("", (SHELL, "python3", DRIVER)),
                ("--gpus 2", (SHELL, "nosuch", DRIVER)),
            )
        ),
        call("run --rm --network none --entrypoint nosuch {image} -c", "x"),
        sh("bd-exec", "sleep 30"),
        call("exec bd-exec true"),
        call("exec bd-exec nosuch"),
        call("rm --force bd-exec"),
        call("ps --all --quiet"),
    ),
}
