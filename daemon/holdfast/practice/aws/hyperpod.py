"""HyperPod in the emulator: SageMaker's cluster calls over HTTP, independent of moto.

moto 5.2.5 has CreateCluster and the reading calls, but its node ids do not match the real pattern, and it has no address, no
states and no batch calls. This implementation replaces them; every request and answer is validated against botocore's model."""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from holdfast.practice.aws.calls import Call, CallLog
from holdfast.practice.aws.faults import ApiFault, FaultBook
from holdfast.practice.aws.hyperpod_calls import OPERATIONS, READ_ONLY, HyperpodRequest, SageMakerError, arn
from holdfast.practice.aws.hyperpod_model import answer_errors, request_errors
from holdfast.practice.aws.hyperpod_world import Cluster, HyperpodDelays, cluster_from_json, make_cluster
from holdfast_checks.whole_file import write_whole

log = logging.getLogger(__name__)
StartResponse = Callable[[str, list[tuple[str, str]]], Any]
TARGET = "SageMaker."
"""Prefix of the ``X-Amz-Target`` header."""


class Hyperpod:
    """The emulated clusters. Share the emulator's lock, faults and call log; stored in a separate file."""

    def __init__(
        self,
        state: Path | None,
        lock: threading.Lock,
        faults: FaultBook,
        calls: CallLog,
        now: Callable[[], float] = time.time,
    ) -> None:
        self.delays = HyperpodDelays()
        self.now = now
        self.clusters: dict[str, Cluster] = {}
        self._file = state.with_name(state.name + ".hyperpod") if state is not None else None
        self._lock, self._faults, self._calls = lock, faults, calls
        if self._file is not None and self._file.exists():
            kept = json.loads(self._file.read_text(encoding="utf-8"))
            self.clusters = {name: cluster_from_json(data) for name, data in kept.items()}

    @staticmethod
    def takes(environ: Mapping[str, Any]) -> bool:
        """Whether a request is for SageMaker."""
        return str(environ.get("HTTP_X_AMZ_TARGET", "")).startswith(TARGET)

    def answer(self, environ: Mapping[str, Any], body: bytes, start_response: StartResponse) -> Iterable[bytes]:
        action = str(environ["HTTP_X_AMZ_TARGET"]).removeprefix(TARGET)
        given = json.loads(body or b"{}")
        words = {name: value if isinstance(value, str) else json.dumps(value) for name, value in given.items()}
        with self._lock:
            call = self._calls.begin(action, words, self.now(), replayed=False)
            fault = self._faults.take(action, words)
        if fault is not None and not fault.after:
            time.sleep(fault.delay_s)
            if fault.code:
                return _injected(start_response, call, fault)
        with self._lock:
            status, payload = self._run(action, given, call)
        if fault is not None and fault.after:
            time.sleep(fault.delay_s)
            if fault.code:
                return _injected(start_response, call, fault)
        return _send(start_response, status, payload)

    def _run(self, action: str, given: Any, call: Call) -> tuple[int, dict[str, Any]]:
        try:
            answer = self._perform(action, given, call.effects)
        except SageMakerError as error:
            call.status, call.error = error.status, error.code
            return error.status, {"__type": error.code, "Message": error.message, "message": error.message}
        call.status = 200
        return 200, answer

    def _perform(self, action: str, given: Any, effects: list[str]) -> dict[str, Any]:
        operation = OPERATIONS.get(action)
        if operation is None:
            raise SageMakerError("UnknownOperationException", f"the emulator has no {action}")
        wrong = request_errors(action, given)
        if wrong:
            raise SageMakerError("ValidationException", f"{len(wrong)} validation errors detected: {'; '.join(wrong)}")
        answer = operation(HyperpodRequest(self.cluster(given["ClusterName"]), given, self.delays, self.now(), effects))
        wrong = answer_errors(action, answer)
        if wrong:
            log.error("event=answer_outside_the_model action=%s errors=%s", action, wrong)
            raise SageMakerError("EmulatorError", f"the emulator's answer is not in SageMaker's model: {wrong}", 500)
        if action not in READ_ONLY:
            self.save()
        return answer

    def cluster(self, name: str) -> Cluster:
        """By name or ARN, as in ClusterName. Raises SageMakerError ResourceNotFound."""
        for cluster in self.clusters.values():
            if name in (cluster.name, arn(cluster)):
                return cluster
        raise SageMakerError("ResourceNotFound", f"Cluster {name} does not exist.")

    def make(self, name: str, data: Mapping[str, Any]) -> Cluster:
        """Create a cluster, unless one of this name exists."""
        if name not in self.clusters:
            self.clusters[name] = make_cluster(name, data, len(self.clusters) % 250 + 1, self.now())
            self.save()
        return self.clusters[name]

    def save(self) -> None:
        """Store all clusters on disk, atomically."""
        if self._file is None:
            return
        write_whole(self._file, json.dumps({name: asdict(c) for name, c in self.clusters.items()}))

    def clear(self) -> None:
        """Clear armed refusals and planned failures of replacements; clusters stay."""
        for cluster in self.clusters.values():
            cluster.refusals.clear()
            for slot in cluster.slots:
                slot.doom = ""


def _injected(start_response: StartResponse, call: Call, fault: ApiFault) -> Iterable[bytes]:
    """The JSON protocol's error. Effects of a call whose answer is lost stay recorded."""
    call.status, call.error, call.injected = fault.status, fault.code, True
    return _send(start_response, fault.status, {"__type": fault.code, "message": fault.message})


def _send(start_response: StartResponse, status: int, payload: Mapping[str, Any]) -> Iterable[bytes]:
    body = json.dumps(payload).encode()
    headers = [("Content-Type", "application/x-amz-json-1.1"), ("Content-Length", str(len(body)))]
    start_response(f"{status} -", headers)
    return [body]
