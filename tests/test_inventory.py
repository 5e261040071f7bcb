from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beamdeploy.documents import load
from beamdeploy.errors import InputError
from beamdeploy.hosttree import Named, parse_name
from beamdeploy.hostvalues import Fault
from beamdeploy.inventory import Host, Inventory, load_inventory
from beamdeploy.patterns import select
from beamdeploy.schema import check

DATA = Path(__file__).parent / "data" / "inventory"
EXAMPLE = Path(__file__).parent.parent / "inventories" / "example.yaml"


def read(tmp_path: Path, text: str) -> Inventory:
    file = tmp_path / "hosts.yaml"
    file.write_text(text)
    return load_inventory(str(file), environ={})


def refused(tmp_path: Path, text: str) -> list[tuple[str, int | None, int | None]]:
    """(rule, line, col) of every problem."""
    with pytest.raises(InputError) as caught:
        read(tmp_path, text)
    assert all(problem.what and problem.remedy for problem in caught.value.problems)
    return [(problem.rule, problem.line, problem.col) for problem in caught.value.problems]


def test_ansible_tree_is_read_with_child_over_parent_and_host_over_group() -> None:
    file = str(DATA / "site.yaml")
    beam = "/srv/models/beam"
    assert load_inventory(file, environ={}) == Inventory(
        hosts=(
            Host("alone", user="deploy"),
            Host("gpu-01", user="deploy", port=22, model_dir=beam, gpus=(0, 1, 2, 3)),
            Host(
                "gpu-02",
                user="deploy",
                port=2201,
                model_dir=beam,
                gpus=(0, 1, 2, 3),
                docker=("podman", "--remote"),
                become=True,
            ),
            Host("gpu-03", address="192.0.2.3", user="deploy", port=2203, model_dir=beam, gpus=(0, 1, 2, 3)),
        ),
        groups={
            "all": ("alone", "gpu-01", "gpu-02", "gpu-03"),
            "ungrouped": ("alone",),
            "b300": ("gpu-01", "gpu-02", "gpu-03"),
            "rack1": ("gpu-02", "gpu-03"),
        },
        places={
            "alone": (file, 3, 5),
            "gpu-01": (file, 17, 9),
            "gpu-02": (file, 17, 9),
            "gpu-03": (file, 17, 9),
        },
    )


def test_example_is_an_inventory() -> None:
    assert [host.name for host in load_inventory(str(EXAMPLE), environ={}).hosts] == [
        "gpu-a",
        "gpu-b",
        "lab-01",
        "lab-02",
    ]


def test_folder_is_one_inventory_of_its_yaml_files() -> None:
    assert load_inventory(str(DATA / "folder"), environ={}).hosts == (
        Host("gpu-a", address="192.0.2.10", user="deploy"),
        Host("gpu-b", user="deploy", model_dir="/data/beam"),
    )


def test_files_of_a_folder_that_contradict_each_other_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("all: {hosts: {h: {port: 22}}}\n")
    (tmp_path / "b.yaml").write_text("all: {hosts: {h: {port: 23}}}\n")
    with pytest.raises(InputError) as caught:
        load_inventory(str(tmp_path), environ={})
    (problem,) = caught.value.problems
    assert (problem.rule, problem.file) == ("BD106", str(tmp_path / "b.yaml"))
    assert str(tmp_path / "a.yaml") + ":1" in problem.what


