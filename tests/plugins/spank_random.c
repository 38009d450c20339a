/* The SPANK plug-in and holdfast-ask with random and hostile inputs, for a build with sanitizers. SPDX-License-Identifier: GPL-2.0-or-later
 *
 *   spank_random SEED ROUNDS SOCKET
 *
 * Stands in for Slurm (its functions are below) and for the agent (a thread that listens on SOCKET). Texts lie in memory of exactly their
 * length, so that a byte too far is seen. Prints what was run; ends at once, by abort, where the plug-in breaks a promise. */
#define _GNU_SOURCE
#include "agent.h"
#undef HF_SOCKET
#define HF_SOCKET "/nonexistent/agent.sock" /* not that of this machine */
#undef HF_WITHIN_MS
#define HF_WITHIN_MS 8 /* a round in which the agent hangs takes this long */

#include <dlfcn.h>
#include <pthread.h>
#include <stdarg.h>
#include <sys/socket.h>
#include <sys/un.h>

static void *found_symbol(const char *name);
#define dlsym(handle, name) found_symbol(name)
#include "spank_holdfast.c"
#undef dlsym

static FILE *said; /* what holdfast-ask prints, on either stream */
#define main ask_main
#define puts(text) fputs(text, said)
#define fprintf(stream, text) fputs(text, said)
#include "holdfast_ask.c"
#undef fprintf
#undef puts
#undef main

