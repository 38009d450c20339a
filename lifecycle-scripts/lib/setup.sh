#!/bin/sh
# The steps of on_create.sh, under its deadline. The exit status says whether all went well; no node fails for it.
# shellcheck disable=SC1091,SC2154 # what is sourced is checked separately, and sets node, role, …
set -u
BUNDLE=$1
LIB=$BUNDLE/lib
. "$LIB/common.sh"
. "$LIB/token.sh"
. "$LIB/identity.sh"
. "$LIB/head.sh"
. "$LIB/packages.sh"
. "$LIB/release.sh"
. "$LIB/units.sh"

one_at_a_time() { # the lifecycle script of a software update may run while a first one still does
	mkdir -p "$R/var/lib/holdfast-install" && exec 9>"$R/var/lib/holdfast-install/lock" || return 0
	if have flock; then flock -w 120 9; fi
}

take_along() { # take_along NAME TO MODE: a file of the site's, if the bundle has it
	[ -f "$BUNDLE/$1" ] || return 1
	replace_file "$R/etc/holdfast/$2" "$3" <"$BUNDLE/$1"
}

see_to_metadata() { # on EC2: the node's role reads the tokens of all nodes, the head's is the actor's, and users are not root
	case $kind in hyperpod | parallelcluster | ec2) ;; *) return 0 ;; esac
	if [ "$role" = controller ]; then
		HOLDFAST_HEAD_METADATA=${HOLDFAST_HEAD_METADATA:-} HOLDFAST_METADATA_USERS=${HOLDFAST_METADATA_USERS:-} \
			sh "$R$SHARE/metadata.sh" head || true
		return 0
	fi
	case ${HOLDFAST_METADATA:-closed} in
	closed)
		set --
		for _user in ${HOLDFAST_METADATA_USERS:-}; do set -- "$@" --user "$_user"; done
		sh "$R$SHARE/metadata.sh" close "$@" || true
		;;
	open) [ ! -f "$R/etc/holdfast/metadata.nft" ] || sh "$R$SHARE/metadata.sh" open || true ;;
	*) say "HOLDFAST_METADATA: '$HOLDFAST_METADATA' is neither closed nor open: nothing done" ;;
	esac
}

set_up_agent() {
	install_release "$BUNDLE" "$extra"
	released=$?
	[ "$released" -ne 2 ] || return 1
	again=start
	[ "$released" -eq 1 ] || again=restart
	take_along ca.pem ca.pem 0644 && again=restart
	take_along agent.toml agent.site.toml 0644 || true
	{ cat "$BUNDLE/holdfast.conf" 2>/dev/null || true; } | replace_file "$R/etc/holdfast/enrol.conf" 0644 || true
	install_agent_units && again=restart
	see_to_metadata
	before=$(cksum "$CONFIG" 2>/dev/null)
	HOLDFAST_BUNDLE_DIR=$BUNDLE sh "$LIB/../enrol.sh" --now
	case $? in 78) return 1 ;; esac
	[ "$before" = "$(cksum "$CONFIG" 2>/dev/null)" ] || again=restart
	_settings=$R$SHARE/agent_settings.sh
	[ ! -f "$_settings" ] || sh "$_settings" || again=start # an agent.toml that an operator wrote
	bring_up "$again" holdfast-agent.service
	bring_up start holdfast-enrol.timer
	unit_enable holdfast-enrol.service
	say "agent of $node: $again"
}

set_up_controller() { # only where the bundle was made with --controller; its settings never lie in it
	install_release "$BUNDLE" "$extra"
	released=$?
	[ "$released" -ne 2 ] || return 1
	again=start
	[ "$released" -eq 1 ] || again=restart
	install_controller_units && again=restart
	see_to_metadata # now the actor's user is there
	fetch_head_settings
	case $? in
	0) again=restart ;;
	1) ;;
	*) # there may be none yet: nothing is started without
		[ -z "${HOLDFAST_HEAD_FROM:-}" ]
		return
		;;
	esac
	bring_up "$again" holdfast-quorum.service holdfast-controller.service holdfast-actor.service
	say "controller: $again"
}

wanted() { case " ${HOLDFAST_ROLES:-compute} " in *" $1 "*) true ;; *) false ;; esac }

load_settings "$BUNDLE/holdfast.conf"
open_log
say "begins: $BUNDLE"
if [ "$(id -u)" -ne 0 ] && [ -z "$R" ]; then
	say "must be root"
	exit 1
fi
one_at_a_time
drop_head_settings "$BUNDLE"
learn_machine "$BUNDLE" || { # a machine without any python3: the bundle's own can read JSON
	BUNDLED_PYTHON=$(unpack_interpreter "$BUNDLE" "$R/var/lib/holdfast-install/python") || exit 1
	export BUNDLED_PYTHON
	learn_machine "$BUNDLE" || exit 1
}
extra='[stacks]'
status=0
did=no
if [ "$role" = controller ] && [ -f "$BUNDLE/for-the-head" ]; then
	extra='[controller,quorum]'
	did=yes
	set_up_controller || status=1
fi
if wanted "$role"; then
	did=yes
	set_up_agent || status=1
fi
[ "$did" = yes ] || say "nothing to do for role $role (HOLDFAST_ROLES=${HOLDFAST_ROLES:-compute})"
say "ends: status=$status"
exit $status
