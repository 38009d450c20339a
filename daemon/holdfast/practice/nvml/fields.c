/* Field values: many readings with one call. */
#include "core.h"

#include <stdio.h>
#include <time.h>

enum { VALUE_UINT = 1, VALUE_ULL = 3 };

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

/* Fields of one NVLink, whose number is the scope; false: not one of them. */
static bool link_field(const struct gpu *gpu, struct field_value *into, unsigned long long *value) {
    const struct link *link = into->scope_id < gpu->nvlinks ? &gpu->links[into->scope_id] : NULL;
    switch (into->field_id) {
    case 161: *value = link ? link->replays : 0; break;
    case 162: *value = link ? link->recoveries : 0; break;
    case 163: *value = link ? link->crc : 0; break;
    case 214: *value = link ? link->failed : 0; break;
    default: return false;
    }
    if (!link)
        into->code = gpu->nvlinks ? INVALID_ARGUMENT : NOT_SUPPORTED;
    return true;
}

static void field(const struct gpu *gpu, struct field_value *into) {
    int type = VALUE_UINT;
    unsigned long long value = 0;
    into->code = SUCCESS;
    if (link_field(gpu, into, &value))
        type = VALUE_ULL;
    else switch (into->field_id) {
    case 1: value = gpu->ecc_mode; break;
    case 2: value = gpu->ecc_pending; break;
    case 3: type = VALUE_ULL, value = gpu->ecc_corrected_volatile; break;
    case 4: type = VALUE_ULL, value = gpu->ecc_uncorrected_volatile; break;
    case 5: type = VALUE_ULL, value = gpu->ecc_corrected_aggregate; break;
    case 6: type = VALUE_ULL, value = gpu->ecc_uncorrected_aggregate; break;
    case 29: into->code = gpu->row_remap ? NOT_SUPPORTED : SUCCESS, value = gpu->retired_single; break;
    case 30: into->code = gpu->row_remap ? NOT_SUPPORTED : SUCCESS, value = gpu->retired_pages; break;
    case 31: into->code = gpu->row_remap ? NOT_SUPPORTED : SUCCESS, value = gpu->retired_pending; break;
    case 82: value = gpu->temperature_c; break;
    case 94: value = gpu->pcie_replays; break;
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
    Return code = planted(call, (int)(gpu - state.gpus));
    if (code != SUCCESS)
        into->code = code;
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
