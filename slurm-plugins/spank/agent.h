/* Talking to the agent of this node. SPDX-License-Identifier: GPL-2.0-or-later */
#ifndef HOLDFAST_AGENT_H
#define HOLDFAST_AGENT_H

#include <stddef.h>

#define HF_SOCKET "/run/holdfast/agent.sock"
#define HF_LINE_MAX 8192 /* bytes; the agent ends the connection on a longer line */
#define HF_WITHIN_MS 1000 /* for everything that a job or a prolog ever waits for the agent */

/* Milliseconds on CLOCK_MONOTONIC. */
long hf_now_ms(void);

/* Send one line (with its newline) until deadline_ms; 0, or -1 when it was not taken. Never blocks longer, never raises SIGPIPE. */
int hf_tell(const char *path, const char *line, long deadline_ms);

/* Send one line and read the first line that comes back, without its newline; 0, or -1: no listener, too late, or too long. */
int hf_ask(const char *path, const char *line, char *answer, size_t size, long deadline_ms);

/* Append text as the inside of a JSON string; -1: it does not fit, or holds control characters. */
int hf_json_escape(char *out, size_t size, const char *text);

/* The string value of a key in one line of JSON; -1: absent, null, not a string, too long, or with escapes other than \" \\ \/. */
int hf_json_string(const char *line, const char *key, char *out, size_t size);

#endif
