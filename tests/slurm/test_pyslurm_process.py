"""pyslurm's process: what the worker answers, and what happens to one that hangs or dies. pyslurm itself is a fake."""

from __future__ import annotations

import io
import json
import os
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from types import SimpleNamespace
from typing import Any

import pytest

from holdfast.descriptors import raise_limit
from holdfast.model.errors import NotFound, NotPermitted, Rejected, Unavailable
from holdfast.slurm.pyslurm_client import PyslurmClient
from holdfast.slurm.pyslurm_twin import installed_version
from holdfast.slurm.pyslurm_worker import Verbs, serve

pytestmark = pytest.mark.slow


class FakeError(Exception):
    """In place of pyslurm.PyslurmError and its RPCError."""

    def __init__(self, msg: str) -> None:
        super().__init__(msg)


class FakeJob:
    """A job as pyslurm shows it; ``load`` gives the first record of an array, whichever was asked for."""

    def __init__(self, number: int) -> None:
        self.id = number
        self.user_id = 4242424
        self.done: list[Any] = []

    def __getattr__(self, name: str) -> None:
        if name.startswith("_"):
            raise AttributeError(name)

    @staticmethod
    def load(number: int) -> FakeJob:
        if number > 99:
            raise FakeError("Invalid job id specified")
        return FakeJob(7)

    def get_resource_layout_per_node(self) -> dict[str, dict[str, Any]]:
        return {"n1": {"cpu_ids": "0", "memory": 1, "gres": {"gpu": {"count": 1, "indexes": "3"}}}}


def fake_pyslurm() -> Any:
    jobs = SimpleNamespace(load=lambda: {number: FakeJob(number) for number in (7, 8)})
    return SimpleNamespace(__version__="24.11.0", PyslurmError=FakeError, RPCError=FakeError, Job=FakeJob, Jobs=jobs)


def answers(*requests: dict[str, Any]) -> list[dict[str, Any]]:
    out = io.BytesIO()
    serve([json.dumps(request).encode() for request in requests], out, Verbs(fake_pyslurm()))
    return [json.loads(line) for line in out.getvalue().splitlines()]


def test_answers_and_refusals_stand_one_a_line() -> None:
    hello, refused, again = answers({"verb": "hello"}, {"verb": "job", "job_id": 100}, {"verb": "hello"})
    assert hello == again == {"value": "24.11.0"}
    assert refused == {"error": "Invalid job id specified"}


def test_the_element_that_was_asked_for() -> None:
    seven, eight, gone = answers(*({"verb": "job", "job_id": number} for number in (7, 8, 9)))
    assert (seven["value"]["id"], eight["value"]["id"]) == (7, 8)
    assert gone == {"error": "Invalid job id specified"}


def test_a_user_without_a_name_is_a_number() -> None:
    (answer,) = answers({"verb": "job", "job_id": 7})
    assert answer["value"]["user_name"] == "4242424"
    assert answer["value"]["layout"] == {"n1": {"gpu": {"count": 1, "indexes": "3"}}}


WORKER = """
import json, os, sys, time
for line in sys.stdin:
    verb = json.loads(line)["verb"]
    if verb == "hang":
        time.sleep(30)
    if verb == "die":
        sys.exit(1)
    if verb == "babble":
        print("not json", flush=True)
        continue
    if verb == "big":
        print(json.dumps({"value": "x" * 3_000_000}), flush=True)
        continue
    words = {"away": "Unable to contact slurm controller (connect failure)", "right": "Access/permission denied",
             "gone": "Invalid node name specified", "no": "Job is pending execution"}
    print(json.dumps({"error": words[verb]} if verb in words else {"value": os.getpid()}), flush=True)
"""


@pytest.fixture
def client() -> Iterator[PyslurmClient]:
    client = PyslurmClient(None, 5.0, (sys.executable, "-S", "-c", WORKER))
    yield client
    client.close()


@pytest.mark.parametrize(("verb", "kind"), [("right", NotPermitted), ("gone", NotFound), ("no", Rejected)])
def test_a_refusal_keeps_the_worker(client: PyslurmClient, verb: str, kind: type[Exception]) -> None:
    first = client.ask("pid")
    with pytest.raises(kind, match=f"pyslurm {verb}: "):
        client.ask(verb)
    assert client.ask("pid") == first


@pytest.mark.parametrize("verb", ["away", "die", "babble"])
def test_one_that_is_of_no_use_is_replaced(client: PyslurmClient, verb: str) -> None:
    first = client.ask("pid")
    with pytest.raises(Unavailable, match=f"pyslurm {verb}: "):
        client.ask(verb)
    assert client.ask("pid") != first


def test_one_that_hangs_is_given_up_in_time() -> None:
    client = PyslurmClient(None, 0.5, (sys.executable, "-S", "-c", WORKER))
    began = time.monotonic()
    with pytest.raises(Unavailable, match=r"within 0\.5 s"):
        client.ask("hang")
    assert time.monotonic() - began < 5
    client.close()


def test_a_long_answer_comes_whole(client: PyslurmClient) -> None:
    assert len(client.ask("big")) == 3_000_000


def test_many_at_a_time_take_turns(client: PyslurmClient) -> None:
    with ThreadPoolExecutor(8) as pool:
        assert len(set(pool.map(lambda _: client.ask("pid"), range(40)))) == 1


def test_a_controller_with_thousands_of_connections_hears_its_worker(client: PyslurmClient) -> None:
    """Its pipes then have numbers that select(2) does not take."""
    raise_limit()
    with ExitStack() as many:
        while many.enter_context(open(os.devnull, "rb")).fileno() < 1100:
            pass
        assert isinstance(client.ask("hello"), int)


def test_a_worker_that_cannot_start_is_unavailable() -> None:
    client = PyslurmClient(None, 1.0, ("/nonexistent/python",))
    with pytest.raises(Unavailable, match="pyslurm hello"):
        client.ask("hello")


@pytest.mark.skipif(installed_version() is not None, reason="pyslurm is installed")
def test_without_pyslurm_the_real_worker_ends_and_says_so() -> None:
    client = PyslurmClient(None, 20.0)
    with pytest.raises(Unavailable, match="ended with status 1"):
        client.ask("hello")
