/* replay.c - runs a fuzz target over the files of a directory, without a fuzzer.
 *
 *     NAME_replay DIRECTORY
 *
 * Each file is one test (TAP). It is given to the target as it is, cut off after every byte, and
 * with every byte replaced by each of a few that mean something to parsers. Every input lies in
 * memory of exactly its size. A target that finds something aborts the program.
 */
#include "fuzz.h"

#include <dirent.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PATH_BYTES = 4096, FILE_BYTES_MAX = 2048 };

static const uint8_t replacements[] = { 0x00, '"', '\\', ',', '0', '-', ':', ' ', '}', 0x80, 0xED };

static int is_input(const struct dirent *entry)
{
    return entry->d_name[0] != '.';
}

/* The contents of a file, owned by the caller; NULL: it cannot be read, or is too large. */
static uint8_t *read_file(const char *directory, const char *name, size_t *size)
{
    char path[PATH_BYTES];
    uint8_t *data = NULL;
    FILE *file = NULL;

    const int rc = snprintf(path, sizeof path, "%s/%s", directory, name);
    if (rc < 0 || (size_t)rc >= sizeof path) {
        return NULL;
    }
    file = fopen(path, "rb");
    data = malloc(FILE_BYTES_MAX + 1);
    if (file != NULL && data != NULL) {
        *size = fread(data, 1, FILE_BYTES_MAX + 1, file);
        if (ferror(file) == 0 && *size <= FILE_BYTES_MAX) {
            (void)fclose(file);
            return data;
        }
    }
    if (file != NULL) {
        (void)fclose(file);
    }
    free(data);
    return NULL;
}

static void run(const uint8_t *data, size_t size)
{
    uint8_t *exact = malloc(size == 0 ? 1 : size);
    if (exact == NULL) {
        abort();
    }
    if (size > 0) {
        memcpy(exact, data, size);
    }
    (void)LLVMFuzzerTestOneInput(exact, size);
    free(exact);
}

static void run_with_changes(uint8_t *data, size_t size)
{
    for (size_t len = 0; len <= size; len++) {
        run(data, len);
    }
    for (size_t i = 0; i < size; i++) {
        const uint8_t original = data[i];
        for (size_t j = 0; j < sizeof replacements; j++) {
            data[i] = replacements[j];
            run(data, size);
        }
        data[i] = original;
    }
}

int main(int argc, char **argv)
{
    struct dirent **entries = NULL;
    bool failed = false;

    if (argc != 2) {
        (void)fprintf(stderr, "usage: %s DIRECTORY\n", argv[0]);
        return 2;
    }
    const int count = scandir(argv[1], &entries, is_input, alphasort);
    if (count < 0) {
        perror(argv[1]);
        return 1;
    }
    (void)printf("1..%d\n", count);
    for (int i = 0; i < count; i++) {
        size_t size = 0;
        uint8_t *data = read_file(argv[1], entries[i]->d_name, &size);
        (void)printf("# %s\n", entries[i]->d_name); /* so that an abort can be told where it was */
        (void)fflush(stdout);
        if (data != NULL) {
            run_with_changes(data, size);
        }
        (void)printf("%s %d - %s\n", data == NULL ? "not ok" : "ok", i + 1, entries[i]->d_name);
        failed = failed || data == NULL;
        free(data);
        free(entries[i]);
    }
    free(entries);
    return failed || count == 0 ? 1 : 0;
}
