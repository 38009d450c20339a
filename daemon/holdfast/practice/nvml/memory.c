/* Errors of memory: counters, remapped rows, retired pages, repairs. */
#include "core.h"

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
            current && pending ? (*current = (int)gpu->ecc_mode, *pending = (int)gpu->ecc_pending, SUCCESS) : INVALID_ARGUMENT)
DEVICE_CALL(nvmlDeviceGetTotalEccErrors, (Device device, int type, int counter, unsigned long long *count),
            ecc_into(gpu, type, counter, count))
/* All errors are counted for device memory (location 2). */
DEVICE_CALL(nvmlDeviceGetMemoryErrorCounter,
            (Device device, int type, int counter, int location, unsigned long long *count),
            location == 2 ? ecc_into(gpu, type, counter, count) : SET(count, 0ULL))

DEVICE_CALL(nvmlDeviceGetRemappedRows,
            (Device device, unsigned *corrected, unsigned *uncorrected, unsigned *pending, unsigned *failed),
            !gpu->row_remap ? NOT_SUPPORTED
            : corrected && uncorrected && pending && failed
                ? (*corrected = gpu->remap_corrected, *uncorrected = gpu->remap_uncorrected,
                   *pending = gpu->remap_pending, *failed = gpu->remap_failed, SUCCESS)
                : INVALID_ARGUMENT)

#define BANKS 640U
struct histogram {
    unsigned max, high, partial, low, none;
};

/* A bank with one row remapped still has high availability; a failed remap means a bank without spare rows. */
static struct histogram histogram_of(const struct gpu *gpu) {
    unsigned used = gpu->remap_corrected + gpu->remap_uncorrected;
    unsigned low = gpu->banks_low, none = gpu->banks_none + (gpu->remap_failed ? 1 : 0);
    unsigned high = used > BANKS - none - low ? BANKS - none - low : used;
    return (struct histogram){BANKS - none - low - high, high, 0, low, none};
}
DEVICE_CALL(nvmlDeviceGetRowRemapperHistogram, (Device device, struct histogram *into),
            gpu->row_remap ? SET(into, histogram_of(gpu)) : NOT_SUPPORTED)

static Return retired(const struct gpu *gpu, int cause, unsigned *count, unsigned long long *addresses) {
    if (!count || cause > 1)
        return INVALID_ARGUMENT;
    unsigned room = *count, have = cause == 1 ? gpu->retired_pages : gpu->retired_single;
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

struct sram_v1 {
    unsigned version;
    unsigned long long aggregate_parity, aggregate_sec_ded, aggregate_corrected;
    unsigned long long volatile_parity, volatile_sec_ded, volatile_corrected;
    unsigned long long l2, sm, pcie, mcu, other;
    unsigned threshold_exceeded;
};

static Return fill_sram(const struct gpu *gpu, struct sram_v1 *into) {
    if (!into)
        return INVALID_ARGUMENT;
    if (into->version != VERSION_OF(struct sram_v1, 1))
        return ARGUMENT_VERSION_MISMATCH;
    *into = (struct sram_v1){.version = into->version,
                             .aggregate_parity = gpu->sram_uncorrected,
                             .sm = gpu->sram_uncorrected,
                             .threshold_exceeded = gpu->sram_threshold};
    return SUCCESS;
}
DEVICE_CALL(nvmlDeviceGetSramEccErrorStatus, (Device device, struct sram_v1 *into), fill_sram(gpu, into))

struct repair_v1 {
    unsigned version, channel_pending, tpc_pending;
};
DEVICE_CALL(nvmlDeviceGetRepairStatus, (Device device, struct repair_v1 *into),
            SET(into, ((struct repair_v1){into->version, gpu->repair_channel, gpu->repair_tpc})))

struct unrepairable_v1 {
    unsigned version, unrepairable;
};
DEVICE_CALL(nvmlDeviceGetUnrepairableMemoryFlag_v1, (Device device, struct unrepairable_v1 *into),
            SET(into, ((struct unrepairable_v1){into->version, gpu->unrepairable_memory})))
