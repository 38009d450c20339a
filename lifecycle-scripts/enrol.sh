#!/bin/sh
# Find this node's identity and fetch its token. Writes /etc/holdfast/agent.toml and agent.token. Keeps no state:
# everything can be learned again on an empty disk. Settings: /etc/holdfast/enrol.conf (see holdfast.conf.example).
#
#   enrol.sh [--now]      --now: also when it has run in this boot and the node has a token that is not refused
#
# Exit status: 0 done; 75 no token yet, or none that is taken (EX_TEMPFAIL); 78 no usable configuration (EX_CONFIG).
# shellcheck disable=SC1091,SC2153,SC2154 # what is sourced is checked separately, and sets TOKEN
set -u
umask 022

HERE=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd -P)
LIB=$HERE/lib
. "$LIB/common.sh"
. "$LIB/token.sh"
. "$LIB/identity.sh"

load_settings "$R/etc/holdfast/enrol.conf"
SEEN=$R/etc/holdfast/enrol.boot
boot=$(cat /proc/sys/kernel/random/boot_id 2>/dev/null)
if [ "${1:-}" != --now ] && [ -s "$TOKEN" ] && [ -n "$boot" ] && [ "$(cat "$SEEN" 2>/dev/null)" = "$boot" ] && ! token_refused; then exit 0; fi

open_log
learn_machine "${HOLDFAST_BUNDLE_DIR:-}" || exit 78
token=0
fetch_token || token=$?
write_config
case $? in
0) say "agent.toml written" ;;
1) say "agent.toml is as it was" ;;
*) exit 78 ;;
esac
case $token in
0) printf '%s\n' "$boot" | replace_file "$SEEN" 0644 || true ;;
*) rm -f "$SEEN" ;; # the timer asks again
esac
[ $token -ne 76 ] || token=0
exit $token
