#!/bin/sh
# Check before an upgrade restarts the agent that it would start with the agent.toml that is here; if not, the running one continues.
#
#   agent_settings.sh
#
# Exit status: 0 yes, or there is none; 1 no, and why.
# shellcheck disable=SC1091 # checked separately
set -u

HERE=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd -P)
. "$HERE/lib/common.sh"

[ -f "$R/etc/holdfast/agent.toml" ] || exit 0
why=$(refused_settings "$R/etc/holdfast/agent.toml") && exit 0
say "the agent would not start with /etc/holdfast/agent.toml, so it is not restarted, and keeps running the previous release: $why." \
	"Correct it (docs/upgrade.md), then: systemctl restart holdfast-agent"
exit 1
