"""What a new OpenAPI description takes from clients of an older one: removed routes, parameters and fields, and narrowed values. Pure.

Additions are allowed (docs/how-to-api.md): routes, parameters that may be left out, fields of answers, words of an answer's enum."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

Schema = Mapping[str, Any]
_METHODS = ("get", "post", "put", "patch", "delete")
_DROPPED = frozenset({"description", "summary", "example", "examples", "title", "operationId", "tags", "info"})
_UPPER = ("maximum", "exclusiveMaximum", "maxLength", "maxItems")
_LOWER = ("minimum", "exclusiveMinimum", "minLength", "minItems")


def recorded(spec: Any) -> Any:
    """A description without what is for people: what a release is compared by later."""
    if isinstance(spec, list):
        return [recorded(each) for each in spec]
    if not isinstance(spec, dict):
        return spec
    named = {"properties", "paths", "schemas", "responses"}  # whose keys are names
    return {
        key: {name: recorded(each) for name, each in value.items()}
        if key in named and isinstance(value, dict)
        else recorded(value)
        for key, value in spec.items()
        if key not in _DROPPED
    }


def taken(old: Schema, new: Schema) -> list[str]:
    """What a client of ``old`` may rely on and ``new`` does not give; one line each, empty: nothing."""
    return [line for path in old["paths"] for line in _path(path, old, new)]


def _path(path: str, old: Schema, new: Schema) -> Iterator[str]:
    for method in (m for m in _METHODS if m in old["paths"][path]):
        where, now = f"{method.upper()} {path}", new["paths"].get(path, {}).get(method)
        if now is None:
            yield f"{where}: removed"
            continue
        before = old["paths"][path][method]
        yield from _Diff(old, new).operation(where, before, now)


class _Diff:
    def __init__(self, old: Schema, new: Schema) -> None:
        self._old, self._new = old, new
        self._seen: set[tuple[str, str, bool]] = set()

    def operation(self, where: str, old: Schema, new: Schema) -> Iterator[str]:
        yield from self._parameters(where, _parameters(old), _parameters(new))
        yield from self._body(f"{where}: body", old.get("requestBody"), new.get("requestBody"))
        for status in (s for s in old["responses"] if s.startswith("2")):
            if status not in new["responses"]:
                yield f"{where}: no longer answers {status}"
                continue
            before, now = _content(old["responses"][status]), _content(new["responses"][status])
            for kind in before:
                if kind not in now:
                    yield f"{where}: no longer answers {kind}"
                else:
                    yield from self._schema(f"{where}: answer", before[kind], now[kind], sent=False)

    def _parameters(self, where: str, old: Mapping[Any, Schema], new: Mapping[Any, Schema]) -> Iterator[str]:
        for key, given in old.items():
            name = f"{where}: {key[1]} {key[0]}"
            if key not in new:
                yield f"{name}: removed"
                continue
            if new[key].get("required") and not given.get("required"):
                yield f"{name}: required now"
            yield from self._schema(name, given["schema"], new[key]["schema"], sent=True)
        yield from (
            f"{where}: {k[1]} {k[0]}: new and required" for k, p in new.items() if p.get("required") and k not in old
        )

    def _body(self, where: str, old: Schema | None, new: Schema | None) -> Iterator[str]:
        if new is None:
            if old is not None:
                yield f"{where}: removed"
            return
        if new.get("required") and not (old or {}).get("required"):
            yield f"{where}: required now"
        for kind, schema in _content(old or {}).items():
            if kind in _content(new):
                yield from self._schema(where, schema, _content(new)[kind], sent=True)
            else:
                yield f"{where}: {kind} is no longer accepted"

    def _schema(self, where: str, old: Schema, new: Schema, *, sent: bool) -> Iterator[str]:
        """``sent``: by the client, so that nothing may be refused; otherwise read by it, so that nothing may be missing or of a new
        type."""
        names = (old.get("$ref", ""), new.get("$ref", ""), sent)
        if names[0] and names in self._seen:
            return
        self._seen.add(names)
        before, now = _by_type(old, self._old), _by_type(new, self._new)
        if not before or not now:  # anything: free JSON
            return
        for kind in sorted(before.keys() - _with_wider(now) if sent else now.keys() - _with_wider(before)):
            yield f"{where}: {kind} is no longer accepted" if sent else f"{where}: may be {kind} now"
        for kind in before.keys() & now.keys():
            yield from self._alike(where, before[kind], now[kind], sent=sent)

    def _alike(self, where: str, old: Schema, new: Schema, *, sent: bool) -> Iterator[str]:
        if sent:
            yield from _narrowed(where, old, new)
        yield from self._fields(where, old, new, sent=sent)
        for key in ("items", "additionalProperties"):
            if isinstance(old.get(key), Mapping) and isinstance(new.get(key), Mapping):
                yield from self._schema(f"{where}[]", old[key], new[key], sent=sent)

    def _fields(self, where: str, old: Schema, new: Schema, *, sent: bool) -> Iterator[str]:
        before, now = old.get("properties", {}), new.get("properties", {})
        needed, needs = set(old.get("required", ())), set(new.get("required", ()))
        for name in before:
            if name not in now:
                if not sent or new.get("additionalProperties") is False:
                    yield f"{where}.{name}: removed"
                continue
            yield from self._schema(f"{where}.{name}", before[name], now[name], sent=sent)
        if sent:
            yield from (f"{where}.{name}: required now" for name in sorted(needs - needed))
        else:
            yield from (f"{where}.{name}: may be missing now" for name in sorted((needed - needs) & now.keys()))


def _narrowed(where: str, old: Schema, new: Schema) -> Iterator[str]:
    if "enum" in new and (gone := [each for each in old.get("enum", ["any other"]) if each not in new["enum"]]):
        yield f"{where}: no longer accepts {', '.join(map(str, gone))}"
    for key in (*_UPPER, *_LOWER):
        before, now = old.get(key), new.get(key)
        if now is not None and (before is None or (now < before if key in _UPPER else now > before)):
            yield f"{where}: {key} {before} is {now} now"
    if new.get("pattern") is not None and new.get("pattern") != old.get("pattern"):
        yield f"{where}: another pattern"


def _by_type(schema: Schema, spec: Schema) -> dict[str, Schema]:
    """Each type that a value may have, with what is said of it; empty: any."""
    if "$ref" in schema:
        return _by_type(spec["components"]["schemas"][schema["$ref"].rsplit("/", 1)[1]], spec)
    found: dict[str, Schema] = {}
    for each in (*schema.get("anyOf", ()), *schema.get("oneOf", ()), *schema.get("allOf", ())):
        found |= _by_type(each, spec)
    kinds = schema.get("type", ())
    return found | dict.fromkeys([kinds] if isinstance(kinds, str) else kinds, schema)


def _with_wider(kinds: Mapping[str, Schema]) -> set[str]:
    """A whole number is a number."""
    return {*kinds, *(["integer"] if "number" in kinds else [])}


def _parameters(operation: Schema) -> dict[tuple[str, str], Schema]:
    return {(p["name"], p["in"]): p for p in operation.get("parameters", ())}


def _content(given: Schema) -> dict[str, Schema]:
    return {kind: each.get("schema", {}) for kind, each in given.get("content", {}).items()}
