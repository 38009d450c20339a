"""``holdfast-checks learn``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from holdfast_checks.active.baseline import FEWEST_RUNS, BadBaseline
from holdfast_checks.active.learn import learn_baseline
from holdfast_checks.cli import config
from holdfast_checks.cli.show import OK, say
from holdfast_checks.manifest import NodeManifest, learn_manifest, manifest_path, save_manifest
from holdfast_checks.registry import Context, NotGathered


def run(args: argparse.Namespace) -> int:
    """Write the manifest, and on demand one more run of the baseline. Raises OSError, ValueError."""
    settings = config.read(args.config).settings
    if args.state_dir is not None:
        settings = replace(settings, state_dir=args.state_dir, host=replace(settings.host, manifest=None))
    context = Context(settings)
    path = manifest_path(context)
    if path is None:
        raise ValueError("no folder to write to: give --state-dir, or --config with a state_dir")
    _learn_manifest(context, path, force=args.force, more=args.active)
    if args.active:
        _learn_baseline(context)
    return OK


def _learn_manifest(context: Context, path: Path, *, force: bool, more: bool) -> None:
    if path.exists() and not force:
        if more:
            say(f"{path} is there, and stays as it is (--force replaces it)")
            return
        raise ValueError(f"{path} is there: --force replaces it")
    try:
        manifest = learn_manifest(context)
    except NotGathered as error:
        if not more:
            raise ValueError(f"no manifest: {error}") from error
        say(f"no manifest: {error}")
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    save_manifest(manifest, path)
    for line in _shown(manifest):
        say(line)
    say(f"written to {path}")


def _shown(manifest: NodeManifest) -> Iterator[str]:
    yield f"CPUs      {manifest.cpus}"
    yield f"memory    {(manifest.memory_kib or 0) / 2**20:.1f} GiB"
    yield f"governor  {manifest.governor or '-'}"
    for name, version in sorted(manifest.versions.items()):
        yield f"version   {name} {version}"
    yield f"modules   {', '.join(manifest.modules) or '-'}"
    for mount, kind in sorted(manifest.mounts.items()):
        yield f"mount     {mount} ({kind})"


def _learn_baseline(context: Context) -> None:
    say("running the active tests: this takes minutes, and disturbs every job on the node")
    sys.stdout.flush()
    try:
        learned = learn_baseline(context)
    except BadBaseline as error:
        raise ValueError(str(error)) from error
    for name, values in sorted(learned.baseline.values.items()):
        unit = learned.baseline.units.get(name, "")
        say(f"{name:<24} {values[-1]:.4g} {unit} ({len(values)} runs; {FEWEST_RUNS} are needed)")
    for test, why in learned.not_learned.items():
        say(f"{test:<24} nothing learned: {why}")
    say(f"written to {learned.path}")
