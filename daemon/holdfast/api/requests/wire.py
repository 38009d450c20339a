"""The wire (``docs/reference/wire.md``): parsed tolerantly into pydantic models, converted to the core's nouns.

Unknown fields and kinds of items are left out, unknown words are read as the safe ones (``docs/upgrade.md``). Texts are cut and
cleaned; names that are too long are refused."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any, Literal, TypeVar, get_args

from pydantic import AfterValidator, Base64Bytes, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from holdfast.api.errors import ApiError, first_error
from holdfast.model.agents.report import WIRE_VERSION
from holdfast.model.jobs.said import CONTROL, PATH_MAX, RESTARTS_MAX, UNSHOWN, WHOLE_MAX
from holdfast.unknown import read_word
from holdfast_checks.result import Remedy, Scalar, Severity, Verdict

MAX_AGE_S = 7 * 24 * 3600.0
MAX_ITEMS = 1000
MAX_ENTRIES = 256
"""Entries of one mapping; a node has some tens of evidence values."""
MAX_EVIDENCE = 16 * 1024
"""Characters of one finding's evidence as it is stored, in all its names and texts: it is kept as long as its incident, and read each turn
while that is open."""
MAX_DEPTH = 6
MAX_TEXT = 2000
MAX_BUNDLE_BYTES = 768 * 1024
MAX_WORD = 256
_LONGEST_SILENCE_S = 1e8
_MOST_KINDS = 8
_MOST_INDICES = 1024
"""GRES indices of a node, and device minors."""
_NAME = re.compile(r"^[A-Za-z0-9][A-Za-z0-9._-]{0,251}$")


def clean(text: str, limit: int = MAX_TEXT) -> str:
    """One line without control characters and such as reverse a text, cut to ``limit`` characters."""
    return UNSHOWN.sub(" ", text[: limit * 2]).strip()[:limit]


def _name(text: str) -> str:
    if not _NAME.match(text):
        raise ValueError("must be letters, digits, dot, underscore or hyphen, at most 252 characters")
    return text


def _word(text: str) -> str:
    if len(text) > MAX_WORD:
        raise ValueError(f"must have at most {MAX_WORD} characters")
    return clean(text, MAX_WORD)


def _text(value: object) -> object:
    return clean(value) if isinstance(value, str) else value


def _age(value: object) -> object:
    return 0.0 if value is None else value


def _silence(value: object) -> float | None:
    """Seconds; what makes no sense says nothing: it is no reason to refuse a heartbeat."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    return float(value) if 0 <= value <= _LONGEST_SILENCE_S else None


def _gres(value: object) -> dict[str, tuple[int, ...]] | None:
    """GRES name → minors by index; what makes no sense proves nothing."""
    if not isinstance(value, dict) or len(value) > _MOST_KINDS:
        return None
    return {k: tuple(v) for k, v in value.items() if isinstance(k, str) and _are_minors(v)} or None


def _are_minors(value: object) -> bool:
    return (
        isinstance(value, list)
        and len(value) <= _MOST_INDICES
        and all(type(each) is int and 0 <= each < _MOST_INDICES for each in value)
    )


def _problem(value: object) -> str:
    return clean(value, 300) if isinstance(value, str) else ""


def _version(value: object) -> str | None:
    return clean(value, 64) if isinstance(value, str) else None


def _scalar(value: object) -> Scalar:
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, bool):
        return value
    if isinstance(value, int):
        return value if abs(value) <= WHOLE_MAX else float(value) if abs(value) < 10**300 else clean(str(value)[:80])
    if isinstance(value, float):
        return value
    return "" if value is None else clean(str(value))


def _scalars(value: object) -> dict[str, Scalar]:
    """A flat mapping; nested values become text, everything beyond the bound is dropped."""
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise ValueError("must be an object")
    return {clean(str(k), 100): _scalar(v) for k, v in list(value.items())[:MAX_ENTRIES]}


