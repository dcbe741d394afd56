"""What a launcher puts into the environment, and what is not right in it: python -m pytest
tests/modes/test_environment.py"""

import pytest
import torch

from app.config.command_line import load_config
from app.modes.group import TorchGroup
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
        ({"RANK": "abc"}, "'abc'"),
        (TWO | {"RANK": "-1"}, "RANK must be from 0 to WORLD_SIZE - 1"),
        (TWO | {"RANK": "2"}, "RANK must be from 0 to WORLD_SIZE - 1"),
        ({"WORLD_SIZE": "0"}, "RANK must be from 0 to WORLD_SIZE - 1"),
        (TWO | {"LOCAL_RANK": "0.5"}, "'0.5'"),
        ({"WORLD_SIZE": "2"}, "environment variable RANK expected, but not set"),
        (TWO | {"MASTER_ADDR": ""}, "environment variable MASTER_ADDR expected, but not set"),
        (TWO | {"MASTER_PORT": "http"}, "'http'"),
        (TWO | {"MASTER_PORT": "65536"}, "from 0 to 65535"),
    ],
)
def test_an_environment_that_no_launcher_makes_is_refused(environment, capsys, variables, said):
    """The message needs the rank, and is printed all the same."""
    environment(variables)
    assert work(load_config([]), "ddp") == 2
    message = capsys.readouterr().err
    assert said in message
    assert "or unset these to train in one process" in message


@pytest.mark.parametrize("variables", [{}, {"MASTER_PORT": "29500"}, {"MASTER_ADDR": ""}])
def test_one_process_needs_no_meeting_place(environment, variables):
    environment(variables)
    group = TorchGroup()
    assert (group.rank, group.world_size, group.local_rank, group.local_world_size) == (0, 1, 0, 1)


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
