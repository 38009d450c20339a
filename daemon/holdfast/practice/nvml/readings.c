/* What NVML reads from one device. */
#include "core.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

enum { VALUE_UINT = 1, VALUE_ULL = 3 };

/* ---- readings ---- */

struct temperature_v1 {
    unsigned version;
    int sensor, temperature_c;
};

DEVICE_CALL(nvmlDeviceGetTemperature, (Device device, int sensor, unsigned *temperature_c),
            sensor != 0 ? INVALID_ARGUMENT : SET(temperature_c, gpu->temperature_c))
DEVICE_CALL(nvmlDeviceGetTemperatureV, (Device device, struct temperature_v1 *into),
            !into || into->sensor != 0 ? INVALID_ARGUMENT : (into->temperature_c = (int)gpu->temperature_c, SUCCESS))
DEVICE_CALL(nvmlDeviceGetTemperatureThreshold, (Device device, int which, unsigned *threshold_c),
            which == 0   ? SET(threshold_c, gpu->shutdown_c)
            : which == 1 ? SET(threshold_c, gpu->slowdown_c)
                         : NOT_SUPPORTED)

#define ALL_CLOCK_REASONS 0x1ffULL
DEVICE_CALL(nvmlDeviceGetCurrentClocksEventReasons, (Device device, unsigned long long *reasons),
            SET(reasons, gpu->clock_event_reasons))
DEVICE_CALL(nvmlDeviceGetCurrentClocksThrottleReasons, (Device device, unsigned long long *reasons),
            SET(reasons, gpu->clock_event_reasons))
DEVICE_CALL(nvmlDeviceGetSupportedClocksEventReasons, (Device device, unsigned long long *reasons),
            SET(reasons, ALL_CLOCK_REASONS))
DEVICE_CALL(nvmlDeviceGetSupportedClocksThrottleReasons, (Device device, unsigned long long *reasons),
            SET(reasons, ALL_CLOCK_REASONS))

DEVICE_CALL(nvmlDeviceGetPersistenceMode, (Device device, int *mode), SET(mode, (int)gpu->persistence))
DEVICE_CALL(nvmlDeviceGetPowerUsage, (Device device, unsigned *milliwatts), SET(milliwatts, gpu->power_mw))

struct utilisation {
    unsigned gpu, memory;
};
DEVICE_CALL(nvmlDeviceGetUtilizationRates, (Device device, struct utilisation *into),
            SET(into, ((struct utilisation){gpu->utilisation_percent, 0})))

struct memory {
    unsigned long long total, free, used;
};
DEVICE_CALL(nvmlDeviceGetMemoryInfo, (Device device, struct memory *into),
            SET(into, ((struct memory){gpu->memory_total, gpu->memory_total - gpu->memory_used, gpu->memory_used})))

struct memory_v2 {
    unsigned version;
    unsigned long long total, reserved, free, used;
};
DEVICE_CALL(nvmlDeviceGetMemoryInfo_v2, (Device device, struct memory_v2 *into),
            SET(into, ((struct memory_v2){into->version, gpu->memory_total, 0, gpu->memory_total - gpu->memory_used,
                                          gpu->memory_used})))

struct process_info {
    unsigned pid;
    unsigned long long used_bytes;
    unsigned gpu_instance, compute_instance;
};

static Return fill_processes(const struct gpu *gpu, unsigned *count, struct process_info *into) {
    if (!count)
        return INVALID_ARGUMENT;
    unsigned room = *count;
    *count = (unsigned)gpu->n_processes;
    if (room < *count || (*count && !into))
        return INSUFFICIENT_SIZE;
    for (int i = 0; i < gpu->n_processes; i++)
        into[i] = (struct process_info){gpu->processes[i].pid, gpu->processes[i].bytes, UINT32_MAX, UINT32_MAX};
    return SUCCESS;
}
DEVICE_CALL(nvmlDeviceGetComputeRunningProcesses_v3, (Device device, unsigned *count, struct process_info *into),
            fill_processes(gpu, count, into))

DEVICE_CALL(nvmlDeviceGetNvLinkState, (Device device, unsigned link, int *active),
            link >= gpu->nvlinks ? INVALID_ARGUMENT : SET(active, !((gpu->nvlink_down >> link) & 1)))

/* ---- memory errors ---- */

static unsigned long long ecc(const struct gpu *gpu, int uncorrected, int aggregate) {
    if (aggregate)
        return uncorrected ? gpu->ecc_uncorrected_aggregate : gpu->ecc_corrected_aggregate;
    return uncorrected ? gpu->ecc_uncorrected_volatile : gpu->ecc_corrected_volatile;
}

static Return ecc_into(const struct gpu *gpu, int type, int counter, unsigned long long *count) {
    if (!gpu->ecc_mode)
        return NOT_SUPPORTED;
    return type > 1 || counter > 1 ? INVALID_ARGUMENT : SET(count, ecc(gpu, type, counter));
}

