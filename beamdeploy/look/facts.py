"""What a look at a host found: plain values. `None` means "looked, and it is not there"."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from beamdeploy.endpoint import Answer
from beamdeploy.errors import Problem


@dataclass(frozen=True)
class Docker:
    """The docker client and daemon. `gpu_support`: the daemon can hand out GPUs (None: it does not say).

    `storage`, `cgroup_driver`: docker's words ("overlay2", "systemd"); `cdi_devices`: names of NVIDIA's
    CDI devices that it has found (docker tells of them since 28.2).
    `memlock`: bytes that containers may lock of memory, "unlimited", or "" where that could not be read.
    """

    client: str
    server: str
    root_dir: str
    arch: str
    runtimes: tuple[str, ...]
    gpu_support: bool | None
    storage: str = ""
    cgroup_driver: str = ""
    cdi_devices: frozenset[str] = frozenset()
    memlock: str = ""
    user: str = ""


@dataclass(frozen=True)
class Image:
    """One local image. `repo_digests` may be empty (built or loaded there) or list another repository first.

    `user` is that of its containers: "", a name or a number, with ":GROUP" or not.
    """

    id: str
    repo_tags: tuple[str, ...]
    repo_digests: tuple[str, ...]
    arch: str
    os: str
    env: tuple[str, ...] = ()
    user: str = ""


@dataclass(frozen=True)
class Container:
    """One container. `state` is docker's word: created, running, paused, restarting, removing, exited, dead."""

    id: str
    name: str
    image: str
    image_id: str
    state: str
    exit_code: int
    oom_killed: bool
    error: str
    started_at: str
    restart_count: int
    labels: Mapping[str, str]
    ports: tuple[tuple[str, int, int], ...] = ()
    """(host ip, host port, container port)"""
    limits: Mapping[str, object] = field(default_factory=dict)
    """What `docker update` can change, by docker's own name ("Memory")."""
    finished_at: str = ""
    """When it last ended, in docker's form; year 1: never."""

    @property
    def running(self) -> bool:
        return self.state in ("running", "paused", "restarting")


@dataclass(frozen=True)
class Listener:
    """Something that listens on a TCP port; pid and program as far as this user may see them."""

    address: str
    port: int
    pid: int | None = None
    program: str | None = None


@dataclass(frozen=True)
class GpuProcess:
    """A process that holds GPU memory. `container`: the id of the one that it runs in; "": in none, or not known."""

    pid: int
    name: str
    gpu_uuid: str
    memory_mib: int | None
    container: str = ""


@dataclass(frozen=True)
class Gpu:
    """One GPU as `nvidia-smi` says it. Memory in MiB; None where it answers [N/A].

    `ecc_errors`: uncorrected ones since the driver was loaded; `compute_mode`: its word, "Default" most often;
    `fabric`: how far it has joined the NVLink fabric, "" where it is of none.
    """

    index: int
    name: str
    uuid: str
    memory_total_mib: int | None
    memory_used_mib: int | None
    compute_capability: str
    mig: bool | None = None
    ecc_errors: int | None = None
    compute_mode: str = ""
    fabric: str = ""


@dataclass(frozen=True)
class Gpus:
    """All GPUs of a host and the driver's version ("580.95.05"). `cuda`: the newest that it runs; "": not told."""

    driver: str
    gpus: tuple[Gpu, ...]
    processes: tuple[GpuProcess, ...] = ()
    cuda: str = ""


@dataclass(frozen=True)
class System:
    """The host itself. `machine`: uname's word; memory in bytes; `clock`: its seconds since 1970 at the look's begin.

    `there`: of the device files that were looked for, those that exist; `programs`: likewise those on the PATH.
    `fabric_manager`: whether it runs, where NVLink switches need it; None: there are no switches.
    `skew`: seconds that its clock is ahead of this machine's, as far as that can be told from one answer.
    """

    machine: str = ""
    clock: int | None = None
    memory_total: int | None = None
    memory_available: int | None = None
    there: frozenset[str] = frozenset()
    programs: frozenset[str] = frozenset()
    fabric_manager: bool | None = None
    skew: float = 0.0


