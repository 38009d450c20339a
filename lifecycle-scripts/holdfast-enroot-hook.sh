#!/usr/bin/env bash
# enroot: /etc/enroot/hooks.d/50-holdfast.sh. Gives each container the agent's folder, which holds the job socket and the checkpoint
# verbs, and sets the job id of a container that was started without pyxis. docs/how-to-containers.md
#
# enroot starts no container whose hook fails, so this one always succeeds; without an agent's folder it does nothing.
folder=/run/holdfast

mounts() {
	[ ! -d "$folder" ] || printf '%s %s none x-create=dir,bind,ro,nosuid,nodev,private,nofail,silent\n' "$folder" "$folder"
}

# pyxis hands each task its own environment and keeps SLURM_PROCID from enroot. What the image or --env says comes first.
environment() {
	[ -n "${SLURM_JOB_ID-}" ] && [ -n "${SLURM_PROCID-}" ] || return 0
	for name in SLURM_JOB_ID SLURM_RESTART_COUNT SLURM_STEP_ID SLURM_PROCID SLURM_NTASKS \
		$(compgen -e SLURM_JOB_ID_HET_GROUP_) $(compgen -e HOLDFAST_); do
		case ${!name-} in '' | *$'\n'*) continue ;; esac
		grep -q "^$name=" "$ENROOT_ENVIRON" || printf '%s=%s\n' "$name" "${!name}"
	done
}

mounts >>"$ENROOT_MOUNTS"
more=$(environment)
[ -z "$more" ] || printf '%s\n' "$more" >>"$ENROOT_ENVIRON"
exit 0
