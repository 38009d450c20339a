/* Parser of the state file: `[node]`, `[gpu N]` and `[events]` sections of `key = value` lines; # begins a comment line. */
#include "state.h"

#include <ctype.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum kind { TEXT_KIND, UNSIGNED_KIND, LONG_KIND, BOOL_KIND };

struct key {
    const char *name;
    enum kind kind;
    size_t offset;
};

#define GPU_KEY(field, kind) {#field, kind, offsetof(struct gpu, field)}
#define NODE_KEY(field, kind) {#field, kind, offsetof(struct state, field)}

static const struct key gpu_keys[] = {
    GPU_KEY(uuid, TEXT_KIND),
    GPU_KEY(serial, TEXT_KIND),
    GPU_KEY(name, TEXT_KIND),
    GPU_KEY(pci, TEXT_KIND),
    GPU_KEY(vbios, TEXT_KIND),
    GPU_KEY(minor, UNSIGNED_KIND),
    GPU_KEY(temperature_c, UNSIGNED_KIND),
    GPU_KEY(slowdown_c, UNSIGNED_KIND),
    GPU_KEY(shutdown_c, UNSIGNED_KIND),
    GPU_KEY(power_mw, UNSIGNED_KIND),
    GPU_KEY(utilisation_percent, UNSIGNED_KIND),
    GPU_KEY(memory_total, LONG_KIND),
    GPU_KEY(memory_used, LONG_KIND),
    GPU_KEY(clock_event_reasons, LONG_KIND),
    GPU_KEY(nvlink_down, LONG_KIND),
    GPU_KEY(ecc_corrected_volatile, LONG_KIND),
    GPU_KEY(ecc_uncorrected_volatile, LONG_KIND),
    GPU_KEY(ecc_corrected_aggregate, LONG_KIND),
    GPU_KEY(ecc_uncorrected_aggregate, LONG_KIND),
    GPU_KEY(remap_corrected, UNSIGNED_KIND),
    GPU_KEY(remap_uncorrected, UNSIGNED_KIND),
    GPU_KEY(remap_pending, UNSIGNED_KIND),
    GPU_KEY(remap_failed, UNSIGNED_KIND),
    GPU_KEY(retired_pages, UNSIGNED_KIND),
    GPU_KEY(retired_pending, UNSIGNED_KIND),
    GPU_KEY(recovery_action, UNSIGNED_KIND),
    GPU_KEY(ecc_mode, UNSIGNED_KIND),
    GPU_KEY(persistence, UNSIGNED_KIND),
    GPU_KEY(nvlinks, UNSIGNED_KIND),
    GPU_KEY(row_remap, UNSIGNED_KIND),
    GPU_KEY(banks_low, UNSIGNED_KIND),
    GPU_KEY(banks_none, UNSIGNED_KIND),
    GPU_KEY(retired_single, UNSIGNED_KIND),
    GPU_KEY(sram_threshold, UNSIGNED_KIND),
    GPU_KEY(sram_uncorrected, UNSIGNED_KIND),
    GPU_KEY(repair_channel, UNSIGNED_KIND),
    GPU_KEY(repair_tpc, UNSIGNED_KIND),
    GPU_KEY(unrepairable_memory, UNSIGNED_KIND),
    GPU_KEY(ecc_pending, UNSIGNED_KIND),
    GPU_KEY(mig, UNSIGNED_KIND),
    GPU_KEY(mig_pending, UNSIGNED_KIND),
    GPU_KEY(fabric_state, UNSIGNED_KIND),
    GPU_KEY(fabric_status, UNSIGNED_KIND),
    GPU_KEY(fabric_health, UNSIGNED_KIND),
    GPU_KEY(pcie_gen, UNSIGNED_KIND),
    GPU_KEY(pcie_gen_max, UNSIGNED_KIND),
    GPU_KEY(pcie_width, UNSIGNED_KIND),
    GPU_KEY(pcie_width_max, UNSIGNED_KIND),
    GPU_KEY(pcie_replays, UNSIGNED_KIND),
    GPU_KEY(power_limit_mw, UNSIGNED_KIND),
    GPU_KEY(lost, BOOL_KIND),
    {NULL, TEXT_KIND, 0},
};

static const struct key node_keys[] = {
    NODE_KEY(driver_version, TEXT_KIND),
    NODE_KEY(nvml_version, TEXT_KIND),
    NODE_KEY(cuda_version, UNSIGNED_KIND),
    NODE_KEY(hang, BOOL_KIND),
    NODE_KEY(count, UNSIGNED_KIND),
    {NULL, TEXT_KIND, 0},
};

static bool is_true(const char *value) {
    return strcmp(value, "1") == 0 || strcmp(value, "true") == 0 || strcmp(value, "yes") == 0;
}