@dataclass(frozen=True)
class Disk:
    """The file system that holds `path`."""

    path: str
    free_bytes: int
    free_inodes: int | None


@dataclass(frozen=True)
class Shard:
    """A safetensors file, reduced on the host. `implied_size`: bytes its header implies; None: header unreadable.

    `missing`: tensors that the index puts here and the header lacks (`missing_example` is one of them);
    `unlisted`: the reverse. `tensors` counts the header's tensors, `indexed` the index's for this file;
    `tensor_bytes`: what they take, by the header.
    """

    name: str
    size: int
    implied_size: int | None
    tensors: int
    indexed: int
    missing: int = 0
    missing_example: str = ""
    unlisted: int = 0
    unlisted_example: str = ""
    tensor_bytes: int | None = None


@dataclass(frozen=True)
class File:
    """A directory entry. `target` is where a link leads (resolved), None for what is no link; `size` follows links.

    `size` is None where the link dangles; `outside`: the link leads out of the mounted folder. `growing`: it is a
    leftover of a download, and had another size two seconds later.
    """

    name: str
    size: int | None
    target: str | None = None
    outside: bool = False
    readable: bool = True
    growing: bool = False


@dataclass(frozen=True)
class Restricted:
    """What not everybody may read or enter: "." is the folder, "/" that of all weights; `mode` as ls shows it."""

    name: str
    mode: str
    uid: int
    gid: int


@dataclass(frozen=True)
class LfsPointer:
    """A Git-LFS pointer text that stands where a file should; `size` is the real file's, in bytes."""

    name: str
    size: int | None


@dataclass(frozen=True)
class Weights:
    """One staged folder (target or drafter), reduced on the host.

    `texts`: the small JSON files as text, by name (config.json, hf_quant_config.json, generation_config.json,
    tokenizer_config.json's chat_template presence is told in `chat_template_in_tokenizer`).
    `index`: shard name → number of tensors that model.safetensors.index.json puts there; None: no index file.
    `total`: bytes of all tensors, as the index says; None: it does not.
    """

    path: str
    files: tuple[File, ...]
    texts: Mapping[str, str]
    index: Mapping[str, int] | None
    index_error: str
    shards: tuple[Shard, ...]
    pointers: tuple[LfsPointer, ...]
    chat_template_in_tokenizer: bool = False
    total: int | None = None
    restricted: tuple[Restricted, ...] = ()


@dataclass(frozen=True)
class Secrets:
    """The deployment's env file: `state` is "same" as wanted, "rotated" or "absent"; `used_by`: the container's id."""

    state: str
    used_by: str | None = None


@dataclass(frozen=True)
class Past:
    """A run of ours on this deployment, in short. `took`: kind of step → seconds; `weights`: folder → a mark.

    `phases`: phase of the start → seconds after which it was entered; none where it was not followed.
    """

    outcome: str
    container: str = ""
    started_at: str = ""
    restarts: int = 0
    limits: Mapping[str, object] = field(default_factory=dict)
    weights: Mapping[str, str] = field(default_factory=dict)
    took: Mapping[str, float] = field(default_factory=dict)
    phases: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Facts:
    """One look at one host. `weights` holds the recipe's folders by path; None: the folder is not there.

    `blockers`: what could not be asked and why (docker missing, daemon silent, no permission): such a fact is
    never given a default.
    """

    docker: Docker | None
    images: tuple[Image, ...]
    containers: tuple[Container, ...]
    listeners: tuple[Listener, ...]
    gpus: Gpus | None
    disks: Mapping[str, Disk]
    weights: Mapping[str, Weights | None]
    model_dir_exists: bool | None
    blockers: tuple[Problem, ...] = ()
    answers: Mapping[str, Answer] = field(default_factory=dict)
    secrets: Secrets | None = None
    """None: the recipe has none, and nothing was asked."""
    past: tuple[Past, ...] = ()
    """The last runs, oldest first."""
    system: System = System()
    addresses: tuple[tuple[str, str], ...] | None = None
    """(interface, IPv4 address); None: it was not asked, or there is no `ip` on the host."""
