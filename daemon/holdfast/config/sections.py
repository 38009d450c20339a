"""The sections of ``controller.toml`` that are not policy. Standard library only."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from holdfast.logs import FORMATS
from holdfast.ports import SLURM_CLIENTS
from holdfast_checks.settings.option import option

LOG_LEVELS = ("debug", "info", "warning", "error")


@dataclass(frozen=True, slots=True)
class ClusterSection:
    name: str = option("", "Name of the cluster; empty: Slurm's own ClusterName. Needed by the provider ec2.")
    slurm_client: str = option(
        "auto",
        "auto, commands or pyslurm; auto takes pyslurm where it fits the running release.",
        one_of=SLURM_CLIENTS,
    )
    slurm_conf: Path | None = option(None, "Exported as SLURM_CONF for Slurm's commands; none: Slurm's own default.")


@dataclass(frozen=True, slots=True)
class ServerSection:
    host: str = option("127.0.0.1", "Address to listen on. Anything but loopback needs TLS.")
    port: int = option(8460, "Port to listen on.", low=0, high=65535)
    tls_cert: Path | None = option(None, "PEM file with the certificate chain.")
    tls_key: Path | None = option(None, "PEM file with its key.")
    max_connections: int = option(
        0,
        "Connections in all at most; 0, and the most: three quarters of the files that the controller may have open.",
        low=0,
    )
    max_connections_per_address: int = option(
        256, "From one address at most; an agent has two. Not for loopback, nor for proxies.", low=2
    )
    proxies: tuple[str, ...] = option(
        (),
        "Addresses or networks (CIDR) that stand for many clients: proxies, load balancers, NAT. Only max_connections bounds them.",
    )


@dataclass(frozen=True, slots=True)
class StoreSection:
    url: str = option(
        "sqlite:////var/lib/holdfast/holdfast.db", "sqlite:////PATH on a local disk, or postgresql://USER@HOST/NAME."
    )
    keep_days: int = option(400, "Events and closed incidents are kept this long.", low=1)
    keep_report_days: int = option(
        30,
        "Ids of reports, by which repeated ones are recognised, are kept this long; an agent repeats what was not answered.",
        low=1,
    )


@dataclass(frozen=True, slots=True)
class ChecksSection:
    """Given to every agent; what a node's own ``agent.toml`` says makes its checks less active (:mod:`holdfast_checks.acting`)."""

    act_on: tuple[str, ...] = option(
        (),
        'New checks whose findings count in full, so that nodes are drained for them; "*": all. The others report warnings.',
    )
    observe_only: tuple[str, ...] = option((), "Proven checks whose findings are only reported as warnings.")
    checks_off: tuple[str, ...] = option(
        (), "Checks that are not run on any node, in addition to disabled_checks of its agent.toml."
    )
    thresholds: dict[str, dict[str, float]] = option(
        {},
        "Thresholds of checks on all nodes, as agent.toml has them: gpu.temperature_margin_c = 5. Where a node's agent.toml has another "
        "value than the default, the one that makes the check less active counts.",
    )


@dataclass(frozen=True, slots=True)
class RouteSection:
    """One ``[[notify.routes]]``: further addresses, and what they take."""

    urls: tuple[str, ...] = option((), "Addresses, as notify.urls.")
    urls_file: Path | None = option(None, "As notify.urls_file.")
    levels: tuple[str, ...] = option(
        ("needs_somebody",), "Of needs_somebody (action needed), healed (happened and healed), digest (daily summary)."
    )
    topics: tuple[str, ...] = option((), "Only these topics (docs/notifications.md); empty: all.")
    nodes: tuple[str, ...] = option((), "Only messages about these nodes, and those about no node; empty: all.")
    partitions: tuple[str, ...] = option((), "The same for nodes of these partitions.")
    quiet_hours: str = option(
        "",
        "Such as 22:00-07:00 Europe/Berlin (UTC without a zone): only what needs an operator is sent; the rest waits.",
    )


@dataclass(frozen=True, slots=True)
class OwnersSection:
    """``[notify.owners]``: mail to the owners of jobs, where ``[jobs] owner_mail`` is on."""

    url: str = option("", "Apprise address of the mail server, a secret; {to} in it is the recipient.")
    url_file: Path | None = option(
        None, "File with that address in its first line; a relative path as in notify.urls_file."
    )
    to: str = option("", "The recipient: {user} in it is the owner's name in Slurm, as in {user}@site.example.")
    pause_s: float = option(
        900.0,
        "After a mail to a user, further notices wait this long and share the next one.",
        low=60,
        high=86_400,
        why="a job that fails each minute would send as many mails",
    )


@dataclass(frozen=True, slots=True)
class NotifySection:
    urls: tuple[str, ...] = option(
        (),
        "Where messages that need an operator go, in addition to the log: Apprise URLs, or alertmanager://HOST:9093 "
        "(alertmanagers:// for https).",
    )
    urls_file: Path | None = option(
        None,
        "File with further URLs, one in each line: they are secrets. A relative path is one below systemd's credentials "
        "(LoadCredential=), otherwise below the folder of this file.",
    )
    routes: tuple[RouteSection, ...] = option(
        (), "Further addresses, each table [[notify.routes]] with its own levels, topics, nodes and quiet hours."
    )
    owners: OwnersSection | None = option(
        None,
        "Table [notify.owners], mail to the owners of jobs: url (of the mail server; {to} in it is the recipient) or url_file, "
        "to (such as {user}@site.example), pause_s (900; between two mails to a user).",
    )
    digest_at: str = option(
        "08:00",
        "When the daily summary is made, for routes that take it: HH:MM, with a zone such as Europe/Berlin or UTC.",
    )
    group_s: float = option(
        60.0,
        "After a message, further notices of its topic wait this long and share the next one; then twice as long, up to 10 minutes.",
        low=0,
        high=3600,
    )
    repeat_s: float = option(86_400.0, "What still needs an operator is sent again after this long; 0: never.", low=0)
    most_per_hour: int = option(
        30, "With more messages of a level in an hour, those that follow share one message.", low=1, high=1000
    )
    runbook_base: str = option("docs", "Address or folder of this documentation, for the links to runbooks.")
    link_base: str = option("", "Address to which an incident's id is added, for links to incidents; empty: none.")