static void set_key(const struct key *keys, void *base, const char *name, const char *value) {
    for (; keys->name; keys++) {
        if (strcmp(keys->name, name) != 0)
            continue;
        char *field = (char *)base + keys->offset;
        if (keys->kind == TEXT_KIND)
            snprintf(field, TEXT, "%s", value);
        else if (keys->kind == UNSIGNED_KIND)
            *(unsigned *)field = (unsigned)strtoul(value, NULL, 0);
        else if (keys->kind == LONG_KIND)
            *(unsigned long long *)field = strtoull(value, NULL, 0);
        else
            *(bool *)field = is_true(value);
        return;
    }
}

/* processes = PID:BYTES PID:BYTES … */
static void set_processes(struct gpu *gpu, const char *value) {
    const char *at = value;
    gpu->n_processes = 0;
    while (*at && gpu->n_processes < MAX_PROCESSES) {
        char *end;
        unsigned pid = (unsigned)strtoul(at, &end, 10);
        if (end == at)
            return;
        unsigned long long bytes = 0;
        if (*end == ':')
            bytes = strtoull(end + 1, &end, 10);
        gpu->processes[gpu->n_processes++] = (struct process){pid, bytes};
        for (at = end; isspace((unsigned char)*at) || *at == ','; at++)
            ;
    }
}

/* nvlink_COUNTER = LINK:N LINK:N … */
static void set_links(struct gpu *gpu, size_t offset, const char *value) {
    for (const char *at = value; *at;) {
        char *end;
        unsigned link = (unsigned)strtoul(at, &end, 10);
        if (end == at || *end != ':' || link >= MAX_LINKS)
            return;
        *(unsigned *)((char *)&gpu->links[link] + offset) = (unsigned)strtoul(end + 1, &end, 10);
        for (at = end; isspace((unsigned char)*at); at++)
            ;
    }
}

static void set_gpu(struct gpu *gpu, const char *name, const char *value) {
    if (strcmp(name, "processes") == 0)
        set_processes(gpu, value);
    else if (strcmp(name, "nvlink_replays") == 0)
        set_links(gpu, offsetof(struct link, replays), value);
    else if (strcmp(name, "nvlink_recoveries") == 0)
        set_links(gpu, offsetof(struct link, recoveries), value);
    else if (strcmp(name, "nvlink_crc") == 0)
        set_links(gpu, offsetof(struct link, crc), value);
    else if (strcmp(name, "nvlink_failed") == 0)
        set_links(gpu, offsetof(struct link, failed), value);
    else
        set_key(gpu_keys, gpu, name, value);
}

/* SEQ = GPU TYPE DATA (numbers, hexadecimal allowed) */
static void add_event(struct state *state, const char *seq, const char *value) {
    if (state->n_events == MAX_EVENTS)
        return;
    struct event event = {0};
    char *at;
    event.seq = strtoull(seq, NULL, 10);
    event.gpu = (int)strtol(value, &at, 10);
    event.type = strtoull(at, &at, 0);
    event.data = strtoull(at, NULL, 0);
    if (event.seq > 0)
        state->events[state->n_events++] = event;
}

/* fail.CALL = CODE in [node]: that call returns the code; fail.CALL@INDEX: for that GPU alone */
static void set_node(struct state *state, const char *name, const char *value) {
    if (strncmp(name, "fail.", 5) != 0) {
        set_key(node_keys, state, name, value);
    } else if (state->n_fails < MAX_FAILS) {
        struct fail *fail = &state->fails[state->n_fails++];
        snprintf(fail->call, TEXT, "%s", name + 5);
        fail->code = (int)strtol(value, NULL, 10);
    }
}

static char *trimmed(char *text) {
    while (isspace((unsigned char)*text))
        text++;
    char *end = text + strlen(text);
    while (end > text && isspace((unsigned char)end[-1]))
        *--end = '\0';
    return text;
}

bool state_parse(const char *path, struct state *into) {
    enum { NONE, NODE, GPU, EVENTS } section = NONE;
    char raw[1024];
    FILE *file = fopen(path, "re");
    if (!file)
        return false;
    memset(into, 0, sizeof *into);
    struct gpu *gpu = NULL;
    bool complete = false;
    while (fgets(raw, sizeof raw, file)) {
        char *line = trimmed(raw);
        if (*line == '\0' || *line == '#' || *line == ';')
            continue;
        if (*line == '[') {
            complete |= strncmp(line, "[events]", 8) == 0;
            section = strncmp(line, "[node]", 6) == 0     ? NODE
                      : strncmp(line, "[gpu ", 5) == 0    ? GPU
                      : strncmp(line, "[events]", 8) == 0 ? EVENTS
                                                          : NONE;
            if (section == GPU && into->n_gpus < MAX_GPUS)
                gpu = &into->gpus[into->n_gpus++];
            else if (section == GPU)
                section = NONE;
            continue;
        }
        char *equals = strchr(line, '=');
        if (!equals)
            continue;
        *equals = '\0';
        char *name = trimmed(line), *value = trimmed(equals + 1);
        if (section == NODE)
            set_node(into, name, value);
        else if (section == EVENTS)
            add_event(into, name, value);
        else if (section == GPU)
            set_gpu(gpu, name, value);
    }
    fclose(file);
    return complete;
}
