"""``python -m holdfast.controller``: what unit files of earlier releases start. New ones start ``python -m holdfast.head``."""

import runpy

runpy.run_module("holdfast.head", run_name="__main__", alter_sys=True)
