"""Messages to people, from the events that record them."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

from fastapi import APIRouter
from starlette.responses import Response

from holdfast.api.answers.notice_shapes import DeliveryShape, NoticeShape, NoticesShape
from holdfast.api.deps import Api, ApiStore
from holdfast.api.guards.guarded import READERS, guarded_router
from holdfast.api.reads.reading import Limit, SinceQuery
from holdfast.model.event import Event, EventKind
from holdfast.model.notice import NoticeLevel
from holdfast.unknown import read_word

_ANSWERS = (EventKind.NOTICE_DELIVERED, EventKind.NOTICE_FAILED)
WITHOUT_SINCE = timedelta(days=7)


def notices_router(api: Api) -> APIRouter:
    router = guarded_router(api, "reading", *READERS)
    deps, threads = api.deps, api.threads

    @router.get("/v1/notices", response_model=NoticesShape)
    async def notices(since: SinceQuery = None, limit: Limit = 200) -> Response:
        """Messages to people, newest first: about what, to which addresses, and whether each took it. Without `since`: of 7 days."""
        start = since if since is not None else deps.clock.now() - WITHOUT_SINCE
        return await threads.render(lambda: NoticesShape(notices=newest_notices(deps.store, start, limit)))

    return router


def newest_notices(store: ApiStore, since: datetime, limit: int) -> list[NoticeShape]:
    """Newest first. What the addresses answered is on record after each message."""
    made = store.newest_events(EventKind.NOTICE_MADE, since, limit)
    if not made:
        return []
    answers: list[Event] = []
    while page := store.events(since=since, after_id=answers[-1].id if answers else made[0].id, kinds=_ANSWERS):
        answers += page
    return notices_of(sorted((*made, *answers), key=lambda e: e.id))


def notices_of(events: Iterable[Event]) -> list[NoticeShape]:
    """Newest first. Deliveries of a message that was made before the first event are left out."""
    found: dict[str, NoticeShape] = {}
    for event in events:
        number = str(event.detail.get("message", ""))
        if event.kind is EventKind.NOTICE_MADE:
            found[number] = _made(event, number)
        elif number in found:
            _add(found[number], event)
    return list(reversed(found.values()))


def _made(event: Event, number: str) -> NoticeShape:
    detail = event.detail
    given = detail.get("addresses")
    names = [str(name) for name in given] if isinstance(given, list) else []
    return NoticeShape(
        id=number,
        at=event.at,
        level=read_word(NoticeLevel, detail.get("level"), "Event.detail.level") or NoticeLevel.NEEDS_SOMEBODY,
        topic=str(detail.get("topic", "")),
        subject=event.text,
        stands_for=_whole(detail.get("stands_for"), 1),
        over=detail.get("over") is True,
        incident_id=event.incident_id,
        deliveries=[DeliveryShape(address=name, outcome="waiting") for name in names],
    )


def _add(notice: NoticeShape, event: Event) -> None:
    """What one address answered."""
    name = str(event.detail.get("address", ""))
    delivered = event.kind is EventKind.NOTICE_DELIVERED
    outcome = "delivered" if delivered else "given_up" if event.detail.get("given_up") is True else "failed"
    answer = DeliveryShape(
        address=name,
        outcome=outcome,
        at=event.at,
        attempts=_whole(event.detail.get("attempts"), 0),
        error="" if delivered else str(event.detail.get("error", "")),
    )
    others = [each for each in notice.deliveries if each.address != name]
    notice.deliveries = [*others, answer]


def _whole(value: object, otherwise: int) -> int:
    return value if isinstance(value, int) else otherwise
