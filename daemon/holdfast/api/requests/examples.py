"""OpenAPI descriptions of the routes that read their bodies themselves."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

from holdfast.api.requests.wire import HeartbeatBody, ReportBody
from holdfast.model.actions import steps
from holdfast.model.actions.action import Verb
from holdfast.model.actions.steps import StepKey
from holdfast.model.elastic_jobs.room_names import RoomName

_SECURITY: list[dict[str, list[str]]] = [{"bearer": []}]
_ENVELOPE: dict[str, Any] = {
    "version": 1,
    "node": "n1",
    "instance_id": "i-0abc",
    "boot_id": "8c1f2d7e",
    "agent_version": "0.1.0",
}

_FINDING: dict[str, Any] = {
    "kind": "finding",
    "check": "gpu.xid",
    "component": "GPU-6d8f7f2e",
    "code": "79",
    "verdict": "failed",
    "severity": "fatal",
    "remedy": "reboot",
    "summary": "GPU has fallen off the bus",
    "age_s": 0.21,
    "gpu_uuid": "GPU-6d8f7f2e",
    "gpu_minor": 3,
    "pci": "0000:3b:00.0",
    "evidence": {"xid": 79},
}


def _inline(schema: dict[str, Any]) -> dict[str, Any]:
    schema.pop("$defs", None)
    return schema


def _body(schema: dict[str, Any], example: dict[str, Any], answer: dict[str, Any]) -> dict[str, Any]:
    return {
        "security": _SECURITY,
        "requestBody": {
            "required": True,
            "content": {"application/json": {"schema": _inline(schema), "example": example}},
        },
        "responses": _ok(answer),
    }


def enrol(schema: dict[str, Any]) -> dict[str, Any]:
    """The only message that needs no token: it brings one."""
    example = {
        "version": 1,
        "node": "n1",
        "controller": "https://head:8460",
        "date": "20260301T120000Z",
        "authorization": "AWS4-HMAC-SHA256 Credential=ASIA…/20260301/us-west-2/sts/aws4_request, SignedHeaders=…, Signature=…",
        "security_token": "IQoJ…",
    }
    return {**_body(schema, example, {"token": "…", "node": "n1"}), "security": []}


def _ok(answer: dict[str, Any]) -> dict[str, Any]:
    return {
        "200": {
            "description": "Done",
            "content": {"application/json": {"schema": {"type": "object"}, "example": answer}},
        }
    }


def _query(name: str, required: bool, description: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"name": name, "in": "query", "required": required, "description": description, "schema": schema}


REPORT = _body(
    ReportBody.model_json_schema(),
    {**_ENVELOPE, "outbox_id": "5d0e91aa", "sequence": 17, "items": [_FINDING]},
    {"accepted": True, "duplicate": False, "out_of_order": False},
)

HEARTBEAT = _body(
    HeartbeatBody.model_json_schema(),
    {
        **_ENVELOPE,
        "interval_s": 10,
        "wall_time": "2026-01-01T00:00:00.000Z",
        "all_ok": True,
        "failing": [],
        "fabric_silent_s": 0.0,
        "authorities": ["3a3f2a8068448822"],
        "act_on": ["gpu.nvlink"],
        "observe_only": [],
        "gres": {"gpu": [0, 1, 2, 3, 4, 5, 6, 7]},
        "gres_problem": "",
        "set_aside": 0,
        "set_aside_s": None,
        "words_wait_s": 0.0,
    },
    {
        "leader": True,
        "checks": {"act_on": ["gpu.nvlink"], "observe_only": []},
        "neighbour_nodes": ["n7"],
        "neighbours": [["10.2.3.4", 6818]],
        "surveys": [{"job_id": 71, "uid": 1000, "restarts": 0, "dir": "/scratch/me/run7", "every_s": 600.0}],
        "interval_s": 4.0,
    },
)

ORDERS: dict[str, Any] = {
    "security": _SECURITY,
    "parameters": [
        _query("node", True, "The caller's own node.", {"type": "string", "minLength": 1}),
        _query("instance_id", False, "Its machine, empty where no provider knows it.", {"type": "string"}),
        _query("boot_id", True, "Its boot.", {"type": "string", "minLength": 1}),
        _query("wait_s", False, "How long to wait, at most 60.", {"type": "number", "default": 0}),
    ],
    "responses": _ok(
        {
            "orders": [
                {
                    "id": StepKey("0h3k5d2m8x1q", steps.validate("n1", 0), 1).text,
                    "incident": "0h3k5d2m8x1q",
                    "verb": Verb.VALIDATE.value,
                    "args": {},
                    "boot_id": "8c1f2d7e",
                    "instance_id": "i-0abc",
                    "expires_s": 42.0,
                }
            ]
        }
    ),
}


def room(body: type[BaseModel]) -> dict[str, Any]:
    """Of the route that returns a group's rendezvous."""
    told = {
        "room": RoomName(71, 1772366280).text,
        "url": "http://head:40001",
        "token": "…",
        "group": 2,
        "start": "73.0",
    }
    sizes = {"min": 2, "max": 4, "sizes": [2, 4], "spares": 0}
    return _body(body.model_json_schema(), {"job_id": 73, "uid": 1001, "restarts": 0}, {**told, **sizes})
