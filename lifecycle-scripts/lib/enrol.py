"""Asks a controller for this node's token, with a question to AWS' STS that the machine's role has signed (docs/how-to-tokens.md).

    enrol.py URL NODE REGION [CA_FILE]     prints the token; the secret key goes nowhere

Standard library only and no newer than Python 3.6. Exit status: 0 printed; 1 not, and why.
"""

import hashlib
import hmac
import json
import os
import ssl
import sys
import time
import urllib.error
import urllib.parse
import urllib.request

BODY = "Action=GetCallerIdentity&Version=2011-06-15"
CONTENT_TYPE = "application/x-www-form-urlencoded; charset=utf-8"
_TIMEOUT_S = 10.0
_IMDS_TIMEOUT_S = 2.0
_MOST_BYTES = 65536


class Failed(Exception):
    """One line."""


def opener(*handlers):
    """No proxy and no redirect: what is sent is for that one place."""

    class Stay(urllib.request.HTTPRedirectHandler):
        def redirect_request(self, *_args):
            return None

    return urllib.request.build_opener(urllib.request.ProxyHandler({}), Stay(), *handlers)


def credentials(imds):
    """(access key, secret, token) of the machine's role."""
    try:
        ask = urllib.request.Request(imds + "/latest/api/token", method="PUT")  # noqa: S310
        ask.add_header("X-aws-ec2-metadata-token-ttl-seconds", "60")
        token = opener().open(ask, timeout=_IMDS_TIMEOUT_S).read(_MOST_BYTES).decode()

        def get(path):
            request = urllib.request.Request(imds + "/latest/meta-data/iam/security-credentials/" + path)  # noqa: S310
            request.add_header("X-aws-ec2-metadata-token", token)
            return opener().open(request, timeout=_IMDS_TIMEOUT_S).read(_MOST_BYTES).decode()

        role = get("").split()
        if not role:
            raise Failed("this machine has no role (instance profile)")
        found = json.loads(get(urllib.parse.quote(role[0], safe="")))
        return found["AccessKeyId"], found["SecretAccessKey"], found["Token"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise Failed(f"the instance metadata gives no role: {error}") from None


def sts_host(region):
    """STS of the region; ``HOLDFAST_STS_HOST`` where the controller asks another one (the endpoint of a VPC)."""
    told = os.environ.get("HOLDFAST_STS_HOST", "")
    return told or "sts.{}.amazonaws.com{}".format(region, ".cn" if region.startswith("cn-") else "")


def sign(keys, region, host, controller, node, now):
    """What goes to the controller: the headers of a POST to STS, signed for this controller and this node alone (SigV4)."""
    access, secret, token = keys
    date = time.strftime("%Y%m%dT%H%M%SZ", now)
    headers = {
        "content-type": CONTENT_TYPE,
        "host": host,
        "x-amz-date": date,
        "x-amz-security-token": token,
        "x-holdfast-controller": controller,
        "x-holdfast-node": node,
    }
    names = ";".join(sorted(headers))
    lines = [f"{name}:{headers[name]}" for name in sorted(headers)]
    digest = hashlib.sha256(BODY.encode()).hexdigest()
    canonical = "\n".join(["POST", "/", "", *lines, "", names, digest])
    scope = "/".join([date[:8], region, "sts", "aws4_request"])
    to_sign = "\n".join(["AWS4-HMAC-SHA256", date, scope, hashlib.sha256(canonical.encode()).hexdigest()])
    key = ("AWS4" + secret).encode()
    for part in scope.split("/"):
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    signature = hmac.new(key, to_sign.encode(), hashlib.sha256).hexdigest()
    authorization = f"AWS4-HMAC-SHA256 Credential={access}/{scope}, SignedHeaders={names}, Signature={signature}"
    return {
        "version": 1,
        "node": node,
        "controller": controller,
        "date": date,
        "authorization": authorization,
        "security_token": token,
    }


def ask(url, body, ca_file):
    """The token. Only over TLS, but to this very machine."""
    parts = urllib.parse.urlsplit(url)
    if parts.scheme != "https" and parts.hostname not in ("127.0.0.1", "::1", "localhost"):
        raise Failed(f"{url}: only https:// takes a token over the network")
    context = ssl.create_default_context(cafile=ca_file or None)
    request = urllib.request.Request(url + "/v1/enrol", data=json.dumps(body).encode(), method="POST")  # noqa: S310
    request.add_header("Content-Type", "application/json")
    try:
        answer = opener(urllib.request.HTTPSHandler(context=context)).open(request, timeout=_TIMEOUT_S)
        return json.loads(answer.read(_MOST_BYTES).decode())["token"]
    except urllib.error.HTTPError as error:
        raise Failed(f"status {error.code}: {reason(error)}") from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise Failed(f"{url}: {error}") from None


def reason(error):
    """The controller's one line, as far as there is one."""
    try:
        text = json.loads(error.read(_MOST_BYTES).decode())["error"]["message"]
        return "".join(c if c.isprintable() else " " for c in text)[:500]
    except (OSError, ValueError, KeyError, TypeError):
        return error.reason


def main():
    url, node, region = sys.argv[1].rstrip("/"), sys.argv[2], sys.argv[3]
    imds = os.environ.get("HOLDFAST_IMDS_URL", "http://169.254.169.254")
    try:
        if not region:
            raise Failed("the region is not known: HOLDFAST_REGION")
        body = sign(credentials(imds), region, sts_host(region), url, node, time.gmtime())
        sys.stdout.write(ask(url, body, sys.argv[4] if len(sys.argv) > 4 else "") + "\n")
    except Failed as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
