"""The wire form of torchft 0.2.0's ``torchft.LighthouseService``, from its published field numbers; nothing is generated.

Only the two calls that a lighthouse answers. Unknown fields are ignored, as in proto3."""

from __future__ import annotations

from typing import Any, NamedTuple

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, timestamp_pb2

from holdfast.quorum.nouns import Quorum

SERVICE = "torchft.LighthouseService"
_LABELS = descriptor_pb2.FieldDescriptorProto
_TYPES = {
    "string": _LABELS.TYPE_STRING,
    "int64": _LABELS.TYPE_INT64,
    "uint64": _LABELS.TYPE_UINT64,
    "bool": _LABELS.TYPE_BOOL,
}
# message → (field, number, type); a type with a dot is a message, a trailing * repeats it.
_SHAPES: dict[str, tuple[tuple[str, int, str], ...]] = {
    "QuorumMember": (
        ("replica_id", 1, "string"),
        ("address", 2, "string"),
        ("store_address", 3, "string"),
        ("step", 4, "int64"),
        ("world_size", 5, "uint64"),
        ("shrink_only", 6, "bool"),
        ("data", 7, "string"),
        ("commit_failures", 8, "int64"),
    ),
    "Quorum": (
        ("quorum_id", 1, "int64"),
        ("participants", 2, ".torchft.QuorumMember*"),
        ("created", 3, ".google.protobuf.Timestamp"),
    ),
    "LighthouseQuorumRequest": (("requester", 1, ".torchft.QuorumMember"),),
    "LighthouseQuorumResponse": (("quorum", 1, ".torchft.Quorum"),),
    "LighthouseHeartbeatRequest": (("replica_id", 1, "string"),),
    "LighthouseHeartbeatResponse": (),
}


class Requester(NamedTuple):
    """A member as received; nothing in it is verified yet."""

    replica_id: str
    address: str
    store_address: str
    step: int
    world_size: int
    shrink_only: bool
    commit_failures: int
    data: str


def _pool() -> descriptor_pool.DescriptorPool:
    """A private descriptor pool, to avoid clashes where torchft's generated messages are loaded too."""
    file = descriptor_pb2.FileDescriptorProto(
        name="holdfast/lighthouse.proto",
        package="torchft",
        syntax="proto3",
        dependency=["google/protobuf/timestamp.proto"],
    )
    for name, fields in _SHAPES.items():
        message = file.message_type.add(name=name)
        for field, number, kind in fields:
            repeated, bare = kind.endswith("*"), kind.rstrip("*")
            added = message.field.add(
                name=field, number=number, label=_LABELS.LABEL_REPEATED if repeated else _LABELS.LABEL_OPTIONAL
            )
            if bare.startswith("."):
                added.type, added.type_name = _LABELS.TYPE_MESSAGE, bare
            else:
                added.type = _TYPES[bare]
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(timestamp_pb2.DESCRIPTOR.serialized_pb)
    pool.AddSerializedFile(file.SerializeToString())
    return pool


_POOL = _pool()


def _class(name: str) -> Any:
    return message_factory.GetMessageClass(_POOL.FindMessageTypeByName(f"torchft.{name}"))


QuorumRequest, QuorumResponse = _class("LighthouseQuorumRequest"), _class("LighthouseQuorumResponse")
HeartbeatRequest, HeartbeatResponse = _class("LighthouseHeartbeatRequest"), _class("LighthouseHeartbeatResponse")
_NOTHING: bytes = HeartbeatResponse().SerializeToString()


def read_quorum_request(raw: bytes) -> Requester:
    """Decode a quorum request; one without a requester gets an empty name. Raises the library's DecodeError."""
    asked = QuorumRequest.FromString(raw).requester
    return Requester(*(getattr(asked, field) for field in Requester._fields))


def read_heartbeat(raw: bytes) -> str:
    return str(HeartbeatRequest.FromString(raw).replica_id)


def write_quorum(formed: tuple[Quorum, float]) -> bytes:
    """A quorum and when it was made, in seconds since 1970."""
    quorum, created_s = formed
    response = QuorumResponse()
    response.quorum.quorum_id = quorum.id
    response.quorum.created.seconds = int(created_s)
    response.quorum.created.nanos = int(created_s % 1 * 1e9)
    for m in quorum.members:
        response.quorum.participants.add(
            replica_id=m.wire_id,
            address=m.address,
            store_address=m.store_address,
            step=m.step,
            world_size=m.world_size,
            shrink_only=m.shrink_only,
            commit_failures=m.commit_failures,
            data=m.data,
        )
    written: bytes = response.SerializeToString()
    return written


def write_nothing(_answer: None) -> bytes:
    return _NOTHING
