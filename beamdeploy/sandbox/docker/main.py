"""`docker …` in a sandbox: words in, Docker's answer and exit code out."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from beamdeploy.sandbox import locks, place
from beamdeploy.sandbox.docker import end, images, show, store, template
from beamdeploy.sandbox.docker.failure import Failure, daemon
from beamdeploy.sandbox.docker.inside import find_program, inside
from beamdeploy.sandbox.docker.logs import logs
from beamdeploy.sandbox.docker.logs import show as show_log
from beamdeploy.sandbox.docker.start import start
from beamdeploy.sandbox.docker.words import Asked, number, parse

VERSION = "Docker version 20.10.24, build 297e128"


def main(folder: str, words: Sequence[str]) -> int:
    """The exit code."""
    if list(words[:1]) in (["--version"], ["-v"]):
        sys.stdout.write(VERSION + "\n")
        return 0
    try:
        asked = parse(list(words))
        return COMMANDS[asked.command](folder, asked)
    except Failure as failure:
        sys.stdout.write(failure.out)
        sys.stdout.flush()
        sys.stderr.write(failure.text + "\n")
        return failure.exit
    except (BrokenPipeError, KeyboardInterrupt):
        # nobody reads any more; the interpreter must not complain of it at its end
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 1


def version(folder: str, asked: Asked) -> int:
    answer = images.shape("version")
    form = asked.last("format")
    text = template.fill(form, answer) if form else VERSION
    return _say(text)


def info(folder: str, asked: Asked) -> int:
    answer, settings = images.shape("info"), place.settings(folder)
    records = store.all_of(folder)
    states = [record["State"]["Status"] for record in records]
    if settings["gpu_runtime"]:
        answer["Runtimes"]["nvidia"] = {"path": "nvidia-container-runtime", "runtimeArgs": []}
    answer |= {
        "DockerRootDir": settings["docker_root"],
        "SystemTime": store.now(),
        "Name": os.uname().nodename or "sandbox",
    }
    answer |= {"Containers": len(states), "Images": len(images.all_of(folder))}
    answer |= {f"Containers{word.title()}": states.count(word) for word in ("running", "paused")}
    answer["ContainersStopped"] = len(states) - answer["ContainersRunning"] - answer["ContainersPaused"]
    form = asked.last("format")
    return _say(template.fill(form, answer) if form else json.dumps(answer, indent=1))


def pull(folder: str, asked: Asked) -> int:
    with store.exclusive(folder):
        images.pull(folder, asked.rest[0], sys.stdout)
    return 0


def rmi(folder: str, asked: Asked) -> int:
    with store.exclusive(folder):
        for word in asked.rest:
            image = images.remove(folder, word)
            sys.stdout.writelines(f"Untagged: {tag}\n" for tag in image["RepoTags"])
            sys.stdout.write(f"Deleted: {image['Id']}\n")
    return 0


def save(folder: str, asked: Asked) -> int:
    text = images.saved(folder, asked.rest)
    target = asked.last("output")
    if target is None:
        return _say(text, "")
    with open(target, "w", encoding="utf-8") as file:
        file.write(text)
    return 0


def load(folder: str, asked: Asked) -> int:
    source = asked.last("input")
    with open(source, encoding="utf-8") if source is not None else sys.stdin as file:
        text = file.read()
    with store.exclusive(folder):
        sys.stdout.writelines(f"{line}\n" for line in images.load(folder, text))
    return 0


def tag(folder: str, asked: Asked) -> int:
    with store.exclusive(folder):
        images.tag(folder, *asked.rest)
    return 0


def list_images(folder: str, asked: Asked) -> int:
    return _say(show.list_images(folder, asked), "")


def ps(folder: str, asked: Asked) -> int:
    return _say(show.ps(folder, asked), "")


def run(folder: str, asked: Asked) -> int:
    try:
        record = _created(folder, asked)
    except Failure as failure:
        raise _of_run(failure, "") from None
    shown = f"{record['Id']}\n" if asked.on("detach") else ""
    try:
        start(folder, record)
    except Failure as failure:
        if asked.on("rm"):
            store.remove(folder, record)
        raise _of_run(failure, shown) from None
    if asked.on("detach") and place.settings(folder).get("drop"):
        place.write(folder, place.DROP, True)
    return _say(shown, "") if asked.on("detach") else _attached(folder, record)


def _of_run(failure: Failure, shown: str) -> Failure:
    # of a command of its own words the client says where; refused values it tells by itself
    if not failure.text.startswith("Error response"):
        return failure
    text = f"docker: {failure.text}\n\nRun 'docker run --help' for more information"
    return Failure(text, failure.exit if failure.exit in (126, 127) else 125, shown)


def _created(folder: str, asked: Asked) -> store.Record:
    # here, since most docker commands make nothing and should be quick
    from beamdeploy.sandbox.docker.create import record_of

    with store.exclusive(folder):
        image = images.find(folder, asked.rest[0])
        if image is None:
            image = _missing_image(folder, asked)
        if asked.last("name") is not None:
            store.check_name(folder, str(asked.last("name")))
        record = record_of(folder, asked, image)
        store.save(folder, record)
    return record


def _missing_image(folder: str, asked: Asked) -> images.Image:
    word = asked.rest[0]
    full = word if ":" in word.rpartition("/")[2] or "@" in word else f"{word}:latest"
    if asked.last("pull") == "never":
        raise daemon(f"No such image: {full}")
    sys.stderr.write(f"Unable to find image '{full}' locally\n")
    sys.stderr.flush()
    return images.pull(folder, word, sys.stderr)


def _attached(folder: str, record: store.Record) -> int:
    """Show what it says until it ends; its exit code."""
    show_log(folder, record["Id"], None, follow=True)
    locks.free_within(os.path.join(store.home(folder, record["Id"]), store.ALIVE), 5)
    left = store.must_find(folder, record["Id"])
    if left["HostConfig"]["AutoRemove"]:
        end.remove(folder, left["Id"], force=True)
    return int(left["State"]["ExitCode"])


def create(folder: str, asked: Asked) -> int:
    return _say(_created(folder, asked)["Id"])


def begin(folder: str, asked: Asked) -> int:
    def one(word: str) -> None:
        record = store.must_find(folder, word)
        if record["State"]["Status"] == "paused":
            raise daemon("cannot start a paused container, try unpause instead")
        if record["State"]["Status"] not in store.RUNNING:
            start(folder, record)

    return _each(asked, one, "Error: failed to start containers: ")


def stop(folder: str, asked: Asked) -> int:
    grace = number(asked, "time", "-t, --timeout")
    return _each(asked, lambda word: end.stop(folder, word, end.GRACE if grace is None else grace))


def kill(folder: str, asked: Asked) -> int:
    def one(word: str) -> None:
        record = store.must_find(folder, word)
        if record["State"]["Status"] not in store.RUNNING:
            raise daemon(f"Cannot kill container: {word}: Container {record['Id']} is not running")
        end.stop(folder, word, 0)

    return _each(asked, one)


def rm(folder: str, asked: Asked) -> int:
    force = asked.on("force")
    code = _each(asked, lambda word: end.remove(folder, word, force=force))
    # with --force, absent is what was wanted
    return 0 if force else code


def rename(folder: str, asked: Asked) -> int:
    end.rename(folder, *asked.rest)
    return 0


def pause(folder: str, asked: Asked) -> int:
    return _each(asked, lambda word: end.pause(folder, word, paused=True))


def unpause(folder: str, asked: Asked) -> int:
    return _each(asked, lambda word: end.pause(folder, word, paused=False))


def execute(folder: str, asked: Asked) -> int:
    record = store.must_find(folder, asked.rest[0])
    if record["State"]["Status"] not in store.RUNNING:
        raise end.not_running(record)
    program = find_program(folder, asked.rest[1])
    if program is None:
        what = f'unable to start container process: exec: "{asked.rest[1]}": executable file not found in $PATH'
        sys.stdout.write(f"OCI runtime exec failed: exec failed: {what}: unknown\n")
        return 126
    command = {**record, "Path": asked.rest[1], "Args": list(asked.rest[2:])}
    world = inside(folder, command, 0)
    sys.stdout.flush()
    os.execve(program, (program, *world.arguments), dict(world.env))


def inspect(folder: str, asked: Asked) -> int:
    """Containers and images; those that are not there are named on stderr."""
    return _inspect(asked, lambda word: store.find(folder, word) or images.find(folder, word), _no_such_object)


def inspect_container(folder: str, asked: Asked) -> int:
    return _inspect(asked, lambda word: store.find(folder, word), lambda word: daemon(f"No such container: {word}"))


def inspect_image(folder: str, asked: Asked) -> int:
    return _inspect(asked, lambda word: images.find(folder, word), images.no_such)


def _no_such_object(word: str) -> Failure:
    return Failure(f"Error: No such object: {word}")


def _inspect(asked: Asked, find: Callable[[str], dict[str, Any] | None], absent: Callable[[str], Failure]) -> int:
    form = asked.last("format")
    answers = [(word, find(word)) for word in asked.rest]
    found = [store.visible(answer) for _, answer in answers if answer is not None]
    missing = [absent(word).text for word, answer in answers if answer is None]
    if form is None:
        _say(json.dumps(found, indent=4, ensure_ascii=False))
    else:
        # docker ends what it printed with a line break even if it printed nothing
        _say("".join(template.fill(form, answer) + "\n" for answer in found) or "\n", "")
    sys.stdout.flush()
    sys.stderr.writelines(f"{line}\n" for line in missing)
    return 1 if missing else 0


def _each(asked: Asked, act: Callable[[str], None], summary: str = "") -> int:
    """Every argument: its name when it went well; all that failed at the end."""
    failed = []
    for word in asked.rest:
        try:
            act(word)
        except Failure as failure:
            sys.stderr.write(failure.text + "\n")
            failed.append(word)
        else:
            _say(word)
    if failed and summary:
        sys.stderr.write(summary + ", ".join(failed) + "\n")
    return 1 if failed else 0


def _say(text: str, after: str = "\n") -> int:
    sys.stdout.write(text + after)
    sys.stdout.flush()
    return 0


COMMANDS: Mapping[str, Callable[[str, Asked], int]] = {
    "version": version,
    "info": info,
    "pull": pull,
    "images": list_images,
    "image inspect": inspect_image,
    "rmi": rmi,
    "save": save,
    "load": load,
    "tag": tag,
    "run": run,
    "create": create,
    "ps": ps,
    "inspect": inspect,
    "container inspect": inspect_container,
    "logs": logs,
    "start": begin,
    "stop": stop,
    "kill": kill,
    "rm": rm,
    "rename": rename,
    "pause": pause,
    "unpause": unpause,
    "exec": execute,
}