def test_problems_of_all_files_are_told_at_once(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("all: {hosts: {h: {port: x}}}\n")
    (tmp_path / "b.yaml").write_text("all: {hosts: {h: {gpu: [1]}}}\n")
    with pytest.raises(InputError) as caught:
        load_inventory(str(tmp_path), environ={})
    assert [problem.rule for problem in caught.value.problems] == ["BD114", "BD104"]


@pytest.mark.parametrize(
    ("name", "hosts", "said"),
    [
        ("gpu-a", ("gpu-a",), {}),
        ("gpu-[08:10]", ("gpu-08", "gpu-09", "gpu-10"), {}),
        ("gpu-[8:10]", ("gpu-8", "gpu-9", "gpu-10"), {}),
        ("gpu-[:2]", ("gpu-0", "gpu-1", "gpu-2"), {}),
        ("n[1:10:4]", ("n1", "n5", "n9"), {}),
        ("db-[a:c].example", ("db-a.example", "db-b.example", "db-c.example"), {}),
        ("r[1:2]n[a:b]", ("r1na", "r1nb", "r2na", "r2nb"), {}),
        ("root@n[1:2]:2222", ("n1", "n2"), {"user": "root", "port": 2222}),
        ("192.0.2.1:22", ("192.0.2.1",), {"port": 22}),
        ("2001:db8::22", ("2001:db8::22",), {}),
        ("[2001:db8::22]", ("2001:db8::22",), {}),
        ("root@[2001:db8::22]:2200", ("2001:db8::22",), {"user": "root", "port": 2200}),
        ("fe80::1%eth0", ("fe80::1%eth0",), {}),
    ],
)
def test_names(name: str, hosts: tuple[str, ...], said: dict[str, str | int]) -> None:
    assert parse_name(name) == Named(hosts, said)


@pytest.mark.parametrize(
    "name",
    [
        "",
        "-oProxyCommand=x",
        "a b",
        "a;b",
        "a\nb",
        "$(x)",
        "{{ x }}",
        "a[3:1]",
        "a[01:100]",
        "a[1:b]",
        "a[1:3:0]",
        "a[1:]",
        "a[",
        "a[1]",
        "n[0:999999999]",
        "n[1:200][1:200]",
        "a:0",
        "a:65536",
        "a:b",
        "@a",
        "-x@a",
        "a@b@c",
    ],
)
def test_names_that_are_none(name: str) -> None:
    assert isinstance(parse_name(name), Fault)


def test_user_and_port_of_a_name_must_agree_with_the_variables(tmp_path: Path) -> None:
    assert refused(tmp_path, "all: {hosts: {root@a:22: {user: deploy, port: 22}}}\n") == [("BD106", 1, 33)]


def test_every_variable(tmp_path: Path) -> None:
    text = (
        "all: {hosts: {h: {address: '2001:db8::1', user: me, port: 22, connection: ssh, model_dir: /m, gpus: [3, 1],\n"
        "  docker: /opt/docker, known_hosts: ~/.kh, identity_file: ~/.ssh/id, proxy_jump: a@b:1, become: false,\n"
        "  state_dir: ~/state, docker_args: [--ulimit, memlock=-1], gpu_access: devices}}}\n"
    )
    assert read(tmp_path, text).hosts == (
        Host(
            name="h",
            address="2001:db8::1",
            user="me",
            port=22,
            connection="ssh",
            model_dir="/m",
            gpus=(3, 1),
            docker=("/opt/docker",),
            known_hosts="~/.kh",
            identity_file="~/.ssh/id",
            proxy_jump="a@b:1",
            become=False,
            state_dir="~/state",
            docker_args=("--ulimit", "memlock=-1"),
            gpu_access="devices",
        ),
    )


def test_ansible_spellings(tmp_path: Path) -> None:
    text = (
        "all: {hosts: {h: {ansible_host: x, ansible_user: me, user: me, ansible_port: 22, ansible_connection: smart,\n"
        "  ansible_ssh_private_key_file: k, ansible_become: true},\n"
        "  here: {ansible_connection: ansible.builtin.local}}}\n"
    )
    assert read(tmp_path, text).hosts == (
        Host("h", address="x", user="me", port=22, identity_file="k", become=True),
        Host("here", connection="local"),
    )


REFUSED = [
    ("model_dir: models", "BD110"),
    ("model_dir: ~/models", "BD110"),
    ("model_dir: '/srv/models,dst=/etc'", "BD110"),
    ("model_dir: '/srv/\"models'", "BD110"),
    ('model_dir: "/srv/models\\ntouch /tmp/x"', "BD109"),
    ("model_dir: '/srv/models '", "BD109"),
    ("model_dir: '/srv/\\models'", "BD109"),
    ("model_dir: ''", "BD109"),
    ("model_dir: 1", "BD109"),
    ("model_dir: '{{ dir }}'", "BD108"),
    ("model_dir: ", "BD107"),
    ("gpus: ", "BD107"),
    ("gpus: null", "BD107"),
    ("gpus: []", "BD111"),
    ("gpus: 4", "BD111"),
    ("gpus: '0,1'", "BD111"),
    ("gpus: [0, 0]", "BD111"),
    ("gpus: [-1]", "BD111"),
    ("gpus: [true]", "BD111"),
    ("gpus: ['0']", "BD111"),
    ("gpus: '{{ gpus }}'", "BD108"),
    ("docker: sudo docker", "BD112"),
    ("docker: []", "BD112"),
    ("docker: --debug", "BD112"),
    ("docker: [docker, 1]", "BD109"),
    ("docker_args: --privileged", "BD112"),
    ("docker_args: ['a\tb']", "BD109"),
    ("docker_args: [--gpus, all]", "BD122"),
    ("docker_args: [--ulimit, memlock=-1, --rm]", "BD122"),
    ("docker_args: [--name=x]", "BD122"),
    ("docker_args: [memlock=-1]", "BD122"),
    ("docker_args: ['--']", "BD122"),
    ("docker_args: [--ulimit, memlock=-1, '--']", "BD122"),
    ("gpu_access: all", "BD109"),
    ("gpu_access: [cdi]", "BD109"),
    ("gpu_acces: cdi", "BD104"),
    ("port: '22'", "BD114"),
    ("port: 0", "BD114"),
    ("port: 65536", "BD114"),
    ("port: true", "BD114"),
    ("port: 22:22", "BD020"),
    ("connection: smart", "BD113"),
    ("ansible_connection: winrm", "BD113"),
    ("address: root@gpu-a", "BD109"),
    ("address: -oProxyCommand=x", "BD109"),
    ("user: -l", "BD109"),
    ("proxy_jump: -oProxyCommand=x", "BD109"),
    ("identity_file: -x", "BD109"),
    ("state_dir: state", "BD109"),
    ("become: 'yes'", "BD109"),
    ("become: yes", "BD019"),
    ("address: !vault x", "BD016"),
    ("adress: x", "BD104"),
    ("model-dir: /x", "BD104"),
    ("modeldir: /x", "BD104"),
    ("Model_Dir: /x", "BD104"),
    ("gpu: [0]", "BD104"),
    ("identityfile: x", "BD104"),
    ("ansible_prot: 22", "BD104"),
    ("vars: {user: x}", "BD102"),
    ("user: a, ansible_user: b", "BD105"),
]


@pytest.mark.parametrize(("variables", "rule"), REFUSED)
def test_refused_variables(tmp_path: Path, variables: str, rule: str) -> None:
    text = f"all: {{hosts: {{h: {{{variables} }}}}}}\n"
    assert [each[:2] for each in refused(tmp_path, text)] == [(rule, 1)]
    in_group = f"all: {{hosts: {{h: }}, vars: {{{variables} }}}}\n"
    assert [each[:2] for each in refused(tmp_path, in_group)] == [(rule, 1)]


@pytest.mark.parametrize("variables", [variables for variables, rule in REFUSED if "BD107" <= rule <= "BD114"])
def test_an_editor_refuses_the_same_values(tmp_path: Path, variables: str) -> None:
    file = tmp_path / "hosts.yaml"
    file.write_text(f"all: {{hosts: {{h: {{{variables} }}}}}}\n")
    document, _ = load(str(file))
    assert document is not None
    assert tuple(check(document, "inventory"))


@pytest.mark.parametrize(
    "variables",
    ["users: [a]", "ports: [1]", "hostname: x", "foo: yes", "foo: 22:22", "foo: '{{ x }}'", "foo: !vault x", "foo: "],
)
def test_other_variables_pass_untouched(tmp_path: Path, variables: str) -> None:
    inventory = read(tmp_path, f"all: {{hosts: {{h: {{{variables} }}}}}}\n")
    assert (inventory.hosts, inventory.problems) == ((Host("h"),), ())


def test_what_ansible_reads_and_we_do_not_is_a_warning(tmp_path: Path) -> None:
    text = "all: {hosts: {h: {ansible_ssh_common_args: -J x, stage_dir: /x}}}\n"
    assert [(each.rule, each.level, each.line, each.col) for each in read(tmp_path, text).problems] == [
        ("BD119", "warning", 1, 19),
        ("BD104", "warning", 1, 50),
    ]


@pytest.mark.parametrize(
    "words",
    [
        "-e, A_TOKEN=x",
        "--env, A_TOKEN=x",
        "--env=A_TOKEN=x",
        "-eA_TOKEN=x",
        "'-e=A_TOKEN=x'",
        "-e, B=hf_aaaaaaaaaaaaaaaaaaaa",
    ],
)
def test_a_secret_among_docker_args_is_a_warning_that_does_not_repeat_it(tmp_path: Path, words: str) -> None:
    file = tmp_path / "hosts.yaml"
    file.write_text(f"all: {{hosts: {{a: {{docker_args: [--init, {words}]}}}}}}\n", encoding="utf-8")
    read = load_inventory(str(file), environ={})
    assert [(each.rule, each.level) for each in read.problems] == [("BD123", "warning")]
    assert "=x" not in read.problems[0].what and "hf_" not in read.problems[0].what
    assert read.hosts[0].docker_args[0] == "--init"


def test_group_vars_folder_is_a_warning(tmp_path: Path) -> None:
    (tmp_path / "group_vars").mkdir()
    assert [each.rule for each in read(tmp_path, "all: {hosts: {h: }}\n").problems] == ["BD120"]


def test_sibling_groups_that_disagree_are_refused_once(tmp_path: Path) -> None:
    text = "a: {hosts: {h: , i: }, vars: {user: x}}\nb: {hosts: {h: , i: }, vars: {user: y}}\n"
    assert refused(tmp_path, text) == [("BD106", 1, 37)]


@pytest.mark.parametrize(
    ("text", "user"),
    [
        ("a: {hosts: {h: }, vars: {user: x}}\nb: {hosts: {h: }, vars: {user: x}}\n", "x"),
        ("a: {hosts: {h: {user: z}}, vars: {user: x}}\nb: {hosts: {h: }, vars: {user: y}}\n", "z"),
        ("a: {hosts: {h: }, vars: {user: x, ansible_group_priority: 2}}\nb: {hosts: {h: }, vars: {user: y}}\n", "x"),
        ("a: {hosts: {h: }, vars: {user: x}}\nb: {children: {c: {hosts: {h: }, vars: {user: y}}}}\n", "y"),
        ("ungrouped: {vars: {user: x}}\nall: {hosts: {h: }}\n", "x"),
    ],
)
def test_which_group_wins(tmp_path: Path, text: str, user: str) -> None:
    assert read(tmp_path, text).hosts == (Host("h", user=user),)


def test_same_host_in_two_groups_of_one_file_has_the_variables_of_both(tmp_path: Path) -> None:
    text = "a: {hosts: {h: {user: x}}}\nb: {hosts: {h: {port: 22}}}\n"
    assert read(tmp_path, text).hosts == (Host("h", user="x", port=22),)


@pytest.mark.parametrize(
    ("text", "rules"),
    [
        ("all:\n", ["BD115"]),
        ("all: {hosts: }\n", ["BD115"]),
        ("[gpu]\nhost1 ansible_host=x\n", ["BD010", "BD005"]),
        ("- a\n", ["BD010"]),
        ("", ["BD010"]),
        ("a: {children: {b: }}\nb: {children: {a: {hosts: {h: }}}}\n", ["BD102"]),
        ("a: {children: {all: {hosts: {h: }}}}\n", ["BD102"]),
    ],
)
def test_refused_trees(tmp_path: Path, text: str, rules: list[str]) -> None:
    assert [rule for rule, _, _ in refused(tmp_path, text)] == rules


@pytest.mark.parametrize(
    "text",
    [
        "all: {host: {h: }}\n",
        "all: {hosts: {h: }, model_dir: /x}\n",
        "all: {hosts: [h]}\n",
        "all: {hosts: h}\n",
        "all: {hosts: {h: text}}\n",
        "all: {hosts: {h: }, children: [a]}\n",
        "gpu-a: {address: x}\n",
    ],
)
def test_shape_is_closed(tmp_path: Path, text: str) -> None:
    assert refused(tmp_path, text)


def test_an_ini_inventory_is_told_how_to_become_yaml(tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        read(tmp_path, "[gpu]\nhost1\n")
    assert "ansible-inventory -i FILE --list --yaml" in caught.value.problems[0].remedy


def test_comma_form_with_options() -> None:
    inventory = load_inventory("root@gpu-a, [2001:db8::1]:2222", model_dir="/m", gpus=(0, 1), environ={})
    assert inventory == Inventory(
        hosts=(
            Host("gpu-a", user="root", model_dir="/m", gpus=(0, 1)),
            Host("2001:db8::1", port=2222, model_dir="/m", gpus=(0, 1)),
        ),
        groups={"all": ("gpu-a", "2001:db8::1"), "ungrouped": ("gpu-a", "2001:db8::1")},
        places={},
    )


@pytest.mark.parametrize(
    ("source", "rule"),
    [
        ("-x,", "BD103"),
        (",", "BD115"),
        ("a:22,a:23", "BD106"),
        ("gpu-a", "BD101"),
        ("root@gpu-a", "BD101"),
        ("sandbox", "BD121"),
        ("/nowhere/hosts.yaml", "BD001"),
    ],
)
def test_sources_that_are_none(source: str, rule: str) -> None:
    with pytest.raises(InputError) as caught:
        load_inventory(source, environ={})
    assert [problem.rule for problem in caught.value.problems] == [rule]


def test_options_complete_a_file_but_contradict_nothing(tmp_path: Path) -> None:
    file = tmp_path / "hosts.yaml"
    file.write_text("all: {hosts: {a: {gpus: [1]}}}\n")
    assert load_inventory(str(file), model_dir="/m", gpus=(1,), environ={}).hosts == (
        Host("a", model_dir="/m", gpus=(1,)),
    )
    with pytest.raises(InputError) as caught:
        load_inventory(str(file), model_dir="m", gpus=(2,), environ={})
    assert [(each.rule, each.place) for each in caught.value.problems] == [
        ("BD110", "--model-dir"),
        ("BD116", f"{file}:1:25"),
    ]


def test_without_a_source_the_variable_then_the_default_then_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError) as caught:
        load_inventory(None, environ={})
    (problem,) = caught.value.problems
    assert all(way in problem.remedy for way in ("-i", "BEAMDEPLOY_INVENTORY", "inventories/default.yaml"))
    os.mkdir("inventories")
    Path("inventories/default.yaml").write_text("all: {hosts: {from-default: }}\n")
    assert load_inventory(None, environ={}).hosts == (Host("from-default"),)
    assert load_inventory(None, environ={"BEAMDEPLOY_INVENTORY": "a,"}).hosts == (Host("a"),)
    assert load_inventory("b,", environ={"BEAMDEPLOY_INVENTORY": "a,"}).hosts == (Host("b"),)


def test_an_empty_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        load_inventory(str(tmp_path), environ={})
    assert [problem.rule for problem in caught.value.problems] == ["BD101"]


FLEET = Inventory(
    hosts=tuple(map(Host, ("gpu-01", "gpu-02", "gpu-03", "lab", "2001:db8::1"))),
    groups={
        "all": ("gpu-01", "gpu-02", "gpu-03", "lab", "2001:db8::1"),
        "ungrouped": ("lab", "2001:db8::1"),
        "b300": ("gpu-01", "gpu-02", "gpu-03"),
        "rack1": ("gpu-02",),
        "empty": (),
    },
    places={},
)


@pytest.mark.parametrize(
    ("limit", "names"),
    [
        (None, "gpu-01 gpu-02 gpu-03 lab 2001:db8::1"),
        ("all", "gpu-01 gpu-02 gpu-03 lab 2001:db8::1"),
        ("*", "gpu-01 gpu-02 gpu-03 lab 2001:db8::1"),
        ("b300", "gpu-01 gpu-02 gpu-03"),
        ("gpu-*", "gpu-01 gpu-02 gpu-03"),
        ("rack*", "gpu-02"),
        ("gpu-0[13]", "gpu-01 gpu-03"),
        ("gpu-[02:03]", "gpu-02 gpu-03"),
        ("lab,gpu-01", "gpu-01 lab"),
        ("lab:gpu-01", "gpu-01 lab"),
        ("b300:!rack1", "gpu-01 gpu-03"),
        ("!rack1:b300", "gpu-01 gpu-03"),
        ("all,&b300,!gpu-03", "gpu-01 gpu-02"),
        ("!b300", "lab 2001:db8::1"),
        ("&rack1", "gpu-02"),
        ("2001:db8::1", "2001:db8::1"),
        ("[2001:db8::1]", "2001:db8::1"),
        ("lab,2001:db8::1", "lab 2001:db8::1"),
        ("all,!2001:db8::1,!b300", "lab"),
        ("b300[0]", "gpu-01"),
        ("b300[-1]", "gpu-03"),
        ("b300[0:1]", "gpu-01 gpu-02"),
        ("b300[1:]:!gpu-03", "gpu-02"),
        ("ungrouped", "lab 2001:db8::1"),
        ("lab,!empty", "lab"),
    ],
)
def test_limit(limit: str | None, names: str) -> None:
    assert [host.name for host in select(FLEET, limit)] == names.split()


@pytest.mark.parametrize(
    ("limit", "rules"),
    [
        ("gpu-04", ["BD117"]),
        ("lab,!gpu-04,&nobody", ["BD117", "BD117"]),
        ("web-*", ["BD117"]),
        ("empty", ["BD118"]),
        ("lab:&b300", ["BD118"]),
        ("b300[7]", ["BD118"]),
        ("", ["BD118"]),
        (" , ", ["BD118"]),
        ("!", ["BD117"]),
    ],
)
def test_limits_that_leave_nobody(limit: str, rules: list[str]) -> None:
    with pytest.raises(InputError) as caught:
        select(FLEET, limit)
    assert [problem.rule for problem in caught.value.problems] == rules


def test_an_unknown_limit_names_the_closest() -> None:
    with pytest.raises(InputError) as caught:
        select(FLEET, "gpu-1")
    assert caught.value.problems[0].remedy == "did you mean gpu-01 or gpu-03 or gpu-02?"


def test_two_hundred_hosts_are_quick(tmp_path: Path) -> None:
    hosts = "\n".join(f"    gpu-{n}: {{address: 192.0.2.{n}, gpus: [0, 1], model_dir: /m}}" for n in range(200))
    started = time.perf_counter()
    assert len(read(tmp_path, f"all:\n  hosts:\n{hosts}\n").hosts) == 200
    assert time.perf_counter() - started < 15


WORDS = st.sampled_from(
    [
        "all",
        "hosts",
        "children",
        "vars",
        "a",
        "b",
        "gpu-[1:3]",
        "root@c:22",
        "user",
        "ansible_user",
        "port",
        "gpus",
        "x",
    ]
)
LEAVES = st.none() | st.booleans() | st.integers() | st.text(max_size=8) | st.sampled_from(["/m", "yes", "{{ x }}"])
TREES = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=4), max_leaves=20
)


