"""A real SMTP server on a port of this machine: speaks RFC 5321 as far as a client that sends one mail needs, or refuses."""

from __future__ import annotations

import socketserver
import threading
from email import message_from_bytes
from email.header import decode_header, make_header
from email.message import Message
from types import TracebackType


class MailServer:
    """``refuses``: answers each recipient 550."""

    def __init__(self) -> None:
        self.refuses = False
        self.mails: list[tuple[tuple[str, ...], Message]] = []
        """Recipients of the envelope, and the mail."""
        outer = self

        class Session(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                outer._serve(self)

        self._server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Session)
        self._server.daemon_threads = True
        self.port = int(self._server.server_address[1])
        self._thread = threading.Thread(target=self._server.serve_forever)

    def subjects(self) -> list[str]:
        return [str(make_header(decode_header(mail["Subject"]))) for _, mail in self.mails]

    def __enter__(self) -> MailServer:
        self._thread.start()
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _serve(self, session: socketserver.StreamRequestHandler) -> None:
        def say(text: str) -> None:
            session.wfile.write(f"{text}\r\n".encode())

        say("220 test ESMTP")
        to: list[str] = []
        for raw in session.rfile:
            line = raw.decode(errors="replace").strip()
            verb = line[:4].upper()
            if verb == "QUIT":
                say("221 bye")
                return
            if verb == "RCPT":
                to.append(line.partition(":")[2].split()[0].strip("<>"))
                say("550 no such user" if self.refuses else "250 ok")
            elif verb == "DATA":
                say("354 continue")
                self.mails.append((tuple(to), message_from_bytes(b"".join(_until_dot(session)))))
                to = []
                say("250 taken")
            elif verb == "EHLO":
                say("250-test\r\n250 AUTH PLAIN")
            else:
                say("235 welcome" if verb == "AUTH" else "250 ok")


def _until_dot(session: socketserver.StreamRequestHandler) -> list[bytes]:
    lines = []
    for raw in session.rfile:
        if raw.rstrip(b"\r\n") == b".":
            break
        lines.append(raw[1:] if raw.startswith(b"..") else raw)
    return lines
