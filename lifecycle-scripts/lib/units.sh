# shellcheck shell=sh
# Sourced. Units out of /opt/holdfast/share/holdfast/lifecycle-scripts, and what they need.

SHARE=/opt/holdfast/share/holdfast/lifecycle-scripts

put() { # put NAME TO: true when it changed
	replace_file "$R$2" 0644 <"$R$SHARE/$1"
}

install_agent_units() { # true when one changed
	_changed=1
	for _unit in holdfast-agent.service holdfast-agent-reporting.path holdfast-agent-reporting.service \
		holdfast-enrol.service holdfast-enrol.timer; do
		if put "$_unit" "/etc/systemd/system/$_unit"; then _changed=0; fi
	done
	if [ -d "$R/etc/logrotate.d" ]; then put holdfast-logrotate.conf /etc/logrotate.d/holdfast || true; fi
	put holdfast-node-tmpfiles.conf /usr/lib/tmpfiles.d/run-holdfast.conf || true
	# Where it is there, it may be the controller's of an earlier release.
	[ -d "$R/run/holdfast" ] || logged systemd-tmpfiles ${R:+--root="$R"} --create run-holdfast.conf || say "systemd-tmpfiles failed: see the log"
	replace_file "$R/etc/enroot/hooks.d/50-holdfast.sh" 0755 <"$R$SHARE/holdfast-enroot-hook.sh" || true
	if [ "$_changed" -eq 0 ] && systemd_runs; then logged systemctl daemon-reload; fi
	return $_changed
}

install_controller_units() { # users and folders first: the units name them
	put holdfast-sysusers.conf /usr/lib/sysusers.d/holdfast.conf || true
	put holdfast-tmpfiles.conf /usr/lib/tmpfiles.d/holdfast.conf || true
	logged systemd-sysusers ${R:+--root="$R"} holdfast.conf || say "systemd-sysusers failed: see the log"
	logged systemd-tmpfiles ${R:+--root="$R"} --create holdfast.conf || say "systemd-tmpfiles failed: see the log"
	_changed=1
	for _unit in holdfast-controller.service holdfast-actor.service holdfast-quorum.service \
		holdfast-tls-renew.service holdfast-tls-renew.timer; do
		if put "$_unit" "/etc/systemd/system/$_unit"; then _changed=0; fi
	done
	if [ "$_changed" -eq 0 ] && systemd_runs; then logged systemctl daemon-reload; fi
	return $_changed
}

bring_up() { # bring_up start|restart UNIT …: enabled and, on a running machine, started without being waited for
	_verb=$1
	shift
	unit_enable "$@" || say "could not enable: $*"
	systemd_runs || return 0
	logged systemctl --no-block "$_verb" "$@" || say "could not $_verb: $*"
}
