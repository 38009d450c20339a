"""Memory that ran out, tasks and CPUs that hang, and a kernel that is broken."""

from __future__ import annotations

from holdfast_checks.kernel.rule import rule
from holdfast_checks.result import Remedy, Severity

OOM = "kernel.oom"
HUNG_TASK = "kernel.hung_task"
LOCKUP = "kernel.lockup"
OOPS = "kernel.oops"

HOST_RULES = (
    # The kill in a job's own cgroup ("Memory cgroup out of memory") is a matter of the job and not listed here.
    rule(
        OOM,
        r"Out of memory: (?:Killed|Kill) process (?P<pid>\d{1,10}) \((?P<process>.{0,32}?)\)(?:,? total-vm:| score |,? UID|$)",
        "global",
        Severity.WARNING,
        Remedy.NONE,
        "the node ran out of memory; killed {process} (pid {pid})",
    ),
    rule(
        HUNG_TASK,
        r"INFO: task (?P<process>.{1,15}):(?P<pid>\d{1,10}) blocked for more than (?P<seconds>\d{1,6}) seconds",
        "blocked",
        Severity.WARNING,
        Remedy.NONE,
        "{process} (pid {pid}) does not come back from the kernel for {seconds} s",
    ),
    rule(
        LOCKUP,
        r"(?:NMI )?(?:watchdog: )?BUG: soft lockup - CPU#(?P<cpu>\d{1,5}) stuck for (?P<seconds>\d{1,6})s!",
        "soft",
        Severity.WARNING,
        Remedy.NONE,
        "CPU {cpu} was stuck in the kernel for {seconds} s",
    ),
    rule(
        LOCKUP,
        r"(?:NMI )?watchdog: Watchdog detected hard LOCKUP on cpu (?P<cpu>\d{1,5})",
        "hard",
        Severity.DEGRADED,
        Remedy.REBOOT,
        "CPU {cpu} took no interrupts any more",
    ),
    rule(
        LOCKUP,
        r"(?:rcu: )?INFO: rcu_\w{2,16} (?:self-)?detected (?:expedited )?stalls? on CPU",
        "rcu_stall",
        Severity.WARNING,
        Remedy.NONE,
        "a CPU held up the kernel's clean-up (RCU stall)",
    ),
    rule(
        OOPS,
        r"BUG: (?P<what>unable to handle (?:page fault for address|kernel (?:paging request|NULL pointer dereference))"
        r"|kernel NULL pointer dereference|Bad page state in process)",
        "oops",
        Severity.DEGRADED,
        Remedy.REBOOT,
        "kernel bug: {what}",
    ),
    rule(
        OOPS,
        r"(?P<what>kernel BUG at [\w./-]{3,120}:\d{1,6}!|Oops: (?:[\w ,-]{1,120}: )?[0-9a-f]{4} \[#\d{1,3}\](?: [A-Z]|$)"
        r"|Internal error: Oops: [0-9a-f]{8,16} \[#\d{1,3}\]|Unable to handle kernel (?:paging request|NULL pointer dereference) at"
        r"|general protection fault, (?:probably|maybe) for \S{3,20} address)",
        "oops",
        Severity.DEGRADED,
        Remedy.REBOOT,
        "kernel bug: {what}",
    ),
    rule(
        OOPS,
        r"Kernel panic - not syncing: (?P<what>.{1,200})",
        "panic",
        Severity.FATAL,
        Remedy.REBOOT,
        "kernel panic: {what}",
    ),
)
