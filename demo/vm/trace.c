// A plugin for QEMU's translator. Between marks (marks.h) it writes every instruction and access to memory, in the form of
// valgrind's lackey; or it simulates a first-level instruction cache of 32 KiB, 8 ways, lines of 64 bytes.
//
//     F ext4              what follows is on this file system
//     B stat              a call begins
//     I  ffffffff810a,3   an instruction and its length
//      L address,size     a load;  S: a store
//     E
//     G ext4 U K N        misses of user code and of the kernel's, and all lines that were fetched
//
// The functions are those of version 1 of the plugins' interface (QEMU 4.2 to 8.2).
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "marks.h"

typedef uint64_t plugin_id;
struct info;
struct tb;
struct insn;
enum { NO_REGS = 0, READ_WRITE = 3 };

void qemu_plugin_register_vcpu_tb_trans_cb(plugin_id, void (*)(plugin_id, struct tb *));
void qemu_plugin_register_vcpu_insn_exec_cb(struct insn *, void (*)(unsigned, void *), int, void *);
void qemu_plugin_register_vcpu_mem_cb(struct insn *, void (*)(unsigned, uint32_t, uint64_t, void *), int, int, void *);
void qemu_plugin_register_atexit_cb(plugin_id, void (*)(plugin_id, void *), void *);
void qemu_plugin_reset(plugin_id, void (*)(plugin_id));
size_t qemu_plugin_tb_n_insns(const struct tb *);
struct insn *qemu_plugin_tb_get_insn(const struct tb *, size_t);
const void *qemu_plugin_insn_data(const struct insn *);
size_t qemu_plugin_insn_size(const struct insn *);
uint64_t qemu_plugin_insn_vaddr(const struct insn *);
unsigned qemu_plugin_mem_size_shift(uint32_t);
bool qemu_plugin_mem_is_store(uint32_t);

int qemu_plugin_version = 1;

enum mode { NOTHING, TRACE, CACHE };
enum { SETS = 64, WAYS = 8 };

static FILE *out;
static plugin_id self;
static enum mode mode;
static bool on;
static const char *where = "?";
static uint64_t ways[SETS][WAYS], misses[2], fetched;

static const char *name_of(int id) {
    switch (id) {
#define NAME(number, text) \
    case number: return text;
        CALLS(NAME)
        FILE_SYSTEMS(NAME)
    }
    return "?";
}

// What a callback is told of an instruction; kept for as long as the translation may be, which is for ever.
struct place {
    uint64_t address;
    unsigned length;
};

// An instruction that repeats itself, as copies do, is one.
static void instruction(unsigned cpu, void *data) {
    static const struct place *last;
    const struct place *at = data;
    if (on && at != last) fprintf(out, "I  %llx,%u\n", (unsigned long long)at->address, at->length);
    last = at;
}

static void memory(unsigned cpu, uint32_t what, uint64_t address, void *data) {
    if (!on) return;
    fprintf(out, " %c %llx,%u\n", qemu_plugin_mem_is_store(what) ? 'S' : 'L', (unsigned long long)address,
            1u << qemu_plugin_mem_size_shift(what));
}

// Least recently used goes: the first of a set was used last.
static void fetch(unsigned cpu, void *data) {
    if (!on) return;
    const struct place *at = data;
    for (uint64_t line = at->address >> 6; line <= (at->address + at->length - 1) >> 6; line++) {
        uint64_t *set = ways[line % SETS];
        int found = 0;
        while (found < WAYS - 1 && set[found] != line) found++;
        if (set[found] != line) misses[line >> 57]++;
        memmove(set + 1, set, found * sizeof *set);
        set[0] = line;
        fetched++;
    }
}

static void translate(plugin_id id, struct tb *tb);
static void again(plugin_id id) { qemu_plugin_register_vcpu_tb_trans_cb(id, translate); }

static void mark(unsigned cpu, void *data) {
    int id = (int)(intptr_t)data;
    switch (id) {
    case ARM_TRACE:
    case ARM_CACHE:
    case DISARM:
        // Once traced, always: what is translated with callbacks of accesses may not be forgotten (QEMU 7.2 still calls them).
        if (mode == TRACE) break;
        mode = id == ARM_TRACE ? TRACE : id == ARM_CACHE ? CACHE : NOTHING;
        qemu_plugin_reset(self, again);
        break;
    case CACHE_BEGIN:
        memset(misses, 0, sizeof misses);
        fetched = 0;
        on = true;
        break;
    case END:
        if (on && mode == CACHE)
            fprintf(out, "G %s %llu %llu %llu\n", where, (unsigned long long)misses[0], (unsigned long long)misses[1],
                    (unsigned long long)fetched);
        else if (on)
            fputs("E\n", out);
        on = false;
        fflush(out);
        break;
    default:
        if (id >= 100) {
            where = name_of(id);
            fprintf(out, "F %s\n", where);
        } else {
            fprintf(out, "B %s\n", name_of(id));
            on = true;
        }
    }
}

static void translate(plugin_id id, struct tb *tb) {
    uint64_t last = 0;
    for (size_t i = 0; i < qemu_plugin_tb_n_insns(tb); i++) {
        struct insn *insn = qemu_plugin_tb_get_insn(tb, i);
        const uint8_t *bytes = qemu_plugin_insn_data(insn);
        size_t length = qemu_plugin_insn_size(insn);
        if (length == 8 && !memcmp(bytes, "\x0f\x1f\x84\x00", 4) && !memcmp(bytes + 5, "byp", 3)) {
            qemu_plugin_register_vcpu_insn_exec_cb(insn, mark, NO_REGS, (void *)(intptr_t)bytes[4]);
            continue;
        }
        if (mode == NOTHING) continue;
        uint64_t address = qemu_plugin_insn_vaddr(insn), end = (address + length - 1) >> 6;
        // A line that was fetched just now is there: only the first instruction in each is looked at.
        if (mode == CACHE && i > 0 && end == last) continue;
        last = end;
        struct place *at = malloc(sizeof *at);
        if (!at) abort();
        *at = (struct place){address, (unsigned)length};
        qemu_plugin_register_vcpu_insn_exec_cb(insn, mode == TRACE ? instruction : fetch, NO_REGS, at);
        if (mode == TRACE) qemu_plugin_register_vcpu_mem_cb(insn, memory, NO_REGS, READ_WRITE, NULL);
    }
}

static void ended(plugin_id id, void *data) { fclose(out); }

int qemu_plugin_install(plugin_id id, const struct info *about, int count, char **words) {
    for (int i = 0; i < count; i++)
        if (!strncmp(words[i], "out=", 4)) out = fopen(words[i] + 4, "w");
    if (!out) return 1;
    setvbuf(out, NULL, _IOFBF, 1 << 20);
    self = id;
    again(id);
    qemu_plugin_register_atexit_cb(id, ended, NULL);
    return 0;
}
