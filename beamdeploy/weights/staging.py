"""Whether the staged weights are whole and are what the recipe asks for: pure, from what was looked at."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from beamdeploy.errors import Problem
from beamdeploy.look.facts import File, Shard, Weights
from beamdeploy.weights import drafter, limits, permissions, quantization

TOKENIZERS = ("tokenizer.json", "tokenizer.model", "tiktoken.model", "vocab.tiktoken")
TEMPLATES = ("chat_template.jinja", "chat_template.json")
LEFTOVERS = (".incomplete", ".aria2", ".part", ".partial", ".crdownload", ".tmp")
WEIGHTS = (".safetensors", ".bin", ".pt", ".gguf")
FETCH = "fetch it again (`hf download`; in a git clone `git lfs pull`)"


@dataclass(frozen=True)
class Folder:
    """One staged folder as the recipe sees it.

    `path` is relative to the host's model_dir, `host_path` absolute; `field` is the recipe's ("model.weights.path").
    `role` is "target" or "drafter"; `quantization` what the recipe asks for; `quantizes`: the engine can make it of an
    unquantized checkpoint while it loads. `num_speculative_tokens` and `method`
    matter for a drafter, `max_model_len` for a target. `gpus`: how many the recipe has. `chat_template`: the recipe
    brings its own, so none is needed here. `user`: see `permissions.check`.
    """

    path: str
    host_path: str
    field: str
    role: str = "target"
    quantization: str | None = None
    quantizes: bool = False
    tensor_parallel: int | None = None
    num_speculative_tokens: int | None = None
    method: str | None = None
    engine: str = "tokenspeed"
    max_model_len: int | None = None
    chat_template: bool = False
    gpus: int | None = None
    user: str = ""


def check(folder: Folder, facts: Weights | None) -> tuple[Problem, ...]:
    """All that is wrong with a staged folder. `facts` None: it is not on the host. Only "error" blocks."""
    if facts is None:
        return (_absent(folder),)
    hidden = next((file for file in facts.files if file.name == "." and not file.readable), None)
    if hidden is not None:
        return (_unreadable_folder(folder),)
    findings = (
        *_pointers(folder, facts),
        *_links(folder, facts),
        *_readable(folder, facts),
        *permissions.check(folder.host_path, folder.path, folder.user, facts),
        *_index(folder, facts),
        *_shards(folder, facts),
        *_leftovers(folder, facts),
        *_tokenizer(folder, facts),
        *_chat_template(folder, facts),
    )
    config, unread = quantization.config(folder.host_path, facts)
    return (
        *findings,
        *unread,
        *quantization.check(
            folder.host_path, folder.quantization, folder.role, config, facts, quantizes=folder.quantizes
        ),
        *limits.check_heads(folder.host_path, folder.tensor_parallel, folder.gpus, config),
        *limits.check_length(folder.host_path, folder.role, folder.engine, folder.max_model_len, config),
        *drafter.check(folder.role, folder.method, folder.engine, folder.num_speculative_tokens, config),
    )


def _absent(folder: Folder) -> Problem:
    return Problem(
        f"there is no folder {folder.host_path} (`{folder.field}: {folder.path}` below the host's `model_dir`)",
        f"correct `{folder.field}` in the recipe or `model_dir` in the inventory, or stage the weights there",
        rule="BD201",
    )


def _unreadable_folder(folder: Folder) -> Problem:
    return Problem(
        f"this user may not look into {folder.host_path} (`{folder.field}`)",
        "give the user read access to the folder: what cannot be read cannot be checked",
        rule="BD209",
    )


def _pointers(folder: Folder, facts: Weights) -> Iterator[Problem]:
    for pointer in facts.pointers:
        size = "" if pointer.size is None else f"; the real file has {pointer.size} bytes ({human(pointer.size)})"
        yield Problem(
            f"{folder.host_path}/{pointer.name} is a Git-LFS pointer text, not the file itself{size}",
            "run `git lfs pull` in that folder, or download it afresh with `hf download`",
            rule="BD204",
        )


def _links(folder: Folder, facts: Weights) -> Iterator[Problem]:
    outside = [file for file in facts.files if file.outside]
    if outside:
        first, more = outside[0], len(outside) - 1
        yield Problem(
            f"links in {folder.host_path} lead out of the mounted folder: {first.name} → {first.target}"
            f"{f' (and {more} more)' if more else ''}. They open on the host, but in the container they would dangle",
            "set `model_dir` to the folder that holds both links and files (of a Hugging Face cache the repository's: "
            f"models--…) and address the snapshot in `{folder.field}`, or stage real files (`hf download --local-dir`)",
            rule="BD208",
        )
    for file in facts.files:
        if file.size is None and file.target is not None and not file.outside:
            yield Problem(
                f"{folder.host_path}/{file.name} is a link to {file.target}, which is not there", FETCH, rule="BD208"
            )


def _readable(folder: Folder, facts: Weights) -> Iterator[Problem]:
    for file in facts.files:
        if not file.readable and file.size is not None:
            yield Problem(
                f"{folder.host_path}/{file.name} cannot be read by this user, so it cannot be checked",
                f"chmod a+r {folder.host_path}/{file.name}",
                rule="BD209",
            )


def _index(folder: Folder, facts: Weights) -> Iterator[Problem]:
    there = {file.name for file in facts.files if file.size is not None}
    dangling = {file.name for file in facts.files if file.size is None}
    if facts.index_error and not _is_pointer(facts, "model.safetensors.index.json"):
        yield Problem(
            f"{folder.host_path}/model.safetensors.index.json cannot be used: {facts.index_error}", FETCH, rule="BD203"
        )
    for name, tensors in sorted((facts.index or {}).items()):
        if name not in there and name not in dangling:
            yield _shard_absent(folder, facts, name, tensors)
    if facts.index is None and not any(name.endswith(WEIGHTS) for name in there | dangling):
        yield Problem(
            f"{folder.host_path} holds no weights (no *.safetensors and no index)",
            "stage the weights there: an unfinished or filtered download leaves such a folder",
            rule="BD202",
        )


def _shard_absent(folder: Folder, facts: Weights, name: str, tensors: int) -> Problem:
    rest = next((file for file in _unfinished(facts) if name in file.name), None)
    download = f". Its download was not finished: {rest.name} ({rest.size} bytes) is left over" if rest else ""
    return Problem(
        f"{folder.host_path}/{name} is not there, but model.safetensors.index.json needs it "
        f"for {count(tensors, 'tensor')}{download}",
        "let the same download run again, it goes on where it stopped" if rest else FETCH,
        rule="BD210" if rest else "BD203",
    )


def _shards(folder: Folder, facts: Weights) -> Iterator[Problem]:
    for shard in facts.shards:
        place = f"{folder.host_path}/{shard.name}"
        if shard.implied_size is None:
            yield Problem(f"{place} has no readable safetensors header ({shard.size} bytes)", FETCH, rule="BD206")
        elif shard.size != shard.implied_size:
            yield _wrong_size(place, shard.size, shard.implied_size)
        if facts.index is not None and shard.implied_size is not None:
            yield from _names(place, shard, facts)


def _wrong_size(place: str, actual: int, expected: int) -> Problem:
    difference = abs(expected - actual)
    how = "short" if actual < expected else "too many"
    return Problem(
        f"{place} has {actual} bytes where its header says {expected}: {count(difference, 'byte')} {how}",
        FETCH,
        rule="BD205",
    )


def _names(place: str, shard: Shard, facts: Weights) -> Iterator[Problem]:
    if shard.name not in (facts.index or {}):
        yield Problem(
            f"{place} is not in model.safetensors.index.json; engines that read every *.safetensors would load it too",
            "remove it from the folder if it belongs to another checkpoint (consolidated.safetensors is a usual one)",
            rule="BD207",
            level="warning",
        )
        return
    if shard.missing:
        yield Problem(
            f"{place} lacks {count(shard.missing, 'tensor')} that the index puts there ({shard.missing_example})",
            "index and shards are of different checkpoints: fetch all of them again from one revision",
            rule="BD207",
        )
    if shard.unlisted:
        yield Problem(
            f"{place} holds {count(shard.unlisted, 'tensor')} that the index does not put there "
            f"({shard.unlisted_example})",
            "index and shards are of different checkpoints: fetch all of them again from one revision",
            rule="BD207",
        )


def _unfinished(facts: Weights) -> tuple[File, ...]:
    return tuple(file for file in facts.files if file.name.endswith(LEFTOVERS))


def _leftovers(folder: Folder, facts: Weights) -> Iterator[Problem]:
    absent = set(facts.index or {}) - {file.name for file in facts.files}
    for file in _unfinished(facts):
        if not any(name in file.name for name in absent):
            yield Problem(
                f"{folder.host_path}/{file.name} ({file.size} bytes) is left over from an unfinished download; "
                "the file that it belongs to is not missing",
                "nothing is deleted here: remove it by hand when no download is running",
                rule="BD210",
                level="warning",
            )


def _tokenizer(folder: Folder, facts: Weights) -> Iterator[Problem]:
    names = {file.name for file in facts.files}
    if folder.role != "target" or names & set(TOKENIZERS) or {"vocab.json", "merges.txt"} <= names:
        return
    if any(name.endswith(".tiktoken") for name in names):
        return
    yield Problem(
        f"{folder.host_path} has no tokenizer (tokenizer.json, tokenizer.model, a tiktoken file, "
        "or vocab.json with merges.txt): the engine cannot start",
        FETCH.replace("it", "the tokenizer files", 1),
        rule="BD211",
    )


def _chat_template(folder: Folder, facts: Weights) -> Iterator[Problem]:
    # an empty file is no template; a pointer text has its own finding
    files = any(file.name in TEMPLATES and file.size for file in facts.files)
    if folder.role != "target" or folder.chat_template or files or facts.chat_template_in_tokenizer:
        return
    yield Problem(
        f"no chat template was found in {folder.host_path}: looked in chat_template.jinja, chat_template.json, "
        "tokenizer_config.json, and for one in the recipe. The server would start, and chat requests would fail",
        "add chat_template.jinja to the folder, or give the engine its chat template flag in `engine.args`",
        rule="BD212",
        level="warning",
    )


def _is_pointer(facts: Weights, name: str) -> bool:
    return any(pointer.name == name for pointer in facts.pointers)


def count(number: int, noun: str) -> str:
    """ "1 tensor", "2 tensors"."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def human(size: int) -> str:
    """Bytes as people say them: "40.0 GiB"."""
    amount, unit = float(size), "bytes"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if amount < 1024:
            break
        amount, unit = amount / 1024, larger
    return f"{size} bytes" if unit == "bytes" else f"{amount:.1f} {unit}"
