"""Verbs about messages to people: which were sent, and a test of every address."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.api.client import ApiClient
from holdfast.cli.common.answers import read
from holdfast.cli.common.options import DEFAULT_PATH, Config, Json, SinceOption, Url
from holdfast.cli.common.show import as_json, line, moment
from holdfast.cli.common.when import asked, given
from holdfast.cli.views.reading import listed
from holdfast.model.errors import OutsideError, Usage
from holdfast_checks.words import known

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from holdfast.actor.notice_desk import Place
    from holdfast.api.answers.notice_shapes import DeliveryShape, NoticeShape
    from holdfast.model.notice import Message


def notices(
    url: Url = None,
    as_data: Json = False,
    since: SinceOption = None,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="How many at most.")] = 50,
) -> None:
    """Who was notified in the last 7 days or since a time, of what, and whether it was delivered; newest first."""
    got = ApiClient(url).get("/v1/notices", since=asked(given(since)), limit=limit)
    if as_data:
        as_json(got)
        return
    from holdfast.api.answers.notice_shapes import NoticesShape  # noqa: PLC0415

    rows = [notice_row(each) for each in read(NoticesShape, got).notices]
    columns = ("TIME (UTC)", "LEVEL", "TOPIC", "FOR", "MESSAGE", "DELIVERED")
    listed(columns, rows, "no messages", ("TOPIC", "FOR"))


def notice_row(notice: NoticeShape) -> list[object]:
    from holdfast.model.notice import LEVEL_WORDS  # noqa: PLC0415

    level = "over" if notice.over else LEVEL_WORDS.get(notice.level, str(notice.level))  # type: ignore[call-overload]
    many = notice.stands_for if notice.stands_for > 1 else ""
    return [moment(notice.at)[:19], level, notice.topic, many, notice.subject, delivered(notice.deliveries)]


def delivered(deliveries: Iterable[DeliveryShape]) -> str:
    """``urls[0] mailto://…: delivered``; of several one after the other."""
    texts = [f"{d.address}: {d.outcome.replace('_', ' ')}" + (f" ({d.error})" if d.error else "") for d in deliveries]
    return "; ".join(texts) or "to the log alone"


def send_test(
    config: Config = DEFAULT_PATH,
    level: Annotated[
        str, typer.Option(help="needs_somebody, healed or digest: to the addresses that take this level.")
    ] = "needs_somebody",
) -> None:
    """Send a test to every address of this machine's controller.toml, and say for each whether it was taken."""
    from holdfast.clock import SystemClock  # noqa: PLC0415
    from holdfast.config.controller import load  # noqa: PLC0415
    from holdfast.head.notify import places_of  # noqa: PLC0415
    from holdfast.model.notice import LEVEL_WORDS, Matter, Message, NoticeLevel, Topic  # noqa: PLC0415

    wanted = known(NoticeLevel, level)
    if wanted is None:
        raise Usage(f"--level: {level!r} is none of {', '.join(NoticeLevel)}")
    settings, clock = load(config), SystemClock()
    places = places_of(settings.notify, settings.path.parent, clock, settings.cluster.name)
    mine = [place for place in places if wanted in place.rule.levels]
    if not mine:
        raise OutsideError(f"no address takes {level} ({LEVEL_WORDS[wanted]}): set [notify] urls or [[notify.routes]]")
    matter = Matter(Topic.TEST, "holdfast notify test", f"test of Holdfast's messages: {LEVEL_WORDS[wanted]}", wanted)
    body = "Sent by `holdfast notify test`. Nothing has to be done."
    message = Message("test", clock.now(), wanted, Topic.TEST, matter.subject, body, matters=(matter,))
    failed = sent_to(mine, message)
    if failed:
        raise OutsideError(f"{failed} of {len(mine)} addresses did not take the test; holdfast runbook notifier-fails")


def sent_to(places: Sequence[Place], message: Message) -> int:
    """Send the message to each and print what it said; how many did not take it."""
    failed = 0
    for place in places:
        try:
            place.address.send(message)
        except OutsideError as error:
            failed += 1
            line(f"{place.address.name}: NOT taken: {error}")
        else:
            line(f"{place.address.name}: taken")
    return failed
