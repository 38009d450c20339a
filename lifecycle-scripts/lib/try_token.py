"""Asks the controllers whether they take this node's token, which is read from standard input.

    try_token.py NODE CA_FILE URL …      CA_FILE may be empty

Standard library only and no newer than Python 3.6. Exit status: 0 taken; 1 refused, and why; 2 no controller could be asked.
"""

import json
import ssl
import sys
import urllib.error
import urllib.parse
import urllib.request

_TIMEOUT_S = 4.0
_MOST_BYTES = 65536


class Stay(urllib.request.HTTPRedirectHandler):
    """A token is for that one place."""

    def redirect_request(self, *_args):
        return None


def ask(url, token, node, context):
    """(exit status, reason)."""
    parts = urllib.parse.urlsplit(url)
    if parts.scheme != "https" and parts.hostname not in ("127.0.0.1", "::1", "localhost"):
        return 2, f"{url}: only https:// takes a token over the network"
    handlers = urllib.request.ProxyHandler({}), Stay(), urllib.request.HTTPSHandler(context=context)
    request = urllib.request.Request(url.rstrip("/") + "/v1/agent/self")  # noqa: S310
    request.add_header("Authorization", "Bearer " + token)
    try:
        answer = urllib.request.build_opener(*handlers).open(request, timeout=_TIMEOUT_S)
        owner = json.loads(answer.read(_MOST_BYTES).decode())["node"]
        return (0, "") if owner == node else (1, f"it is the token of {owner}")
    except urllib.error.HTTPError as error:
        return (1 if error.code in (401, 403) else 2), f"{url}: {error.code}: {said(error)}"
    except (OSError, ValueError, KeyError, TypeError) as error:
        return 2, f"{url}: {error}"


def said(error):
    """The controller's one line, as far as there is one."""
    try:
        text = json.loads(error.read(_MOST_BYTES).decode())["error"]["message"]
        return "".join(c if c.isprintable() else " " for c in text)[:500]
    except (OSError, ValueError, KeyError, TypeError):
        return error.reason


def main():
    node, ca_file, urls = sys.argv[1], sys.argv[2], sys.argv[3:]
    token = sys.stdin.read().strip()
    try:
        context = ssl.create_default_context(cafile=ca_file or None)
    except OSError as error:
        sys.stderr.write(f"{ca_file}: {error}\n")
        return 2
    told = [ask(url, token, node, context) for url in urls]
    for wanted in (0, 1):
        if any(status == wanted for status, _ in told):
            sys.stderr.write("".join(why for status, why in told if status == wanted)[:500])
            return wanted
    sys.stderr.write("; ".join(why for _, why in told)[:500])
    return 2


if __name__ == "__main__":
    sys.exit(main())
