/* The state under its lock, read again when the file's inode, size or time changes. */
#include "core.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

enum { HANG_STEP_MS = 20 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
struct state state;
static struct stat seen;
static bool have_state;
int initialised;
char handles[MAX_GPUS];

const char *state_path(void) { return getenv("HOLDFAST_PRACTICE_NVML_STATE"); }

/* With the lock held: read the file again if it changed. A file that is away for a moment leaves the last state. */
static bool refresh(void) {
    const char *path = state_path();
    struct stat now;
    if (!path || stat(path, &now) != 0)
        return have_state;
    if (have_state && now.st_ino == seen.st_ino && now.st_size == seen.st_size &&
        now.st_mtim.tv_sec == seen.st_mtim.tv_sec && now.st_mtim.tv_nsec == seen.st_mtim.tv_nsec)
        return true;
    static struct state fresh;
    if (!state_parse(path, &fresh))
        return have_state;
    state = fresh;
    seen = now;
    have_state = true;
    return true;
}

void sleep_ms(long ms) {
    struct timespec span = {ms / 1000, (ms % 1000) * 1000000L};
    nanosleep(&span, NULL);
}

/* Names in the state file may leave out a call's version: nvmlDeviceGetPciInfo stands for nvmlDeviceGetPciInfo_v3. */
static bool same_call(const char *wanted, const char *call, int index) {
    size_t length = strcspn(wanted, "@");
    if (wanted[length] == '@' && atoi(wanted + length + 1) != index)
        return false;
    return strncmp(wanted, call, length) == 0 && (call[length] == '\0' || strncmp(call + length, "_v", 2) == 0);
}

Return planted(const char *call, int index) {
    for (int i = 0; i < state.n_fails; i++)
        if (same_call(state.fails[i].call, call, index))
            return state.fails[i].code;
    return SUCCESS;
}

Return enter(const char *call, bool needs_init) {
    pthread_mutex_lock(&lock);
    bool known = refresh();
    while (known && state.hang) {
        pthread_mutex_unlock(&lock);
        sleep_ms(HANG_STEP_MS);
        pthread_mutex_lock(&lock);
        known = refresh();
    }
    if (!known)
        return DRIVER_NOT_LOADED;
    Return code = planted(call, -1);
    return code == SUCCESS && needs_init && !initialised ? UNINITIALIZED : code;
}

Return leave(Return code) {
    pthread_mutex_unlock(&lock);
    return code;
}

int index_of(Device device) {
    char *cell = device;
    if (cell < handles || cell >= handles + MAX_GPUS || cell - handles >= state.n_gpus)
        return -1;
    return (int)(cell - handles);
}

Return enter_device(const char *call, Device device, struct gpu **gpu) {
    Return code = enter(call, true);
    if (code != SUCCESS)
        return code;
    int index = index_of(device);
    if (index < 0)
        return INVALID_ARGUMENT;
    *gpu = &state.gpus[index];
    return (*gpu)->lost ? GPU_IS_LOST : planted(call, index);
}

Return put_text(char *into, unsigned length, const char *text) {
    if (!into)
        return INVALID_ARGUMENT;
    if (strlen(text) + 1 > length)
        return INSUFFICIENT_SIZE;
    strcpy(into, text);
    return SUCCESS;
}

bool parse_address(const char *text, struct address *into) {
    return text && (sscanf(text, "%x:%x:%x", &into->domain, &into->bus, &into->device) == 3 ||
                    (into->domain = 0, sscanf(text, "%x:%x", &into->bus, &into->device) == 2));
}
