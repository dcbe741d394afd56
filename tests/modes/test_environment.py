"""What a launcher puts into the environment, and what is not right in it: python -m pytest
tests/modes/test_environment.py"""

import os
import re

import pytest
import torch

from app.config.command_line import load_config
from app.errors import InputError
from app.modes.group import TorchGroup, rendezvous_store
from app.run import work

TWO = {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}


@pytest.fixture
def environment(monkeypatch):
    """Set the launcher's variables, and no others of them."""

    def set_only(variables: dict[str, str]) -> None:
        for name in (*TWO, "LOCAL_RANK", "LOCAL_WORLD_SIZE"):
            monkeypatch.delenv(name, raising=False)
        for name, value in variables.items():
            monkeypatch.setenv(name, value)

    return set_only


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        ({"RANK": "abc"}, "RANK, which a launcher sets, must be a whole number from 0 to .*, found 'abc'"),
        (TWO | {"RANK": "-1"}, "RANK, .* found '-1'; correct it, or unset it to train in one process"),
        (TWO | {"RANK": "2"}, "RANK, .* a whole number from 0 to 1, found '2'"),
        ({"WORLD_SIZE": "0"}, "WORLD_SIZE, .* a whole number from 1 to .* found '0'"),
        ({"WORLD_SIZE": "9" * 5000}, "WORLD_SIZE, .* found '9{40}…'"),
        (TWO | {"LOCAL_RANK": "0.5"}, "LOCAL_RANK, .* found '0.5'"),
        (TWO | {"LOCAL_WORLD_SIZE": ""}, "LOCAL_WORLD_SIZE, .* found ''"),
        ({"WORLD_SIZE": "2"}, r"\(to 2\), found no RANK and no MASTER_ADDR and no MASTER_PORT; start with a"),
        (TWO | {"MASTER_ADDR": ""}, "found no MASTER_ADDR; start with a launcher, .* or unset WORLD_SIZE"),
    ],
)
def test_an_environment_that_no_launcher_makes_is_refused_by_name(environment, capsys, variables, said):
    """The message needs the rank, and is printed all the same."""
    environment(variables)
    assert work(load_config([]), "ddp") == 2
    assert re.search(said, capsys.readouterr().err)


@pytest.mark.parametrize("port", ["http", "0", "65536"])
def test_a_port_that_is_none(environment, port):
    environment(TWO | {"MASTER_PORT": port})
    with pytest.raises(InputError, match=f"variable MASTER_PORT, .* from 1 to 65535, found '{port}'"):
        rendezvous_store(0, 2)


@pytest.mark.parametrize("variables", [{}, {"MASTER_PORT": "29500"}, {"MASTER_ADDR": ""}])
def test_one_process_needs_no_meeting_place(environment, variables):
    environment(variables)
    group = TorchGroup()
    assert (group.rank, group.world_size, group.local_rank, group.local_world_size) == (0, 1, 0, 1)
    rendezvous_store(group.rank, group.world_size).set("a", "b")
    assert "RANK" not in os.environ


CUDA, XPU = torch.device("cuda", 1), torch.device("xpu", 0)


@pytest.mark.parametrize(
    ("device", "is_built", "backend", "bound"),
    [
        ("cpu", True, "gloo", None),
        (CUDA, True, "cpu:gloo,cuda:nccl", CUDA),
        (CUDA, False, "gloo", None),
        (XPU, True, "cpu:gloo,xpu:xccl", XPU),
        ("mps", True, "gloo", None),
    ],
)
def test_a_back_end_of_the_device_is_told_its_device_from_the_start(
    environment, monkeypatch, device, is_built, backend, bound
):
    """Without a GPU nothing more than what torch is asked for can be seen."""
    asked = {}
    torchs = torch.distributed
    monkeypatch.setattr(torchs, "is_backend_available", lambda name: is_built)
    monkeypatch.setattr(torchs, "init_process_group", lambda name, **given: asked.update(given, backend=name))
    environment({})
    TorchGroup().join(torch.device(device), timeout=60)
    assert (asked["backend"], asked["device_id"]) == (backend, bound)
