"""Several nodes for one model: who is which rank, and the words that each engine gets."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from beamdeploy import schema
from beamdeploy.deploy import specs_of
from beamdeploy.documents import Document
from beamdeploy.errors import InputError
from beamdeploy.fit import GIB, fit
from beamdeploy.inventory import Host
from beamdeploy.joined import joined, phases
from beamdeploy.label import DIGEST, Deployed, read_labels, without_labels
from beamdeploy.look.facts import Facts, Listener
from beamdeploy.plan import Plan, plan_apply
from beamdeploy.recipe import Recipe, build
from beamdeploy.render import Spec, render_again
from beamdeploy.rules import recipe_problems
from tests import test_plan as plans

ROOT = Path(__file__).parents[1]
RECIPES = {
    engine: yaml.safe_load((ROOT / "recipes" / f"beam-nvfp4-{engine}.yaml").read_text("utf-8"))
    for engine in ("tokenspeed-4xb300", "vllm-4xb200", "sglang-4xb300")
}
TWO = {"engine": {"nodes": 2, "tensor_parallel": 8}, "container": {"network": "host"}}
HOSTS = tuple(
    Host(f"gpu-{letter}", address=f"10.0.0.{number}", model_dir="/srv/models", rank_interface="bond0")
    for number, letter in enumerate("abcd", start=1)
)


def data(engine: str, *changes: Mapping[str, Any]) -> dict[str, Any]:
    """The shipped recipe of an engine on two nodes, with changes to its sections; None removes."""
    found: dict[str, Any] = deepcopy(next(recipe for name, recipe in RECIPES.items() if name.startswith(engine)))
    for change in (TWO, *changes):
        for section, said in change.items():
            found[section] = {k: v for k, v in {**found.get(section, {}), **said}.items() if v is not None}
    return found


def recipe(engine: str, *changes: Mapping[str, Any]) -> Recipe:
    return build(schema.defaults(Document("-", data(engine, *changes), {}, {}, "").data, "recipe"))


def specs(engine: str, *changes: Mapping[str, Any], hosts: tuple[Host, ...] = HOSTS[:2]) -> tuple[Spec, ...]:
    return specs_of(recipe(engine, *changes), hosts, None, None)


def words(spec: Spec) -> tuple[str, ...]:
    return without_labels(spec.words)


def told(engine: str, *changes: Mapping[str, Any]) -> list[str]:
    """The rules of all that is more than a note."""
    problems = recipe_problems(Document("-", data(engine, *changes), {}, {}, ""))
    return [problem.rule for problem in problems if problem.level != "info"]


def between(found: tuple[str, ...], first: str, last: str) -> list[str]:
    return list(found[found.index(first) : found.index(last)])


@pytest.mark.parametrize(("engine", "port"), [("tokenspeed", 23456), ("sglang", 20000)])
def test_each_rank_is_told_its_number_and_where_the_head_is(engine: str, port: int) -> None:
    for number, spec in enumerate(specs(engine)):
        assert between(words(spec), "--nnodes", "--dtype") == [
            "--nnodes", "2", "--node-rank", str(number), "--dist-init-addr", f"10.0.0.1:{port}",
        ]  # fmt: skip


def test_followers_of_vllm_have_no_front() -> None:
    head, follower = map(words, specs("vllm"))
    common = ["--nnodes", "2", "--node-rank", "0", "--master-addr", "10.0.0.1", "--master-port", "29501"]
    assert between(head, "--nnodes", "--dtype") == common
    assert between(follower, "--nnodes", "--dtype") == [*common[:3], "1", *common[4:], "--headless"]


def test_replicas_of_vllm_are_counted_by_node() -> None:
    head, follower = map(words, specs("vllm", {"engine": {"tensor_parallel": 2, "data_parallel": 4}}))
    common = [
        "--data-parallel-size-local",
        "2",
        "--data-parallel-address",
        "10.0.0.1",
        "--data-parallel-rpc-port",
        "29501",
    ]
    assert between(head, "--data-parallel-size-local", "--dtype") == common
    start = ["--data-parallel-start-rank", "2", "--headless"]
    assert between(follower, "--data-parallel-size-local", "--dtype") == [*common, *start]
    assert "--nnodes" not in head


@pytest.mark.parametrize("engine", ["tokenspeed", "vllm", "sglang"])
def test_the_host_network_is_bound_to_what_is_named(engine: str) -> None:
    hosts = (HOSTS[0], replace(HOSTS[1], rank_interface="ib0", rank_address="192.168.7.2"))
    found = [words(spec) for spec in specs(engine, hosts=hosts)]
    for each, interface in zip(found, ("bond0", "ib0"), strict=True):
        assert each[each.index("--network") + 1] == "host" and "-p" not in each
        assert between(each, "--host", "--served-model-name") == ["--host", "127.0.0.1", "--port", "8000"]
        assert f"NCCL_SOCKET_IFNAME={interface}" in each and f"GLOO_SOCKET_IFNAME={interface}" in each
    assert ("VLLM_HOST_IP=192.168.7.2" in found[1]) == (engine == "vllm")


def test_what_the_recipe_says_of_an_interface_comes_first() -> None:
    found = words(specs("vllm", {"container": {"env": {"NCCL_SOCKET_IFNAME": "eth7"}}})[0])
    assert [word for word in found if "NCCL_SOCKET_IFNAME" in word] == ["NCCL_SOCKET_IFNAME=eth7"]


def test_one_node_is_as_it_was() -> None:
    found = words(specs("vllm", {"engine": {"nodes": 1, "tensor_parallel": 4}, "container": {"network": None}})[0])
    assert "--network" not in found and "--nnodes" not in found and "0.0.0.0" in found


def test_twice_as_many_hosts_are_two_deployments_in_order() -> None:
    found = specs("tokenspeed", hosts=HOSTS)
    assert [(spec.rank.number, spec.rank.hosts, spec.rank.head) for spec in found if spec.rank] == [
        (0, ("gpu-a", "gpu-b"), "10.0.0.1"),
        (1, ("gpu-a", "gpu-b"), "10.0.0.1"),
        (0, ("gpu-c", "gpu-d"), "10.0.0.3"),
        (1, ("gpu-c", "gpu-d"), "10.0.0.3"),
    ]
    assert [spec.answers for spec in found] == [True, False, True, False]
    assert found[0].rank_ports == (23456, 23457, 23459, 23460, 23461, 23462) and found[1].rank_ports == ()


def test_a_host_that_is_left_over_or_not_described_is_refused() -> None:
    with pytest.raises(InputError) as caught:
        specs("vllm", hosts=(*HOSTS[:2], Host("gpu-z", address="gpu-z.example.org", model_dir="/srv")))
    assert [problem.rule for problem in caught.value.problems] == ["BD055", "BD056", "BD056"]


def test_a_label_is_enough_to_make_a_rank_again() -> None:
    for spec in specs("sglang"):
        pairs = [
            word.split("=", 1) for before, word in zip(spec.words, spec.words[1:], strict=False) if before == "--label"
        ]
        deployed = read_labels({name: value for name, value in pairs})
        assert isinstance(deployed, Deployed)
        again = render_again(deployed, Host(spec.host.name))
        assert (again.words, again.rank) == (spec.words, spec.rank)


@pytest.mark.parametrize(
    ("engine", "change", "rules"),
    [
        ("tokenspeed", {}, []),
        ("vllm", {}, []),
        ("sglang", {}, []),
        ("vllm", {"engine": {"tensor_parallel": 2, "data_parallel": 4}}, ["BD407"]),
        ("vllm", {"engine": {"tensor_parallel": 8, "data_parallel": 2}}, ["BD340", "BD392", "BD407"]),
        ("vllm", {"engine": {"tensor_parallel": 4, "pipeline_parallel": 2}}, []),
        ("sglang", {"engine": {"tensor_parallel": 4, "data_parallel": 2}}, ["BD392"]),
        ("tokenspeed", {"engine": {"tensor_parallel": 4}}, ["BD340"]),
        ("tokenspeed", {"engine": {"tensor_parallel": 4, "pipeline_parallel": 2}}, ["BD375"]),
        ("tokenspeed", {"engine": {"tensor_parallel": 4, "data_parallel": 2}}, []),
        ("tokenspeed", {"engine": {"args": {"nnodes": 2}}}, ["BD312"]),
        ("vllm", {"engine": {"args": {"master-port": 1234}}}, ["BD312"]),
        ("vllm", {"container": {"network": None}}, ["BD390"]),
        ("vllm", {"engine": {"nodes": 1, "tensor_parallel": 4}}, ["BD390"]),
    ],
)
def test_what_cannot_be_spread_over_nodes_is_refused(engine: str, change: Mapping[str, Any], rules: list[str]) -> None:
    assert sorted(told(engine, change)) == rules


# --- plans that hang together


def facts_of(spec: Spec, *, state: str = "running", ready: bool = True) -> Facts:
    """A healthy host on which the spec's container is in this state; "" for none."""
    there = (plans.container(spec, state=state, ports=()),) if state else ()
    answers = plans.READY if ready and spec.answers else {}
    addresses = (("lo", "127.0.0.1"), ("bond0", spec.rank.address if spec.rank else ""))
    return plans.facts(*there, images=(IMAGE,), answers=answers, addresses=addresses)


