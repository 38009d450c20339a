/* What the parts of the emulated library share: error codes, the state under its lock, how a call begins and ends. */
#ifndef HOLDFAST_EMULATED_NVML_CORE_H
#define HOLDFAST_EMULATED_NVML_CORE_H

#include "state.h"

#include <stddef.h>

#define API __attribute__((visibility("default")))

enum {
    SUCCESS = 0,
    UNINITIALIZED = 1,
    INVALID_ARGUMENT = 2,
    NOT_SUPPORTED = 3,
    NOT_FOUND = 6,
    INSUFFICIENT_SIZE = 7,
    DRIVER_NOT_LOADED = 9,
    TIMEOUT = 10,
    GPU_IS_LOST = 15,
    ARGUMENT_VERSION_MISMATCH = 25,
};

typedef int Return;
typedef void *Device;

/* Valid between enter() and leave(). */
extern struct state state;
extern int initialised;
/* A handle is the address of a cell, so that it stays valid when the state is read again. */
extern char handles[MAX_GPUS];

const char *state_path(void);
void sleep_ms(long ms);

/* With the lock held: the failure planted for a call (for the GPU of that index alone, or for all), or SUCCESS. */
Return planted(const char *call, int index);
/* Takes the lock, waits while the state says hang, and looks up a planted failure of this call. */
Return enter(const char *call, bool needs_init);
/* The same for a call on one device. */
Return enter_device(const char *call, Device device, struct gpu **gpu);
Return leave(Return code);

int index_of(Device device);
Return put_text(char *into, unsigned length, const char *text);

struct address {
    unsigned domain, bus, device;
};
bool parse_address(const char *text, struct address *into);

/* A call that reads one thing of one device. */
#define DEVICE_CALL(name, params, body)                                                                                \
    API Return name params {                                                                                           \
        struct gpu *gpu = NULL;                                                                                        \
        Return code = enter_device(#name, device, &gpu);                                                               \
        if (code == SUCCESS)                                                                                           \
            code = body;                                                                                               \
        return leave(code);                                                                                            \
    }

/* A struct that says its own size and version, as NVML's newer calls have it. */
#define VERSION_OF(type, version) ((unsigned)(sizeof(type) | ((version) << 24)))

#define SET(pointer, value) ((pointer) ? (*(pointer) = (value), SUCCESS) : INVALID_ARGUMENT)

#endif
