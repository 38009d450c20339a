"""The command line: what it shows, its exit statuses, and one clear line for every error."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from holdfast.api import client
from holdfast.api.client import ApiClient
from holdfast.cli.offline import local
from holdfast.cli.views import audit
from holdfast.store import open_store
from holdfast_checkpoint import Checkpointer

ID = "0h3k5d2m8x1q"
READ = [
    ("nodes",),
    ("nodes", "n1"),
    ("node", "history", "n1"),
    ("node", "sheet", "n1"),
    ("lemons",),
    ("spares",),
    ("incidents",),
    ("incident", "show", ID),
    ("jobs",),
    ("checks",),
    ("metrics",),
    ("night",),
    ("saved",),
    ("audit",),
    ("nodes", "--bad"),
    ("nodes", "n[1-2]"),
]


@pytest.fixture
def config(tmp_path: Path) -> str:
    path = tmp_path / "controller.toml"
    path.write_text(f'[store]\nurl = "sqlite:///{tmp_path}/holdfast.db"\n', encoding="utf-8")
    return str(path)


@pytest.mark.parametrize("verb", READ)
def test_every_read_verb_has_json(holdfast: Any, site: dict[str, str], verb: tuple[str, ...]) -> None:
    got = holdfast(*verb, "--json", **site)
    assert (got.status, got.err) == (0, "")
    assert json.loads(got.out)


SHOWN = [
    (
        ("nodes",),
        [
            "n1",
            "IDLE+DRAIN",
            "reporting",
            "unknown",
            ID,
            "brake drains holds: 4 drains in 10 minutes",
            "fell off the bus",
        ],
    ),
    (
        ("nodes", "n1"),
        [
            "n1  IDLE+DRAIN  8 GPUs, agent reporting",
            "score 1; 1 fault in 28 days",
            "gpu.xid 79",
            "i-1",
            "still out",
            "outages, as read at ",
            "holdfast node history n1",
        ],
    ),
    (("checks", "what-if"), ["it would have made no difference", "0 findings since", "not stored, so not replayed"]),
    (("policy", "show"), ["all nodes, version ", "nothing is set"]),
    (("policy", "diff", os.devnull), ["n[1-2]: mode: act → observe"]),
    (("checks",), ["gpu.xid", "acts", "proven", "observes", "[checks] act_on of", "otherwise on n1: an older agent"]),
    (("spares",), ["holdfast-spares: 1 spare, 0 ready", "2 wanted", "spares.wanted = 2", "its agent does not report"]),
    (("incidents",), [ID, "n1", "awaiting_human", "fatal", "no capacity"]),
    (("incidents", "--open", "--node", "n2"), ["no incidents"]),
    (
        ("incident", "show", ID),
        [
            "+0.250 s",
            "incident.opened",
            "action.done Drain n1",
            "GPU 3 fell off the bus",
            "detect",
            "0.25 s",
            "2.00 s",
            "ann",
        ],
    ),
    (("jobs",), ["7", "ann", "running", ID]),
    (("metrics",), ["1 incident from", "MTTD", "0.25 s", "MTTR (running again)", "3.00 s", "GPU-hours"]),
    (("metrics", "--days", "0.001"), [" from "]),
    (("metrics", "--since", "2h"), ["1 incident from", "MTTD"]),
    (("incidents", "--since", "2 hours ago"), ["since ", " UTC", ID]),
    (("incidents", "--since", "1s"), ["no incidents"]),
    (("jobs", "--since", "yesterday"), ["7", "ann", "running", ID]),
    (("nodes", "--bad"), ["IDLE+DRAIN", "2 nodes: 1 in service, 1 in repair", "1 node shown"]),
    (("nodes", "n[2-3]"), ["n2", "1 node: 1 in service", "not known: n3; `holdfast nodes` lists them"]),
    (("nodes", "--partition", "gpu"), ["no such node"]),
    (
        ("night", "--since", "1h"),
        ["1 incident, 0 healed, 1 needs you; 1 of 1 job recovered", ID, "needs you", "1 of 1"],
    ),
    (("night", "--since", "2d", "--until", "1d"), ["no incident", " to "]),
    (("saved", "--since", "1h"), ["1 job recovered without an operator", "280 min an incident", "estimate: 4.7 hours"]),
    (("saved", "--since", "1h", "--manual-minutes", "60"), ["60 min an incident (the figure that was given)"]),
    (("saved", "--since", "1s"), ["0 jobs recovered without an operator, in 0 incidents"]),
    (("status", "--since", "1h"), ["NOW", "WAITS FOR YOU", "holdfast release drains", ID, "LAST NIGHT", "1 needs you"]),
]


@pytest.mark.parametrize(("verb", "words"), SHOWN)
def test_what_people_see(holdfast: Any, site: dict[str, str], verb: tuple[str, ...], words: list[str]) -> None:
    got = holdfast(*verb, **site)
    assert got.status == 0
    for word in words:
        assert word in got.out


def test_operators_words(holdfast: Any, site: dict[str, str]) -> None:
    for verb, said in (
        (("pause", "-r", "storage"), "paused"),
        (("resume",), "resumed"),
        (("release", "drains"), "now held back: 0 nodes to drain and 0 running jobs to stop"),
        (("incident", "ack", ID, "-r", "mine"), "taken over by op: mine"),
    ):
        got = holdfast(*verb, **site)
        assert got.status == 0, got.err
        assert said in got.out


def test_who_did_what_and_why(holdfast: Any, site: dict[str, str]) -> None:
    assert holdfast("pause", "-r", "storage is slow", **site).status == 0
    assert holdfast("resume", **site).status == 0
    shown = holdfast("audit", "--since", "1h", **site).out
    assert "op" in shown
    rows = [" ".join(row.split()[2:]) for row in shown.splitlines() if " op " in row]
    newest = [row for row in rows if "pause" in row or "resume" in row][:2]
    assert newest == ["op resume", "op pause storage is slow"]
    assert "no operator did anything" in holdfast("audit", "--who", "ann", **site).out
    events = json.loads(holdfast("audit", "--since", "1h", "--json", "--limit", "1", **site).out)["events"]
    assert [e["detail"]["verb"] for e in events] == ["resume"]


def test_a_long_record_is_read_page_by_page(monkeypatch: pytest.MonkeyPatch) -> None:
    pages: dict[Any, list[int]] = {None: list(range(1, 1001)), 1000: [1001, 1002]}

    def get(_self: ApiClient, _path: str, **query: Any) -> Any:
        page = pages[query["after_id"]]
        return {"events": [{"id": n} for n in page], "next_after_id": page[-1]}

    monkeypatch.setenv("HOLDFAST_TOKEN", "t")
    monkeypatch.setattr(ApiClient, "get", get)
    assert [e["id"] for e in audit._events(ApiClient(), datetime.now(UTC))] == list(range(1, 1003))


def test_a_filter_keeps_json_as_the_controller_sent_it(holdfast: Any, site: dict[str, str]) -> None:
    everything = json.loads(holdfast("nodes", "--json", **site).out)
    only = json.loads(holdfast("nodes", "n[1-1],n9", "--json", **site).out)
    assert [n["name"] for n in only["nodes"]] == ["n1"]
    assert only["nodes"][0].keys() == everything["nodes"][0].keys()
    assert {k: v for k, v in only.items() if k != "nodes"}.keys() == {k for k in everything if k != "nodes"}


def test_a_maintenance_window_from_its_order_to_its_end(holdfast: Any, site: dict[str, str]) -> None:
    assert "no maintenance window" in holdfast("maintain", **site).out
    made = holdfast("maintain", "n[1-2]", "--for", "4h", "--why", "vendor", **site)
    assert (made.status, made.err) == (0, "")
    assert "hands off 2 nodes until" in made.out
    (shown,) = json.loads(holdfast("maintain", "--json", **site).out)["windows"]
    assert (shown["nodes"], shown["why"]) == (["n1", "n2"], "vendor")
    ended = holdfast("maintain", "--end", "n1, n2,n3", **site)
    assert (ended.status, "in no window before: n3" in ended.out) == (0, True)
    again = holdfast("maintain", "--end", "n1", **site)
    assert (again.status, "holds n1" in again.err, again.err.count("\n")) == (1, True, 1)
    unknown = holdfast("maintain", "n[1-2],n99", "--for", "4h", "--why", "vendor", **site)
    assert (unknown.status, "knows no node n99" in unknown.err) == (1, True)


@pytest.mark.parametrize("duration", ["30m", "1m", "0.5h", "1d"])
def test_a_window_may_be_given_in_minutes(holdfast: Any, site: dict[str, str], duration: str) -> None:
    assert holdfast("maintain", "n1, n2", "--for", duration, "--why", "vendor", **site).status == 0
    assert holdfast("maintain", "--end", "n[1-2]", **site).status == 0


def test_a_suppression_from_its_word_to_its_end(holdfast: Any, site: dict[str, str]) -> None:
    made = holdfast("suppress", "--check", "gpu.thermal", "--node", "n7", "--for", "3d", "-r", "fan on order", **site)
    assert made.status == 0, made.err
    (shown,) = json.loads(holdfast("suppressions", "--json", **site).out)["suppressions"]
    assert (shown["check"], shown["node"], shown["component"], shown["by"]) == ("gpu.thermal", "n7", "*", "op")
    assert "fan on order" in holdfast("suppressions", **site).out
    assert holdfast("unsuppress", shown["id"], **site).status == 0
    assert "nothing is suppressed" in holdfast("suppressions", **site).out


def test_a_budget_is_extended_and_shown(holdfast: Any, site: dict[str, str]) -> None:
    made = holdfast("budget", "extend", "ended", "--plus", "10", "--for", "4h", "-r", "rack 7", **site)
    assert made.status == 0, made.err
    assert "budget ended is extended by 10 machines (of no more different nodes a day) until" in made.out
    lifted = holdfast("budget", "extend", "ended", "--plus", "1", "--nodes", "3", "--for", "4h", "-r", "x", **site)
    assert "by 1 machine (of 3 more different nodes a day) until" in lifted.out
    shown = holdfast("budget", "show", **site)
    assert "ended (terminated, replaced in place)" in shown.out
    assert shown.status == 0, shown.err
    assert "bought" in shown.out
    assert {b["kind"] for b in json.loads(holdfast("budget", "show", "--json", **site).out)["budgets"]} == {
        "ended",
        "cycled",
        "bought",
    }


ERRORS = [
    (("suppress", "--for", "3d", "-r", "x"), {}, 1, "needs a node, a check or a component"),
    (("suppress", "--node", "n1", "--for", "soon", "-r", "x"), {}, 2, "no duration such as 30m, 8h or 3d"),
    (("unsuppress", "000000000000"), {}, 1, "no suppression"),
    (("budget", "extend", "money", "--plus", "1", "--for", "4h", "-r", "x"), {}, 2, "none of the budgets"),
    (("budget", "extend", "ended", "--plus", "0", "--for", "4h", "-r", "x"), {}, 2, "not between 1 and 1000"),
    (("budget", "extend", "ended", "--plus", "1", "--nodes", "-1", "--for", "4h", "-r", "x"), {}, 2, "between 0 and"),
    (("budget", "extend", "ended", "--plus", "1", "--for", "30d", "-r", "x"), {}, 2, "at most 7d"),
    (("nodes",), {"HOLDFAST_TOKEN": "wrong"}, 2, "not known here"),
    (("nodes",), {"HOLDFAST_TOKEN": "token-user"}, 2, "needs the role viewer or operator"),
    (("nodes",), {"HOLDFAST_URL": "http://127.0.0.1:1"}, 3, "does not answer"),
    (("nodes",), {"HOLDFAST_URL": "localhost:8460"}, 2, "is not a URL"),
    (("nodes",), {"HOLDFAST_URL": "http://[x"}, 2, "is not a URL"),
    (("nodes",), {"HOLDFAST_URL": "http://head:8460"}, 2, "would send your token unencrypted"),
    (("nodes",), {"HOLDFAST_URL": "http://127.0.0.2:1"}, 3, "does not answer"),
    (("nodes",), {"HOLDFAST_CA_FILE": "/nowhere.pem"}, 2, "HOLDFAST_CA_FILE"),
    (("nodes",), {"HOLDFAST_TOKEN": "", "HOLDFAST_TOKEN_FILE": "/nowhere"}, 2, "/nowhere: No such file"),
    (("nodes",), {"HOLDFAST_TOKEN": ""}, 2, "no token"),
    (("incident", "show", "0zzz"), {}, 1, "There is no incident 0zzz"),
    (("incident", "show", "../nodes"), {}, 1, "Not Found"),
    (("incidents", "--since", "last year"), {}, 2, "no time such as yesterday"),
    (("release", "job_stops"), {}, 1, "not tripped"),
    (("release", "job_stops@prod"), {}, 1, "'job_stops@prod' is not tripped"),
    (("release", "drain@prod"), {}, 2, "none of the brakes: drains, job_stops"),
    (("incident", "retry", "0zzz"), {}, 1, "no incident"),
]


@pytest.mark.parametrize(("verb", "env", "status", "words"), ERRORS)
def test_errors_are_one_line(
    holdfast: Any, site: dict[str, str], verb: tuple[str, ...], env: dict[str, str], status: int, words: str
) -> None:
    got = holdfast(*verb, **{**site, **env})
    assert got.status == status, got.err
    assert words in got.err
    assert got.err.startswith("holdfast: ")
    assert got.err.count("\n") == 1
    assert got.out == ""


@pytest.mark.parametrize("argv", [("no-such-verb",), ("nodes", "--no-such-option"), ("incidents", "--limit", "0")])
def test_wrong_use(holdfast: Any, argv: tuple[str, ...]) -> None:
    assert holdfast(*argv).status == 2


class TestConfig:
    def test_check(self, holdfast: Any, config: str) -> None:
        got = holdfast("config", "check", config)
        assert got.status == 0
        assert "mode observe" in got.out

    @pytest.mark.parametrize(
        "url", ["postgresql://h:SECRET@db:5433/hf", "postgresql://db:5433/hf?user=h&password=SECRET"]
    )
    def test_no_password_of_the_database_is_printed(self, holdfast: Any, tmp_path: Path, url: str) -> None:
        path = tmp_path / "controller.toml"
        path.write_text(f'[store]\nurl = "{url}"\n', encoding="utf-8")
        got = holdfast("config", "check", str(path))
        assert (got.status, "store postgresql://db:5433/hf\n" in got.out) == (0, True)
        assert "SECRET" not in got.out + got.err

    def test_what_is_rarely_meant_is_a_warning(self, holdfast: Any, config: str) -> None:
        Path(config).write_text(Path(config).read_text() + "\n[death]\nreboot_grace_s = 20\n", encoding="utf-8")
        got = holdfast("config", "check", config)
        assert got.status == 0
        assert "warning: death.reboot_grace_s = 20: a silent machine is rebooted" in got.out

    def test_what_a_profile_changes_is_printed(self, holdfast: Any, config: str) -> None:
        Path(config).write_text('profile = "practice"\n' + Path(config).read_text(), encoding="utf-8")
        assert "profile practice: repair.quiet_s" in holdfast("config", "check", config).out

    @pytest.mark.parametrize(
        ("text", "words"),
        [("[repair]\nquite_s = 1", "did you mean 'quiet_s'"), ('[store]\nurl = "mysql://x"', "sqlite or postgresql")],
    )
    def test_a_bad_file(self, holdfast: Any, tmp_path: Path, text: str, words: str) -> None:
        path = tmp_path / "bad.toml"
        path.write_text(text, encoding="utf-8")
        got = holdfast("config", "check", str(path))
        assert (got.status, got.err.count("\n")) == (2, 1)
        assert words in got.err

    def test_all_that_is_wrong_is_named_at_once(self, holdfast: Any, tmp_path: Path) -> None:
        path, script = tmp_path / "bad.toml", tmp_path / "script"
        path.write_text(
            f'[cluster]\nname = "c"\n[notify]\nurls = ["nonsense"]\n[store]\nurl = "sqlite:///{tmp_path}/no/h.db"\n'
            f'[provider]\nkind = "command"\ncommand = ["{script}"]\n',
            encoding="utf-8",
        )
        got = holdfast("config", "check", str(path))
        assert (got.status, got.err.count("\n")) == (2, 1)
        for words in (
            "notify.urls[0] an address without",
            f"{script} does not exist on this machine",
            f"the folder {tmp_path}/no does not exist",
        ):
            assert words in got.err
        script.touch(0o644)
        assert f"{script} cannot be executed: chmod +x" in holdfast("config", "check", str(path)).err
        script.chmod(0o755)
        assert str(script) not in holdfast("config", "check", str(path)).err

    @pytest.mark.parametrize("what", ["controller", "agent"])
    def test_the_example_is_printed_as_it_is(self, holdfast: Any, tmp_path: Path, what: str) -> None:
        path = tmp_path / "example.toml"
        path.write_text(holdfast("config", "example", what).out, encoding="utf-8")
        assert path.read_text(encoding="utf-8").startswith("# ")
        if what == "controller":
            text = path.read_text(encoding="utf-8").replace("/var/lib/holdfast", str(tmp_path))
            path.write_text(text, encoding="utf-8")
            assert holdfast("config", "check", str(path)).status == 0


class TestTokens:
    def test_from_cradle_to_grave(self, holdfast: Any, config: str) -> None:
        token = holdfast("token", "create", "agent", "n1", "-c", config).out.strip()
        assert len(token) >= 43
        (row,) = json.loads(holdfast("token", "list", "-c", config, "--json").out)
        assert (row["role"], row["subject"], row["revoked"]) == ("agent", "n1", False)
        assert token not in json.dumps(row)
        assert holdfast("token", "revoke", row["hash"][:12], "-c", config).status == 0
        assert "revoked" in holdfast("token", "list", "-c", config).out

    @pytest.mark.parametrize(
        ("argv", "days"),
        [
            (("operator", "ann"), 90),
            (("user", "1001"), 90),
            (("viewer", "grafana", "--days", "7"), 7),
            (("viewer", "grafana", "--never-ends"), None),
            (("agent", "n1"), None),
            (("agent", "n1", "--days", "1"), 1),
        ],
    )
    def test_a_persons_ends_and_a_nodes_does_not(
        self, holdfast: Any, config: str, argv: tuple[str, ...], days: int | None
    ) -> None:
        assert holdfast("token", "create", *argv, "-c", config).status == 0
        (row,) = json.loads(holdfast("token", "list", "-c", config, "--json").out)
        if days is None:
            assert row["expires_at"] is None
        else:
            made, ends = (datetime.fromisoformat(row[key]) for key in ("created_at", "expires_at"))
            assert ends - made == timedelta(days=days)

    def test_the_list_says_what_is_to_be_seen_to(self, holdfast: Any, config: str, tmp_path: Path) -> None:
        now = datetime.now(UTC)
        ago, ahead = now - timedelta(days=200), now + timedelta(days=3)
        with closing(open_store(tomllib.loads(Path(config).read_text())["store"]["url"])) as store:
            store.add_token("agent", "n1", "a1" * 32, ago)
            store.add_token("operator", "ann", "a2" * 32, now)
            store.add_token("viewer", "grafana", "a3" * 32, now, ahead)
            store.add_token("viewer", "gone", "a4" * 32, ago, now - timedelta(days=1))
            store.tokens_used({"a2" * 32: now})
        lines = holdfast("token", "list", "-c", config).out.splitlines()
        ends = [" ".join(line.split())[-40:] for line in lines]
        assert any(line.endswith("never never valid, old, unused") for line in ends), lines
        assert any(line.endswith("valid, never ends") for line in ends), lines
        assert any(line.endswith("never valid, ends soon") for line in ends), lines
        assert any(line.endswith("ended") for line in ends), lines

    def test_leave_to_enrol_is_for_an_hour(self, holdfast: Any, config: str) -> None:
        got = holdfast("token", "allow", "n1", "-c", config)
        assert (got.status, got.out) == (0, "one machine of n1 may enrol within 60 minutes\n")
        now = datetime.now(UTC)
        with closing(open_store(tomllib.loads(Path(config).read_text())["store"]["url"])) as store:
            open_for = [store.enrolment_open("n1", (), now + timedelta(minutes=m)) for m in (59, 61)]
            assert (open_for, store.enrolment_open("n2", (), now)) == ([True, False], False)

    @pytest.mark.parametrize(
        ("argv", "words"),
        [
            (("create", "root", "me"), "none of agent, user, viewer, operator"),
            (("create", "user", "ann"), "numeric uid"),
            (("create", "viewer", "x", "--days", "1", "--never-ends"), "not both"),
            (("allow", "n[1-4]"), "no node's name"),
            (("revoke", "ab"), "at least 6 digits"),
            (("revoke", "abcdefabcdef"), "0 tokens begin with"),
        ],
    )
    def test_wrong_use(self, holdfast: Any, config: str, argv: tuple[str, ...], words: str) -> None:
        got = holdfast("token", *argv, "-c", config)
        assert got.status == 2
        assert words in got.err


def test_backup(holdfast: Any, config: str, tmp_path: Path) -> None:
    target = tmp_path / "copy.db"
    assert holdfast("backup", str(target), "-c", config).status == 0
    assert target.stat().st_size > 0
    assert holdfast("backup", str(target), "-c", config).status == 1


class TestCheckpoint:
    def test_none_has_a_status_of_its_own(self, holdfast: Any, tmp_path: Path) -> None:
        assert holdfast("checkpoint", "latest", str(tmp_path / "none")).status == 4

    def test_it_works_on_a_node_without_typer(self, tmp_path: Path) -> None:
        bare = "import sys; sys.modules['typer'] = None; from holdfast.cli import main; main()"
        argv = [sys.executable, "-c", bare, "checkpoint", "latest", str(tmp_path)]
        assert subprocess.run(argv, capture_output=True, check=False).returncode == 4
        assert subprocess.run([*argv[:3], "nodes"], capture_output=True, check=False).returncode == 2

    def test_latest_and_verify(self, holdfast: Any, tmp_path: Path) -> None:
        folder = tmp_path / "run"
        folder.mkdir()
        checkpoints = Checkpointer(str(folder))
        checkpoints.resume()
        with checkpoints.save(5) as place:
            (Path(place) / "state.json").write_text("{}", encoding="utf-8")
        got = holdfast("checkpoint", "latest", str(folder))
        assert got.status == 0, got.err
        assert holdfast("checkpoint", "verify", got.out.strip()).status == 0


class TestPractice:
    @pytest.mark.parametrize(
        ("argv", "words"),
        [
            (("n1", "earthquake"), "there is no fault 'earthquake'"),
            (("n1", "xid"), "needs a value"),
            (("n1", "xid", "79"), "no practice cluster"),
        ],
    )
    def test_wrong_use(self, holdfast: Any, tmp_path: Path, argv: tuple[str, ...], words: str) -> None:
        got = holdfast("practice", "inject", *argv, "-d", str(tmp_path))
        assert got.status == 2, got.err
        assert words in got.err


@pytest.mark.slow
def test_help_imports_nothing_heavy() -> None:
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "holdfast.cli", "--help"],
        capture_output=True,
        text=True,
        check=True,
    )
    for heavy in ("fastapi", "sqlalchemy", "boto3", "uvicorn", "alembic", "pydantic"):
        assert f"| {heavy}\n" not in done.stderr.replace(" ", "").replace("|", "| ")
    for verb in (
        "controller",
        "agent",
        "practice",
        "nodes",
        "incidents",
        "jobs",
        "metrics",
        "checkpoint",
        "config",
        "doctor",
    ):
        assert verb in done.stdout


@pytest.mark.slow
def test_the_agents_verb_needs_no_typer() -> None:
    code = "import sys; sys.modules['typer'] = None; sys.modules['rich'] = None; from holdfast.cli import main; main()"
    env = {**os.environ, "PYTHONWARNINGS": "error"}
    done = subprocess.run(
        [sys.executable, "-c", code, "agent", "--help"], capture_output=True, text=True, check=False, env=env
    )
    assert done.returncode == 0, done.stderr
    other = subprocess.run([sys.executable, "-c", code, "nodes"], capture_output=True, text=True, check=False, env=env)
    assert other.returncode == 2
    assert "install the controller's" in other.stderr


def test_the_doctor_knows_a_missing_token_from_a_controller_that_is_down(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("HOLDFAST_TOKEN", "HOLDFAST_TOKEN_FILE", "HOLDFAST_CA_FILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(client, "USER_TOKEN", tmp_path / "none")
    monkeypatch.setenv("HOLDFAST_URL", "http://127.0.0.1:1")
    shown, not_asked, no_answer = local._cluster()
    assert (shown, no_answer) == (None, "")
    assert "HOLDFAST_TOKEN" in not_asked
    monkeypatch.setenv("HOLDFAST_TOKEN", "x" * 43)
    shown, not_asked, no_answer = local._cluster()
    assert (shown, not_asked) == (None, "")
    assert "does not answer" in no_answer


def test_on_a_narrow_terminal_reasons_stand_below_the_table(
    holdfast: Any, site: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The column would be six characters wide next to ``DOWN+DRAIN+NOT_RESPONDING``, and a node as long as the screen."""
    wide = holdfast("nodes", **site).out
    monkeypatch.setattr("holdfast.cli.views.reading.narrow", lambda: True)
    shown = holdfast("nodes", **site).out
    assert ("REASON" in wide, "REASON" in shown) == (True, False)
    (said,) = [each for each in shown.splitlines() if each.startswith("n1: ")]
    assert "fell off the bus" in said