IMAGE = replace(plans.IMAGE, repo_tags=("lightseekorg/tokenspeed:beam",))
PAIR = {spec.host.name: spec for spec in specs("tokenspeed")}


def together(*looked: Facts, absent: Mapping[str, str] | None = None) -> dict[str, Plan]:
    made = {name: plan_apply(PAIR[name], facts) for name, facts in zip(PAIR, looked, strict=False)}
    return joined(PAIR, made, absent or {})


def kinds(found: Mapping[str, Plan]) -> list[tuple[str, list[str]]]:
    return [(plan.outcome, [step.kind for step in plan.steps]) for plan in found.values()]


def test_ranks_that_run_and_a_head_that_answers_need_nothing() -> None:
    assert kinds(together(*map(facts_of, PAIR.values()))) == [("unchanged", []), ("unchanged", [])]


def test_a_rank_that_is_made_anew_restarts_the_others() -> None:
    head, follower = PAIR.values()
    restart = ("restart", ["stop", "wait for GPUs", "start", "settle"])
    assert kinds(together(facts_of(head), facts_of(follower, state=""))) == [
        restart,
        ("create", ["probe", "try GPUs", "run", "settle"]),
    ]
    assert kinds(together(facts_of(head, state="exited"), facts_of(follower))) == [
        ("start", ["start", "settle"]),
        restart,
    ]
    found = together(facts_of(head), facts_of(follower, state=""))
    assert found["gpu-a"].fallback == plans.OLD and found["gpu-a"].writes


