"""Faults in this node's kernel log other than Xids: one table of anchored patterns, judged as records come.

Pure but for :class:`~holdfast_checks.kernel.devices.Devices`, which asks sysfs whether a device that a line names is there.
"""
