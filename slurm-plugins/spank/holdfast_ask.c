/* holdfast-ask: ask the node's agent whether jobs are to be kept off this node. For prolog and epilog. SPDX-License-Identifier: GPL-2.0-or-later
 *
 *   holdfast-ask standing [SOCKET]
 *
 * Exit status 1 and the findings on standard output: the agent says that a fatal finding is open, and that the controller, in act, drains
 * this node. 0: everything else, which is no finding, one for which nothing is done (it is on standard output), no agent, an agent of
 * another version, or no answer within a second. 2: wrong use. */
#include "agent.h"

#include <stdio.h>
#include <string.h>

int main(int argc, char **argv)
{
	const char *path = argc > 2 && *argv[2] ? argv[2] : HF_SOCKET;
	char answer[HF_LINE_MAX], kind[32], mode[32], found[HF_LINE_MAX];

	if (argc < 2 || argc > 3 || strcmp(argv[1], "standing")) {
		fprintf(stderr, "usage: holdfast-ask standing [SOCKET]\n");
		return 2;
	}
	if (hf_ask(path, "{\"v\":1,\"kind\":\"ask.standing\"}\n", answer, sizeof(answer), hf_now_ms() + HF_WITHIN_MS))
		return 0;
	if (hf_json_string(answer, "kind", kind, sizeof(kind)) || strcmp(kind, "standing"))
		return 0;
	if (hf_json_string(answer, "mode", mode, sizeof(mode)))
		return 0;
	if (!strcmp(mode, "act") && !hf_json_string(answer, "fatal", found, sizeof(found)) && *found) {
		puts(found);
		return 1;
	}
	if (!strcmp(mode, "observe") && !hf_json_string(answer, "observed", found, sizeof(found)) && *found)
		puts(found);
	return 0;
}
