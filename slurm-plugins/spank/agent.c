/* Talking to the agent of this node: one line out, at most one line back, always with a deadline.
 * SPDX-License-Identifier: GPL-2.0-or-later */
#define _GNU_SOURCE
#include "agent.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

long hf_now_ms(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000L + now.tv_nsec / 1000000L;
}

/* A connection, or -1. A listener whose queue is full answers EAGAIN at once: an agent that is that far behind is none. */
static int dial(const char *path)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	int fd;

	if (strlen(path) >= sizeof(address.sun_path))
		return -1;
	strcpy(address.sun_path, path);
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return -1;
	if (connect(fd, (struct sockaddr *) &address, sizeof(address)) == 0)
		return fd;
	close(fd);
	return -1;
}

/* Wait for events until the deadline; 0: they are there. */
static int ready(int fd, short events, long deadline_ms)
{
	for (;;) {
		struct pollfd waiting = { .fd = fd, .events = events };
		long left_ms = deadline_ms - hf_now_ms();
		int count;

		if (left_ms <= 0)
			return -1;
		count = poll(&waiting, 1, (int) left_ms);
		if (count > 0)
			return 0;
		if (count == 0 || errno != EINTR)
			return -1;
	}
}

static int send_all(int fd, const char *line, long deadline_ms)
{
	size_t left = strlen(line);

	while (left > 0) {
		ssize_t sent = send(fd, line, left, MSG_NOSIGNAL);
		if (sent > 0) {
			line += sent;
			left -= (size_t) sent;
		} else if (sent < 0 && errno == EINTR) {
			continue;
		} else if (sent == 0 || errno != EAGAIN || ready(fd, POLLOUT, deadline_ms)) {
			return -1;
		}
	}
	return 0;
}

static int read_line(int fd, char *answer, size_t size, long deadline_ms)
{
	size_t used = 0;

	while (used < size) {
		ssize_t got;
		char *end;

		if (ready(fd, POLLIN, deadline_ms))
			return -1;
		got = recv(fd, answer + used, size - used, 0);
		if (got < 0 && (errno == EINTR || errno == EAGAIN))
			continue;
		if (got <= 0)
			return -1;
		end = memchr(answer + used, '\n', (size_t) got);
		used += (size_t) got;
		if (end) {
			*end = '\0';
			return 0;
		}
	}
	return -1;
}

int hf_tell(const char *path, const char *line, long deadline_ms)
{
	int fd = dial(path), rc;

	if (fd < 0)
		return -1;
	rc = send_all(fd, line, deadline_ms);
	close(fd);
	return rc;
}

int hf_ask(const char *path, const char *line, char *answer, size_t size, long deadline_ms)
{
	int fd = dial(path), rc;

	if (fd < 0)
		return -1;
	rc = send_all(fd, line, deadline_ms);
	if (!rc)
		rc = read_line(fd, answer, size, deadline_ms);
	close(fd);
	return rc;
}

int hf_json_escape(char *out, size_t size, const char *text)
{
	size_t used = 0;

	for (; *text; text++) {
		unsigned char letter = (unsigned char) *text;
		if (letter < 0x20 || letter == 0x7f || used + 3 > size)
			return -1;
		if (letter == '"' || letter == '\\')
			out[used++] = '\\';
		out[used++] = (char) letter;
	}
	if (used >= size)
		return -1;
	out[used] = '\0';
	return 0;
}

/* Where the value of a key begins; NULL: no such key. Reads keys only, so that no text inside a value can pass for one. */
static const char *value_of(const char *line, const char *key)
{
	while (*line) {
		const char *start, *end;

		if (*line++ != '"')
			continue;
		for (start = line; *line && *line != '"';)
			line += (*line == '\\' && line[1]) ? 2 : 1;
		if (!*line)
			return NULL;
		end = line++;
		line += strspn(line, " ");
		if (*line != ':')
			continue; /* it was a value */
		line++;
		line += strspn(line, " ");
		if ((size_t) (end - start) == strlen(key) && !strncmp(start, key, strlen(key)))
			return line;
	}
	return NULL;
}

int hf_json_string(const char *line, const char *key, char *out, size_t size)
{
	const char *value = value_of(line, key);
	size_t used = 0;

	if (!value || *value++ != '"')
		return -1;
	for (; *value != '"'; value++) {
		if (*value == '\\') {
			value++;
			if (*value != '"' && *value != '\\' && *value != '/')
				return -1;
		}
		if ((unsigned char) *value < 0x20 || used + 1 >= size)
			return -1; /* the end of the line is one of these */
		out[used++] = *value;
	}
	out[used] = '\0';
	return 0;
}
