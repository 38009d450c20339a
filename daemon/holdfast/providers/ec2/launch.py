"""Launch from the first offer with capacity: failover across types, subnets, templates, reservations and Capacity Blocks."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta

from holdfast.model.errors import InsufficientCapacity, OutsideError, Rejected
from holdfast.model.machine import Instance
from holdfast.providers.aws.calls import Ec2Calls
from holdfast.providers.aws.capacity import Reserved, look_up
from holdfast.providers.aws.errors import translated
from holdfast.providers.aws.instances import GONE_STATES, read_instance
from holdfast.providers.ec2.requests import run_request
from holdfast.providers.ec2.settings import Ec2Settings, Offer

log = logging.getLogger(__name__)


class Ec2Launcher:
    """Launches one machine per token. Thread-safe."""

    def __init__(self, calls: Ec2Calls, settings: Ec2Settings) -> None:
        self._calls, self._settings = calls, settings
        self._asked: dict[str, Offer] = {}
        """Token → the offer whose answer is not known, or which provided the machine: tried first when the token is repeated."""

    def launch(self, node: str, *, incident: str, token: str, role: str) -> Instance:
        """Launch one machine per token, from the first offer that has capacity.

        Looks for an earlier launch of this token first, since an earlier offer may have capacity again by now.
        Raises InsufficientCapacity with every offer's reason, Rejected if the token's machine has ended."""
        earlier = self._earlier(token)
        if earlier is not None:
            log.info("event=launch_found node=%s incident=%s instance=%s", node, incident, earlier.instance_id)
            return earlier
        refusals: list[str] = []
        skipped = self._skipped()
        for offer in self._in_order(token):
            if offer in skipped:
                log.info("event=offer_skipped node=%s offer=%s reason=%r", node, offer, skipped[offer])
                refusals.append(f"{offer}: {skipped[offer]}")
                continue
            try:
                return self._run(offer, node, incident, token, role)
            except InsufficientCapacity as error:
                self._asked.pop(token, None)
                refusals.append(f"{offer}: {error}")
        raise InsufficientCapacity(f"no offer has a machine for {node}: {'; '.join(refusals)}")

    def prove_worthwhile(self, node: str) -> None:
        """Check before a machine is terminated for the next: raises InsufficientCapacity when every offer would be skipped."""
        skipped = self._skipped()
        if all(offer in skipped for offer in self._settings.offers):
            reasons = "; ".join(f"{offer}: {why}" for offer, why in skipped.items())
            raise InsufficientCapacity(f"no offer would have a machine for {node}, so its old one stays: {reasons}")

    def _skipped(self) -> dict[Offer, str]:
        """Offers that are skipped now, with the reason."""
        reserved = self._reserved()
        now, margin_s = self._calls.time.now(), self._settings.block_margin_s
        reasons = {offer: why_skip(offer, reserved, now, margin_s) for offer in self._settings.offers}
        return {offer: why_not for offer, why_not in reasons.items() if why_not}

    def _earlier(self, token: str) -> Instance | None:
        earlier = self._calls.launched(token)
        if earlier is None and len(self._settings.offers) > 1 and token not in self._asked:
            # The previous process may have used a later offer a moment ago, which EC2 does not show yet.
            self._calls.await_consistency()
            earlier = self._calls.launched(token)
        return earlier

    def _in_order(self, token: str) -> Iterator[Offer]:
        """The offers; one already used with this token comes first, since its ClientToken returns the same machine."""
        asked = self._asked.get(token)
        if asked is not None:
            yield asked
        yield from (offer for offer in self._settings.offers if offer != asked)

    def _reserved(self) -> dict[str, Reserved]:
        """The offers' reservations as far as known. A reservation that cannot be read does not prevent a launch."""
        ids = [offer.capacity_reservation_id for offer in self._settings.offers if offer.capacity_reservation_id]
        if not ids:
            return {}
        try:
            return look_up(self._calls.client, ids)
        except OutsideError as error:
            log.warning("event=reservations_unknown ids=%s error=%r", ",".join(ids), str(error))
            return {}

    def _run(self, offer: Offer, node: str, incident: str, token: str, role: str) -> Instance:
        request = run_request(self._settings, offer, node=node, incident=incident, token=token, role=role)
        self._asked[token] = offer
        with translated("RunInstances"):
            raw = self._calls.client.run_instances(**request)["Instances"][0]
        launched = read_instance(raw, self._calls.keys)
        if launched.state in GONE_STATES:
            raise Rejected(
                f"RunInstances: {launched.instance_id}, the machine of this attempt, is {launched.state}: "
                "a new attempt needs a new token"
            )
        log.info(
            "event=launched node=%s incident=%s instance=%s offer=%s token=%s",
            node, incident, launched.instance_id, offer, request.get("ClientToken"),
        )  # fmt: skip
        return launched


def why_skip(offer: Offer, reserved: Mapping[str, Reserved], now: datetime, margin_s: float) -> str:
    """Why no machine should be requested from this offer now; empty: request. If the reservation was not seen, try: EC2 decides."""
    known = reserved.get(offer.capacity_reservation_id)
    if known is None:
        return ""
    if known.state != "active":
        return f"{known.reservation_id} is {known.state}"
    if known.block and known.ends_at is not None and known.ends_at <= now + timedelta(seconds=margin_s):
        return f"Capacity Block {known.reservation_id} ends at {known.ends_at:%Y-%m-%d %H:%M} UTC, too soon for a new machine"
    return ""