def attempt(file: Path, text: str) -> None:
    file.write_bytes(text.encode("utf-8", "surrogatepass"))
    try:
        assert load_inventory(str(file), environ={}).hosts
    except InputError as error:
        assert error.problems


@settings(max_examples=150, deadline=None)
@given(tree=st.dictionaries(WORDS, TREES, max_size=4))
def test_no_tree_crashes_it(tmp_path_factory: pytest.TempPathFactory, tree: dict[str, object]) -> None:
    import yaml

    attempt(tmp_path_factory.getbasetemp() / "tree.yaml", yaml.safe_dump(tree))


@settings(max_examples=150, deadline=None)
@given(text=st.text(alphabet="ah:{}[],- \n'\"&*!<|@1", max_size=60) | st.text(max_size=60))
def test_no_text_crashes_it(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    attempt(tmp_path_factory.getbasetemp() / "text.yaml", text)


@settings(max_examples=300, deadline=None)
@given(text=st.text(alphabet="agpu-0123[]:!&,*@b ", max_size=30) | st.text(max_size=30))
def test_no_limit_and_no_words_crash_it(text: str) -> None:
    for attempted in (lambda: select(FLEET, text), lambda: load_inventory(text + ",", environ={})):
        try:
            attempted()
        except InputError as error:
            assert error.problems


def test_the_schema_accepts_what_is_read_and_explains_every_property() -> None:
    for file in (EXAMPLE, DATA / "site.yaml"):
        document, _ = load(str(file))
        assert document is not None
        assert tuple(check(document, "inventory")) == ()
