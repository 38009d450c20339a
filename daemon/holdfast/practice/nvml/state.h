/* State of the emulated NVML: what the state file says, read again whenever the file changes. */
#ifndef HOLDFAST_EMULATED_NVML_STATE_H
#define HOLDFAST_EMULATED_NVML_STATE_H

#include <stdbool.h>

#define MAX_GPUS 64
#define MAX_EVENTS 512
#define MAX_FAILS 64
#define MAX_PROCESSES 32
#define MAX_LINKS 36
#define TEXT 96

struct process {
    unsigned pid;
    unsigned long long bytes;
};

struct link {
    unsigned replays, recoveries, crc, failed;
};

struct gpu {
    char uuid[TEXT], serial[TEXT], name[TEXT], pci[TEXT], vbios[TEXT];
    unsigned minor, temperature_c, slowdown_c, shutdown_c, power_mw, utilisation_percent;
    unsigned long long memory_total, memory_used, clock_event_reasons, nvlink_down;
    unsigned long long ecc_corrected_volatile, ecc_uncorrected_volatile;
    unsigned long long ecc_corrected_aggregate, ecc_uncorrected_aggregate;
    unsigned remap_corrected, remap_uncorrected, remap_pending, remap_failed;
    unsigned row_remap, banks_low, banks_none, retired_pages, retired_single, retired_pending;
    unsigned sram_threshold, sram_uncorrected, repair_channel, repair_tpc, unrepairable_memory;
    unsigned recovery_action, ecc_mode, ecc_pending, persistence, mig, mig_pending, nvlinks;
    unsigned fabric_state, fabric_status, fabric_health;
    unsigned pcie_gen, pcie_gen_max, pcie_width, pcie_width_max, pcie_replays;
    unsigned power_limit_mw;
    bool lost;
    struct link links[MAX_LINKS];
    int n_processes;
    struct process processes[MAX_PROCESSES];
};

struct event {
    unsigned long long seq, type, data;
    int gpu;
};

struct fail {
    char call[TEXT];
    int code;
};

struct state {
    char driver_version[TEXT], nvml_version[TEXT];
    unsigned cuda_version;
    bool hang;
    unsigned count; /* what nvmlDeviceGetCount says beyond the truth; 0: the truth */
    int n_gpus, n_events, n_fails;
    struct gpu gpus[MAX_GPUS];
    struct event events[MAX_EVENTS];
    struct fail fails[MAX_FAILS];
};

/* Parses the state file into `into`; unknown keys are passed over. False when it cannot be read, or has no [events],
 * its last section: an editor is writing it just now. */
bool state_parse(const char *path, struct state *into);

#endif
