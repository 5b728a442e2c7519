/* A stand-in for NVIDIA's management library: machines that NVML_MACHINE names, by the signatures of
   nvml.h. "hgx": four devices, each with two links to every other one and two to a switch; "mig": the
   first of two is divided into two instances; "driverless", "mismatch", "crash", "hang": what they say. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct {
    char legacy[16];
    unsigned domain, bus, device, id, subsystem;
    char bus_id[32];
} pci_t;
typedef struct { unsigned long long total, free, used; } memory_t;
static struct card { int index, instance; } cards[4] = {{0, -1}, {1, -1}, {2, -1}, {3, -1}};
static struct card parts[2] = {{0, 0}, {0, 1}};
static const unsigned buses[4] = {0x1b, 0x43, 0x9c, 0xdf};

static int is(const char *name) {
    const char *machine = getenv("NVML_MACHINE");
    return !strcmp(machine ? machine : "hgx", name);
}
static int put(char *out, unsigned size, const char *text) {
    if (strlen(text) >= size) return 7;
    strcpy(out, text);
    return 0;
}
static void address(int index, pci_t *p) {
    memset(p, 0, sizeof *p);
    p->bus = buses[index];
    sprintf(p->bus_id, "00000000:%02X:00.0", p->bus);
}
int nvmlInit_v2(void) {
    if (is("crash")) abort();
    if (is("hang")) pause();
    return is("driverless") ? 9 : is("mismatch") ? 18 : 0;
}
const char *nvmlErrorString(int code) {
    return code == 9 ? "Driver Not Loaded" : code == 18 ? "RM has detected an NVML/RM version mismatch." : "other";
}
int nvmlDeviceGetCount_v2(unsigned *n) { *n = is("mig") ? 2 : 4; return 0; }
int nvmlSystemGetDriverVersion(char *out, unsigned n) { return put(out, n, "580.65.06"); }
int nvmlSystemGetCudaDriverVersion_v2(int *v) { *v = 13000; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned i, struct card **h) { *h = &cards[i]; return 0; }
int nvmlDeviceGetName(struct card *h, char *out, unsigned n) { return put(out, n, "NVIDIA H100 80GB HBM3"); }
int nvmlDeviceGetUUID(struct card *h, char *out, unsigned n) {
    char text[64];
    if (h->instance < 0) sprintf(text, "GPU-%d0000000-aaaa-bbbb-cccc-0123456789ab", h->index);
    else sprintf(text, "MIG-%d%d000000-aaaa-bbbb-cccc-0123456789ab", h->index, h->instance);
    return put(out, n, text);
}
int nvmlDeviceGetPciInfo_v3(struct card *h, pci_t *p) { address(h->index, p); return 0; }
int nvmlDeviceGetMemoryInfo(struct card *h, memory_t *m) {
    m->total = 80ull << 30; m->free = 79ull << 30; m->used = 1ull << 30;
    return 0;
}
int nvmlDeviceGetCudaComputeCapability(struct card *h, int *a, int *b) { *a = 9; *b = 0; return 0; }
int nvmlDeviceGetUtilizationRates(struct card *h, unsigned *rates) { rates[0] = 40 + h->index; rates[1] = 7; return 0; }
int nvmlDeviceGetTemperature(struct card *h, int sensor, unsigned *t) { *t = sensor ? 0 : 50 + h->index; return 0; }
int nvmlDeviceGetPowerUsage(struct card *h, unsigned *mw) { *mw = 300000 + h->index; return 0; }
int nvmlDeviceGetClockInfo(struct card *h, int clock, unsigned *mhz) { *mhz = clock == 1 ? 1900 : 0; return 0; }
int nvmlDeviceGetMinorNumber(struct card *h, unsigned *n) { *n = h->index; return 0; }
int nvmlDeviceGetMigMode(struct card *h, unsigned *now, unsigned *pending) {
    if (!is("mig")) return 3;
    *now = *pending = h->index == 0;
    return 0;
}
int nvmlDeviceGetMaxMigDeviceCount(struct card *h, unsigned *n) { *n = 7; return 0; }
int nvmlDeviceGetMigDeviceHandleByIndex(struct card *h, unsigned i, struct card **out) {
    if (i > 2 || i == 1) return 6;  /* instances need not lie side by side */
    *out = &parts[i / 2];
    return 0;
}
int nvmlDeviceGetTopologyCommonAncestor(struct card *a, struct card *b, unsigned *level) {
    *level = a->index / 2 == b->index / 2 ? 40 : 50;
    return 0;
}
int nvmlDeviceGetP2PStatus(struct card *a, struct card *b, int what, unsigned *status) {
    *status = is("mig") ? 2 : 0;
    return 0;
}
int nvmlDeviceGetNvLinkState(struct card *h, unsigned link, unsigned *up) {
    if (is("mig")) return 3;
    *up = link < 8;
    return 0;
}
int nvmlDeviceGetNvLinkRemotePciInfo_v2(struct card *h, unsigned link, pci_t *p) {
    int others[3], n = 0;
    for (int i = 0; i < 4; i++) if (i != h->index) others[n++] = i;
    if (link < 6) address(others[link / 2], p);
    else { memset(p, 0, sizeof *p); p->bus = 0xe0; }
    return 0;
}
