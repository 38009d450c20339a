"""Machines managed by a site's own script (MAAS, Ironic, xCAT, IPMI): one process per request, see ``contract``."""

from __future__ import annotations

import logging

from holdfast.model.errors import NotFound, OutsideError, Rejected, Unavailable
from holdfast.model.machine import Instance, ProviderCan
from holdfast.providers.command.contract import (
    GONE,
    LAUNCH_FIRST,
    Capabilities,
    Garbage,
    ScriptMachine,
    ScriptQuestion,
    ScriptVerb,
    read_capabilities,
    read_machine,
    words_only,
)
from holdfast.providers.command.script import ProviderScript
from holdfast.providers.command.settings import CommandSettings
from holdfast.providers.limits import LimitedProvider
from holdfast.providers.one_line import one_line
from holdfast_checks.probes.child import Children

log = logging.getLogger(__name__)

CAPABILITIES_DEADLINE_S = 10.0
"""Deadline of ``capabilities``: it is called while the controller starts, and needs nothing from outside."""


class CommandProvider(LimitedProvider):
    """``Provider`` by a script. Thread-safe; every process is bounded by ``deadline_s`` of the settings.

    Calls about one machine, node or token go one after the other.
    :meth:`replace` is for sites where the machine behind a node's name is exchanged or reinstalled in place."""

    def __init__(self, settings: CommandSettings, children: Children | None = None) -> None:
        self._settings = settings
        self._script = ProviderScript(settings.command, children or Children())
        self._known: Capabilities | None = None

    @property
    def name(self) -> str:
        return "command"

    @property
    def can(self) -> ProviderCan:
        """The script's capabilities, read once. If it does not answer: none, with a warning, and it is asked again."""
        try:
            known = self._capabilities()
        except OutsideError as error:
            log.warning('event=provider_command_unusable text="%s"', str(error).replace('"', "'"))
            known = Capabilities(frozenset())
        first = known.verbs >= LAUNCH_FIRST
        return ProviderCan(
            reboot=ScriptVerb.REBOOT in known.verbs,
            replace=first or ScriptVerb.REPLACE in known.verbs,
            launch_first=first,
            status=ScriptVerb.STATUS in known.verbs,
            power_off_confirmed=known.power_off_confirmed,
            replace_in_place=ScriptVerb.REPLACE in known.verbs,
            stop_start=ScriptVerb.STOP_START in known.verbs,
        )

    def instance_of(self, node: str) -> Instance | None:
        """The live machine of the node, as the script reports it."""
        words_only(node=node)
        return _live(self._status(node=node))

    def instance(self, instance_id: str) -> Instance:
        """One machine, read now. Raises NotFound, Rejected for an id that is not safe to pass to a script."""
        words_only(instance_id=instance_id)
        shown = self._status(instance_id=instance_id)
        if shown is None:
            raise NotFound(f"provider command: the script knows no machine {instance_id}")
        return shown.instance

    def find_launched(self, token: str) -> Instance | None:
        """The live machine that carries the token of an earlier ``launch`` or ``replace``."""
        words_only(token=token)
        return _live(self._status(token=token))

    def launch(self, node: str, *, incident: str, token: str) -> Instance:
        """Launch one machine per token: a machine that carries it already is returned, and the script is not called again.

        Raises Rejected when the token's machine is gone, and when the script returns the machine that serves the node."""
        words_only(node=node, token=token)
        self._need(ScriptVerb.LAUNCH)
        earlier = self._earlier(token, node)
        if earlier is not None:
            return earlier
        serving = self.instance_of(node)
        made = self._made(ScriptVerb.LAUNCH, node=node, token=token, incident=incident)
        if serving is not None and made.instance_id == serving.instance_id:
            raise Rejected(
                f"provider command: launch gave {made.instance_id}, which serves {node}: a script that works in place "
                "declares replace, not launch"
            )
        return made

    def replace(self, node: str, instance_id: str, *, incident: str, token: str) -> Instance:
        """Exchange or reinstall the machine behind the node's name in place; the caller has freed the node of jobs.

        Returns once the site has accepted the order: the machine, often ``pending``, whose id may be the same as before.
        Completion is seen from ``instance().state``, the node's new boot id and, for other hardware, its GPU UUIDs.
        Idempotent by token, as ``launch``. Raises InsufficientCapacity, NotPermitted, Rejected, Unavailable."""
        words_only(node=node, instance_id=instance_id, token=token)
        self._need(ScriptVerb.REPLACE)
        earlier = self._earlier(token, node)
        if earlier is not None:
            return earlier
        self._prove(node, instance_id)
        return self._made(ScriptVerb.REPLACE, node=node, instance_id=instance_id, token=token, incident=incident)

    def assign(self, instance_id: str, node: str) -> None:
        """Hand the node's name over. Raises Rejected for a machine that is gone."""
        words_only(instance_id=instance_id, node=node)
        self._need(ScriptVerb.ASSIGN)
        shown = self.instance(instance_id)
        if shown.state in GONE:
            raise Rejected(f"provider command: {instance_id} is {shown.state}, so it can serve no node")
        self._script.ask(self._question(ScriptVerb.ASSIGN, node=node, instance_id=instance_id))

    def terminate(self, instance_id: str) -> None:
        """Release the machine for good; succeeds without calling the script if it is gone or unknown."""
        words_only(instance_id=instance_id)
        self._need(ScriptVerb.TERMINATE)
        try:
            shown = self.instance(instance_id)
        except NotFound:
            log.info("event=terminate_unknown instance=%s", instance_id)
            return
        if shown.state not in GONE:
            self._script.ask(self._question(ScriptVerb.TERMINATE, node=shown.node, instance_id=instance_id))

    def reboot(self, instance_id: str, *, incident: str = "", token: str = "") -> None:
        """Ask for a reboot; with a token, a script that remembers it reboots once, however often it is called."""
        words_only(instance_id=instance_id, **({"token": token} if token else {}))
        self._need(ScriptVerb.REBOOT)
        self._prove(self.instance(instance_id).node, instance_id)
        self._script.ask(self._question(ScriptVerb.REBOOT, instance_id=instance_id, incident=incident, token=token))

    def stop_start(self, instance_id: str, *, incident: str, token: str) -> Instance:
        """Ask for a stop and start; repeat with the same token until the machine starts. Raises Unavailable while it stops or is off."""
        words_only(instance_id=instance_id, token=token)
        self._need(ScriptVerb.STOP_START)
        self._prove(self.instance(instance_id).node, instance_id)
        made = self._made(ScriptVerb.STOP_START, instance_id=instance_id, incident=incident, token=token)
        if made.state not in ("pending", "running"):
            raise Unavailable(f"provider command: {instance_id} is {made.state}, not ready yet: ask again")
        return made

    def _capabilities(self) -> Capabilities:
        if self._known is None:
            question = self._question(ScriptVerb.CAPABILITIES)
            answer = self._script.ask(question)
            try:
                known, strange = read_capabilities(answer)
            except Garbage as error:
                self._script.refuse(question, error)
            if strange:
                log.warning("event=provider_command_strange_verbs verbs=%s", one_line(",".join(strange)))
            self._known = known
        return self._known

    def _need(self, verb: ScriptVerb) -> None:
        if verb not in self._capabilities().verbs:
            raise Rejected(f"provider command: the script does not declare the verb {verb}")

    def _prove(self, node: str, instance_id: str) -> None:
        """Check that the script reports this machine for the node's name before it is asked to act on it. Raises Rejected,
        NotFound for a machine that it does not know."""
        serving = self.instance_of(node) if node else None
        if serving is not None and serving.instance_id != instance_id:
            self.instance(instance_id)
        if serving is None or serving.instance_id != instance_id:
            shown = serving.instance_id if serving is not None else "no machine"
            whose = f"`status` of {node} shows {shown}" if node else "`status` names no node for it"
            raise Rejected(f"provider command: {instance_id} is left alone: {whose}")

    def _earlier(self, token: str, node: str) -> Instance | None:
        """The machine that this token has created already."""
        found = self._status(token=token)
        if found is None:
            return None
        shown = found.instance
        if shown.state in GONE:
            raise Rejected(
                f"provider command: {shown.instance_id} of this attempt is gone: a new attempt needs a new token"
            )
        if shown.node != node:
            raise Rejected(f"provider command: token {token} made {shown.instance_id} for {shown.node!r}, not {node}")
        log.info("event=launch_found node=%s instance=%s token=%s", node, shown.instance_id, token)
        return shown

    def _made(self, verb: ScriptVerb, *, token: str, incident: str, node: str = "", instance_id: str = "") -> Instance:
        question = self._question(verb, node=node, instance_id=instance_id, token=token, incident=incident)
        made = self._machine(question)
        if made is None:
            self._script.refuse(question, Garbage("the answer has no machine"))
        if made.instance.state in GONE:
            self._script.refuse(question, Garbage(f"the machine that it made is {made.instance.state}"))
        return made.instance

    def _status(self, *, node: str = "", instance_id: str = "", token: str = "") -> ScriptMachine | None:
        try:
            return self._machine(self._question(ScriptVerb.STATUS, node=node, instance_id=instance_id, token=token))
        except NotFound:
            return None

    def _machine(self, question: ScriptQuestion) -> ScriptMachine | None:
        answer = self._script.ask(question)
        try:
            return read_machine(answer, question)
        except Garbage as error:
            self._script.refuse(question, error)

    def _question(
        self, verb: ScriptVerb, *, node: str = "", instance_id: str = "", token: str = "", incident: str = ""
    ) -> ScriptQuestion:
        if incident:
            words_only(incident=incident)
        limit_s = self._settings.deadline_s
        if verb is ScriptVerb.CAPABILITIES:
            limit_s = min(limit_s, CAPABILITIES_DEADLINE_S)
        return ScriptQuestion(verb, self._settings.cluster, limit_s, node, instance_id, token, incident)


def _live(machine: ScriptMachine | None) -> Instance | None:
    return machine.instance if machine is not None and machine.instance.state not in GONE else None
