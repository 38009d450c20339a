"""Errors that drivers log of EFA's admin queue and of mlx5's firmware."""

from __future__ import annotations

from holdfast_checks.kernel.rule import PCI, rule
from holdfast_checks.result import Remedy, Severity

EFA = "kernel.efa"
MLX5 = "kernel.mlx5"

_EFA_HEADS = (
    (rf"efa {PCI} (?P<device>\w{{1,32}}): ", "{device}", "pci"),
    (rf"efa {PCI}(?: \(\w{{1,20}}\)| )?: ", "{pci}", "pci"),
    (r"infiniband (?P<device>(?:rdmap\d|efa_)\w{1,24}): ", "{device}", ""),
)
"""``ibdev_err`` prints driver, address and device; at probe there is no device yet; old kernels print the device alone.
Head, component, what must be in sysfs."""

_TIMEOUT = (
    r"Wait for completion \(polling\) timeout|The device didn't send any completion for admin cmd (?P<command>\w{1,40})"
)
_MSIX = r"The device sent a completion but the driver didn't receive any MSI-X interrupt"
_CLOSED = r"Admin queue is closed"
_NOT_READY = r"Device isn't ready|Reset indication didn't turn o(?:n|ff)"
_FAILED = (
    r"Failed to (?:process|submit) command (?P<command>\w{1,40}) \(opcode (?P<opcode>\d{1,5})\)"
    r"(?: comp_status (?P<status>\d{1,5}))? err (?P<err>-?\d{1,5})"
)

EFA_RULES = tuple(
    rule(EFA, rf"{head}(?:{text})", code, severity, remedy, summary, component=component, device=device)
    for head, component, device in _EFA_HEADS
    for text, code, severity, remedy, summary in (
        (_TIMEOUT, "admin_timeout", Severity.FATAL, Remedy.REBOOT, "EFA firmware did not answer an admin command"),
        (_MSIX, "lost_interrupt", Severity.DEGRADED, Remedy.REBOOT, "EFA answered, but its interrupt was lost"),
        (_CLOSED, "admin_closed", Severity.FATAL, Remedy.REBOOT, "EFA's admin queue is closed: no new connections"),
        (_NOT_READY, "not_ready", Severity.FATAL, Remedy.REBOOT, "EFA device is not ready"),
        # A program can cause this (it requests more than the device has), so it is only recorded.
        (_FAILED, "command_failed", Severity.WARNING, Remedy.NONE, "EFA refused {command} (error {err})"),
    )
)

_MLX5 = rf"mlx5_core {PCI}: (?:\w{{1,60}}:\d{{1,6}}:?(?:\(pid \d{{1,10}}\):)? ?)?"
_PORT = rf"mlx5_core {PCI} (?P<port>[\w.-]{{1,32}}): "

MLX5_RULES = tuple(
    rule(MLX5, head + text, code, severity, remedy, summary, component=component, device="pci")
    for head, text, code, severity, remedy, summary, component in (
        (
            _MLX5,
            r"device's health compromised - reached miss count",
            "health",
            Severity.FATAL,
            Remedy.REBOOT,
            "the adapter's firmware no longer answers",
            "{pci}",
        ),
        (
            _MLX5,
            r"Fatal error (?P<error>\d{1,5}) detected|health recovery (?:flow )?(?:failed|aborted)",
            "fatal_error",
            Severity.FATAL,
            Remedy.REBOOT,
            "the adapter reports a fatal error",
            "{pci}",
        ),
        (
            _MLX5,
            r"(?:Health issue observed, )?(?P<issue>firmware internal error|unrecoverable hardware error)",
            "internal_error",
            Severity.FATAL,
            Remedy.REBOOT,
            "the adapter reports: {issue}",
            "{pci}",
        ),
        (
            _MLX5,
            r"(?P<command>[A-Z0-9_]{2,60})\(0x[0-9a-fA-F]{1,5}\)(?: op_mod\(0x[0-9a-fA-F]{1,5}\))? timeout\. Will cause a leak",
            "command_timeout",
            Severity.FATAL,
            Remedy.REBOOT,
            "the adapter did not answer {command}",
            "{pci}",
        ),
        (
            _MLX5,  # a program can bring this about with wrong arguments
            r"(?P<command>[A-Z0-9_]{2,60})\(0x[0-9a-fA-F]{1,5}\) op_mod\(0x[0-9a-fA-F]{1,5}\) failed, "
            r"status (?P<status>[\w /-]{1,60})\(0x[0-9a-fA-F]{1,5}\)",
            "command_failed",
            Severity.WARNING,
            Remedy.NONE,
            "the adapter refused {command}: {status}",
            "{pci}",
        ),
        (
            _MLX5,
            r"Port module event(?:\[error\])?: module (?P<module>\d{1,3}), (?P<what>Cable (?:error|unplugged)[\w ,/-]{0,80})",
            "cable",
            Severity.WARNING,
            Remedy.HUMAN,
            "cable or transceiver {module}: {what}",
            "{pci}",
        ),
        (
            _MLX5,
            r"Detected insufficient power on the PCIe slot \((?P<watts>\d{1,4})W\)",
            "slot_power",
            Severity.WARNING,
            Remedy.HUMAN,
            "the slot gives {watts} W, too little",
            "{pci}",
        ),
        # The port's own check decides whether the port stays down: a line only reports the moment.
        (
            _PORT,
            r"(?:TX timeout detected|NETDEV WATCHDOG: CPU: \d{1,5}: transmit queue \d{1,5} timed out)",
            "transmit_timeout",
            Severity.WARNING,
            Remedy.NONE,
            "{port} does not send",
            "{pci}",
        ),
        (_PORT, r"Link down$", "link_down", Severity.WARNING, Remedy.NONE, "{port} lost its link", "{pci}"),
    )
)

WATCHDOG_RULES = (
    rule(
        MLX5,
        r"NETDEV WATCHDOG: (?P<port>[\w.-]{1,32}) \(mlx5_core\): transmit queue \d{1,5} timed out",
        "transmit_timeout",
        Severity.WARNING,
        Remedy.NONE,
        "{port} does not send",
        component="{port}",
    ),
)
