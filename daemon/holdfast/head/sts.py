"""Client of AWS' Security Token Service: asks who signed a request. Needs no credentials: the request carries its own signature."""

from __future__ import annotations

import re
import urllib.parse
from dataclasses import dataclass, field

import urllib3

from holdfast.model.access.enrolment import (
    CONTENT_TYPE,
    CONTROLLER_HEADER,
    NODE_HEADER,
    STS_BODY,
    EnrolmentProof,
    StsIdentity,
    read_identity,
)
from holdfast.model.errors import Rejected, Unavailable

CONNECT_S, READ_S = 3.0, 5.0
ANSWER_BYTES = 16 * 1024


@dataclass
class Sts:
    """One endpoint. Safe to use from many threads."""

    url: str
    """Checked by :func:`holdfast.config.enrolment.check_enrolment`."""
    _pool: urllib3.PoolManager = field(init=False)

    def __post_init__(self) -> None:
        timeout = urllib3.Timeout(connect=CONNECT_S, read=READ_S)
        self._pool = urllib3.PoolManager(num_pools=1, maxsize=2, retries=False, timeout=timeout)

    def identity(self, proof: EnrolmentProof) -> StsIdentity:
        """The signer. Raises Rejected when STS refuses the request or the signer is no machine; Unavailable when STS does not answer."""
        status, answer = self._ask(proof)
        if status >= 500 or status == 429:
            raise Unavailable(f"STS answered {status}")
        if status != 200:
            raise Rejected(f"STS does not take the proof (status {status}{_code(answer)})")
        identity = read_identity(answer)
        if identity is None:
            raise Rejected("STS knows the signer, but as no instance of EC2: its role's session is not named by one")
        return identity

    def _ask(self, proof: EnrolmentProof) -> tuple[int, str]:
        headers = {
            "Content-Type": CONTENT_TYPE,
            "Host": urllib.parse.urlsplit(self.url).netloc,
            "X-Amz-Date": proof.date,
            "X-Amz-Security-Token": proof.security_token,
            CONTROLLER_HEADER: proof.controller,
            NODE_HEADER: proof.node,
            "Authorization": proof.authorization,
            "Accept-Encoding": "identity",
        }
        try:
            answer = self._pool.request(
                "POST",
                f"{self.url.rstrip('/')}/",
                body=STS_BODY,
                headers=headers,
                redirect=False,
                preload_content=False,
            )
            try:
                content = answer.read(ANSWER_BYTES + 1, decode_content=False)
            finally:
                answer.close()
        except urllib3.exceptions.HTTPError as error:
            raise Unavailable(f"STS does not answer: {type(error).__name__}") from error
        if len(content) > ANSWER_BYTES:
            raise Unavailable(f"STS answered with more than {ANSWER_BYTES} bytes")
        return answer.status, content.decode("utf-8", errors="replace")


def _code(answer: str) -> str:
    found = re.search(r"<Code>(\w{1,60})</Code>", answer)
    return f", {found[1]}" if found else ""
