/* Holdfast's options for sbatch. docs/slurm-plugins.md says what they do.
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * At submission (sbatch): puts the word that opts a job in into its comment, and asks for --open-mode=append and --requeue where
 * the user said neither. On the node, as the job's user, once, before the batch script starts: registers the checkpoint directory
 * with the node's agent and sets HOLDFAST_RESUME_FROM. Tasks inherit it from the script, so that all ranks have one answer.
 *
 * Nothing here may keep a job from starting: on the node every function returns success, and waits a second at most. */
#define _GNU_SOURCE
#include "agent.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <slurm/slurm.h>
#include <slurm/spank.h>

SPANK_PLUGIN(holdfast, 1)

#define CONSENT "holdfast" /* the word in a job's comment by which it opts in */
#define HYPERPOD "/opt/sagemaker_cluster" /* there --auto-resume is another plug-in's */
#define SAVE_SECONDS_MAX 86400

enum { HOLDFAST, AUTO_RESUME, SIGNAL };

static struct {
	bool in;
	char directory[PATH_MAX];
	char signal[8];
	unsigned save_s;
	char socket[108];
} wanted = { .socket = HF_SOCKET };

static const char *const SIGNALS[] = { "USR1", "USR2", "HUP", "INT", "TERM", "CONT", NULL };

/* "on", "off" or a directory. The last one counts: a command line overrules the script. "(null)" is what Slurm (22.05) puts into the
 * job's environment for an option without its argument. */
static int take_holdfast(const char *text)
{
	char escaped[HF_LINE_MAX - 512];

	if (!text || !*text || !strcmp(text, "(null)") || !strcmp(text, "1") || !strcmp(text, "on")) {
		wanted.in = true;
		return 0;
	}
	if (!strcmp(text, "0") || !strcmp(text, "off")) {
		wanted.in = false;
		return 0;
	}
	if (*text != '/' || strlen(text) >= sizeof(wanted.directory) || hf_json_escape(escaped, sizeof(escaped), text))
		return -1;
	strcpy(wanted.directory, text);
	wanted.in = true;
	return 0;
}

/* SIG[@seconds]; SIG as USR1 or SIGUSR1. */
static int take_signal(const char *text)
{
	const char *at;
	unsigned long seconds = 0;
	size_t length;
	char *end;

	if (!text)
		return -1;
	text += strncmp(text, "SIG", 3) ? 0 : 3;
	at = strchr(text, '@');
	length = at ? (size_t) (at - text) : strlen(text);
	if (at) {
		seconds = strtoul(at + 1, &end, 10);
		if (at[1] < '0' || at[1] > '9' || *end || seconds < 1 || seconds > SAVE_SECONDS_MAX)
			return -1;
	}
	for (int i = 0; SIGNALS[i]; i++) {
		if (strlen(SIGNALS[i]) == length && !strncmp(SIGNALS[i], text, length)) {
			strcpy(wanted.signal, SIGNALS[i]);
			wanted.save_s = (unsigned) seconds;
			return 0;
		}
	}
	return -1;
}

static int take(int which, const char *text, int remote)
{
	int rc;

	if (which == SIGNAL)
		rc = take_signal(text);
	else if (which == AUTO_RESUME && text && *text == '/')
		rc = -1;
	else
		rc = take_holdfast(text);
	return remote ? 0 : rc; /* sbatch has refused it already, or is another version */
}

static struct spank_option OPTIONS[] = {
	{ "holdfast", "off|DIR", "recover this job after a fault of a node; DIR: its checkpoints (absolute path)", 2, HOLDFAST, take },
	{ "holdfast-signal", "SIG[@seconds]", "signal on which the job saves and continues, and how long that takes", 1, SIGNAL, take },
	{ "auto-resume", "0|1", "the same as --holdfast", 2, AUTO_RESUME, take },
};

int slurm_spank_init(spank_t sp, int ac, char **av)
{
	bool alias = false;

	for (int i = 0; i < ac; i++) {
		if (!strncmp(av[i], "socket=", 7) && strlen(av[i] + 7) < sizeof(wanted.socket))
			strcpy(wanted.socket, av[i] + 7);
		else if (!strcmp(av[i], "auto-resume"))
			alias = access(HYPERPOD, F_OK) != 0;
	}
	spank_option_register(sp, &OPTIONS[0]);
	spank_option_register(sp, &OPTIONS[1]);
	if (alias)
		spank_option_register(sp, &OPTIONS[2]); /* refused by Slurm where an earlier plug-in has it */
	return 0;
}

/* sbatch's own functions for its options, as its cli_filter plug-ins call them. They are no public interface: looked up by name,
 * and left alone unless all of them are there. */
static struct {
	void *opt;
	bool (*isset)(void *opt, const char *name);
	char *(*get)(void *opt, const char *name);
	int (*set)(void *opt, const char *name, const char *value, bool early);
} sbatch;

static bool find_sbatch(void)
{
	if (!dlsym(RTLD_DEFAULT, "sbopt")) /* salloc and srun: nothing that could be requeued */
		return false;
	sbatch.opt = dlsym(RTLD_DEFAULT, "opt");
	*(void **) &sbatch.isset = dlsym(RTLD_DEFAULT, "slurm_option_isset");
	*(void **) &sbatch.get = dlsym(RTLD_DEFAULT, "slurm_option_get");
	*(void **) &sbatch.set = dlsym(RTLD_DEFAULT, "slurm_option_set");
	return sbatch.opt && sbatch.isset && sbatch.get && sbatch.set;
}