#define MUST(what)                                                                                             \
	do {                                                                                                   \
		if (!(what)) {                                                                                 \
			fprintf(stderr, "round %lu: not so: %s (line %d)\n", round_number, #what, __LINE__);   \
			abort();                                                                               \
		}                                                                                              \
	} while (0)
#define SLACK_MS 2000 /* of a busy machine */
#define ROOM 16384

static unsigned long round_number;
static _Thread_local uint64_t state; /* each thread's own, so that a seed says what happens */

/* xorshift64* */
static unsigned choose(unsigned below)
{
	state ^= state >> 12;
	state ^= state << 25;
	state ^= state >> 27;
	return (unsigned) (((state * 2685821657736338717ULL) >> 33) % below);
}

/* A copy that ends where its text ends. */
static char *exact(const char *text, size_t length)
{
	char *copy = malloc(length + 1);

	if (!copy)
		abort();
	memcpy(copy, text, length);
	copy[length] = '\0';
	return copy;
}

static const size_t LENGTHS[] = { 0, 1, 2, 7, 8, 15, 16, 31, 32, 100, 106, 107, 108, 109, 113, 114, 115, 116, 200, 2047, 2048, 3839, 3840, 4000, 4094,
				  4095, 4096, 4097, 7679, 7680, 7681, 8180, 8190, 8191, 8192, 8193, 12000 };

static size_t a_length(void)
{
	return choose(3) ? choose(40) : LENGTHS[choose(sizeof(LENGTHS) / sizeof(*LENGTHS))];
}

/* No NUL in it. ``start``: how it begins. */
static char *a_text(const char *start)
{
	static const char ODD[] = "\"\\/,: \t\n\r\x01\x7f\xff\xc3@%{}[]nu0";
	static const char PLAIN[] = "abcXYZ019/._-";
	char buffer[ROOM];
	size_t length = a_length(), used = strlen(start);
	unsigned kind = choose(4);

	memcpy(buffer, start, used);
	if (length < used)
		length = used;
	for (; used < length; used++) {
		if (kind == 0)
			buffer[used] = (char) (1 + choose(255));
		else if (kind == 1)
			buffer[used] = choose(2) ? '"' : '\\';
		else
			buffer[used] = kind == 2 && !choose(4) ? ODD[choose(sizeof(ODD) - 1)] : PLAIN[choose(sizeof(PLAIN) - 1)];
	}
	return exact(buffer, used);
}

static char *one_of(const char *const *words, unsigned count)
{
	const char *word = words[choose(count)];

	return exact(word, strlen(word));
}

/* --- the agent ------------------------------------------------------------------------------------------------------------------------ */

static const char *const ANSWERS[] = {
	"{\"v\":1,\"kind\":\"latest\",\"path\":\"/ckpt/step-5\"}\n",
	"{\"v\":1,\"kind\":\"latest\",\"path\":null}\n",
	"{\"v\":1,\"kind\":\"latest\",\"path\":\"relative\"}\n",
	"{\"v\":1,\"kind\":\"latest\",\"path\":\"/a\\\"b\\\\c\\/d\"}\n",
	"{\"v\":1,\"kind\":\"latest\",\"path\":\"/a\\u0041\"}\n",
	"{\"v\":1,\"kind\":\"latest\",\"note\":\"\\\"path\\\":\\\"/evil\\\"\",\"path\":\"/good\"}\n",
	"{\"v\":1,\"kind\":\"standing\",\"mode\":\"act\",\"fatal\":\"gpu.xid 79\"}\n",
	"{\"v\":1,\"kind\":\"standing\",\"mode\":\"observe\",\"observed\":\"gpu.xid 79\"}\n",
	"{\"v\":1,\"kind\":\"standing\",\"mode\":\"act\",\"fatal\":\"\"}\n",
	"{\"error\":\"unknown kind\"}\n",
	"{\"kind\":\"latest\",\"path\":\"/a",
	"\n",
	"\"\n",
	"\"\\\n",
	"{\"kind\"\n",
	"{\"kind\":\n",
	"{\"path\" : \"/spaces\" , \"kind\" : \"latest\"}\n",
};

/* An answer in ``out``, some of it changed; its length. It may hold NULs and need not end. */
static size_t an_answer(char *out)
{
	const char *base = ANSWERS[choose(sizeof(ANSWERS) / sizeof(*ANSWERS))];
	size_t length = strlen(base);

	memcpy(out, base, length);
	switch (choose(6)) {
	case 0: /* bytes changed */
		for (unsigned times = 1 + choose(4); times; times--)
			out[choose((unsigned) length)] = (char) choose(256);
		break;
	case 1: /* a long path */
		length = (size_t) sprintf(out, "{\"kind\":\"latest\",\"path\":\"/");
		for (size_t more = a_length(); more; more--)
			out[length++] = choose(50) ? 'p' : "\\\"/"[choose(3)];
		length += (size_t) sprintf(out + length, "\"}\n");
		break;
	case 2: /* only noise */
		length = a_length();
		for (size_t at = 0; at < length; at++)
			out[at] = (char) choose(256);
		break;
	case 3: /* cut */
		length = choose((unsigned) length + 1);
		break;
	default:
		break;
	}
	return length;
}

/* Each line is one statement or question, whole and of printable bytes. */
static void judge_line(const char *line, size_t length)
{
	MUST(length >= 2 && length < HF_LINE_MAX);
	MUST(line[0] == '{' && line[length - 1] == '\n' && line[length - 2] == '}');
	for (size_t at = 0; at + 1 < length; at++)
		MUST((unsigned char) line[at] >= 0x20 && line[at] != 0x7f);
}

static void serve(int peer)
{
	char heard[HF_LINE_MAX * 2], answer[ROOM * 2];
	size_t used = 0, length, sent = 0;
	unsigned how = choose(80);

	if (how == 0)
		return; /* closes at once */
	while (used < sizeof(heard) && !memchr(heard, '\n', used)) {
		ssize_t got = recv(peer, heard + used, sizeof(heard) - used, 0);
		if (got <= 0)
			return;
		used += (size_t) got;
	}
	judge_line(heard, used);
	if (how == 1) { /* hangs */
		usleep((HF_WITHIN_MS + 5) * 1000);
		return;
	}
	length = an_answer(answer);
	while (sent < length) {
		size_t part = how < 20 ? 1 + choose(700) : length;
		ssize_t done = send(peer, answer + sent, part < length - sent ? part : length - sent, MSG_NOSIGNAL);
		if (done <= 0)
			return;
		sent += (size_t) done;
	}
}

struct agent {
	int listener;
	uint64_t seed;
};

static void *agent(void *own)
{
	const struct agent *me = own;

	state = me->seed;
	for (;;) {
		int peer = accept(me->listener, NULL, NULL);
		if (peer < 0)
			return NULL;
		serve(peer);
		close(peer);
	}
}

/* --- Slurm ---------------------------------------------------------------------------------------------------------------------------- */

static char *comment;
static bool settable;
static unsigned registered, context;
static char resume_from[PATH_MAX * 2];
static char **given; /* texts that slurm_option_get gave away: sbatch leaves them to its end */
static size_t given_count;

static bool stub_isset(void *opt, const char *name)
{
	(void) opt;
	return strcmp(name, "comment") ? choose(2) : comment != NULL;
}

static char *stub_get(void *opt, const char *name)
{
	(void) opt;
	(void) name;
	if (!comment)
		return NULL;
	given = realloc(given, (given_count + 1) * sizeof(*given));
	if (!given)
		abort();
	return given[given_count++] = exact(comment, strlen(comment));
}

static int stub_set(void *opt, const char *name, const char *value, bool early)
{
	(void) opt;
	(void) early;
	if (!strcmp(name, "comment") && settable) {
		free(comment);
		comment = exact(value, strlen(value));
	}
	return 0;
}

static void *found_symbol(const char *name)
{
	static int something;

	if (!choose(30))
		return NULL;
	if (!strcmp(name, "slurm_option_isset"))
		return (void *) stub_isset;
	if (!strcmp(name, "slurm_option_get"))
		return (void *) stub_get;
	if (!strcmp(name, "slurm_option_set"))
		return (void *) stub_set;
	return &something;
}

spank_err_t spank_option_register(spank_t sp, struct spank_option *option)
{
	(void) sp;
	MUST(option->name && option->usage && option->cb);
	registered++;
	return choose(10) ? ESPANK_SUCCESS : ESPANK_ERROR;
}

spank_context_t spank_context(void)
{
	return context ? S_CTX_ALLOCATOR : S_CTX_REMOTE;
}

spank_err_t spank_get_item(spank_t sp, spank_item_t item, ...)
{
	static const uint32_t ODD[] = { 0, 1, 7, 67108863, UINT32_MAX, UINT32_MAX - 1, INT32_MAX };
	va_list more;
	uint32_t *out;

	(void) sp;
	if (!choose(20))
		return ESPANK_ERROR;
	va_start(more, item);
	out = va_arg(more, uint32_t *);
	va_end(more);
	*out = item == S_JOB_STEPID && choose(8) ? SLURM_BATCH_SCRIPT : ODD[choose(sizeof(ODD) / sizeof(*ODD))];
	return ESPANK_SUCCESS;
}

/* As Slurm's: cut where it is too long, which is said. */
spank_err_t spank_getenv(spank_t sp, const char *name, char *out, int size)
{
	static const char *const COUNTS[] = { "0", "1", "4294967295", "4294967296", "-1", "99999999999999", "", " 7", "x" };
	char *text;
	size_t length;

	(void) sp;
	MUST(!strcmp(name, "SLURM_RESTART_COUNT") && size > 0);
	if (!choose(3))
		return ESPANK_ENV_NOEXIST;
	text = choose(4) ? one_of(COUNTS, sizeof(COUNTS) / sizeof(*COUNTS)) : a_text("");
	length = strlen(text);
	snprintf(out, (size_t) size, "%s", text);
	free(text);
	return length >= (size_t) size ? ESPANK_NOSPACE : ESPANK_SUCCESS;
}

static void judge_text(const char *text)
{
	for (; *text; text++)
		MUST((unsigned char) *text >= 0x20 && *text != 0x7f);
}

spank_err_t spank_setenv(spank_t sp, const char *name, const char *value, int overwrite)
{
	(void) sp;
	MUST(overwrite == 1 && !strncmp(name, "HOLDFAST_", 9) && *value);
	if (!strcmp(name, "HOLDFAST_RESUME_FROM")) {
		MUST(*value == '/' && strlen(value) < PATH_MAX);
		snprintf(resume_from, sizeof(resume_from), "%s", value);
	} else if (!strcmp(name, "HOLDFAST_CHECKPOINT_DIR")) {
		MUST(*value == '/' && strlen(value) < PATH_MAX);
		judge_text(value);
	} else if (!strcmp(name, "HOLDFAST_SAVE_S")) {
		MUST(atol(value) >= 1 && atol(value) <= 86400);
	} else {
		MUST(!strcmp(name, "HOLDFAST_SAVE_SIGNAL") && strlen(value) <= 4);
	}
	return choose(10) ? ESPANK_SUCCESS : ESPANK_ERROR;
}

spank_err_t spank_unsetenv(spank_t sp, const char *name)
{
	(void) sp;
	MUST(!strcmp(name, "HOLDFAST_RESUME_FROM"));
	*resume_from = '\0';
	return ESPANK_SUCCESS;
}

void slurm_spank_log(const char *format, ...)
{
	char line[256];
	va_list more;

	va_start(more, format);
	vsnprintf(line, sizeof(line), format, more);
	va_end(more);
	judge_text(line);
}

/* --- one round ------------------------------------------------------------------------------------------------------------------------ */

static void take_options(void)
{
	static const char *const WORDS[] = { "", "(null)", "0", "1", "on", "off", "on ", "/", "/ckpt", "/a b", "ckpt", "../x", "/\"", "/\\" };
	static const char *const SIGNS[] = { "USR1",	  "SIGUSR2", "SIG",    "HUP@1",	 "INT@86400", "TERM@86401", "CONT@0", "USR1@",
					     "USR1@-1",	  "USR1@ 5", "USR1@+5", "@",	 "@5",	      "SIG@5",	    "USR3",   "SIGSIGUSR1",
					     "USR1@99999999999999999999", "USR1@5x", "USR1@5@5", "usr1" };

	for (unsigned times = choose(5); times; times--) {
		struct spank_option *option = &OPTIONS[choose(3)];
		int remote = (int) choose(2), rc;
		char *text = NULL;

		if (choose(12)) {
			if (option->val == SIGNAL)
				text = choose(4) ? one_of(SIGNS, sizeof(SIGNS) / sizeof(*SIGNS)) : a_text(choose(2) ? "USR1@" : "");
			else
				text = choose(3) ? a_text(choose(4) ? "/" : "") : one_of(WORDS, sizeof(WORDS) / sizeof(*WORDS));
		}
		rc = option->cb(option->val, text, remote);
		MUST(rc == 0 || (rc == -1 && !remote));
		free(text);
	}
	if (choose(2))
		MUST(OPTIONS[0].cb(HOLDFAST, "/ckpt/\"run 7\"", 1) == 0);
}

static void submit_and_run(const char *socket_path)
{
	char *arguments[4], *path = exact(socket_path, strlen(socket_path));
	int count = 0;
	long began_ms;

	memset(&wanted, 0, sizeof(wanted));
	strcpy(wanted.socket, HF_SOCKET);
	if (!choose(4))
		arguments[count++] = a_text("socket=");
	if (!choose(4))
		arguments[count++] = exact("auto-resume", 11);
	if (!choose(4))
		arguments[count++] = a_text("");
	if (choose(4)) {
		char known[200];
		int length = snprintf(known, sizeof(known), "socket=%s", path);
		arguments[count++] = exact(known, (size_t) length);
	}
	registered = 0;
	MUST(slurm_spank_init(NULL, count, arguments) == 0);
	MUST(registered == 2 || registered == 3);
	MUST(memchr(wanted.socket, '\0', sizeof(wanted.socket)));
	take_options();

	context = choose(2);
	settable = choose(5) != 0;
	comment = choose(3) ? a_text(choose(2) ? "x holdfast,y" : "holdfast") : NULL;
	MUST(slurm_spank_init_post_opt(NULL, count, arguments) == 0);
	free(comment);
	comment = NULL;

	*resume_from = '\0';
	began_ms = hf_now_ms();
	MUST(slurm_spank_task_init(NULL, count, arguments) == 0);
	MUST(hf_now_ms() - began_ms < HF_WITHIN_MS + SLACK_MS);
	while (count)
		free(arguments[--count]);
	free(path);
}

static void read_json(void)
{
	static const char *const KEYS[] = { "kind", "path", "mode", "fatal", "", "\"", "\\" };
	char buffer[ROOM * 2], key[8];
	size_t length = an_answer(buffer), size = 1 + (choose(2) ? choose(40) : choose(5000));
	char *line, *out = malloc(size);

	if (!out)
		abort();
	line = exact(buffer, strnlen(buffer, length));
	strcpy(key, KEYS[choose(sizeof(KEYS) / sizeof(*KEYS))]);
	if (!hf_json_string(line, key, out, size)) {
		MUST(strlen(out) < size);
		MUST(strlen(out) <= strlen(line));
	}
	free(line);
	free(out);
}

/* What is escaped is read back as it was. */
static void escape_and_read_back(void)
{
	char *text = a_text(""), *line;
	size_t size = choose(2) ? strlen(text) * 2 + 2 : choose(300);
	char *out = malloc(size ? size : 1), *back = malloc(strlen(text) + 1);

	if (!out || !back)
		abort();
	if (!hf_json_escape(out, size, text)) {
		MUST(asprintf(&line, "{\"a\":\"b\", \"k\": \"%s\"}", out) > 0);
		MUST(hf_json_string(line, "k", back, strlen(text) + 1) == 0);
		MUST(!strcmp(back, text));
		free(line);
	}
	free(out);
	free(back);
	free(text);
}

static void ask(const char *socket_path)
{
	char *words[4] = { exact("holdfast-ask", 12), exact("standing", 8), exact(socket_path, strlen(socket_path)), NULL };
	char *printed = NULL;
	size_t length = 0;
	int rc;

	if (!choose(10)) {
		free(words[1]);
		words[1] = a_text("");
	}
	said = open_memstream(&printed, &length);
	if (!said)
		abort();
	rc = ask_main(1 + (int) choose(3), words);
	fclose(said);
	MUST(rc == 0 || rc == 1 || rc == 2);
	MUST(rc != 1 || length > 0);
	free(printed);
	for (int at = 0; at < 3; at++)
		free(words[at]);
}

static int listen_at(const char *path)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (fd < 0 || strlen(path) >= sizeof(address.sun_path))
		abort();
	strcpy(address.sun_path, path);
	if (bind(fd, (struct sockaddr *) &address, sizeof(address)) || listen(fd, 128))
		abort();
	return fd;
}

int main(int argc, char **argv)
{
	struct agent there;
	unsigned long rounds;
	pthread_t thread;
	int next;

	if (argc != 4)
		return 2;
	state = strtoull(argv[1], NULL, 10) * 0x9E3779B97F4A7C15ULL + 1;
	rounds = strtoul(argv[2], NULL, 10);
	there = (struct agent) { listen_at(argv[3]), ~state };
	if (pthread_create(&thread, NULL, agent, &there))
		abort();
	for (round_number = 1; round_number <= rounds; round_number++) {
		submit_and_run(argv[3]);
		read_json();
		escape_and_read_back();
		if (!choose(8))
			ask(argv[3]);
		while (given_count)
			free(given[--given_count]);
	}
	shutdown(there.listener, SHUT_RDWR);
	pthread_join(thread, NULL);
	free(given);
	next = dup(0);
	MUST(next >= 0 && next < 16); /* no descriptor is left open */
	printf("seed %s: %lu rounds\n", argv[1], rounds);
	return 0;
}
