/* What NVML reads from one device. */
#include "core.h"

#include <stdint.h>

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

struct margin_v1 {
    unsigned version;
    int margin_c;
};
DEVICE_CALL(nvmlDeviceGetMarginTemperature, (Device device, struct margin_v1 *into),
            !into                                          ? INVALID_ARGUMENT
            : into->version != VERSION_OF(struct margin_v1, 1) ? ARGUMENT_VERSION_MISMATCH
                                                           : SET(&into->margin_c,
                                                                 (int)gpu->slowdown_c - (int)gpu->temperature_c))

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
DEVICE_CALL(nvmlDeviceGetPowerManagementLimit, (Device device, unsigned *milliwatts),
            SET(milliwatts, gpu->power_limit_mw))
DEVICE_CALL(nvmlDeviceGetMigMode, (Device device, unsigned *current, unsigned *pending),
            current && pending ? (*current = gpu->mig, *pending = gpu->mig_pending, SUCCESS) : INVALID_ARGUMENT)

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
/* The same struct; drivers before R510 have only this name. */
DEVICE_CALL(nvmlDeviceGetComputeRunningProcesses_v2, (Device device, unsigned *count, struct process_info *into),
            fill_processes(gpu, count, into))