static bool has_word(const char *comment)
{
	for (const char *word = comment; *word; word += strcspn(word, ", \t")) {
		word += strspn(word, ", \t");
		if (strcspn(word, ", \t") == strlen(CONSENT) && !strncmp(word, CONSENT, strlen(CONSENT)))
			return true;
	}
	return false;
}

/* What slurm_option_get returns is left to the end of the process: sbatch is about to end. */
static bool consent(void)
{
	const char *said = sbatch.isset(sbatch.opt, "comment") ? sbatch.get(sbatch.opt, "comment") : NULL;
	char *both = NULL;

	if (said && has_word(said))
		return true;
	if (asprintf(&both, "%s%s%s", said ? said : "", said && *said ? "," : "", CONSENT) < 0)
		return false;
	sbatch.set(sbatch.opt, "comment", both, false);
	free(both);
	said = sbatch.get(sbatch.opt, "comment");
	return said && has_word(said);
}

int slurm_spank_init_post_opt(spank_t sp, int ac, char **av)
{
	(void) sp;
	(void) ac;
	(void) av;
	if (spank_context() != S_CTX_ALLOCATOR || !wanted.in)
		return 0;
	if (!dlsym(RTLD_DEFAULT, "sbopt"))
		return 0;
	if (!find_sbatch() || !consent()) {
		if (!*wanted.directory) /* a registered directory is consent as well */
			slurm_spank_log("holdfast: cannot set this sbatch's options; add --comment=%s", CONSENT);
		return 0;
	}
	if (!sbatch.isset(sbatch.opt, "open-mode"))
		sbatch.set(sbatch.opt, "open-mode", "append", false);
	if (!sbatch.isset(sbatch.opt, "requeue") && !sbatch.isset(sbatch.opt, "no-requeue"))
		sbatch.set(sbatch.opt, "requeue", NULL, false);
	return 0;
}

/* The same line as holdfast_checkpoint's registration; an agent ignores fields that it does not know. */
static void tell_directory(uint32_t job, uint32_t restarts, const char *directory, long deadline_ms)
{
	char line[HF_LINE_MAX], saves[64] = "";

	if (*wanted.signal)
		snprintf(saves, sizeof(saves), ",\"save_signal\":\"%s\",\"save_s\":%u", wanted.signal, wanted.save_s);
	if (snprintf(line, sizeof(line),
		     "{\"v\":1,\"kind\":\"checkpoint.register\",\"job_id\":%u,\"restarts\":%u,\"run\":\"j%u-r%u.0.0\","
		     "\"dir\":\"%s\",\"layout\":\"auto\",\"fenced\":false%s}\n",
		     job, restarts, job, restarts, directory, saves) < (int) sizeof(line))
		hf_tell(wanted.socket, line, deadline_ms);
}

static int ask_latest(uint32_t job, uint32_t restarts, const char *directory, char *path, size_t size, long deadline_ms)
{
	char line[HF_LINE_MAX], answer[HF_LINE_MAX], kind[32];
	long left_ms = deadline_ms - hf_now_ms();

	if (snprintf(line, sizeof(line), "{\"v\":1,\"kind\":\"ask.latest\",\"job_id\":%u,\"restarts\":%u,\"dir\":\"%s\",\"within_ms\":%ld}\n",
		     job, restarts, directory, left_ms) >= (int) sizeof(line))
		return -1;
	if (hf_ask(wanted.socket, line, answer, sizeof(answer), deadline_ms))
		return -1;
	if (hf_json_string(answer, "kind", kind, sizeof(kind)) || strcmp(kind, "latest"))
		return -1; /* an agent of another version says {"error": …} */
	return hf_json_string(answer, "path", path, size) || *path != '/' ? -1 : 0;
}

/* From the environment: S_SLURM_RESTART_COUNT is 0 in a batch step of 22.05, in every run. Unset in the first. */
static uint32_t restart_count(spank_t sp)
{
	char text[16];

	return spank_getenv(sp, "SLURM_RESTART_COUNT", text, sizeof(text)) ? 0 : (uint32_t) strtoul(text, NULL, 10);
}

/* As the job's user, in the job's own process and cgroup: the agent believes it exactly as it believes the job. */
int slurm_spank_task_init(spank_t sp, int ac, char **av)
{
	uint32_t step = 0, job = 0, restarts;
	char directory[sizeof(wanted.directory) * 2], path[PATH_MAX], seconds[16];
	long deadline_ms = hf_now_ms() + HF_WITHIN_MS;

	(void) ac;
	(void) av;
	if (!wanted.in || spank_get_item(sp, S_JOB_STEPID, &step) || step != SLURM_BATCH_SCRIPT)
		return 0;
	if (spank_get_item(sp, S_JOB_ID, &job))
		return 0;
	restarts = restart_count(sp);
	if (*wanted.signal) {
		snprintf(seconds, sizeof(seconds), "%u", wanted.save_s);
		spank_setenv(sp, "HOLDFAST_SAVE_SIGNAL", wanted.signal, 1);
		if (wanted.save_s)
			spank_setenv(sp, "HOLDFAST_SAVE_S", seconds, 1);
	}
	if (!*wanted.directory || hf_json_escape(directory, sizeof(directory), wanted.directory))
		return 0;
	spank_setenv(sp, "HOLDFAST_CHECKPOINT_DIR", wanted.directory, 1);
	spank_unsetenv(sp, "HOLDFAST_RESUME_FROM"); /* inherited from the job that submitted this one */
	tell_directory(job, restarts, directory, deadline_ms);
	if (!ask_latest(job, restarts, directory, path, sizeof(path), deadline_ms))
		spank_setenv(sp, "HOLDFAST_RESUME_FROM", path, 1);
	return 0;
}