@dataclass(frozen=True, slots=True)
class DashboardSection:
    """The pages for a browser, on the API's own port."""

    enabled: bool = option(True, "Serve the dashboard at /; false: the API alone.")
    hosts: tuple[str, ...] = option(
        (),
        "Further names under which browsers reach this controller. Known without being listed: its host name, localhost, IP addresses. "
        "Any other name in an address is refused.",
    )
    session_hours: float = option(12.0, "A signed-in browser has to sign in again after this long.", low=0.1, high=720)
    proxy_user_header: str = option(
        "",
        "Header in which a reverse proxy names who has signed in there, such as X-Remote-User (docs/dashboard.md); empty: no proxy "
        "is believed.",
    )
    proxy_secret_file: Path | None = option(
        None, "File with the secret by which that proxy proves itself, in the header X-Holdfast-Proxy-Secret."
    )
    proxy_sign_out: str = option(
        "",
        "Path or https:// address at which the proxy signs a browser out, such as /oauth2/sign_out; empty: only Holdfast's session ends.",
    )


@dataclass(frozen=True, slots=True)
class RunSection:
    dir: Path = option(
        Path("/run/holdfast"),
        "Local folder in which controller and actor of one machine have a folder each, where they find each other: locks and sockets.",
    )
    holder: str = option(
        "", "Name of this controller for people, in the log and on `holdfast nodes`; empty: the host name."
    )
    cold_start_s: float = option(
        30.0, "For this long after a start, nothing is concluded from an agent's silence.", low=0
    )


@dataclass(frozen=True, slots=True)
class ActorSection:
    dir: Path = option(Path("/var/lib/holdfast-actor"), "Folder of the actor alone, where it counts what it has done.")
    limit_factor: float = option(
        3.0,
        "The actor does at most this many times what brakes and budgets allow, whatever the store says, and notifies when it refuses a "
        "step; "
        "0: no such limit.",
        low=0,
        high=1000,
    )
    node_orders: bool = option(
        True,
        "Drain and release nodes as operators order it through Holdfast (holdfast node drain, release), in observe mode and during a "
        "pause too, and replace machines as they order it (holdfast node replace); false: the actor refuses these, and operators use "
        "scontrol.",
    )


@dataclass(frozen=True, slots=True)
class QuorumSection:
    enabled: bool = option(True, "Elastic jobs get a rendezvous; false: this site runs no holdfast-quorum.service.")
    store: str = option(
        "sqlite:////var/lib/holdfast-quorum/quorum.db",
        "The service's own database, as store.url; never the controller's, which decides what is done to nodes. Two head nodes: one on "
        "PostgreSQL, with a separate role.",
    )
    socket: Path = option(
        Path("/run/holdfast-quorum/quorum.sock"), "Socket by which the controller speaks to the service."
    )
    key: Path = option(
        Path("/var/lib/holdfast-quorum/quorum.key"),
        "Key from which the secrets of rendezvous are derived; the service makes it at its first start.",
    )
    bind: str = option(
        "127.0.0.1",
        "Address that rendezvous listen on, each on its own port. Jobs on other nodes need one that they reach.",
    )
    advertise: str = option(
        "", "Name or address that jobs connect to; empty: that of bind, or the host name where it is 0.0.0.0 or ::."
    )
    heartbeat_timeout_s: float = option(
        5.0,
        "A group is lost after this long without a heartbeat; its peers wait that long unless Holdfast knows earlier.",
        low=0.2,
        high=3600,
    )
    join_timeout_s: float = option(
        60.0,
        "How long groups that request a quorum wait for live groups that have not requested it.",
        low=0,
        high=86_400,
    )


@dataclass(frozen=True, slots=True)
class EnrolmentSection:
    enabled: bool = option(
        False, "Nodes on EC2 get their token for the identity of their machine (docs/how-to-tokens.md)."
    )
    names: tuple[str, ...] = option(
        (),
        "URLs by which nodes call this controller, as in HOLDFAST_TOKEN_FROM=enrol:URL; a proof for another one is refused.",
    )
    roles: tuple[str, ...] = option((), "Roles of nodes, each as ACCOUNT/ROLE; roles that EC2 alone may take on.")
    sts_url: str = option(
        "",
        "The STS of the nodes' region, such as https://sts.us-west-2.amazonaws.com, or the endpoint of a VPC for it.",
    )


@dataclass(frozen=True, slots=True)
class LogSection:
    format: str = option("text", "Shape of a log line: text (key=value) or json.", one_of=FORMATS)
    level: str = option("info", "debug, info, warning or error.", one_of=LOG_LEVELS)


@dataclass(frozen=True, slots=True)
class TelemetrySection:
    otlp_url: str = option(
        "",
        "Receiver of OTLP/HTTP that takes each closed incident as a trace, with its path: http://127.0.0.1:4318/v1/traces. Empty: none.",
    )
    otlp_header_file: Path | None = option(
        None, "File with one line 'Name: value', such as 'Authorization: Bearer …': a header of each request."
    )
    emf_file: str = option(
        "",
        "File to which metrics are written as CloudWatch's Embedded Metric Format, for its agent to send; -: standard output. Empty: none.",
    )
    emf_interval_s: float = option(60.0, "How often.", low=1, high=3600)