DEVICE_CALL(nvmlDeviceGetEccMode, (Device device, int *current, int *pending),
            current && pending ? (*current = *pending = (int)gpu->ecc_mode, SUCCESS) : INVALID_ARGUMENT)
DEVICE_CALL(nvmlDeviceGetTotalEccErrors, (Device device, int type, int counter, unsigned long long *count),
            ecc_into(gpu, type, counter, count))
/* All errors are put down to device memory (location 2). */
DEVICE_CALL(nvmlDeviceGetMemoryErrorCounter,
            (Device device, int type, int counter, int location, unsigned long long *count),
            location == 2 ? ecc_into(gpu, type, counter, count) : SET(count, 0ULL))

DEVICE_CALL(nvmlDeviceGetRemappedRows,
            (Device device, unsigned *corrected, unsigned *uncorrected, unsigned *pending, unsigned *failed),
            corrected && uncorrected && pending && failed
                ? (*corrected = gpu->remap_corrected, *uncorrected = gpu->remap_uncorrected,
                   *pending = gpu->remap_pending, *failed = gpu->remap_failed, SUCCESS)
                : INVALID_ARGUMENT)

#define BANKS 640U
struct histogram {
    unsigned max, high, partial, low, none;
};

/* A bank with one row remapped still has high availability; a failed remap means a bank without spare rows. */
static struct histogram histogram_of(const struct gpu *gpu) {
    unsigned used = gpu->remap_corrected + gpu->remap_uncorrected, none = gpu->remap_failed ? 1 : 0;
    unsigned high = used > BANKS - none ? BANKS - none : used;
    return (struct histogram){BANKS - none - high, high, 0, 0, none};
}
DEVICE_CALL(nvmlDeviceGetRowRemapperHistogram, (Device device, struct histogram *into), SET(into, histogram_of(gpu)))

static Return retired(const struct gpu *gpu, int cause, unsigned *count, unsigned long long *addresses) {
    if (!count || cause > 1)
        return INVALID_ARGUMENT;
    unsigned room = *count, have = cause == 1 ? gpu->retired_pages : 0;
    *count = have;
    if (room < have || (have && !addresses))
        return INSUFFICIENT_SIZE;
    for (unsigned i = 0; i < have; i++)
        addresses[i] = 0x100000ULL * (i + 1);
    return SUCCESS;
}
DEVICE_CALL(nvmlDeviceGetRetiredPages, (Device device, int cause, unsigned *count, unsigned long long *addresses),
            retired(gpu, cause, count, addresses))
DEVICE_CALL(nvmlDeviceGetRetiredPagesPendingStatus, (Device device, int *pending),
            SET(pending, gpu->retired_pending != 0))

/* ---- field values ---- */

struct field_value {
    unsigned field_id, scope_id;
    long long timestamp_us, latency_us;
    int value_type;
    Return code;
    union {
        unsigned u;
        unsigned long long ull;
    } value;
};

static void field(const struct gpu *gpu, struct field_value *into) {
    int type = VALUE_UINT;
    unsigned long long value = 0;
    into->code = SUCCESS;
    switch (into->field_id) {
    case 1: case 2: value = gpu->ecc_mode; break;
    case 3: type = VALUE_ULL, value = gpu->ecc_corrected_volatile; break;
    case 4: type = VALUE_ULL, value = gpu->ecc_uncorrected_volatile; break;
    case 5: type = VALUE_ULL, value = gpu->ecc_corrected_aggregate; break;
    case 6: type = VALUE_ULL, value = gpu->ecc_uncorrected_aggregate; break;
    case 82: value = gpu->temperature_c; break;
    case 142: value = gpu->remap_corrected; break;
    case 143: value = gpu->remap_uncorrected; break;
    case 144: value = gpu->remap_pending; break;
    case 145: value = gpu->remap_failed; break;
    case 226: value = gpu->recovery_action == 1; break;
    case 227: value = gpu->recovery_action == 4; break;
    case 230: value = gpu->recovery_action; break;
    default: into->code = NOT_SUPPORTED;
    }
    char call[TEXT];
    snprintf(call, sizeof call, "field%u", into->field_id);
    for (int i = 0; i < state.n_fails; i++)
        if (strcmp(state.fails[i].call, call) == 0)
            into->code = state.fails[i].code;
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    into->timestamp_us = now.tv_sec * 1000000LL + now.tv_nsec / 1000;
    into->latency_us = 0;
    into->value_type = type;
    into->value.ull = into->code == SUCCESS ? value : 0;
}

static Return fields(const struct gpu *gpu, int count, struct field_value *values) {
    if (count <= 0 || !values)
        return INVALID_ARGUMENT;
    for (int i = 0; i < count; i++)
        field(gpu, &values[i]);
    return SUCCESS;
}
DEVICE_CALL(nvmlDeviceGetFieldValues, (Device device, int count, struct field_value *values),
            fields(gpu, count, values))
