/* What connects a device: NVLink, the fabric, PCIe. */
#include "core.h"

#include <string.h>

/* A part without any NVLink says not supported, one with some says invalid argument beyond the last. */
#define NO_LINK (gpu->nvlinks ? INVALID_ARGUMENT : NOT_SUPPORTED)

DEVICE_CALL(nvmlDeviceGetNvLinkState, (Device device, unsigned link, int *active),
            link >= gpu->nvlinks ? NO_LINK : SET(active, !((gpu->nvlink_down >> link) & 1)))

static unsigned long long link_errors(const struct link *link, unsigned counter) {
    const unsigned counters[] = {link->replays, link->recoveries, link->crc, 0};
    return counters[counter];
}
DEVICE_CALL(nvmlDeviceGetNvLinkErrorCounter,
            (Device device, unsigned link, unsigned counter, unsigned long long *count),
            link >= gpu->nvlinks ? NO_LINK
            : counter > 3        ? INVALID_ARGUMENT
                                 : SET(count, link_errors(&gpu->links[link], counter)))

struct fabric_v1 {
    unsigned char cluster[16];
    Return status;
    unsigned clique, state;
};

struct fabric_v2 {
    unsigned version;
    unsigned char cluster[16];
    Return status;
    unsigned clique, state, health;
};

DEVICE_CALL(nvmlDeviceGetGpuFabricInfo, (Device device, struct fabric_v1 *into),
            SET(into, ((struct fabric_v1){{0}, (Return)gpu->fabric_status, 0, gpu->fabric_state})))

static Return fill_fabric(const struct gpu *gpu, struct fabric_v2 *into) {
    if (!into)
        return INVALID_ARGUMENT;
    if (into->version != VERSION_OF(struct fabric_v2, 2))
        return ARGUMENT_VERSION_MISMATCH;
    memset(into->cluster, 0, sizeof into->cluster);
    into->status = (Return)gpu->fabric_status;
    into->clique = 0;
    into->state = gpu->fabric_state;
    into->health = gpu->fabric_health;
    return SUCCESS;
}
DEVICE_CALL(nvmlDeviceGetGpuFabricInfoV, (Device device, struct fabric_v2 *into), fill_fabric(gpu, into))

DEVICE_CALL(nvmlDeviceGetCurrPcieLinkGeneration, (Device device, unsigned *value), SET(value, gpu->pcie_gen))
DEVICE_CALL(nvmlDeviceGetMaxPcieLinkGeneration, (Device device, unsigned *value), SET(value, gpu->pcie_gen_max))
DEVICE_CALL(nvmlDeviceGetCurrPcieLinkWidth, (Device device, unsigned *value), SET(value, gpu->pcie_width))
DEVICE_CALL(nvmlDeviceGetMaxPcieLinkWidth, (Device device, unsigned *value), SET(value, gpu->pcie_width_max))
DEVICE_CALL(nvmlDeviceGetPcieReplayCounter, (Device device, unsigned *value), SET(value, gpu->pcie_replays))