def test_a_head_that_still_loads_disturbs_no_follower() -> None:
    head, follower = PAIR.values()
    assert kinds(together(facts_of(head, ready=False), facts_of(follower))) == [
        ("settle", ["settle"]),
        ("unchanged", []),
    ]


def test_what_stands_in_the_way_of_one_rank_stands_in_that_of_all() -> None:
    head, follower = PAIR.values()
    wrong = replace(facts_of(follower, state=""), addresses=(("eth0", "10.0.0.2"),))
    found = together(facts_of(head), wrong)
    assert [plan.outcome for plan in found.values()] == ["blocked", "blocked"]
    assert "gpu-b is blocked" in found["gpu-a"].problems[0].what
    assert found["gpu-b"].problems[0].what == (
        "bond0 has not the address 10.0.0.2 of rank 1 of 2; the host has: eth0 10.0.0.2"
    )
    alone = together(facts_of(head), absent={"gpu-b": "cannot be asked"})
    assert [plan.outcome for plan in alone.values()] == ["blocked"]


def test_a_taken_port_of_the_ranks_blocks_the_head_alone() -> None:
    head, follower = PAIR.values()
    taken = (Listener("10.0.0.1", 23459, 7, "nc"),)
    found = [plan_apply(spec, replace(facts_of(spec, state=""), listeners=taken)) for spec in (head, follower)]
    assert [plan.outcome for plan in found] == ["blocked", "create"]
    assert found[0].problems[0].what == "port 23459, on which the ranks meet, is taken by nc (pid 7)"


def test_a_server_on_other_hosts_is_destroyed_first() -> None:
    head, single = (
        PAIR["gpu-a"],
        specs("tokenspeed", {"engine": {"nodes": 1, "tensor_parallel": 4}, **ONE}, hosts=HOSTS[:1]),
    )
    for wanted, there, what in (
        (head, single[0], "runs here as one server on gpu-a, and is wanted on gpu-a, gpu-b"),
        (single[0], head, "runs here as one server on gpu-a, gpu-b, and is wanted on gpu-a"),
    ):
        made = plan_apply(wanted, facts_of(there))
        assert made.outcome == "blocked" and what in made.problems[0].what


ONE: Mapping[str, Any] = {"container": {"network": None}}


def test_the_head_stops_first_and_all_start_together() -> None:
    rounds = {}
    for name, spec in PAIR.items():
        old = replace(spec, digest="sha256:" + "0" * 64)
        made = plan_apply(
            spec, plans.facts(replace(plans.container(spec, ports=()), labels=labels_of(old)), images=(IMAGE,))
        )
        rounds[name] = [[step.kind for step in steps] for steps in phases(made, spec)]
    first = ["probe", "try GPUs"]
    rest = [["set aside", "wait for GPUs"], ["run"], ["settle"], ["remove"]]
    assert rounds == {"gpu-a": [first, ["stop"], [], *rest], "gpu-b": [first, [], ["stop"], *rest]}


def labels_of(spec: Spec) -> dict[str, str]:
    return {**plans.container(spec).labels, DIGEST: spec.digest}


def test_a_fit_counts_the_gpus_of_all_nodes() -> None:
    one = fit(recipe("vllm", {"engine": {"nodes": 1, "tensor_parallel": 4}, "container": {"network": None}}), 180 * GIB)
    two = fit(recipe("vllm"), 180 * GIB)
    assert one is not None and two is not None and two.weights == one.weights // 2


def test_a_short_container_beside_a_rank_has_no_network() -> None:
    made = plan_apply(PAIR["gpu-a"], facts_of(PAIR["gpu-a"], state=""))
    asked = [step.words for step in made.steps if step.kind in ("probe", "try GPUs")]
    assert [[words[at + 1] for at, word in enumerate(words) if word == "--network"] for words in asked] == [
        ["none"]
    ] * 2
