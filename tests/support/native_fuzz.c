/* Runs native.c over inputs. Each function gets memory of exactly the size that its arguments name, so
 * that AddressSanitizer finds any access outside of it. With libFuzzer, or with -DFILES over files.
 *
 * The first bytes of an input choose the first offset wanted, aborted transactions, and whether
 * checksums are repaired; the rest is the chunk.
 */
#include <stdio.h>
#include <stdlib.h>

#include "native.c"

static void check(int holds, const char *what) {
    if (holds) return;
    fprintf(stderr, "native_fuzz: %s\n", what);
    abort();
}

static void *exactly(const void *from, size_t bytes) {
    void *copy = malloc(bytes ? bytes : 1);
    if (from && bytes) memcpy(copy, from, bytes);
    return copy;
}

static void run_stamp(const uint8_t *in, int64_t size, const int64_t *rows, int64_t first,
                      int64_t count) {
    uint8_t *headers = exactly(0, (size_t)(count * HEADER));
    int64_t after = headrace_stamp_1(in, size, rows + first * COLUMNS, count, 77, 3, 1,
                                     MAX_SEQUENCE - 2, headers);
    check(after >= 0 && after <= MAX_SEQUENCE, "a sequence is out of range");
    for (int64_t n = 0; n < count; n++) { /* The adjusted checksum must fit the new batch. */
        const int64_t *row = rows + (first + n) * COLUMNS;
        uint8_t *batch = exactly(in + row[PLACE], (size_t)row[SIZE]);
        memcpy(batch, headers + n * HEADER, HEADER);
        check(crc32c(batch + ATTRIBUTES_AT, row[SIZE] - ATTRIBUTES_AT) ==
                  (uint32_t)read_number(batch + CRC_AT, 4),
              "a stamped batch does not fit its checksum");
        free(batch);
    }
    free(headers);
}

static void run_join(const uint8_t *in, int64_t size, int64_t start) {
    int64_t taken[2], room = HEADER + size + 64;
    uint8_t *out = exactly(0, (size_t)room);
    int64_t made = headrace_join_2(in, size, start, 64 << 10, 240 << 10, out, room, taken);
    check(made >= 0 && made <= room, "a joined batch is too large");
    check(!made || (taken[0] > 1 && taken[1] <= size), "a joined batch takes too much");
    free(out);
}

/* Give each batch its right checksum. Changed records would otherwise end at the checksum. */
static void repair(uint8_t *in, int64_t size) {
    for (int64_t at = 0; size - at >= HEADER;) {
        int64_t whole = 12 + (int64_t)read_number(in + at + 8, 4);
        if (whole < HEADER || whole > size - at) return;
        write_number(in + at + CRC_AT, 4, crc32c(in + at + ATTRIBUTES_AT, whole - ATTRIBUTES_AT));
        at += whole;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    if (bytes < 4) return 0;
    int64_t start = data[0], count = data[1] & 3, most = (int64_t)bytes / 26 + 1;
    if (data[2] & 1) most = 1 + (data[2] >> 6);
    size_t head = 4 + (size_t)count * 2;
    if (bytes < head) return 0;
    int64_t pairs[6];
    for (int64_t n = 0; n < count; n++) {
        pairs[2 * n] = data[4 + 2 * n];
        pairs[2 * n + 1] = (n ? pairs[2 * n - 1] : 0) + data[5 + 2 * n];
    }
    int64_t size = (int64_t)(bytes - head), found[3];
    uint8_t *in = exactly(data + head, (size_t)size);
    if (data[3] & 1) repair(in, size);
    int64_t *aborted = exactly(pairs, (size_t)count * 2 * 8);
    int64_t *producers = exactly(0, (size_t)count * 8);
    int64_t *rows = exactly(0, (size_t)(most * COLUMNS) * 8);
    int64_t *runs = exactly(0, (size_t)(most * RUN_COLUMNS) * 8);
    int64_t stop = headrace_scan_1(in, size, start, aborted, producers, count, rows, runs, most,
                                   found);
    check(stop >= END && stop <= FULL, "a stop is unknown");
    check(found[0] <= most && found[1] <= found[0] && found[2] <= size, "too much is described");
    check(stop != END || found[2] == size, "a scan ended early");
    int64_t described = 0, place = 0;
    for (int64_t n = 0; n < found[0]; n++) {
        check(rows[n * COLUMNS + PLACE] == place, "rows have a gap");
        place += rows[n * COLUMNS + SIZE];
    }
    check(place == found[2], "rows are not what was consumed");
    for (int64_t n = 0; n < found[1]; n++) {
        const int64_t *run = runs + n * RUN_COLUMNS;
        check(run[RUN_FIRST] == described, "runs have a gap");
        described += run[RUN_ROWS];
        if (run[RUN_VERDICT] <= PLAIN) run_stamp(in, size, rows, run[RUN_FIRST], run[RUN_ROWS]);
    }
    check(described == found[0], "runs are not all rows");
    run_join(in, size, start);
    free(in), free(aborted), free(producers), free(rows), free(runs);
    return 0;
}

#ifdef FILES
int main(int count, char **names) {
    for (int n = 1; n < count; n++) {
        FILE *file = fopen(names[n], "rb");
        check(file != 0, "a file cannot be opened");
        static uint8_t data[1 << 22];
        size_t bytes = fread(data, 1, sizeof data, file);
        fclose(file);
        LLVMFuzzerTestOneInput(data, bytes);
    }
    printf("%d inputs\n", count - 1);
    return 0;
}
#endif