def _evidence(value: object) -> dict[str, Scalar]:
    """As :func:`_scalars`. All entries stay; where their names and texts are too long together, as they are stored, each is cut to its
    share."""
    found = _scalars(value)
    if sum(_stored(key) + (_stored(v) if isinstance(v, str) else 0) for key, v in found.items()) <= MAX_EVIDENCE:
        return found
    share = MAX_EVIDENCE // len(found)
    short = [(_cut(key, share // 2), v) for key, v in found.items()]
    return {key: _cut(v, share - _stored(key)) if isinstance(v, str) else v for key, v in short}


def _stored(text: str) -> int:
    """Characters of it in the store: those beyond ASCII are written as escapes of six, or twelve."""
    return len(json.dumps(text)) - 2


def _cut(text: str, size: int) -> str:
    """Its beginning, of this size in the store at most."""
    if _stored(text) <= size:
        return text
    fits, used = 0, 0
    for letter in text:
        used += _stored(letter)
        if used > size:
            break
        fits += 1
    return text[:fits]


def _words(value: object) -> object:
    if value is None:
        return ()
    return [clean(v, MAX_WORD) for v in value[:MAX_ENTRIES] if isinstance(v, str)] if isinstance(value, list) else value


def _opt_words(value: object) -> object:
    return _words(value) if isinstance(value, list) else None


def _json(value: object, depth: int = 0) -> Any:
    """Nested values, cleaned and bounded; too deep becomes text."""
    if isinstance(value, Mapping) and depth < MAX_DEPTH:
        return {clean(str(k), 100): _json(v, depth + 1) for k, v in list(value.items())[:MAX_ENTRIES]}
    if isinstance(value, list) and depth < MAX_DEPTH:
        return [_json(v, depth + 1) for v in value[:MAX_ENTRIES]]
    return None if value is None else _scalar(value)


def _details(value: object) -> dict[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise ValueError("must be an object")
    result: dict[str, Any] = _json(value)
    return result


def _path(text: str | None) -> str | None:
    if text is not None and CONTROL.search(text):
        raise ValueError("must have no control characters")
    return text


def _gpus(value: object) -> dict[str, dict[str, Scalar]]:
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise ValueError("must be an object")
    return {clean(str(k), 100): _scalars(v) for k, v in list(value.items())[:MAX_ENTRIES]}


def _word_of(kind: type[StrEnum], where: str, instead: StrEnum | None = None) -> Callable[[object], object]:
    """Reads a word of another release as the safe one; what is no word is for pydantic to refuse."""

    def read(value: object) -> object:
        if not isinstance(value, str):
            return value
        return read_word(kind, value, where, instead) if value else None

    return read


Name = Annotated[str, AfterValidator(_name)]
WireWord = Annotated[str, AfterValidator(_word)]
OptWord = Annotated[str | None, AfterValidator(lambda v: None if v is None else _word(v))]
Text = Annotated[str, BeforeValidator(_text)]
Scalars = Annotated[dict[str, Scalar], BeforeValidator(_scalars)]
WireEvidence = Annotated[dict[str, Scalar], BeforeValidator(_evidence)]
Age = Annotated[float, BeforeValidator(_age)]
OptGres = Annotated[dict[str, tuple[int, ...]] | None, BeforeValidator(_gres)]
OptSilence = Annotated[float | None, BeforeValidator(_silence)]
OptWords = Annotated[tuple[str, ...] | None, BeforeValidator(_opt_words)]
Words = Annotated[tuple[str, ...], BeforeValidator(_words)]
Count = Annotated[int, Field(ge=0, le=WHOLE_MAX)]


M = TypeVar("M", bound=BaseModel)


class _Wire(BaseModel):
    model_config = ConfigDict(extra="ignore", allow_inf_nan=False, frozen=True)


class FindingItem(_Wire):
    """A check's judged result that is not OK. With a verdict that this release does not know it is a finding all the same."""

    kind: Literal["finding"] = "finding"
    check: Annotated[WireWord, Field(min_length=1)]
    component: WireWord = "node"
    code: WireWord = ""
    verdict: Annotated[Verdict, BeforeValidator(_word_of(Verdict, "finding.verdict", Verdict.DEGRADED))]
    severity: Annotated[Severity | None, BeforeValidator(_word_of(Severity, "finding.severity"))] = None
    remedy: Annotated[Remedy | None, BeforeValidator(_word_of(Remedy, "finding.remedy"))] = None
    summary: Text = ""
    age_s: Age = 0.0
    monotonic_s: float | None = None
    wall_time: OptWord = None
    evidence: WireEvidence = {}
    gpu_uuid: OptWord = None
    gpu_minor: Annotated[int, Field(ge=0, le=1023)] | None = None
    pci: OptWord = None
    consequence: bool | None = None
    sticky: bool | None = None
    history: bool | None = None


class ClearItem(_Wire):
    """A positive OK of a check that had found something sticky."""

    kind: Literal["clear"] = "clear"
    check: Annotated[WireWord, Field(min_length=1)]
    component: WireWord = "node"
    age_s: Age = 0.0


class StatementItem(_Wire):
    """What a job said on the node, bound by the agent to the caller's uid and job; ``checkpoint.surveyed``: what the agent found."""

    kind: Literal["statement"] = "statement"
    statement: Literal[
        "checkpoint.register", "checkpoint.saved", "checkpoint.resumed", "checkpoint.surveyed", "progress"
    ]
    job_id: Count
    uid: Annotated[int, Field(ge=0, le=2**32 - 1)]
    restarts: Annotated[int, Field(ge=0, le=RESTARTS_MAX)] = 0
    step: Annotated[int, Field(ge=0, le=WHOLE_MAX)] | None = None
    path: Annotated[Annotated[str, Field(max_length=PATH_MAX)] | None, AfterValidator(_path)] = None
    detail: Scalars = {}
    age_s: Age = 0.0


class InventoryItem(_Wire):
    """The hardware as the agent saw it."""

    kind: Literal["inventory"] = "inventory"
    gpus: Annotated[dict[str, dict[str, Scalar]], BeforeValidator(_gpus)] = {}
    driver_version: WireWord = ""
    detail: Scalars = {}


class OutcomeItem(_Wire):
    """What became of an order."""

    kind: Literal["order_outcome"] = "order_outcome"
    order_id: Annotated[WireWord, Field(min_length=1)]
    ok: bool
    summary: Text = ""
    detail: Annotated[dict[str, Any], BeforeValidator(_details)] = {}
    bundle: Annotated[Base64Bytes, Field(max_length=MAX_BUNDLE_BYTES)] = b""
    age_s: Age = 0.0


STATEMENTS = frozenset(get_args(StatementItem.model_fields["statement"].annotation))
"""Kinds of statements that this release knows."""
WireItem = FindingItem | ClearItem | StatementItem | InventoryItem | OutcomeItem
ITEMS: Mapping[str, type[WireItem]] = {
    "finding": FindingItem,
    "clear": ClearItem,
    "statement": StatementItem,
    "inventory": InventoryItem,
    "order_outcome": OutcomeItem,
}


class Envelope(_Wire):
    """What every message of an agent begins with."""

    version: int
    node: Name
    instance_id: WireWord = ""
    boot_id: Annotated[WireWord, Field(min_length=1)]
    agent_version: WireWord = ""


class ReportBody(Envelope):
    """``POST /v1/reports``. Items are parsed one by one, see :func:`parse_items`."""

    outbox_id: Annotated[WireWord, Field(min_length=1)]
    sequence: Count
    items: Annotated[list[Any], Field(max_length=MAX_ITEMS)] = []


class HeartbeatBody(Envelope):
    """``POST /v1/heartbeats``."""

    interval_s: Annotated[float, Field(ge=0.05, le=3600)] = 10.0
    wall_time: OptWord = None
    all_ok: bool = False
    failing: Words = ()
    fabric_silent_s: OptSilence = None
    authorities: OptWords = None
    act_on: OptWords = None
    observe_only: OptWords = None
    checks_version: Annotated[str | None, BeforeValidator(_version)] = None
    checks_off: OptWords = None
    checks_refused: Annotated[str, BeforeValidator(_problem)] = ""
    gres: OptGres = None
    gres_problem: Annotated[str, BeforeValidator(_problem)] = ""
    set_aside: Annotated[int, Field(ge=0, le=WHOLE_MAX)] | None = None
    set_aside_s: OptSilence = None
    words_wait_s: OptSilence = None


def check_version(message: Mapping[str, Any]) -> None:
    """Versions N and N−1 are accepted. Raises ApiError 422."""
    version = message.get("version")
    if isinstance(version, bool) or not isinstance(version, int):
        raise ApiError(422, "invalid", "version: must be a whole number", "version")
    if not max(1, WIRE_VERSION - 1) <= version <= WIRE_VERSION:
        text = f"Version {version} of the wire is not spoken here, only {WIRE_VERSION}; upgrade the older side"
        raise ApiError(422, "unsupported_version", text, "version")


def parse(model: type[M], message: Mapping[str, Any]) -> M:
    """Validated, or ApiError 422 that names the field."""
    try:
        return model.model_validate(message)
    except ValidationError as error:
        text, field = first_error(error.errors(include_url=False, include_context=False))
        raise ApiError(422, "invalid", clean(text, 500), field and clean(field, 200)) from None


@dataclass(frozen=True, slots=True)
class RefusedItem:
    """An item of a report that was not taken."""

    number: int
    """Its place in the report, from 0."""
    error: ApiError

    @property
    def shown(self) -> dict[str, object]:
        """As the answer names it."""
        return {"item": self.number, "field": self.error.field, "message": self.error.message}


@dataclass(frozen=True, slots=True)
class Items:
    """The items of one report, sorted."""

    taken: tuple[WireItem, ...]
    unknown: int
    """How many are of a kind, or of a kind of statement, that this release does not know."""
    refused: tuple[RefusedItem, ...]


def parse_items(raw: list[Any]) -> Items:
    """Each item separately, so that a bad one keeps no fault from being stored. Raises ApiError 422, naming the first, when all are bad."""
    taken: list[WireItem] = []
    refused: list[RefusedItem] = []
    unknown = 0
    for number, each in enumerate(raw):
        try:
            item = _parse_item(number, each)
        except ApiError as error:
            refused.append(RefusedItem(number, error))
            continue
        if item is None:
            unknown += 1
        else:
            taken.append(item)
    if refused and len(refused) == len(raw):
        raise refused[0].error
    return Items(tuple(taken), unknown, tuple(refused))


def _parse_item(number: int, raw: Any) -> WireItem | None:
    """None: of a kind that this release does not know. Raises ApiError 422 naming the item."""
    if not isinstance(raw, Mapping):
        raise ApiError(422, "invalid", f"items.{number}: must be an object", f"items.{number}")
    kind, statement = raw.get("kind"), raw.get("statement")
    if not isinstance(kind, str):
        raise ApiError(422, "invalid", f"items.{number}.kind: must be a word", f"items.{number}.kind")
    model = ITEMS.get(kind)
    if model is None or (model is StatementItem and isinstance(statement, str) and statement not in STATEMENTS):
        return None
    try:
        return parse(model, raw)
    except ApiError as error:
        field = f"items.{number}.{error.field}" if error.field else f"items.{number}"
        raise ApiError(422, "invalid", f"items.{number}.{error.message}", field) from None
