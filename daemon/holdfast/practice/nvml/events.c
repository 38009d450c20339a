/* Event sets. A wait blocks until the state file brings an event or the time is over; it never polls. */
#include "core.h"

#include <libgen.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/inotify.h>
#include <time.h>
#include <unistd.h>

enum { FALLBACK_STEP_MS = 20 };

/* ---- events ---- */

struct event_set {
    unsigned long long types[MAX_GPUS], delivered;
    int notify;
};

struct event_data {
    Device device;
    unsigned long long type, data;
    unsigned gpu_instance, compute_instance;
};

#define SUPPORTED_EVENTS 0x800bULL /* single and double bit ECC, critical Xid, recovery action changed */
DEVICE_CALL(nvmlDeviceGetSupportedEventTypes, (Device device, unsigned long long *types), SET(types, SUPPORTED_EVENTS))

static unsigned long long newest_event(void) {
    unsigned long long newest = 0;
    for (int i = 0; i < state.n_events; i++)
        if (state.events[i].seq > newest)
            newest = state.events[i].seq;
    return newest;
}

/* An inotify descriptor on the folder of the state file; -1 where that cannot be had. */
static int watch_folder(void) {
    char copy[4096];
    snprintf(copy, sizeof copy, "%s", state_path() ? state_path() : "");
    int fd = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
    if (fd >= 0 && inotify_add_watch(fd, dirname(copy), IN_MOVED_TO | IN_CLOSE_WRITE) < 0) {
        close(fd);
        return -1;
    }
    return fd;
}

API Return nvmlEventSetCreate(struct event_set **set) {
    Return code = enter("nvmlEventSetCreate", true);
    if (code == SUCCESS && set && (*set = calloc(1, sizeof **set))) {
        (*set)->notify = watch_folder();
        (*set)->delivered = newest_event();
    } else if (code == SUCCESS) {
        code = INVALID_ARGUMENT;
    }
    return leave(code);
}

API Return nvmlDeviceRegisterEvents(Device device, unsigned long long types, struct event_set *set) {
    struct gpu *gpu = NULL;
    Return code = enter_device("nvmlDeviceRegisterEvents", device, &gpu);
    if (code == SUCCESS && (!set || types & ~SUPPORTED_EVENTS))
        code = set ? NOT_SUPPORTED : INVALID_ARGUMENT;
    if (code == SUCCESS)
        set->types[index_of(device)] |= types;
    return leave(code);
}

API Return nvmlEventSetFree(struct event_set *set) {
    Return code = enter("nvmlEventSetFree", true);
    if (code == SUCCESS && set) {
        if (set->notify >= 0)
            close(set->notify);
        free(set);
    }
    return leave(code);
}

/* With the lock held: the oldest event that this set has not delivered, or TIMEOUT. */
static Return next_event(struct event_set *set, struct event_data *into) {
    const struct event *best = NULL;
    for (int i = 0; i < state.n_events; i++) {
        const struct event *event = &state.events[i];
        if (event->seq > set->delivered && event->gpu >= 0 && event->gpu < state.n_gpus &&
            set->types[event->gpu] & event->type && (!best || event->seq < best->seq))
            best = event;
    }
    if (best) {
        set->delivered = best->seq;
        *into = (struct event_data){&handles[best->gpu], best->type, best->data, UINT32_MAX, UINT32_MAX};
        return SUCCESS;
    }
    for (int i = 0; i < state.n_gpus; i++)
        if (set->types[i] && state.gpus[i].lost)
            return GPU_IS_LOST;
    return TIMEOUT;
}

static long long now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000LL + now.tv_nsec / 1000000;
}

static void wait_for_change(struct event_set *set, long long left_ms) {
    if (set->notify < 0) {
        sleep_ms((long)(left_ms < FALLBACK_STEP_MS ? left_ms : FALLBACK_STEP_MS));
        return;
    }
    struct pollfd change = {set->notify, POLLIN, 0};
    if (poll(&change, 1, left_ms > INT32_MAX ? INT32_MAX : (int)left_ms) > 0) {
        char discard[4096];
        while (read(set->notify, discard, sizeof discard) > 0)
            ;
    }
}

API Return nvmlEventSetWait_v2(struct event_set *set, struct event_data *into, unsigned timeout_ms) {
    if (!set || !into)
        return INVALID_ARGUMENT;
    long long until = now_ms() + timeout_ms;
    for (;;) {
        Return code = enter("nvmlEventSetWait", true);
        if (code == SUCCESS)
            code = next_event(set, into);
        leave(code);
        long long left = until - now_ms();
        if (code != TIMEOUT || left <= 0)
            return code;
        wait_for_change(set, left);
    }
}
API Return nvmlEventSetWait(struct event_set *set, struct event_data *into, unsigned timeout_ms) {
    return nvmlEventSetWait_v2(set, into, timeout_ms);
}
