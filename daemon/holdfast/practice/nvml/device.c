/* Emulated libnvidia-ml.so.1: the calls of NVML that health checks need, answered from a small state file.
 *
 * The ABI (names, versions of structs, numbers) is NVIDIA's public one, so that an unmodified binding loads it.
 * HOLDFAST_PRACTICE_NVML_STATE names the state file. Here: the library itself and how devices are found.
 */
#include "core.h"

#include <stdio.h>
#include <string.h>

/* ---- library ---- */

static Return init_as(const char *call) {
    Return code = enter(call, false);
    if (code == SUCCESS)
        initialised++;
    return leave(code);
}

API Return nvmlInit(void) { return init_as("nvmlInit"); }
API Return nvmlInit_v2(void) { return init_as("nvmlInit"); }
API Return nvmlInitWithFlags(unsigned flags) {
    (void)flags;
    return init_as("nvmlInit");
}

API Return nvmlShutdown(void) {
    Return code = enter("nvmlShutdown", true);
    if (code == SUCCESS)
        initialised--;
    return leave(code);
}

/* By return code, in NVML's own words. */
static const char *const error_texts[] = {
    [0] = "Success",
    [1] = "Uninitialized",
    [2] = "Invalid Argument",
    [3] = "Not Supported",
    [4] = "Insufficient Permissions",
    [6] = "Not Found",
    [7] = "Insufficient Size",
    [8] = "Insufficient External Power",
    [9] = "Driver Not Loaded",
    [10] = "Timeout",
    [11] = "Interrupt Request Issue",
    [12] = "NVML Shared Library Not Found",
    [13] = "Function Not Found",
    [14] = "Corrupted infoROM",
    [15] = "GPU is lost",
    [16] = "GPU requires restart",
    [17] = "Operating System Error",
    [18] = "RM has detected an NVML/RM version mismatch.",
    [25] = "Argument version mismatch",
};

API const char *nvmlErrorString(Return code) {
    if (code < 0 || code >= (int)(sizeof error_texts / sizeof *error_texts) || !error_texts[code])
        return "Unknown Error";
    return error_texts[code];
}

API Return nvmlSystemGetDriverVersion(char *version, unsigned length) {
    Return code = enter("nvmlSystemGetDriverVersion", true);
    return leave(code == SUCCESS ? put_text(version, length, state.driver_version) : code);
}

API Return nvmlSystemGetNVMLVersion(char *version, unsigned length) {
    Return code = enter("nvmlSystemGetNVMLVersion", false);
    return leave(code == SUCCESS ? put_text(version, length, state.nvml_version) : code);
}

API Return nvmlSystemGetCudaDriverVersion_v2(int *version) {
    Return code = enter("nvmlSystemGetCudaDriverVersion", false);
    return leave(code == SUCCESS ? SET(version, (int)state.cuda_version) : code);
}
API Return nvmlSystemGetCudaDriverVersion(int *version) { return nvmlSystemGetCudaDriverVersion_v2(version); }

/* ---- finding devices ---- */

API Return nvmlDeviceGetCount_v2(unsigned *count) {
    Return code = enter("nvmlDeviceGetCount", true);
    return leave(code == SUCCESS ? SET(count, state.count ? state.count : (unsigned)state.n_gpus) : code);
}

static Return handle_of(int index, Device *device) {
    if (index < 0 || index >= state.n_gpus)
        return NOT_FOUND;
    return state.gpus[index].lost ? GPU_IS_LOST : SET(device, (Device)&handles[index]);
}

API Return nvmlDeviceGetHandleByIndex_v2(unsigned index, Device *device) {
    Return code = enter("nvmlDeviceGetHandleByIndex", true);
    if (code == SUCCESS)
        code = planted("nvmlDeviceGetHandleByIndex", (int)index);
    if (code == SUCCESS)
        code = index >= (unsigned)state.n_gpus ? INVALID_ARGUMENT : handle_of((int)index, device);
    return leave(code);
}

API Return nvmlDeviceGetHandleByUUID(const char *uuid, Device *device) {
    Return code = enter("nvmlDeviceGetHandleByUUID", true);
    if (code == SUCCESS) {
        int index = 0;
        while (index < state.n_gpus && strcmp(state.gpus[index].uuid, uuid ? uuid : "") != 0)
            index++;
        code = handle_of(index, device);
    }
    return leave(code);
}

API Return nvmlDeviceGetHandleByPciBusId_v2(const char *bus_id, Device *device) {
    Return code = enter("nvmlDeviceGetHandleByPciBusId", true);
    struct address wanted, have;
    if (code == SUCCESS && !parse_address(bus_id, &wanted))
        code = INVALID_ARGUMENT;
    if (code == SUCCESS) {
        int index = 0;
        while (index < state.n_gpus && !(parse_address(state.gpus[index].pci, &have) && have.domain == wanted.domain &&
                                         have.bus == wanted.bus && have.device == wanted.device))
            index++;
        code = handle_of(index, device);
    }
    return leave(code);
}

/* ---- identity ---- */

DEVICE_CALL(nvmlDeviceGetIndex, (Device device, unsigned *index), SET(index, (unsigned)index_of(device)))
DEVICE_CALL(nvmlDeviceGetMinorNumber, (Device device, unsigned *minor), SET(minor, gpu->minor))
DEVICE_CALL(nvmlDeviceGetUUID, (Device device, char *into, unsigned length), put_text(into, length, gpu->uuid))
DEVICE_CALL(nvmlDeviceGetSerial, (Device device, char *into, unsigned length), put_text(into, length, gpu->serial))
DEVICE_CALL(nvmlDeviceGetName, (Device device, char *into, unsigned length), put_text(into, length, gpu->name))
DEVICE_CALL(nvmlDeviceGetVbiosVersion, (Device device, char *into, unsigned length),
            put_text(into, length, gpu->vbios))

struct pci_info {
    char bus_id_legacy[16];
    unsigned domain, bus, device, pci_device_id, pci_sub_system_id;
    char bus_id[32];
};

static Return fill_pci(const struct gpu *gpu, struct pci_info *info) {
    struct address at;
    if (!info || !parse_address(gpu->pci, &at))
        return INVALID_ARGUMENT;
    memset(info, 0, sizeof *info);
    info->domain = at.domain;
    info->bus = at.bus;
    info->device = at.device;
    info->pci_device_id = 0x233010de; /* H100 SXM5 */
    info->pci_sub_system_id = 0x16c110de;
    snprintf(info->bus_id_legacy, sizeof info->bus_id_legacy, "%04X:%02X:%02X.0", at.domain & 0xffff, at.bus & 0xff,
             at.device & 0xff);
    snprintf(info->bus_id, sizeof info->bus_id, "%08X:%02X:%02X.0", at.domain, at.bus, at.device);
    return SUCCESS;
}

DEVICE_CALL(nvmlDeviceGetPciInfo_v3, (Device device, struct pci_info *info), fill_pci(gpu, info))
